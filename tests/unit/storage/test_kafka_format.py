"""Logs of Kafka's record batches: where they lie, what is read, what is beside them."""

import os
import shutil
import threading
from base64 import urlsafe_b64encode
from pathlib import Path
from uuid import UUID

import pytest
from kafka_logs import (
    TOPIC_ID,
    append_batch,
    append_values,
    check_indexes,
    open_kafka_log,
    raw_batch,
    read_batches,
    read_records,
    record,
    sent,
)
from storage_fakes import UnsyncedFiles, WatchedFiles
from storage_logs import NOW_MS, append, message, settings

from hermes.errors import DamagedMessagesError, OffsetOutOfRangeError, StorageError
from hermes.protocol.record_batches import decode_header, with_crc
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import encode_batch
from hermes.storage import DataDirectory, LogSlice
from hermes.storage.checkpoints import Checkpoints, read_topic_id
from hermes.storage.files import FEW_BYTES, FileLayer
from hermes.storage.formats import find_format
from hermes.storage.kafka_0_7 import KAFKA_0_7
from hermes.storage.kafka_format import KAFKA
from hermes.storage.kafka_index import OFFSET_ENTRY, KafkaIndex
from hermes.storage.settings import MAX_SEGMENT_BYTES


class CountingReads(UnsyncedFiles):
    """Counts how often a file is opened to be read.

    Attributes:
        opened: how often.
    """

    opened = 0

    def open_read(self, path: str) -> int:
        """See `FileLayer.open_read`."""
        self.opened += 1
        return super().open_read(path)


class Hollow:
    """Stands for a batch of any size, of which nothing but its header takes room on a disk."""

    def __init__(self, size_bytes: int) -> None:
        header = decode_header(raw_batch(0, 1))
        self.header = with_crc(header._replace(size_bytes=size_bytes), b"")
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes

    def __getitem__(self, part: slice) -> bytes:
        return bytes(len(range(*part.indices(self.size_bytes))))

    def write(self, descriptor: int, position: int) -> int:
        os.pwrite(descriptor, self.header, position)
        os.ftruncate(descriptor, position + self.size_bytes)
        return self.size_bytes


class HollowFiles(UnsyncedFiles):
    def pwrite(self, descriptor, data, position):  # type: ignore[no-untyped-def]
        if isinstance(data, Hollow):
            return data.write(descriptor, position)
        return os.pwrite(descriptor, data, position)


def directory_of(path: Path, **formats: str) -> DataDirectory:
    def settings_for(topic: str):  # type: ignore[no-untyped-def]
        return settings(format=formats.get(topic, "0.7"))

    return DataDirectory(path, settings_for, UnsyncedFiles())


def test_a_log_is_written_and_read(tmp_path: Path) -> None:
    log, report = open_kafka_log(tmp_path / "k-0")
    assert report is None
    assert append_values(log, b"a", b"b", b"c") == 0
    assert append_values(log, b"d") == 3
    assert append_batch(log, sent([b"e", b"f"], RecordCodec.ZSTD) + sent([b"g"])) == 4
    assert (log.end_offset, log.high_watermark, log.state.tail.messages) == (7, 0, 7)
    assert log.flush() == 7
    assert [each.value for each in read_records(log)] == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    assert [header.base_offset for header, _ in read_batches(log, 2)] == [0, 3, 4, 6]
    assert [each.offset for each in read_records(log, 5)] == [5, 6]
    assert {header.leader_epoch for header, _ in read_batches(log)} == {0}
    with pytest.raises(OffsetOutOfRangeError):
        log.read(8, 100)
    with log.read(7, 100, whole_first=True) as part:
        assert part.length == 0
    log.close()


def test_only_whole_batches_are_read(tmp_path: Path) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0")
    append_values(log, b"x" * 1000)
    append_values(log, b"y" * 10)
    log.flush()
    first, second = (header.size_bytes for header, _ in read_batches(log))
    for max_bytes, whole, expected in (
        (0, True, first),
        (0, False, 0),
        (100, True, first),
        (100, False, 0),
        (first - 1, False, 0),
        (first, False, first),
        (first + second - 1, True, first),
        (first + second - 1, False, first),
        (first + second, False, first + second),
        (9999, True, first + second),
    ):
        with log.read(0, max_bytes, whole_first=whole) as part:
            assert part.length == expected, (max_bytes, whole)
    log.close()


@pytest.mark.parametrize("reopened", [False, True])
def test_many_batches_are_read_up_to_the_last_whole_one(tmp_path: Path, reopened: bool) -> None:
    """However far it is, found by the index in memory or by its file, from wherever one begins."""
    log, _ = open_kafka_log(tmp_path / "k-0")
    for number in range(1500):
        append_values(log, bytes(100 + number % 700))
    log.flush()
    if reopened:
        log.close()
        log, _ = open_kafka_log(tmp_path / "k-0", clean=True)
    batches = [(header, len(data)) for header, data in read_batches(log, 0, 1 << 30)]
    assert len(batches) == 1500
    ends, end = {}, 0
    for header, size in batches:
        end += size
        ends[header.next_offset] = end
    starts = {0: 0, **ends}
    whole = b"".join(path.read_bytes() for path in (tmp_path / "k-0").glob("*.log"))
    for max_bytes in (900, 5_000, 30_000, 250_000, 10_000_000):
        for first in (0, 1, 777, 1400):
            offset = first
            for _ in range(3):  # as a consumer goes on
                limit = starts[offset] + max_bytes
                last = max(each for each in starts if starts[each] <= limit)
                with log.read(offset, max_bytes, whole_first=True) as part:
                    assert (part.position, part.length) == (
                        starts[offset],
                        starts[last] - starts[offset],
                    )
                fetched, _ = log.fetch(offset, max_bytes, True, True)
                size = starts[last] - starts[offset]
                assert isinstance(fetched, bytes) == (size <= FEW_BYTES), size
                if isinstance(fetched, LogSlice):
                    with fetched:
                        assert (fetched.position, fetched.length) == (starts[offset], size)
                else:
                    assert fetched == whole[starts[offset] : starts[last]]
                offset = last
                if offset == 1500:
                    break
    log.close()


def test_where_a_reader_goes_on_is_remembered(tmp_path: Path) -> None:
    files = CountingReads()
    log, _ = open_kafka_log(tmp_path / "k-0", files)
    for _ in range(40):
        append_values(log, bytes(10_000))
    log.flush()
    log.close()
    log, _ = open_kafka_log(tmp_path / "k-0", files, clean=True)
    log.read(3, 25_000).release()
    opened = files.opened
    log.read(5, 25_000).release()
    assert files.opened == opened
    log.read(30, 25_000).release()
    assert files.opened > opened
    log.close()


def test_no_reader_waits_for_the_sync_of_an_index(tmp_path: Path) -> None:
    class ReadWhileSyncing(UnsyncedFiles):
        def fdatasync(self, descriptor: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if path.suffix in (".index", ".timeindex"):
                synced.append(path.suffix)
                reader = threading.Thread(target=lambda: log.read(1, 5000).release(), daemon=True)
                reader.start()
                reader.join(60)
                assert not reader.is_alive(), "it waits for this sync"

    synced: list[str] = []
    log, _ = open_kafka_log(tmp_path / "k-0", ReadWhileSyncing(), segment_bytes=20_000)
    for _ in range(16):
        append_values(log, bytes(1500), bytes(1500))
        log.flush()
    log.close()
    assert set(synced) == {".index", ".timeindex"}


def test_what_is_damaged_ends_what_is_read_and_is_refused_up_to_what_follows(
    tmp_path: Path,
) -> None:
    """Passed over it would be lost, and nobody would know."""
    log, _ = open_kafka_log(tmp_path / "k-0")
    for _ in range(4):
        append_values(log, bytes(1000))
    log.flush()
    size = read_batches(log)[0][0].size_bytes
    (path,) = (tmp_path / "k-0").glob("*.log")
    with path.open("r+b") as file:
        file.seek(size)
        file.write(bytes(size))
    with log.read(0, 3 * size) as part:
        assert (part.position, part.length) == (0, size)
    with log.read(2, 2 * size) as part:
        assert (part.position, part.length) == (2 * size, 2 * size)
    part, _ = log.fetch(0, 3 * size, False, True)  # only the index can tell
    assert isinstance(part, LogSlice)
    with part:
        assert (part.position, part.length) == (0, size)
    assert not log.is_suspect
    for _ in range(2):
        for resident in (True, False):
            with pytest.raises(DamagedMessagesError, match="k-0: offset 1 is damaged"):
                log.fetch(1, 2 * size, True, resident)
        part, _ = log.fetch(2, 2 * size, False, True)
        assert isinstance(part, LogSlice)
        with part:
            assert (part.position, part.length) == (2 * size, 2 * size)
    assert log.is_suspect
    log.close()


def test_what_is_damaged_at_the_end_of_a_segment_is_refused(tmp_path: Path) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0", segment_bytes=2100)
    for _ in range(3):
        append_values(log, bytes(1000))
    log.flush()
    size = read_batches(log)[0][0].size_bytes
    path, *_ = sorted((tmp_path / "k-0").glob("*.log"))
    with path.open("r+b") as file:
        file.seek(size)
        file.write(bytes(size))
    with pytest.raises(DamagedMessagesError, match="k-0: offset 1 is damaged"):
        log.fetch(1, 2 * size, True, False)
    with log.read(2, size) as part:
        assert (part.position, part.length) == (0, size)
    log.close()


def test_a_data_directory_keeps_both_formats(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, k="kafka")
    directory.open(NOW_MS)
    log, old = directory.create("k", 0), directory.create("o", 0)
    assert (log.format.name, old.format.name, old.topic_id) == ("kafka", "0.7", None)
    assert isinstance(log.topic_id, UUID)
    assert directory.create("k", 1).topic_id == log.topic_id
    assert directory.create("given", 0, KAFKA, TOPIC_ID).topic_id == TOPIC_ID
    assert directory.create("given", 1).topic_id == TOPIC_ID
    append_values(log, b"a")
    log.flush()
    assert directory.close()
    text = (tmp_path / "k-0" / "partition.metadata").read_text()
    encoded = urlsafe_b64encode(log.topic_id.bytes).decode().rstrip("=")
    assert text == f"version: 0\ntopic_id: {encoded}"
    assert (tmp_path / "k-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    directory = directory_of(tmp_path)
    report = directory.open(NOW_MS)
    assert report.was_clean
    assert report.strange == ()
    found = directory.get("k", 0)
    assert found is not None
    assert (found.topic_id, found.format) == (log.topic_id, KAFKA)
    assert [each.value for each in read_records(found)] == [b"a"]
    directory.delete_topic("k")
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_dir()) == [
        *("given-0", "given-1", "o-0")
    ]
    directory.close()


@pytest.mark.parametrize(
    ("known", "kept"),
    [
        ("3\n0 0\n2 1\n5 9\n", "2\n0 0\n5 2\n"),  # the batch at 1 says that it is of epoch 0
        ("3\n0 0\n2 2\n5 9\n", "2\n0 0\n5 2\n"),
        ("3\n0 0\n2 7\n5 9\n", "2\n0 0\n5 2\n"),
    ],
)
def test_the_last_epoch_stays_when_what_was_written_in_it_is_lost(
    tmp_path: Path, known: str, kept: str
) -> None:
    """Clients were told of it, and turn down an older one."""
    log, _ = open_kafka_log(tmp_path / "k-0")
    append_values(log, b"a", b"b")
    log.flush()
    log.close()
    (tmp_path / "k-0" / "leader-epoch-checkpoint").write_text(f"0\n{known}")
    (tmp_path / "replication-offset-checkpoint").touch()  # a Kafka was at work since
    log, _ = open_kafka_log(tmp_path / "k-0", clean=False)
    assert (log.leader_epoch, log.end_offset) == (5, 2)
    append_values(log, b"c")
    log.flush()
    assert [header.leader_epoch for header, _ in read_batches(log)] == [0, 5]
    assert (tmp_path / "k-0" / "leader-epoch-checkpoint").read_text() == f"0\n{kept}"
    log.close()
    log, _ = open_kafka_log(tmp_path / "k-0")
    assert log.leader_epoch == 5


def test_records_are_deleted_inside_a_segment(tmp_path: Path) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0", segment_bytes=100)
    for number in range(6):
        append_values(log, b"x" * 50, b"%d" % number)
    log.flush()
    assert log.segment_count == 6
    assert log.delete_records(5) == 5
    assert (log.earliest, log.segment_count) == (5, 4)
    assert [each.offset for each in read_records(log)] == [5, 6, 7, 8, 9, 10, 11]
    with pytest.raises(OffsetOutOfRangeError):
        log.read(4, 100)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(13)
    assert log.delete_records(3) == 5
    append_values(log, b"later")
    log.flush()
    assert log.earliest == 5
    log.close()
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nk 0 5\n"
    for clean in (True, False):
        log, _ = open_kafka_log(tmp_path / "k-0", clean=clean)
        assert (log.earliest, log.end_offset) == (5, 13)
        log.close()
    log, _ = open_kafka_log(tmp_path / "k-0")
    assert log.delete_records(13) == 13
    assert read_records(log) == []
    assert append_values(log, b"again") == 13
    log.flush()
    assert [each.value for each in read_records(log)] == [b"again"]
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n2\nk 0 13\nother 3 7\n")
    log.close()
    log, _ = open_kafka_log(tmp_path / "k-0")
    log.delete()
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    # A Kafka that comes back must not take the next log of that name for one that is on disk.
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nother 3 7\n"


@pytest.mark.parametrize("has_more", [False, True], ids=["active", "complete"])
@pytest.mark.parametrize("is_one", [False, True], ids=["batches", "one batch"])
def test_the_latest_timestamp_is_one_of_what_is_left(
    tmp_path: Path, is_one: bool, has_more: bool
) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0", segment_bytes=300)
    some = [record(b"x" * 100, timestamp_ms=NOW_MS - number) for number in range(4)]
    for each in [some] if is_one else [[one] for one in some]:
        append_values(log, *each)
    if has_more:
        append_values(log, record(b"x", timestamp_ms=NOW_MS - 10))
    log.flush()
    assert log.latest_timestamp() == (0, NOW_MS)
    log.delete_records(1)
    assert log.latest_timestamp() == (1, NOW_MS - 1)


def test_a_log_that_was_removed_by_hand_leaves_its_start_to_none(tmp_path: Path) -> None:
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n2\nk 0 2\nother 0 9\n")
    for _ in range(2):
        log, _ = open_kafka_log(tmp_path / "k-0")
        append_values(log, b"one", b"two")
        log.flush()
        assert [each.value for each in read_records(log)][:2] == [b"one", b"two"]
        log.close()
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nother 0 9\n"


def test_messages_are_found_by_their_own_timestamps(tmp_path: Path) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0", segment_bytes=400)
    assert log.offset_at_time(0) is None
    assert log.latest_timestamp() is None
    times = [50, 10, 90, 20, 70, 60, 110, 30, 110, 5]
    for number in range(0, len(times), 2):
        pair = [record(b"x" * 100, timestamp_ms=NOW_MS + ms) for ms in times[number : number + 2]]
        append_batch(log, sent(pair, RecordCodec(number % 5)), NOW_MS + 1000 * number)
    log.flush()
    assert log.segment_count > 1
    for clean in (None, True, False):
        if clean is not None:
            log.close()
            log, _ = open_kafka_log(tmp_path / "k-0", clean=clean)
        for time in range(0, 120, 5):
            expected = next((n for n, ms in enumerate(times) if ms >= time), None)
            found = log.offset_at_time(NOW_MS + time)
            assert (None if found is None else found.offset) == expected
            assert found is None or found.timestamp_ms == NOW_MS + times[found.offset]
        assert log.latest_timestamp() == (6, NOW_MS + 110)
    log.delete_records(7)
    assert log.latest_timestamp() == (8, NOW_MS + 110)
    log.close()


def test_an_old_log_has_neither_timestamps_nor_cuts(tmp_path: Path) -> None:
    directory = directory_of(tmp_path)
    directory.open(NOW_MS)
    log = directory.create("o", 0)
    for ask in (lambda: log.offset_at_time(0), log.latest_timestamp, lambda: log.delete_records(0)):
        with pytest.raises(StorageError, match=r"format 0\.7"):
            ask()
    directory.close()


def test_kafkas_indexes_lead_to_batches(tmp_path: Path) -> None:
    """Every entry, as Kafka's DumpLogSegments checks it."""
    log, _ = open_kafka_log(tmp_path / "k-0", segment_bytes=60_000)
    for number in range(300):
        append_values(log, record(os.urandom(number * 7 % 900), timestamp_ms=NOW_MS + number % 37))
        if number % 3 == 0:
            log.flush()
    log.flush()
    log.close()
    segments = sorted((tmp_path / "k-0").glob("*.log"))
    assert len(segments) > 2
    for path in segments:
        check_indexes(path)


def test_no_segment_grows_beyond_what_kafka_opens(tmp_path: Path) -> None:
    """Of what several batches bring, the later ones begin where no entry of an index can lead."""
    log, _ = open_kafka_log(tmp_path / "k-0", HollowFiles(), MAX_SEGMENT_BYTES)
    large = Hollow(MAX_SEGMENT_BYTES - 200)
    log.append([large], len(large), 1, NOW_MS, [(len(large), 0, NOW_MS)])  # type: ignore[list-item]
    log.flush()
    some = [raw_batch(offset, 1, bytes(5000)) for offset in (1, 2, 3)]
    told = [(len(each), offset, NOW_MS) for offset, each in enumerate(some, 1)]
    log.append(some, sum(map(len, some)), 3, NOW_MS, told)
    log.flush()
    log.close()
    sizes = [each.stat().st_size for each in sorted((tmp_path / "k-0").glob("*.log"))]
    assert sizes == [len(large), sum(map(len, some))]


def test_an_index_has_no_entry_of_what_lies_beyond_that(tmp_path: Path) -> None:
    """A segment that is larger may have been put there."""
    files, path = UnsyncedFiles(), str(tmp_path / f"{0:020d}")
    index = KafkaIndex(files, f"{path}.appends", 0)
    index.begin()
    places = (0, 5000, MAX_SEGMENT_BYTES, MAX_SEGMENT_BYTES + 5000)
    told = [(position, 5000, offset, NOW_MS) for offset, position in enumerate(places)]
    beside = files.open_append(f"{path}.appends", create=True)
    index.write([(NOW_MS, 4, 1)], -1, beside, 0, told, complete=True)
    files.close(beside)
    data = (tmp_path / f"{0:020d}.index").read_bytes()
    assert list(OFFSET_ENTRY.iter_unpack(data)) == [(1, 5000), (2, MAX_SEGMENT_BYTES)]


@pytest.mark.parametrize("told", [{0}, set(range(40)), set(range(0, 300, 7))])
def test_the_indexes_are_the_same_whatever_the_appends_told_of_batches(
    tmp_path: Path, told: set[int]
) -> None:
    """What a flush isn't told of it reads back, and of very many batches in any case."""
    written = []
    for directory, known in (("a-0", told), ("b-0", set(range(600)))):
        log, _ = open_kafka_log(tmp_path / directory, segment_bytes=60_000)
        for number in range(600):
            values = (record(b"x" * (number * 7 % 900), timestamp_ms=NOW_MS + number * 5 % 37),)
            append_batch(log, sent(values) * (number % 3 + 1), number, is_told=number in known)
            if number < 300 and number % 4 == 0:
                log.flush()
        log.flush()
        log.close()
        paths = sorted((tmp_path / directory).glob("0*"))
        written.append([(path.name, path.read_bytes()) for path in paths])
    assert len(written[0]) > 8
    assert written[0] == written[1]


@pytest.mark.parametrize("log_format", ["0.7", "kafka"])
def test_a_flush_of_a_small_append_opens_and_reads_nothing(tmp_path: Path, log_format: str) -> None:
    files = WatchedFiles()
    directory = DataDirectory(tmp_path, lambda topic: settings(format=log_format), files)
    directory.open(NOW_MS)
    log = directory.create("k", 0)
    made: list[list[str]] = []
    for number in range(3):
        done = len(files.calls)
        if log_format == "kafka":
            append_values(log, b"x" * 100, now_ms=NOW_MS + number)
        else:
            append(log, message("x" * 100), now_ms=NOW_MS + number)
        log.flush()
        made.append(files.calls[done + 1 :])
    assert made[2] == ["fdatasync", "lstat", "pwritev"]
    directory.close()
    assert not files.opened


def test_an_index_that_was_removed_is_begun_again_within_a_second(tmp_path: Path) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0")
    path = tmp_path / "k-0" / f"{0:020d}.appends"
    for now_ms in (0, 10):
        append_values(log, b"x", now_ms=NOW_MS + now_ms)
        log.flush()
    path.unlink()
    append_values(log, b"x", now_ms=NOW_MS + 1000)
    log.flush()
    assert log.index_failures == 0
    assert path.exists()
    log.close()


def test_what_is_open_beside_segments_counts_for_their_bound(tmp_path: Path) -> None:
    files = WatchedFiles()
    directory = DataDirectory(tmp_path, lambda topic: settings(), files, max_open_segments=5)
    directory.open(NOW_MS)
    others = len(files.opened)
    for number in range(20):
        log = directory.create("k", number)
        for _ in range(2):
            append(log, message("x"))
            log.flush()
        assert len(files.opened) - others <= 5
    directory.close()
    assert not files.opened


@pytest.mark.parametrize("what", ["torn", "lost"])
def test_an_id_that_was_lost_before_any_flush_is_replaced_and_can_be_adopted(
    tmp_path: Path, what: str
) -> None:
    directory = directory_of(tmp_path, k="kafka")
    directory.open(NOW_MS)
    append_values(directory.create("k", 0), b"one")
    directory._lock.release()  # type: ignore[union-attr]
    metadata = tmp_path / "k-0" / "partition.metadata"
    metadata.write_bytes(bytes(43)) if what == "torn" else metadata.unlink()

    directory = directory_of(tmp_path, k="kafka")
    assert directory.open(NOW_MS).offline == {}
    log = directory.logs["k", 0]
    assert [each.value for each in read_records(log)] == [b"one"]
    assert log.topic_id not in (None, TOPIC_ID)
    log.adopt_topic_id(TOPIC_ID)
    append_values(log, b"two")
    log.flush()
    directory.close()

    assert read_topic_id(str(tmp_path / "k-0"), UnsyncedFiles()) == TOPIC_ID
    metadata.write_bytes(bytes(43))
    (tmp_path / "k-0" / "partition.hermes").unlink()
    directory = directory_of(tmp_path)
    assert directory.open(NOW_MS).offline, "what was flushed is not given another id"
    directory.close()


def test_a_batch_that_the_power_has_torn_is_not_there_for_its_producer(tmp_path: Path) -> None:
    """Else it would be told, when it sends that again, where it is."""

    def batch(producer: int, sequence: int) -> bytes:
        by = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        return encode_batch([record(b"x" * 100)], **by)

    log, _ = open_kafka_log(tmp_path / "k-0")
    append_batch(log, batch(7, 0))
    log.flush()
    torn_at = log.size_bytes
    for producer, sequence in ((7, 1), (8, 0), (9, 0)):
        append_batch(log, batch(producer, sequence))
    (segment,) = (tmp_path / "k-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[torn_at + 100] ^= 1
    data[-1] ^= 1
    logs = [log]
    for start in range(3):  # each later one finds the tail on disk already
        copy = tmp_path / f"copy{start}" / "k-0"
        copy.parent.mkdir()
        shutil.copytree(tmp_path / f"copy{start - 1}" / "k-0" if start else segment.parent, copy)
        if not start:
            (copy / segment.name).write_bytes(data)
        again, report = open_kafka_log(copy)
        logs.append(again)
        assert report is not None
        assert report.bad_ranges == (((1, 2),) if not start else ())
        assert again.end_offset == 3
        assert again.producers is not None
        last = {key: each.last_sequence for key, each in again.producers.states.items()}
        assert last == {7: 0, 8: 0}
    for each in logs:
        each.close()


def test_what_the_power_left_of_a_partition_is_kafkas_whatever_its_settings_say(
    tmp_path: Path,
) -> None:
    log, _ = open_kafka_log(tmp_path / "k-0")
    append_values(log, b"a")
    for name in os.listdir(tmp_path / "k-0"):
        if not name.endswith(".log"):
            (tmp_path / "k-0" / name).unlink()
    files = FileLayer()
    found = find_format(str(tmp_path / "k-0"), KAFKA_0_7, files, Checkpoints(str(tmp_path), files))
    assert found.format is KAFKA
    assert found.topic_id is not None


def test_a_directory_that_the_power_left_empty_is_as_its_topics_others_are(tmp_path: Path) -> None:
    """The settings may not have been written: the disk was full, say."""
    log, _ = open_kafka_log(tmp_path / "k-0")
    append_values(log, b"a")
    log.close()
    (tmp_path / "k-1").mkdir()
    directory = DataDirectory(tmp_path, lambda topic: settings())
    directory.open(NOW_MS)
    assert directory.create("k", 1).format is KAFKA
    directory.close()
