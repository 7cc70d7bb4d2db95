"""What loads rely on, of any store: functions that each take an empty one."""

import threading
from pathlib import Path

import pytest

from hermes.spark.stores import FileStore

__all__ = ["CHECKS"]

_ODD_NAMES = [
    "data/topic=a%3Ab%25 c/day=1/part-0.parquet",
    "data/é/ü.parquet",
    "data/a#b?c&d+e/1",
    "data/[1]{2}*/'~x^`|<>\"",
]


def check_a_name_is_given_once(store: FileStore) -> None:
    store.prepare("_hermes/plans")
    assert store.read("_hermes/plans/1.json") is None
    assert store.create("_hermes/plans/1.json", b"one")
    assert store.create("_hermes/plans/1.json", b"one"), "an answer that was lost is asked again"
    assert not store.create("_hermes/plans/1.json", b"two")
    assert store.read("_hermes/plans/1.json") == b"one"
    assert [each.name for each in store.walk()] == ["_hermes/plans/1.json"], "a trial was left"


def check_of_many_writers_exactly_one_wins(store: FileStore) -> None:
    store.prepare("records")
    for number in range(10):
        together, winners = threading.Barrier(4), []

        def create(
            content: bytes,
            name: str = f"records/{number}",
            together: threading.Barrier = together,
            winners: list[bytes] = winners,
        ) -> None:
            together.wait(60)
            if store.create(name, content):
                winners.append(content)

        threads = [threading.Thread(target=create, args=(b"%d" % n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert winners == [store.read(f"records/{number}")]


def check_what_there_is_is_listed(store: FileStore) -> None:
    assert (store.names(), store.names("none"), store.walk("none")) == ([], [], [])
    store.prepare("records/inner")
    for name in ("3", "1", "2"):
        store.create(f"records/{name}", name.encode() * 3)
    store.create("records/inner/x", b"")
    assert store.names() == ["records"]
    assert store.names("records") == ["1", "2", "3", "inner"]
    assert store.names("records", after="1") == ["2", "3", "inner"]
    found = store.walk("records")
    sizes = {"records/1": 3, "records/2": 3, "records/3": 3, "records/inner/x": 0}
    assert {each.name: each.size_bytes for each in found} == sizes
    assert list(sizes) == [each.name for each in found]
    assert all(each.modified_ms > 1_600_000_000_000 for each in found)


def check_names_may_hold_any_character(store: FileStore) -> None:
    for name in _ODD_NAMES:
        store.make_directory(str(Path(name).parent))
        assert store.create(name, name.encode())
    assert [each.name for each in store.walk()] == sorted(_ODD_NAMES)
    assert [store.read(name) for name in _ODD_NAMES] == [name.encode() for name in _ODD_NAMES]
    store.delete_tree("data/é")
    assert store.names("data") == sorted({Path(each).parts[1] for each in _ODD_NAMES} - {"é"})


def check_parts_of_files_can_be_read(store: FileStore) -> None:
    store.prepare("data")
    store.create("data/x", bytes(range(100)))
    for size in (None, 100):
        with store.open("data/x", size) as file:
            file.seek(-3, 2)
            assert (file.read(2), file.tell(), file.read()) == (b"ab", 99, b"c")
            file.seek(0)
            assert file.read() == bytes(range(100))
    with pytest.raises(FileNotFoundError):
        store.open("data/none")


def check_files_are_moved_and_removed(store: FileStore) -> None:
    store.prepare("from")
    store.create("from/x", b"one")
    store.move("from/x", "to/new/y")
    assert (store.read("from/x"), store.read("to/new/y")) == (None, b"one")
    with pytest.raises(FileNotFoundError):
        store.move("from/x", "to/new/z")
    store.delete("to/new/y")
    store.delete("to/new/y")
    store.delete_tree("to")
    store.delete_tree("to")
    assert store.walk() == []


def check_empty_directories_are_removed(store: FileStore) -> None:
    store.prepare("data")
    store.make_directory("data/topic/day/hour")
    store.make_directory("data/topic/other day")
    store.create("data/topic/other day/x", b"")
    for each in ("data/topic/day/hour", "data/topic/other day", "data/none/day"):
        store.delete_empty(each)
    assert store.names("data/topic") == ["other day"]
    store.delete("data/topic/other day/x")
    store.delete_empty("data/topic/other day")
    assert store.names("data") == []


def check_what_is_moved_arrives_whoever_removes_its_directory(store: FileStore) -> None:
    store.prepare("from", "to")
    is_over = threading.Event()

    def tidy() -> None:
        while not is_over.wait(0.0001):  # without it who moves gets no turn
            store.delete_empty("to/topic/day")

    other = threading.Thread(target=tidy)
    other.start()
    try:
        for number in range(20):
            store.create(f"from/{number}", b"content")
            store.move(f"from/{number}", f"to/topic/day/{number}")
            assert store.read(f"to/topic/day/{number}") == b"content"
            store.delete(f"to/topic/day/{number}")
    finally:
        is_over.set()
        other.join()


def check_flushing_what_is_gone_is_no_error(store: FileStore) -> None:
    store.prepare("records")
    store.create("records/x", b"")
    store.flush(["records/x", "records", "gone", ""])
    store.flush_tree("records")


CHECKS = (
    check_a_name_is_given_once,
    check_of_many_writers_exactly_one_wins,
    check_what_there_is_is_listed,
    check_names_may_hold_any_character,
    check_parts_of_files_can_be_read,
    check_files_are_moved_and_removed,
    check_empty_directories_are_removed,
    check_what_is_moved_arrives_whoever_removes_its_directory,
    check_flushing_what_is_gone_is_no_error,
)
