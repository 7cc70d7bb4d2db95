"""Which names of a long list a principal may know, cached for as long as the rules are the same.

A cluster has thousands of topics, and whoever watches their list reads it again whenever one comes
or goes. Only names that are new are looked at then.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

# Of all lists together; a name takes a hundred bytes or so.
_MOST_NAMES: Final = 200_000


class VisibleNames:
    """Caches answers by principal and list; lives in the reactor's thread.

    `stamp` is equal as long as the answers about a principal stay as they are.
    """

    def __init__(self, stamp: Callable[[str], object]) -> None:
        self._stamp = stamp
        self._count = 0
        # The list that was asked for last at the end.
        self._known: OrderedDict[tuple[str, str], tuple[object, dict[str, bool]]] = OrderedDict()

    def select(
        self, principal: str, path: str, names: Mapping[str, bytes], may: Callable[[str], bool]
    ) -> list[bytes]:
        """Leave out what a principal may not know.

        `path` is whose children these are; `names` has what is given of each that `may` be known.
        """
        stamp, key = self._stamp(principal), (principal, path)
        found = self._known.pop(key, None)
        known: dict[str, bool] = {}
        if found is not None:
            self._count -= len(found[1])
            if found[0] == stamp and len(found[1]) <= 2 * len(names):  # else most of them are gone
                known = found[1]
        shown = []
        for name, given in names.items():
            answer = known.get(name)
            if answer is None:
                answer = known[name] = may(name)
            if answer:
                shown.append(given)
        self._known[key] = stamp, known
        self._count += len(known)
        while self._count > _MOST_NAMES and len(self._known) > 1:
            _, (_, forgotten) = self._known.popitem(last=False)
            self._count -= len(forgotten)
        return shown
