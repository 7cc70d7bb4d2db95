"""Which topics changed last: so that whoever missed some changes reads those topics, and not all.

    /hermes/kafka/recent_changes    persistent    {"version": 7, "names": ["a", "b"]}

`version` is that of `changes` (kafka_topics.py) as the last name was noted; each name before it is
of the version before. Brokers of earlier versions write `changes` only, and read in it the name of
the last change, which is why the list isn't there. So it may be behind: what `changes` says then
completes it, or there is a gap, and all topics have to be read.
"""

import json
from collections.abc import Set
from typing import Final, NamedTuple

from hermes.coordination.kafka_topics import fits_in_a_path

#: How many changes are listed, and how much they may take: every change of a topic writes them all.
MOST_CHANGES: Final = 200
MOST_BYTES: Final = 8192

#: By how much more where many topics change together: as where a broker is lost, which leads some
#: of each. Else who is a few of these behind would have to read all topics, again and again.
_TIMES_MORE: Final = 10
_MANY: Final = 10


class RecentChanges(NamedTuple):
    """The last changes, without a gap.

    `version`: of `changes` at the last one. `names`: the topics, the last one's at the end.
    """

    version: int
    names: tuple[str, ...]

    def since(self, version: int) -> Set[str] | None:
        """The topics that have changed since a version; None where that isn't known."""
        missed = self.version - version
        if not 0 < missed <= len(self.names):
            return None
        names = set(self.names[-missed:])
        return names if all(map(fits_in_a_path, names)) else None

    def followed_by(self, name: str) -> "RecentChanges":
        return RecentChanges(self.version + 1, (*self.names, name))


def changes_up_to(version: int, name: str, noted: RecentChanges | None = None) -> RecentChanges:
    """What is known of the changes up to the one that `changes` tells.

    `version`, `name`: what `changes` says. `noted`: what the list said at the same time, or later.
    """
    if version == 0:  # the node was made, and nothing has changed yet
        return RecentChanges(0, ())
    if noted is not None:
        if noted.version == version - 1:
            return noted.followed_by(name)
        later = noted.version - version
        names = noted.names[: max(0, len(noted.names) - later)]
        if later >= 0 and names[-1:] == (name,):
            return RecentChanges(version, names)
    return RecentChanges(version, (name,))


def format_changes(changes: RecentChanges, count: int = 1) -> bytes:
    """Write as many of the last changes as are to be listed; `count`: how many are new."""
    names: list[str] = []
    times = _TIMES_MORE if count >= _MANY else 1
    left = MOST_BYTES * times - len(_format(changes.version, []))
    for name in reversed(changes.names[-MOST_CHANGES * times :]):
        left -= len(json.dumps(name)) + 1
        if left < 0:
            break
        names.append(name)
    return _format(changes.version, names[::-1])


def _format(version: int, names: list[str]) -> bytes:
    return json.dumps({"version": version, "names": names}, separators=(",", ":")).encode()


def parse_changes(value: bytes) -> RecentChanges | None:
    """Read the list; None for anything else, which costs no more than a list that is behind."""
    try:
        read = json.loads(value)
        version, names = read["version"], tuple(read["names"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if type(version) is not int or not all(isinstance(each, str) for each in names):
        return None
    return RecentChanges(version, names)
