"""A broker's life on a data directory, and what must hold of it whatever the disk does.

One of its topics has 0.7's format, the other one Kafka's: what is said of a log holds of both.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka_logs import raw_batch
from log_accounts import Account
from storage_fakes import UnsyncedFiles
from storage_logs import NOW_MS, append, message, settings

from hermes.errors import StorageError
from hermes.storage import DataDirectory, FileLayer, Log, LogSettings

#: How many bytes each append has in a log of 0.7, and in one of Kafka's.
SIZE, BATCH_SIZE = 20, len(raw_batch(0, 1, b"message001"))
Step = Callable[["Life"], None]


class Life:
    """Two topics in a data directory: every call goes in the books, every refusal is our own."""

    def __init__(self, path: Path, files: FileLayer) -> None:
        self.directory = DataDirectory(path, settings_of, files)
        self.books = {"a-0": Account(SIZE), "b-0": Account(BATCH_SIZE, BATCH_SIZE)}
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
        for _ in range(2):
            for name in self.books:
                yield from [lambda name=name: self.append(name)] * 3
                yield lambda name=name: self.flush(name)
        for name in self.books:
            yield lambda name=name: self.delete_oldest(name, 1)
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
        text = f"message{self._next:03d}"
        log, account = self.log(name), self.books[name]
        data = message(text)
        if log.counts_messages:
            data = raw_batch(log.end_offset, 1, text.encode())
        assert len(data) == account.size
        offset = append(log, data, now_ms=self.now_ms)
        assert offset == account.end
        account.accepted += data

    def flush(self, name: str) -> None:
        log, account = self.log(name), self.books[name]
        assert log.flush() == account.end
        self.serve(name)

    def serve(self, name: str) -> None:
        """What is visible can be read, and is what was accepted."""
        log, account = self.log(name), self.books[name]
        account.flushed = max(account.flushed, log.high_watermark)
        content = account.read(log, log.earliest)
        assert account.between(log.earliest, log.high_watermark) == content

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
            dropped = account.between(log.end_offset, account.end)
            assert report.dropped_bytes == len(dropped)
            del account.accepted[len(account.accepted) - len(dropped) :]
            self.serve(name)

    def make_and_delete_a_topic(self) -> None:
        append(self.directory.create("c", 0), raw_batch(0, 1))
        self.directory.delete_topic("c")


def settings_of(topic: str) -> LogSettings:
    """Segments of a few appends; all but the topic `a` have Kafka's format."""
    if topic == "a":
        return settings(2 * SIZE)
    return settings(2 * BATCH_SIZE, format="kafka")


@pytest.fixture
def lives() -> type[Life]:
    return Life


@pytest.fixture
def check_books() -> Callable[[Path, dict[str, Account]], None]:
    """Opens a directory on a healthy disk, twice, and holds it against the books."""

    def check(path: Path, books: dict[str, Account]) -> None:
        damaged: dict[tuple[str, int], set[tuple[int, int]]] = {}
        for _ in range(2):
            directory = DataDirectory(path, settings_of, UnsyncedFiles())
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
