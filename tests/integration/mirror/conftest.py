"""Clusters and mirrors of a test's own."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from mirror_clusters import Clusters


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Clusters]:
    with ExitStack() as stack:
        yield Clusters(tmp_path / "a place", stack)
