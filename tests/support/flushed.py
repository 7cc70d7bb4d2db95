"""A disk that keeps nothing but what this process has flushed."""

import os
import shutil
from pathlib import Path

import pytest


class Flushed:
    """Knows which files and names were flushed, and forgets the others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._paths: set[Path] = set()
        fsync = os.fsync

        def noted(descriptor: int) -> None:
            fsync(descriptor)
            self._paths.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

        monkeypatch.setattr(os, "fsync", noted)

    def lose_power(self, directory: Path) -> None:
        for folder, inner, names in os.walk(directory, topdown=False):
            for name in (*names, *inner):
                path = Path(folder, name)
                if {path, path.parent} <= self._paths or not path.exists():
                    continue
                shutil.rmtree(path) if path.is_dir() else path.unlink()
