"""A life of topics of Kafka's format on a disk, to be ended at any call, and what must be left.

It makes a topic and sends to it as an idempotent producer, deletes records, compacts, makes and
deletes another topic, and stops.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from uuid import UUID

from kafka_logs import batches_in, check_indexes, read_batches, read_records, record
from storage_fakes import Crash, ForgetfulFiles, UnsyncedFiles
from storage_logs import NOW_MS, settings

from hermes.protocol.record_batches import BatchHeader, placed
from hermes.protocol.records import Record, encode_batch
from hermes.storage import DataDirectory, FileLayer, Log, LogSettings
from hermes.storage.compaction import CompactionReport, compaction

__all__ = [
    "MODES",
    "Books",
    "Life",
    "append_from",
    "check_log",
    "check_other",
    "ended",
    "hold_to_the_books",
    "settings_of",
    "total_calls",
]

PRODUCER = 7
#: What is left of what was never synced: nothing, any of it, or all (a process was killed).
MODES = ("all lost", "some lost", "killed")


@dataclass
class Books:
    """What a life was told, and what it may have been in the middle of.

    Attributes:
        appended: the messages of the topic `k`, by offset, in batches of one.
        flushed: up to where they were on disk.
        start: where the topic was to begin, answered; `asked_start` perhaps not.
        is_compacting: whether compaction had begun.
        topic_id: of `k`, once something was flushed.
        other: how far the topic `d` was: "", "flushed", "deleting" or "deleted".
        is_stopped: whether all was closed, in good order.
    """

    appended: list[Record] = field(default_factory=list)
    flushed: int = 0
    start: int = 0
    asked_start: int = 0
    is_compacting: bool = False
    topic_id: UUID | None = None
    other: str = ""
    is_stopped: bool = False


def settings_of(topic: str) -> LogSettings:
    return settings(230, format="kafka")  # two batches


class Life:
    """One broker's, on a new directory.

    Args:
        path: the directory.
        files: the file layer.

    Attributes:
        directory: it, to be opened.
        books: what it was told.
    """

    def __init__(self, path: Path, files: FileLayer) -> None:
        # Files are looked for by their names again and again.
        self.directory = DataDirectory(path, settings_of, files, max_open_segments=1)
        self.books = Books()

    def run(self) -> None:
        """Live to the end."""
        self.directory.open(NOW_MS)
        for step in self.steps():
            step()
        assert self.directory.close()
        self.books.is_stopped = True

    def steps(self) -> Iterator[Callable[[], None]]:
        """What is done between opening and closing."""
        yield from (*[self.append] * 3, self.flush, *[self.append] * 5, self.flush)
        yield self.delete_records
        yield from (*[self.append] * 3, self.flush)
        yield self.compact
        yield self.append
        yield from (self.make_another, self.delete_records_of_another, self.delete_another)
        yield self.flush

    @property
    def log(self) -> Log:
        """The log of `k`."""
        return self.directory.create("k", 0)

    def append(self) -> None:
        """Send a message."""
        log, number = self.log, len(self.books.appended)
        sent = record(b"value %03d" % number, key=b"key %d" % (number % 2), offset=number)
        self.books.appended.append(sent)
        append_from(log, sent, number)

    def flush(self) -> None:
        """Put `k` on disk."""
        log = self.log
        self.books.flushed = log.flush()
        self.books.topic_id = log.topic_id

    def delete_records(self) -> None:
        """Let `k` begin in the middle of a segment."""
        log = self.log
        self.books.asked_start = min(3, log.high_watermark)
        log.delete_records(self.books.asked_start)
        self.books.start = self.books.asked_start

    def compact(self) -> None:
        """Compact `k`."""
        log, self.books.is_compacting = self.log, True
        for _ in compaction(log, 0, NOW_MS, 0, CompactionReport()):
            pass

    def make_another(self) -> None:
        """Make the topic `d`, with three messages on disk."""
        log = self.directory.create("d", 0)
        for number in range(3):
            append_from(log, record(b"other", key=b"k"), number)
        log.flush()
        self.books.other = "flushed"

    def delete_records_of_another(self) -> None:
        """Let `d` begin later."""
        log = self.directory.create("d", 0)
        log.delete_records(min(2, log.high_watermark))

    def delete_another(self) -> None:
        """Delete `d`."""
        self.books.other = "deleting"
        self.directory.delete_topic("d")
        self.books.other = "deleted"


def append_from(log: Log, sent: Record, sequence: int) -> None:
    """Append a message as the broker does one of an idempotent producer."""
    batch = encode_batch(
        [sent._replace(offset=0)],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
    )
    ((header, _),) = batches_in(batch)
    parts, offset = placed(batch, [header], log.end_offset, log.leader_epoch), log.end_offset
    log.append(parts, len(batch), 1, NOW_MS)
    assert log.producers is not None
    log.producers.note([header], offset)


def total_calls(path: Path) -> int:
    """How many calls of the operating system a whole life makes; it ends well."""
    path.mkdir()
    files = ForgetfulFiles(str(path))
    life = Life(path, files)
    life.run()
    assert life.books.is_stopped
    assert files.opened == set()
    return len(files.calls)


def ended(path: Path, crash_at: int, mode: str, seed: int) -> tuple[Path, Books]:
    """Live up to a call.

    Args:
        path: for the files; made.
        crash_at: the number of the call that is not made.
        mode: of `MODES`.
        seed: decides what the mode leaves open.

    Returns:
        (what a broker would find afterwards, what the life was told).
    """
    (path / "logs").mkdir(parents=True)
    files = ForgetfulFiles(str(path / "logs"), crash_at)
    life = Life(path / "logs", files)
    try:
        life.run()
        raise AssertionError("it was not stopped")
    except Crash:
        pass
    files.close_all()
    if mode == "killed":
        return path / "logs", life.books
    files.disk(str(path / "disk"), None if mode == "all lost" else Random(seed))
    return path / "disk", life.books


def hold_to_the_books(path: Path, books: Books, *, was_refused: bool = False) -> None:
    """Open what is left on a healthy disk, go on with it, and open it once more.

    Args:
        path: the directory.
        books: what was told.
        was_refused: whether the disk has refused calls; indexes may lack entries then.

    Raises:
        AssertionError: something that was told does not hold.
    """
    directory = DataDirectory(path, settings_of, UnsyncedFiles())
    report = directory.open(NOW_MS)
    assert not report.offline
    assert not [each for each in report.strange if not each.endswith(".unflushed")], report.strange
    found = directory.get("k", 0)
    if found is None:
        assert not books.flushed
        found = directory.create("k", 0)
    assert books.topic_id in (None, found.topic_id)
    recovered = report.recovered.get(("k", 0))
    bad = [] if recovered is None else list(recovered.bad_ranges)
    kept = check_log(found, books, bad)
    check_other(directory, books)
    following = record(b"later", key=b"later", offset=found.end_offset)
    append_from(found, following, len(books.appended))
    found.flush()
    assert directory.close()
    directory = DataDirectory(path, settings_of, UnsyncedFiles())
    assert directory.open(NOW_MS).was_clean
    assert _intact_records(directory.logs["k", 0], bad) == [*kept, following]
    directory.close()
    if not bad:
        for each in (path / "k-0").glob("*.log"):
            check_indexes(each, may_lack=was_refused)


def check_log(log: Log, books: Books, bad: list[tuple[int, int]]) -> list[Record]:
    """Hold the messages of `k`, and what is known of their producer, against the books."""
    assert books.start <= log.earliest <= max(books.asked_start, books.start)
    assert books.flushed <= log.high_watermark <= len(books.appended)
    assert all(start >= books.flushed for start, _ in bad), bad
    kept, headers = _intact_records(log, bad), [header for header, _ in read_batches(log)]
    visible = books.appended[log.earliest : log.high_watermark]
    assert all(each == books.appended[each.offset] for each in kept)
    missing = {each.offset for each in visible} - {each.offset for each in kept}
    for offset in missing - {n for start, end in bad for n in range(start, end)}:
        assert books.is_compacting, f"{offset} is lost"
        key = books.appended[offset].key
        assert any(each.key == key and each.offset > offset for each in kept), f"{offset} is lost"
    assert log.producers is not None
    _check_producer(log, headers)
    return kept


def _intact_records(log: Log, bad: list[tuple[int, int]]) -> list[Record]:
    """The messages without those that a consumer's check of the CRC finds damaged."""
    records = read_records(log)
    return [each for each in records if not any(start <= each.offset < end for start, end in bad)]


def _check_producer(log: Log, headers: list[BatchHeader]) -> None:
    """As much is known of the producer as its last batch says, so that none is stored twice."""
    assert log.producers is not None
    if headers:
        state = log.producers.states[PRODUCER]
        assert state.last_sequence == headers[-1].last_sequence
        assert state.batches[-1].last_offset == headers[-1].last_offset


def check_other(directory: DataDirectory, books: Books) -> None:
    """A deleted topic stays away, and another one of its name begins at 0, whatever is left."""
    log = directory.get("d", 0)
    if books.other == "flushed":
        assert log is not None
        assert log.earliest in (0, 2)
        assert log.high_watermark == 3
    if books.other == "deleted":
        assert log is None
    if log is not None:
        directory.delete_topic("d")
    again = directory.create("d", 0)
    if again.is_offline:
        # A delete that failed has left something, and said so: it is there again.
        assert books.other == "deleting"
        directory.reopen(again, NOW_MS)
        directory.delete_topic("d")
        again = directory.create("d", 0)
    assert (again.earliest, again.end_offset) == (0, 0)
    append_from(again, record(b"new", key=b"k"), 0)
    again.flush()
    assert [each.value for each in read_records(again)] == [b"new"]
    directory.delete_topic("d")
