"""The messages of Kafka's requests, of the package `kio` (extra `kafka`), loaded when needed."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Final


def import_messages(name: str, version: int) -> tuple[ModuleType, ModuleType]:
    """Import the modules of `kio` with a request, by its name in Kafka's schemas, and its response.

    Raises ImportError: there is no `kio`, or no such version.
    """
    # By name: `kio`'s own index of them is slow to load, too.
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).removeprefix("_")
    package = f"kio.schema.{snake}.v{version}"
    return import_module(f"{package}.request"), import_module(f"{package}.response")


class _Omission(threading.local):
    """A module finder that hides hypothesis from a thread while any of its blocks is open."""

    wanted = 0

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> None:
        if name == "hypothesis" and self.wanted:
            raise ModuleNotFoundError("left out", name=name)


_omission: Final = _Omission()


@contextmanager
def without_hypothesis() -> Iterator[None]:
    """Let `kio` find no hypothesis, in this thread.

    It would import that package wherever it is installed, for tests of its own: more than a second
    for an application's tests that have a broker beside them.
    """
    # The finder stays: were it removed, a search of another thread, which goes through the list by
    # number, would step over a finder, and not find a module that is there.
    if _omission not in sys.meta_path:
        sys.meta_path.insert(0, _omission)
    _omission.wanted += 1
    try:
        yield
    finally:
        _omission.wanted -= 1
