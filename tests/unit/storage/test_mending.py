"""Damaged places of a log get back what was there, from batches of another copy."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from kafka_logs import batches_in, open_kafka_log, record
from memory_files import MemoryFiles
from storage_fakes import FaultyFiles
from storage_logs import NOW_MS

from hermes.errors import CorruptLogError, LogOfflineError, StorageError
from hermes.protocol.record_batches import HEADER_BYTES, LENGTH_END, placed
from hermes.protocol.records import encode_batch
from hermes.storage import FileLayer, Log
from hermes.storage.damage import Damage
from hermes.storage.mending import Mending, UnfitBatchesError, damage_from

BATCHES = 9

#: Up to where a log is committed that is cut.
CUT_AT = 7

#: Where a batch's own offset and its leader's epoch lie, which its CRC doesn't cover.
UNCOVERED = {*range(8), *range(12, 16)}

#: Where it says up to which offset it goes.
LAST_OFFSET = range(23, 27)


def copy(
    path: Path,
    value: bytes = b"value %d",
    epoch: int = 3,
    segment_bytes: int = 200,
    files: FileLayer | None = None,
) -> Log:
    """A log with other copies, whose batches lie in some segments."""
    log, _ = open_kafka_log(path, segment_bytes=segment_bytes, files=files)
    log.is_sole_copy = False
    for number in range(BATCHES):
        data = encode_batch([record(value % number)])
        ((header, _),) = batches_in(data)
        buffers = placed(data, [header], number, epoch)
        headers = [each for each, _ in batches_in(b"".join(buffers))]
        log.replica.append_placed(buffers, headers, NOW_MS)
    log.flush()
    return log


def flip(path: Path, position: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= bit
    path.write_bytes(data)


def mend(log: Log, other: Log, max_bytes: int = 1 << 20) -> int:
    """Mend all of a log by the other one; how many bytes that took."""
    mending = Mending(log, [segment for segment, _ in log.flushed_segments()], 0)
    is_damaged, took = mending.look(), 0
    while is_damaged:
        with other.replica.read_appended(mending.offset, max_bytes, whole_first=True) as part:
            data = other.files.pread(part.fileno(), part.length, part.position)
        headers = [each for each, _ in batches_in(data) if each.base_offset < mending.wanted_end]
        took += len(data)
        is_damaged = mending.write(memoryview(data), headers)
    return took


def contents(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.glob("*.log")}


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_each_byte_that_is_covered(tmp_path: Path, max_bytes: int) -> None:
    log, other = copy(tmp_path / "k-0"), copy(tmp_path / "k-1")
    path = sorted((tmp_path / "k-0").glob("*.log"))[0]
    sound = contents(tmp_path / "k-0")
    sizes = [len(data) for _, data in batches_in(path.read_bytes())]
    assert len(sound) > 2
    for position in range(0, sum(sizes), 4 + len(sizes)):
        if position % sizes[0] in UNCOVERED:
            continue
        flip(path, position, 1 << position % 8)
        found = damage_from(log, 0)
        assert found is not None
        assert found[1].start == position // sizes[0]
        mend(log, other, max_bytes)
        assert contents(tmp_path / "k-0") == sound
        assert damage_from(log, 0) is None


def test_what_the_disk_does_not_give_back_is_found_also_before_anything_else_was_read(
    tmp_path: Path,
) -> None:
    """By the place of which the indexes tell: these are first loaded then."""
    path = tmp_path / "k-0"
    files = MemoryFiles(str(path))
    log = copy(path, files=files)
    for segment, end in log.flushed_segments():
        data = files.pread(files.open_read(segment.path), 1 << 20, 0)
        sizes = [len(each) for _, each in batches_in(data)]
        log.close()
        log, _ = open_kafka_log(path, clean=True, files=files)
        log.is_sole_copy = False
        files.fail_reads(segment.path, len(data) - sizes[-1], len(data))
        found = damage_from(log, segment.base_offset)
        assert found is not None
        # The least that a disk gives back is a sector, which all of a segment lies in.
        assert found[1] == Damage(segment.base_offset, end)
        files.allow_reads(segment.path, len(data) - sizes[-1], len(data))


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_what_the_disk_may_not_have_taken_is_not_mended(tmp_path: Path, max_bytes: int) -> None:
    """A sync that fails says once that it has: what was written stays in memory as it should be."""
    files = FaultyFiles(only=("fdatasync",))
    log, other = copy(tmp_path / "k-0", files=files), copy(tmp_path / "k-1")
    sound, path = contents(tmp_path / "k-0"), sorted((tmp_path / "k-0").glob("*.log"))[0]
    (_, first), *_ = batches_in(path.read_bytes())
    for position in (HEADER_BYTES, len(first) + HEADER_BYTES):
        flip(path, position)
    files.fail_at, files.counted = 0, 0
    with pytest.raises(StorageError, match="Input/output"):
        mend(log, other, max_bytes)
    found = damage_from(log, 0)
    assert found is not None
    assert found[1] == Damage(0, 2)
    mend(log, other, max_bytes)
    assert contents(tmp_path / "k-0") == sound
    assert files.counted > 1
    assert damage_from(log, 0) is None


def test_of_many_places_in_each_of_two_copies(tmp_path: Path) -> None:
    """Each has what the other lacks."""
    log, other = copy(tmp_path / "k-0"), copy(tmp_path / "k-1")
    sound = contents(tmp_path / "k-0")
    for path in tmp_path.glob("k-*/*.log"):
        first = len(batches_in(path.read_bytes())[0][1])
        batch = 0 if path.parent.name == "k-0" else path.stat().st_size - first
        flip(path, batch + HEADER_BYTES + 2)
    assert mend(log, other) > 0
    assert mend(other, log) > 0
    assert contents(tmp_path / "k-0") == contents(tmp_path / "k-1") == sound


def test_what_was_overwritten_by_zeros(tmp_path: Path) -> None:
    log, other = copy(tmp_path / "k-0", segment_bytes=1 << 20), copy(tmp_path / "k-1")
    (path,) = (tmp_path / "k-0").glob("*.log")
    sound = path.read_bytes()
    path.write_bytes(bytes(len(sound) // 2) + sound[len(sound) // 2 :])
    mend(log, other, max_bytes=100)
    assert path.read_bytes() == sound
    path.write_bytes(sound[: len(sound) // 2] + bytes(len(sound) - len(sound) // 2))
    mend(log, other, max_bytes=100)
    assert path.read_bytes() == sound
    assert log.end_offset == BATCHES


@pytest.mark.parametrize(
    ("value", "epoch"), [(b"longer value %d", 3), (b"value %d", 2)], ids=["room", "history"]
)
def test_what_was_not_there_is_not_written(tmp_path: Path, value: bytes, epoch: int) -> None:
    log, other = copy(tmp_path / "k-0"), copy(tmp_path / "k-1", value, epoch)
    path = sorted((tmp_path / "k-0").glob("*.log"))[0]
    flip(path, HEADER_BYTES + 2)
    before = contents(tmp_path / "k-0")
    with pytest.raises(UnfitBatchesError):
        mend(log, other)
    assert contents(tmp_path / "k-0") == before


def test_a_segment_that_is_gone_is_left_alone(tmp_path: Path) -> None:
    log, other = copy(tmp_path / "k-0"), copy(tmp_path / "k-1")
    segment = log.flushed_segments()[0][0]
    flip(Path(segment.path), HEADER_BYTES + 2)
    mending = Mending(log, [segment], 0)
    assert mending.look()
    log.commit(BATCHES)
    log.delete_records(BATCHES)
    with other.replica.read_appended(0, 1, whole_first=True) as part:
        data = other.files.pread(part.fileno(), part.length, part.position)
    assert not mending.write(memoryview(data), [header for header, _ in batches_in(data)])


def test_damage_before_what_is_valid_is_told_from_a_torn_end(tmp_path: Path) -> None:
    for number, (place, is_told) in enumerate([(0, True), (BATCHES - 1, False)]):
        path = tmp_path / f"k-{number}"
        log = copy(path, segment_bytes=1 << 20)
        size = (path / f"{0:020}.log").stat().st_size // BATCHES
        log.close()
        (path / f"{0:020}.appends").unlink()
        flip(path / f"{0:020}.log", place * size + HEADER_BYTES)
        found, _ = open_kafka_log(path, clean=False, is_sole_copy=False)
        assert (found.end_offset, found.replica.has_cut_damage) == (place, is_told)


def cut(log: Log) -> Log:
    log.commit(CUT_AT)
    log.replica.cut_to(CUT_AT, NOW_MS)
    return log


def opened_again(log: Log) -> Log:
    with log.state.lock:
        log.state.go_offline("its disk has failed")
    log.reopen(NOW_MS)
    return log


def killed(log: Log) -> Log:
    log.close()
    return open_kafka_log(Path(log.directory))[0]


@pytest.mark.parametrize(
    ("what", "end"), [(cut, CUT_AT), (opened_again, BATCHES), (killed, BATCHES)]
)
def test_no_damage_of_what_was_flushed_passes_for_a_torn_end(
    tmp_path: Path, what: Callable[[Log], Log], end: int
) -> None:
    """A length may be damaged, and lead beyond the segment's end."""
    path = tmp_path / "k-0"
    segment = path / f"{0:020}.log"
    copy(path, segment_bytes=1 << 20).close()
    sound = {each: each.read_bytes() for each in path.iterdir()}
    size = len(sound[segment]) // BATCHES
    for position in {*range(8, HEADER_BYTES)} - UNCOVERED:
        for bit in range(8):
            for each, before in sound.items():
                each.write_bytes(before)
            log, _ = open_kafka_log(path, clean=True, is_sole_copy=False)
            flip(segment, 3 * size + position, 1 << bit)
            data = segment.read_bytes()
            with suppress(LogOfflineError):
                log = what(log)
            if log.is_offline:
                assert segment.read_bytes() == data
                assert (what, log.is_suspect) == (cut, True)
                assert position in LAST_OFFSET
                log.close()
                continue
            assert (log.end_offset, log.flushed_end) == (end, end)
            assert segment.read_bytes() == data[: end * size]
            found = damage_from(log, 0)
            assert found is not None
            assert found[1].start == 3
            log.close()


@pytest.mark.parametrize("what", [cut, opened_again])
def test_a_log_is_offline_where_nothing_of_its_end_is_found(
    tmp_path: Path, what: Callable[[Log], Log]
) -> None:
    """Nothing is cut off that was committed."""
    log = copy(tmp_path / "k-0", segment_bytes=1 << 20)
    (segment,) = (tmp_path / "k-0").glob("*.log")
    size = segment.stat().st_size // BATCHES
    for number in range(3, BATCHES):
        flip(segment, number * size + HEADER_BYTES - 5, 0x80)
        flip(segment, number * size + LENGTH_END - 4, 0x40)
    data = segment.read_bytes()
    with pytest.raises(
        (LogOfflineError, CorruptLogError), match=r"from offset 3 on|ends at offset 3"
    ):
        what(log)
    assert (log.is_offline, log.replica.is_unreadable) == (True, True)
    assert segment.read_bytes() == data


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("segment", [0, -1], ids=["complete", "last"])
def test_a_log_opens_wherever_the_last_batch_of_a_segment_is_damaged(
    tmp_path: Path, segment: int, is_clean: bool
) -> None:
    """Its header says where the segment ends."""
    copy(tmp_path / "k-0").close()
    paths = sorted((tmp_path / "k-0").glob("*.log"))
    sound = {each: each.read_bytes() for each in (tmp_path / "k-0").iterdir()}
    data = sound[paths[segment]]
    size = len(batches_in(data)[-1][1])
    for position in range(8, size, 3):
        if position in UNCOVERED:
            continue
        for path, before in sound.items():
            path.write_bytes(before)
        flip(paths[segment], len(data) - size + position, 1 << position % 8)
        log, _ = open_kafka_log(tmp_path / "k-0", clean=is_clean, is_sole_copy=False)
        assert not log.is_offline
        if log.end_offset == BATCHES:
            assert damage_from(log, 0) is not None
        else:
            assert log.end_offset < BATCHES, "what was flushed, and is cut off, is missed"
        log.close()


def test_segments_of_two_logs_do_not_fit_together(tmp_path: Path) -> None:
    copy(tmp_path / "k-0").close()
    copy(tmp_path / "k-1", segment_bytes=400).close()
    foreign = sorted((tmp_path / "k-1").glob("*.log"))[0]
    mine = sorted((tmp_path / "k-0").glob("*.log"))[0]
    assert len(batches_in(foreign.read_bytes())) > len(batches_in(mine.read_bytes()))
    mine.write_bytes(foreign.read_bytes())
    with pytest.raises(CorruptLogError, match="from another log"):
        open_kafka_log(tmp_path / "k-0", is_sole_copy=False)
