"""For all tests of units."""

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest
from memory_files import MemoryFiles

from hermes.storage.descriptors import CachedFile, DescriptorCache


@pytest.fixture(autouse=True)
def left_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the files of logs that a test leaves open: one process runs thousands of tests."""
    opened: set[CachedFile] = set()
    install = DescriptorCache._install

    def noted(cache: DescriptorCache, file: CachedFile, descriptor: int) -> list[int]:
        if not isinstance(cache._files, MemoryFiles):
            opened.add(file)
        return install(cache, file, descriptor)

    monkeypatch.setattr(DescriptorCache, "_install", noted)
    yield
    for file in opened:
        for descriptor in (file.descriptor, file.beside):
            if descriptor >= 0:
                with suppress(OSError):
                    os.close(descriptor)
        file.descriptor = file.beside = -1
