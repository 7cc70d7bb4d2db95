"""Shares the tests out among pytest-xdist's workers, file by file.

A file's tests stay together, as what its fixtures start is for all of them. What uses the Spark
session counts as one file: there is one per run. The files of `tests/spark` that don't use it start
programs of their own, and are done beside it.
"""

from pathlib import PurePosixPath

import pytest
from xdist.scheduler import LoadScopeScheduling

__all__ = ["FileByFile", "longest_first"]

_SPARK = PurePosixPath("tests/spark")
_WITHOUT_SESSION = ("test_cluster_recipe.py", "test_kills.py")
_UNIT = PurePosixPath("tests/unit")
_LONG_UNITS = PurePosixPath("tests/unit/spark/load")


class FileByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker the next file when it is nearly through with what it has."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        config.option.loadscopereorder = False  # the number of tests says little about the time
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = PurePosixPath(nodeid.partition("::")[0])
        in_session = _SPARK in file.parents and file.name not in _WITHOUT_SESSION
        return str(_SPARK if in_session else file)


def longest_first(items: list[pytest.Item]) -> None:
    """Put the short files last, or one worker ends long after the others; else keep the order."""

    def rank(item: pytest.Item) -> int:
        folders = PurePosixPath(item.nodeid.partition("::")[0]).parents
        if _SPARK in folders:
            return 0
        return 2 if _UNIT in folders and _LONG_UNITS not in folders else 1

    items.sort(key=rank)
