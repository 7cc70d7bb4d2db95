"""Shares the tests out among pytest-xdist's workers, file by file.

A file's tests stay together, as what its fixtures start is for all of them. `tests/spark` counts as
one file: there is one Spark session per run.
"""

from pathlib import PurePosixPath

import pytest
from xdist.scheduler import LoadScopeScheduling

__all__ = ["FileByFile", "longest_first"]

_SPARK = PurePosixPath("tests/spark")
_UNIT = PurePosixPath("tests/unit")


class FileByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker the next file when it is nearly through with what it has."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        config.option.loadscopereorder = False  # the number of tests says little about the time
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = PurePosixPath(nodeid.partition("::")[0])
        return str(_SPARK if _SPARK in file.parents else file)


def longest_first(items: list[pytest.Item]) -> None:
    """Put the short files last, or one worker ends long after the others; else keep the order."""

    def rank(item: pytest.Item) -> int:
        folders = PurePosixPath(item.nodeid.partition("::")[0]).parents
        return 0 if _SPARK in folders else 2 if _UNIT in folders else 1

    items.sort(key=rank)
