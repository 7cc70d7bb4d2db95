"""A broker's life on a data directory, and what must hold of it whatever the disk does."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from storage_fakes import UnsyncedFiles
from storage_logs import NOW_MS, append, message, read_all, settings

from hermes.errors import StorageError
from hermes.storage import DataDirectory, FileLayer, Log


@dataclass
class Account:
    """What one log has told its users.

    Attributes:
        accepted: the bytes of appends that returned, by offset from 0 on; what is not known to be
            accepted is missing at the end.
        flushed: the largest high watermark that was reported.
        earliest: the largest earliest offset that was reported after a delete returned.
        maybe_earliest: the largest that a delete which failed may have reached.
    """

    accepted: bytearray = field(default_factory=bytearray)
    flushed: int = 0
    earliest: int = 0
    maybe_earliest: int = 0

    def check(self, log: Log, bad_ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Hold a log, opened again on a healthy disk, against what was told.

        `bad_ranges` are what recovery reported: blocks that never reached the disk, with later ones
        that did. Nothing that was flushed may be in them.
        """
        assert not log.is_offline, log.offline_reason
        assert log.earliest <= self.maybe_earliest
        assert log.high_watermark >= self.flushed
        start = max(log.earliest, self.earliest)
        content = read_all(log, start)
        assert log.high_watermark == start + len(content)
        expected = bytearray(self.accepted[start : start + len(content)])
        for bad, end in bad_ranges:
            assert bad >= self.flushed
            expected[bad - start : end - start] = content[bad - start : end - start]
        # No hole, nothing invented, nothing torn; more than was flushed may have survived.
        assert expected == content
        assert all(part in self.boundaries() for part in (log.earliest, log.high_watermark))

    def boundaries(self) -> set[int]:
        return {0, *range(SIZE, len(self.accepted) + SIZE, SIZE)}


#: Every message of these tests has this length in the log.
SIZE = 20
Step = Callable[["Life"], None]


class Life:
    """Two topics in a data directory: every call goes in the books, every refusal is our own."""

    def __init__(self, path: Path, files: FileLayer) -> None:
        self.directory = DataDirectory(path, lambda topic: settings(2 * SIZE), files)
        self.books: dict[str, Account] = {"a-0": Account(), "b-0": Account()}
        self.refusals: list[StorageError] = []
        self.now_ms = NOW_MS
        self._next = 0

    def run(self) -> None:
        """Open, append, flush, roll, delete, go offline and come back, delete a topic, close."""
        if self.attempt(lambda: self.directory.open(self.now_ms)):
            for step in self.steps():
                self.now_ms += 1
                self.attempt(step)
        self.directory.close()

    def attempt(self, step: Callable[[], object]) -> bool:
        """Do something that the disk may refuse; anything but our own errors escapes."""
        try:
            step()
        except StorageError as error:
            self.refusals.append(error)
            return False
        return True

    def steps(self) -> Iterator[Callable[[], object]]:
        for _ in range(4):
            for name in self.books:
                yield from [lambda name=name: self.append(name)] * 3
                yield lambda name=name: self.flush(name)
        for name in self.books:
            yield lambda name=name: self.delete_oldest(name, 2)
        for name in self.books:
            yield lambda name=name: self.append(name)
            yield lambda name=name: self.reopen(name)
            yield lambda name=name: self.append(name)
            yield lambda name=name: self.flush(name)
        yield lambda: self.delete_oldest("b-0", 1000)
        for name in self.books:
            yield from [lambda name=name: self.append(name)] * 2
            yield lambda name=name: self.flush(name)
        yield self.make_and_delete_a_topic

    def log(self, name: str) -> Log:
        return self.directory.create(name[0], 0)

    def append(self, name: str) -> None:
        self._next += 1
        data = message(f"message{self._next:03d}")
        assert len(data) == SIZE
        log, account = self.log(name), self.books[name]
        offset = append(log, data, now_ms=self.now_ms)
        assert offset == len(account.accepted)
        account.accepted += data

    def flush(self, name: str) -> None:
        log, account = self.log(name), self.books[name]
        assert log.flush() == len(account.accepted)
        self.serve(name)

    def serve(self, name: str) -> None:
        """What is visible can be read, and is what was accepted."""
        log, account = self.log(name), self.books[name]
        account.flushed = max(account.flushed, log.high_watermark)
        content = read_all(log)
        assert account.accepted[log.earliest : log.high_watermark] == content

    def delete_oldest(self, name: str, count: int) -> None:
        log, account = self.log(name), self.books[name]
        try:
            log.delete_oldest(count)
        finally:
            account.maybe_earliest = max(account.maybe_earliest, log.earliest, log.end_offset)
        account.earliest = log.earliest
        account.flushed = max(account.flushed, log.high_watermark)

    def reopen(self, name: str) -> None:
        log, account = self.log(name), self.books[name]
        if log.is_offline:
            report = log.reopen(self.now_ms)
            assert log.end_offset >= account.flushed
            assert report.dropped_bytes == len(account.accepted) - log.end_offset
            del account.accepted[log.end_offset :]
            self.serve(name)

    def make_and_delete_a_topic(self) -> None:
        append(self.directory.create("c", 0), message("gone"))
        self.directory.delete_topic("c")


@pytest.fixture
def lives() -> type[Life]:
    return Life


@pytest.fixture
def check_books() -> Callable[[Path, dict[str, Account]], None]:
    """Opens a directory on a healthy disk, twice, and holds it against the books."""

    def check(path: Path, books: dict[str, Account]) -> None:
        damaged: dict[tuple[str, int], set[tuple[int, int]]] = {}
        for _ in range(2):
            directory = DataDirectory(path, lambda topic: settings(2 * SIZE), UnsyncedFiles())
            report = directory.open(NOW_MS + 10**6)
            for key, found in report.recovered.items():
                damaged.setdefault(key, set()).update(found.bad_ranges)
            for name, account in books.items():
                log = directory.get(name[0], 0)
                if log is not None:
                    account.check(log, damaged.get((name[0], 0), ()))
                else:
                    assert account.flushed == 0
            directory.close(clean=False)

    return check
