"""A log in good health: append, flush, read, roll."""

import os
from pathlib import Path

import pytest
from storage_fakes import WatchedFiles
from storage_logs import NOW_MS, append, kafka_files, message, open_log, read_all, settings

from hermes.errors import LogOfflineError, OffsetOutOfRangeError
from hermes.storage import Log, LogSettings
from hermes.storage.files import IOV_MAX


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path / "clicks-0")


def test_a_new_log_is_empty_and_has_a_segment(log: Log, tmp_path: Path) -> None:
    assert (log.earliest, log.high_watermark, log.end_offset) == (0, 0, 0)
    tail = log.state.tail
    assert (tail.unflushed_bytes, tail.messages, tail.first_ms) == (0, 0, None)
    assert not log.is_offline
    assert kafka_files(tmp_path / "clicks-0") == {"00000000000000000000.kafka": b""}


def test_what_was_appended_is_visible_only_after_a_flush(log: Log) -> None:
    first, second = message("first"), message("second")

    assert append(log, first) == 0
    assert append(log, second, now_ms=NOW_MS + 5) == len(first)

    assert log.end_offset == len(first + second)
    assert log.high_watermark == 0
    assert log.state.tail.unflushed_bytes == len(first + second)
    assert log.state.tail.messages == 2
    assert log.state.tail.first_ms == NOW_MS
    assert log.read(0, 1000).length == 0
    with pytest.raises(OffsetOutOfRangeError):
        log.read(1, 1000)

    assert log.flush() == len(first + second) == log.high_watermark
    tail = log.state.tail
    assert (tail.unflushed_bytes, tail.messages, tail.first_ms) == (0, 0, None)
    assert read_all(log) == first + second


def test_appends_during_a_flush_wait_for_the_next_one(tmp_path: Path) -> None:
    class SlowFiles(WatchedFiles):
        def before(self, name, arguments):  # type: ignore[no-untyped-def]
            if name == "fdatasync" and log.end_offset == len(message("one")):
                append(log, message("two"), now_ms=NOW_MS + 7)
                append(log, message("three"), now_ms=NOW_MS + 8)
                assert log.state.tail.first_ms == NOW_MS
                assert log.state.tail.messages == 3
            return arguments

    log = open_log(tmp_path / "clicks-0", SlowFiles())
    append(log, message("one"))

    assert log.flush() == len(message("one"))
    assert log.state.tail.first_ms == NOW_MS + 7
    assert log.state.tail.messages == 2
    assert read_all(log) == message("one")
    log.flush()
    assert read_all(log) == message("one") + message("two") + message("three")


def test_a_flush_with_nothing_to_do_touches_no_disk(tmp_path: Path) -> None:
    files = WatchedFiles()
    log = open_log(tmp_path / "clicks-0", files)
    append(log, message("one"))
    log.flush()
    done = len(files.calls)

    assert log.flush() == log.end_offset
    assert files.calls[done:] == ["stat"], "whether the directory is still there"


@pytest.mark.parametrize("buffers", [1, 2, IOV_MAX, IOV_MAX + 1, 3 * IOV_MAX])
def test_any_number_of_buffers_is_appended_in_order(log: Log, buffers: int) -> None:
    parts = [message(f"{number}") for number in range(buffers)]
    parts[1::2] = [memoryview(bytearray(part)) for part in parts[1::2]]
    size = sum(map(len, parts))

    assert log.append(parts, size, buffers, NOW_MS) == 0
    log.flush()

    assert read_all(log) == b"".join(parts)


def test_an_append_of_nothing_changes_nothing(log: Log) -> None:
    append(log, message("one"))
    before = log.end_offset
    assert log.append([b""], 0, 0, NOW_MS) == before
    assert log.append([], 0, 0, NOW_MS) == before
    log.flush()
    assert read_all(log) == message("one")


def test_a_wrong_byte_count_is_the_callers_fault_and_leaves_no_trace(log: Log) -> None:
    append(log, message("one"))
    with pytest.raises(ValueError, match="byte_count is 9, the buffers hold 3"):
        log.append([b"abc"], 9, 1, NOW_MS)
    append(log, message("two"))
    log.flush()
    assert read_all(log) == message("one") + message("two")


@pytest.mark.parametrize("max_bytes", [1, 3, 10, 1000])
def test_reads_start_anywhere_and_are_cut_anywhere(log: Log, max_bytes: int) -> None:
    data = b"".join(message(f"message {number}") for number in range(9))
    append(log, data)
    log.flush()
    for offset in range(len(data) + 1):
        with log.read(offset, max_bytes) as part:
            expected = data[offset : offset + max_bytes]
            assert part.length == len(expected)
            if expected:
                assert os.pread(part.fileno(), part.length, part.position) == expected
        assert read_all(log, offset, max_bytes) == data[offset:]


def test_offsets_outside_the_log_are_refused(log: Log) -> None:
    append(log, message("one"))
    log.flush()
    for offset in (-1, log.high_watermark + 1, -(2**63), 2**63 - 1):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.read(offset, 10)
        assert (caught.value.earliest, caught.value.latest) == (0, log.high_watermark)


@pytest.mark.parametrize("max_bytes", [0, -5])
def test_a_read_of_no_bytes_is_empty_but_still_checks_the_offset(log: Log, max_bytes: int) -> None:
    append(log, message("one"))
    log.flush()
    assert log.read(0, max_bytes).length == 0
    with pytest.raises(OffsetOutOfRangeError):
        log.read(99, max_bytes)


# -- rolling ------------------------------------------------------------------------------------


def test_it_rolls_before_an_append_when_strictly_larger_as_0_7_does(tmp_path: Path) -> None:
    """0.7 with log.file.size=100 and messages of 38 bytes makes segments of 114 (vector roll-0)."""
    log = open_log(tmp_path / "roll-0", log_settings=settings(100))
    for number in range(14):
        append(log, message(f"roll-{number:02d}-".ljust(28, ".")))
    log.flush()
    sizes = {name: len(data) for name, data in kafka_files(tmp_path / "roll-0").items()}
    assert sizes == {
        "00000000000000000000.kafka": 114,
        "00000000000000000114.kafka": 114,
        "00000000000000000228.kafka": 114,
        "00000000000000000342.kafka": 114,
        "00000000000000000456.kafka": 76,
    }


def test_a_segment_of_exactly_the_limit_is_not_rolled(tmp_path: Path) -> None:
    log = open_log(tmp_path / "roll-0", log_settings=settings(20))
    append(log, message("0123456789"))
    assert log.end_offset == 20
    append(log, message("0123456789"))
    append(log, message("0123456789"))
    log.flush()
    assert [info.size_bytes for info in log.segment_infos()] == [40, 20]


def test_it_rolls_when_the_first_append_is_older_than_the_limit(tmp_path: Path) -> None:
    log = open_log(tmp_path / "clicks-0", log_settings=LogSettings(segment_age_ms=1000))
    for after_ms in (0, 999, 1000, 1001, 2001, 2002):
        append(log, message("x"), now_ms=NOW_MS + after_ms)
    log.flush()
    assert [info.size_bytes for info in log.segment_infos()] == [33, 22, 11]


def test_the_age_counts_from_the_first_append_even_after_a_restart(tmp_path: Path) -> None:
    aging = LogSettings(segment_age_ms=1000)
    log = open_log(tmp_path / "clicks-0", log_settings=aging)
    append(log, message("x"), now_ms=NOW_MS)
    append(log, message("x"), now_ms=NOW_MS + 500)
    log.flush()
    log.close()

    log = open_log(tmp_path / "clicks-0", log_settings=aging, clean=True)
    append(log, message("x"), now_ms=NOW_MS + 1000)
    append(log, message("x"), now_ms=NOW_MS + 1001)
    assert [info.size_bytes for info in log.segment_infos()] == [33, 11]


def test_a_clock_that_was_ahead_when_a_segment_began_does_not_keep_it_for_ever(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path / "clicks-0", log_settings=LogSettings(segment_age_ms=1000))
    append(log, message("x"), now_ms=NOW_MS + 10**12)
    log.flush()
    append(log, message("x"), now_ms=NOW_MS)
    append(log, message("x"), now_ms=NOW_MS + 1001)
    assert [info.size_bytes for info in log.segment_infos()] == [22, 11]


def test_an_empty_segment_is_never_rolled(tmp_path: Path) -> None:
    log = open_log(tmp_path / "clicks-0", log_settings=LogSettings(0, 0))
    append(log, message("x"), now_ms=NOW_MS + 10**9)
    append(log, message("y"), now_ms=NOW_MS + 2 * 10**9)
    log.flush()
    assert [info.size_bytes for info in log.segment_infos()] == [11, 11]


def test_rolling_does_not_wait_for_the_disk_and_keeps_0_7s_promise(tmp_path: Path) -> None:
    """A name ends in .kafka only when every byte before it is on disk."""
    files = WatchedFiles()
    log = open_log(tmp_path / "roll-0", files, log_settings=settings(10))
    for _ in range(3):
        append(log, message("x"))
    assert not {"fdatasync", "fsync_directory"} & set(files.calls)
    assert sorted(os.listdir(log.directory)) == [
        "00000000000000000000.kafka",
        "00000000000000000011.unflushed",
        "00000000000000000022.unflushed",
    ]
    log.flush()
    assert list(kafka_files(tmp_path / "roll-0")) == [
        "00000000000000000000.kafka",
        "00000000000000000011.kafka",
        "00000000000000000022.kafka",
    ]
    renamed = files.calls.index("rename")
    assert files.calls[:renamed].count("fdatasync") == 3
    assert files.calls[:renamed].count("fsync_directory") == 1


def test_a_log_that_is_flushed_rolls_to_the_final_name_at_once(tmp_path: Path) -> None:
    log = open_log(tmp_path / "roll-0", log_settings=settings(10))
    append(log, message("x"))
    log.flush()
    append(log, message("y"))
    assert "00000000000000000011.kafka" in kafka_files(tmp_path / "roll-0")


@pytest.mark.parametrize("suffix", ["kafka", "unflushed"])
def test_rolling_never_takes_over_a_file_that_is_there(tmp_path: Path, suffix: str) -> None:
    log = open_log(tmp_path / "roll-0", log_settings=settings(10))
    append(log, message("x"))
    foreign = tmp_path / "roll-0" / f"00000000000000000011.{suffix}"
    foreign.write_bytes(b"somebody's")

    with pytest.raises(LogOfflineError, match="exists already"):
        append(log, message("y"))

    assert foreign.read_bytes() == b"somebody's"
    assert log.is_offline
    assert "exists already" in str(log.offline_reason)


def test_an_answer_never_crosses_a_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path / "roll-0", log_settings=settings(10))
    for _ in range(3):
        append(log, message("x"))
    log.flush()
    assert [log.read(offset, 1000).length for offset in (0, 5, 11, 30, 32)] == [11, 6, 11, 3, 1]
    assert log.read(33, 1000).length == 0


# -- ending -------------------------------------------------------------------------------------


def test_a_closed_log_refuses_everything_and_closes_its_descriptors(tmp_path: Path) -> None:
    files = WatchedFiles()
    log = open_log(tmp_path / "clicks-0", files)
    append(log, message("x"))
    log.flush()
    append(log, message("y"))
    log.close()
    log.close()
    assert files.opened == set()
    for call in (
        lambda: append(log, message("z")),
        log.flush,
        lambda: log.read(0, 10),
        lambda: log.reopen(NOW_MS),
    ):
        with pytest.raises(LogOfflineError, match="closed"):
            call()


def test_a_log_that_was_never_opened_says_so(tmp_path: Path) -> None:
    log = Log("clicks", 0, str(tmp_path), LogSettings())
    assert log.is_offline
    assert (log.earliest, log.high_watermark) == (0, 0)
    assert log.segment_infos() == ()
    for call in (
        lambda: append(log, message("z")),
        log.flush,
        lambda: log.read(0, 10),
        lambda: log.offsets_before(-1, 1, NOW_MS),
        lambda: log.boundary_before(0),
        lambda: log.delete_oldest(1),
    ):
        with pytest.raises(LogOfflineError, match="not opened yet"):
            call()
