"""Loading of Kafka's schemas beside an application that imports what it likes."""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from hermes.protocol.kio_messages import without_hypothesis


class _InTheMiddle:
    """A finder that finds nothing; while it looks, a load of schemas ends in another thread."""

    def __init__(self, load: ExitStack) -> None:
        self._load = load

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> None:
        self._load.close()


def test_a_search_under_way_misses_no_finder_when_a_load_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_on_the_path.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    with ExitStack() as load:
        load.enter_context(without_hypothesis())
        at = sys.meta_path.index(importlib.machinery.PathFinder)  # type: ignore[arg-type]
        monkeypatch.setattr(
            sys, "meta_path", [*sys.meta_path[:at], _InTheMiddle(load), *sys.meta_path[at:]]
        )
        assert importlib.import_module("only_on_the_path").value == 7
    monkeypatch.delitem(sys.modules, "only_on_the_path")


def test_hypothesis_is_left_out_in_its_thread_and_only_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "hypothesis", raising=False)

    def is_found() -> bool:
        return importlib.util.find_spec("hypothesis") is not None

    with ThreadPoolExecutor(1) as other, without_hypothesis():
        with pytest.raises(ModuleNotFoundError), without_hypothesis():
            is_found()
        with pytest.raises(ModuleNotFoundError):
            is_found()
        assert other.submit(is_found).result()
    assert is_found()
