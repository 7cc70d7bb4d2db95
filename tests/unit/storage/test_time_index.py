"""The time index: its bytes, its trust, its lookups."""

import os
from collections.abc import Callable, Iterator
from errno import EIO
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_fakes import FaultyFiles, WatchedFiles
from storage_logs import append, message, open_log, settings

from hermes.storage import FileLayer
from hermes.storage.index_entries import ENTRY_BYTES, IndexEntry, decode_entry, encode_entry
from hermes.storage.time_index import SYNC_EVERY_BYTES, TAIL_BYTES, TimeIndex

LOG = bytes(range(256)) * 8
BASE = 1000


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[int]:
    """A segment of 2048 bytes that starts at offset 1000."""
    path = tmp_path / "00000000000000001000.kafka"
    path.write_bytes(LOG)
    descriptor = FileLayer().open_append(str(path))
    yield descriptor
    FileLayer().close(descriptor)


def new_index(tmp_path: Path, files: FileLayer | None = None) -> TimeIndex:
    return TimeIndex(files or FileLayer(), str(tmp_path / f"{BASE:020d}.timeindex"), BASE)


def written(tmp_path: Path, segment: int, *entries: tuple[int, int]) -> TimeIndex:
    index = new_index(tmp_path)
    index.begin()
    index.append(entries, segment)
    return index


def loaded(tmp_path: Path, segment: int, size: int = len(LOG)) -> TimeIndex:
    index = new_index(tmp_path)
    index.load(segment, BASE + size)
    return index


def count(index: TimeIndex) -> int:
    """How many entries count."""
    with index.opened() as reader:
        return reader.count


def test_the_bytes_of_an_entry() -> None:
    entry = IndexEntry(1_780_000_000_000, 0x1122334455, 0xCAFEBABE)
    data = bytes.fromhex("0000019e70448800 0000001122334455 cafebabe 4ab5d7aa")
    assert crc32(data[:20]) == int.from_bytes(data[20:], "big")
    assert encode_entry(entry) == data
    assert decode_entry(b"xx" + data, 2) == entry


@given(st.integers(0, 23), st.integers(0, 7))
def test_a_flipped_bit_makes_an_entry_unreadable(byte: int, bit: int) -> None:
    data = bytearray(encode_entry(IndexEntry(1, 2, 3)))
    data[byte] ^= 1 << bit
    assert decode_entry(bytes(data)) is None


def test_an_entry_of_zeros_is_none() -> None:
    assert decode_entry(bytes(ENTRY_BYTES)) is None


def test_what_was_appended_is_found_again(tmp_path: Path, segment: int) -> None:
    written(tmp_path, segment, (10, 1010), (20, 1500), (30, 3048))

    index = loaded(tmp_path, segment)

    assert index.last == IndexEntry(30, 3048, crc32(LOG[-TAIL_BYTES:]))
    assert index.first() == IndexEntry(10, 1010, crc32(LOG[:10]))


def test_a_missing_index_is_an_empty_one(tmp_path: Path, segment: int) -> None:
    index = loaded(tmp_path, segment)
    assert index.last is None
    assert index.first() is None
    assert index.at_time(10**15) is None
    assert index.at_offset(2000) is None


@pytest.mark.parametrize(
    ("time_ms", "expected"),
    [(9, None), (10, 1010), (19, 1010), (20, 1500), (29, 1500), (30, 3048), (10**18, 3048)],
)
def test_the_end_at_a_time_is_that_of_the_last_entry_not_later(
    tmp_path: Path, segment: int, time_ms: int, expected: int | None
) -> None:
    index = written(tmp_path, segment, (10, 1010), (20, 1500), (30, 3048))
    entry = index.at_time(time_ms)
    assert (entry and entry.end_offset) == expected


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 40)), min_size=1, max_size=60),
    st.sets(st.integers(0, 58)),
    st.integers(-1, 3000),
)
def test_lookups_are_those_of_a_list_whatever_is_damaged(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, int]],
    damaged: set[int],
    wanted: int,
) -> None:
    directory = tmp_path_factory.mktemp("index")
    (directory / "log").write_bytes(LOG + LOG)
    descriptor = FileLayer().open_append(str(directory / "log"))
    time_ms, end = 0, BASE
    entries = []
    for later, longer in steps:
        time_ms, end = time_ms + later, end + longer
        entries.append((time_ms, end))
    index = written(directory, descriptor, *entries)
    damaged = {number for number in damaged if number < len(entries) - 1}
    path = directory / f"{BASE:020d}.timeindex"
    data = bytearray(path.read_bytes())
    for number in damaged:
        data[number * ENTRY_BYTES + 3] ^= 0x40
    path.write_bytes(data)
    good = [entry for number, entry in enumerate(entries) if number not in damaged]

    by_time, by_offset = index.at_time(wanted), index.at_offset(wanted)

    assert (by_time and by_time.end_offset) == max(
        (end for time_ms, end in good if time_ms <= wanted), default=None
    )
    assert (by_offset and by_offset.end_offset) == max(
        (end for _, end in good if end <= wanted), default=None
    )
    FileLayer().close(descriptor)


def test_times_never_go_back(tmp_path: Path, segment: int) -> None:
    index = written(tmp_path, segment, (50, 1010))
    index.append([(20, 1500), (60, 1600)], segment)
    entry = index.at_time(50)
    assert entry is not None
    assert entry.end_offset == 1500
    assert index.at_time(49) is None


# -- trust --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tail",
    [
        b"\0" * 24,
        b"\0" * 7,
        b"torn",
        b"\xff" * 240,
        encode_entry(IndexEntry(40, 3049, 0)),  # beyond the segment
        encode_entry(IndexEntry(40, 999, 0)),  # before it
        encode_entry(IndexEntry(40, 1000, crc32(b""))),  # nothing of it
        encode_entry(IndexEntry(40, 2000, 12345)),  # of other bytes than are there
        encode_entry(IndexEntry(40, 2**62, 0)) * 5000,
    ],
    ids=["zeros", "torn zeros", "torn", "ones", "beyond", "before", "at base", "other", "many"],
)
def test_what_cannot_be_trusted_is_ignored_and_cut_off(
    tmp_path: Path, segment: int, tail: bytes
) -> None:
    written(tmp_path, segment, (10, 1010), (20, 1500))
    path = tmp_path / f"{BASE:020d}.timeindex"
    path.write_bytes(path.read_bytes() + tail)

    index = loaded(tmp_path, segment)

    assert index.last is not None
    assert index.last.end_offset == 1500
    index.append([(50, 1600)], segment)
    assert path.stat().st_size == 3 * ENTRY_BYTES
    again = loaded(tmp_path, segment).last
    assert again is not None
    assert again.end_offset == 1600


def test_a_segment_that_was_cut_takes_its_later_entries_with_it(
    tmp_path: Path, segment: int
) -> None:
    written(tmp_path, segment, (10, 1010), (20, 1500), (30, 3048))
    index = loaded(tmp_path, segment, size=600)
    assert index.last is not None
    assert index.last.end_offset == 1500


@pytest.mark.parametrize("position", [436, 499])
def test_a_segment_that_was_rewritten_takes_its_later_entries_with_it(
    tmp_path: Path, segment: int, position: int
) -> None:
    written(tmp_path, segment, (10, 1010), (20, 1500))
    FileLayer().pwrite(segment, b"\x01\x02", position)
    index = loaded(tmp_path, segment)
    assert index.last is not None
    assert index.last.end_offset == 1010


def test_a_leftover_of_the_same_name_is_not_taken_for_ours(tmp_path: Path, segment: int) -> None:
    path = tmp_path / f"{BASE:020d}.timeindex"
    path.write_bytes(encode_entry(IndexEntry(1, 1010, crc32(LOG[:10]))) * 3)
    index = new_index(tmp_path)
    index.begin()
    assert index.last is None
    index.append([(7, 1020)], segment)
    assert path.stat().st_size == ENTRY_BYTES


# -- failing ------------------------------------------------------------------------------------


def test_a_failed_append_counts_for_nothing_and_can_be_repeated(
    tmp_path: Path, segment: int
) -> None:
    files = FaultyFiles(error=EIO, only=("pwritev",), fail_at=1)
    index = new_index(tmp_path, files)
    index.begin()
    index.append([(10, 1010)], segment)
    with pytest.raises(OSError, match="Input/output"):
        index.append([(20, 1500)], segment)
    assert index.last is not None
    assert index.last.end_offset == 1010
    index.append([(20, 1500)], segment)
    last = loaded(tmp_path, segment).last
    assert last is not None
    assert last.end_offset == 1500


def test_an_index_that_the_disk_does_not_give_back_is_an_empty_one(
    tmp_path: Path, segment: int
) -> None:
    written(tmp_path, segment, (10, 1010))
    index = new_index(tmp_path, FaultyFiles(0, EIO, only=("pread",)))
    index.load(segment, BASE + len(LOG))
    assert index.last is None
    index.append([(20, 1500)], segment)
    last = loaded(tmp_path, segment).last
    assert last is not None
    assert last.end_offset == 1500


def test_an_index_that_vanished_answers_nothing(tmp_path: Path, segment: int) -> None:
    index = written(tmp_path, segment, (10, 1010), (20, 1500))
    (tmp_path / f"{BASE:020d}.timeindex").unlink()
    assert index.at_time(15) is None
    assert index.first() is None


def test_it_is_synced_when_complete_and_once_in_a_while(tmp_path: Path, segment: int) -> None:
    """Between, the kernel's own writeback does; each entry is checked before it is believed."""
    files = WatchedFiles()
    index = new_index(tmp_path, files)
    index.begin()
    index.append([(1, 1100)], segment)
    assert "fdatasync" not in files.calls
    index.append([(2, 1200)], segment, complete=True)
    assert files.calls.count("fdatasync") == 1
    index.append([(3, 1200 + SYNC_EVERY_BYTES)], segment)
    assert files.calls.count("fdatasync") == 2
    index.append([], segment)
    assert files.calls.count("fdatasync") == 2
    index.append([], segment, complete=True)
    assert files.calls.count("fdatasync") == 3


# -- in a log -----------------------------------------------------------------------------------


class SyncedFiles(WatchedFiles):
    """Knows the names of the files that were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []
        self.meanwhile: list[Callable[[], object]] = []

    def fdatasync(self, descriptor: int) -> None:
        self.synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        while self.meanwhile:
            self.meanwhile.pop()()


@pytest.mark.parametrize("rolls", ["before", "during", "after"])
def test_the_index_of_a_segment_is_synced_whenever_the_log_rolls(
    tmp_path: Path, rolls: str
) -> None:
    files = SyncedFiles()
    log = open_log(tmp_path / "clicks-0", files, log_settings=settings(1000))
    append(log, message("x" * 2000), now_ms=5)

    def roll() -> None:
        append(log, message("y"), now_ms=6)

    if rolls == "during":
        files.meanwhile.append(roll)
    if rolls != "before":
        log.flush()
        assert not [name for name in files.synced if name.endswith(".timeindex")]
    if rolls != "during":
        roll()
    log.flush()
    assert len(list((tmp_path / "clicks-0").glob("*.kafka"))) == 2
    assert f"{0:020d}.timeindex" in files.synced
    assert log.high_watermark == log.end_offset


def test_a_log_writes_one_entry_per_ms_with_appends_after_the_sync(tmp_path: Path) -> None:
    files = WatchedFiles()
    log = open_log(tmp_path / "clicks-0", files)
    path = tmp_path / "clicks-0" / "00000000000000000000.timeindex"
    for time_ms in (5, 5, 5, 6, 9, 9):
        append(log, message("x"), now_ms=time_ms)
    assert not path.exists()
    log.flush()
    data = path.read_bytes()
    entries = [decode_entry(data, start) for start in range(0, len(data), ENTRY_BYTES)]
    assert [entry and entry[:2] for entry in entries] == [(5, 33), (6, 44), (9, 66)]
    assert files.calls.index("fdatasync") < files.calls.index("pwritev")


def test_pending_entries_stay_within_bounds_when_no_flush_comes(tmp_path: Path) -> None:
    log = open_log(tmp_path / "clicks-0")
    for number in range(20_000):
        append(log, b"0123456789", now_ms=number)
    log.flush()
    size = (tmp_path / "clicks-0" / "00000000000000000000.timeindex").stat().st_size
    assert size <= 4096 * ENTRY_BYTES
    assert log.offsets_before(19_999, 1, 30_000) == [200_000]
    # Coarser than one ms, and never beyond what was there.
    (found,) = log.offsets_before(19_000, 1, 30_000)
    assert 180_000 < found <= 190_010


# -- gaps ---------------------------------------------------------------------------------------


def test_the_bytes_of_a_gap_entry() -> None:
    entry = IndexEntry(1_780_000_000_000, 0x1122334455, 0xCAFEBABE, is_gap=True)
    data = bytes.fromhex("0000019e70448800 0000001122334455 cafebabe b54a2855")
    assert encode_entry(entry) == data
    assert decode_entry(data) == entry


def test_what_entries_do_not_tell_of_is_marked_before_them(tmp_path: Path, segment: int) -> None:
    index = new_index(tmp_path)
    index.begin()
    index.append([(10, 1300)], segment, start=1200)
    index.append([(20, 1400)], segment, start=1300)
    index.append([(30, 1500)], segment, start=1450)
    data = (tmp_path / f"{BASE:020d}.timeindex").read_bytes()
    entries = [decode_entry(data, start) for start in range(0, len(data), ENTRY_BYTES)]
    assert [entry and (entry.time_ms, entry.end_offset, entry.is_gap) for entry in entries] == [
        (10, 1200, True),
        (10, 1300, False),
        (20, 1400, False),
        (30, 1450, True),
        (30, 1500, False),
    ]
    assert index.at_time(10) == entries[1]
    assert index.at_offset(1250) == entries[0]
    assert loaded(tmp_path, segment).last == entries[-1]


def test_a_gap_may_be_all_there_is_to_tell(tmp_path: Path, segment: int) -> None:
    index = new_index(tmp_path)
    index.begin()
    index.append([(10, 1300)], segment, start=1300)
    assert count(index) == 1
    assert index.last == IndexEntry(10, 1300, crc32(LOG[300 - TAIL_BYTES : 300]), is_gap=True)
    assert loaded(tmp_path, segment).last == index.last


# -- what a power loss tears --------------------------------------------------------------------

ENTRIES = [(10, 1010), (20, 1500), (30, 1600), (40, 1700), (50, 1800)]


@pytest.mark.parametrize(
    ("torn", "kept", "gaps"),
    [
        ({}, [1010, 1500, 1600, 1700, 1800], []),
        ({0: bytes(24)}, [1500, 1600, 1700, 1800], [1500]),
        ({1: bytes(24), 2: bytes(24)}, [1010, 1700, 1800], [1700]),
        ({1: bytes(24), 3: b"x" * 24}, [1010, 1600, 1800], [1600, 1800]),
        ({2: encode_entry(IndexEntry(30, 1900, 1))}, [1010, 1500, 1700, 1800], [1700]),
        ({2: encode_entry(IndexEntry(60, 1600, 1))}, [1010, 1500, 1700, 1800], [1700]),
        ({2: encode_entry(IndexEntry(5, 1600, 1))}, [1010, 1500, 1700, 1800], [1700]),
    ],
    ids=["nothing", "first", "two", "apart", "stale end", "later", "earlier"],
)
def test_recovery_leaves_out_what_was_torn_between_good_entries(
    tmp_path: Path, segment: int, torn: dict[int, bytes], kept: list[int], gaps: list[int]
) -> None:
    written(tmp_path, segment, *ENTRIES)
    path = tmp_path / f"{BASE:020d}.timeindex"
    data = bytearray(path.read_bytes())
    for number, entry in torn.items():
        data[number * ENTRY_BYTES : (number + 1) * ENTRY_BYTES] = entry
    path.write_bytes(data)
    index = loaded(tmp_path, segment)
    index.mend()
    assert index.last is not None
    assert (count(index), index.last.end_offset) == (len(kept), 1800)
    index.append([(60, 1900)], segment)
    data = bytearray(path.read_bytes())
    found = [decode_entry(data, at) for at in range(0, len(data), ENTRY_BYTES)]
    assert [each and each.end_offset for each in found] == [*kept, 1900]
    assert [each.end_offset for each in found if each and each.is_gap] == gaps


@pytest.mark.parametrize("rest", [bytes(24 * 22), b"x" * 30, b"torn"])
def test_recovery_cuts_off_what_was_torn_at_the_end(
    tmp_path: Path, segment: int, rest: bytes
) -> None:
    written(tmp_path, segment, *ENTRIES)
    path = tmp_path / f"{BASE:020d}.timeindex"
    whole = path.read_bytes()
    path.write_bytes(whole + rest)
    index = loaded(tmp_path, segment)
    index.mend()
    assert path.read_bytes() == whole
    path.write_bytes(rest)
    index = loaded(tmp_path, segment)
    index.mend()
    assert path.read_bytes() == b""
    path.unlink()
    loaded(tmp_path, segment).mend()
    assert not path.exists()


def test_an_index_that_cannot_be_mended_counts_up_to_the_hole(tmp_path: Path, segment: int) -> None:
    written(tmp_path, segment, *ENTRIES)
    path = tmp_path / f"{BASE:020d}.timeindex"
    data = bytearray(path.read_bytes())
    data[2 * ENTRY_BYTES] ^= 1
    path.write_bytes(data)
    index = new_index(tmp_path, FaultyFiles(error=EIO, only=("pwritev",), fail_at=0))
    index.load(segment, BASE + len(LOG))
    with pytest.raises(OSError, match="Input/output"):
        index.mend()
    assert (count(index), index.last and index.last.end_offset) == (2, 1500)
    assert count(loaded(tmp_path, segment)) == 2


def test_only_what_may_not_be_synced_is_looked_at(tmp_path: Path, segment: int) -> None:
    """However long an index is: what is older by so many bytes of log was synced."""
    path = tmp_path / f"{BASE:020d}.timeindex"
    size = 3 * SYNC_EVERY_BYTES
    os.truncate(segment, size)
    ends = range(BASE + size % 5000 + 10_000, BASE + size + 1, 5000)
    crc = crc32(bytes(TAIL_BYTES))
    path.write_bytes(b"".join(encode_entry(IndexEntry(n, end, crc)) for n, end in enumerate(ends)))
    files = WatchedFiles()
    index = new_index(tmp_path, files)
    index.load(segment, BASE + size)
    index.mend()
    assert count(index) == len(ends)
    assert 0 < files.bytes_read < path.stat().st_size / 2
