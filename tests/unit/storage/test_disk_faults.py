"""A log on a disk that fails: full, dying, or out of descriptors."""

from errno import EDQUOT, EFBIG, EIO, EMFILE, ENOSPC
from pathlib import Path

import pytest
from storage_fakes import WRITES, FaultyFiles
from storage_logs import NOW_MS, append, kafka_files, message, open_log, read_all, settings

from hermes.errors import (
    DiskFullError,
    LogOfflineError,
    OffsetOutOfRangeError,
    StorageError,
    UncertainAppendError,
)
from hermes.storage import DataDirectory, Log


def faulty_log(tmp_path: Path, files: FaultyFiles, segment_bytes: int = 1 << 30) -> Log:
    """A log with one message flushed, on a layer that may start failing."""
    log = open_log(tmp_path / "clicks-0", files, log_settings=settings(segment_bytes))
    append(log, message("first"))
    log.flush()
    files.counted = 0
    return log


# -- no room ------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ENOSPC, EDQUOT, EFBIG])
def test_a_full_disk_refuses_the_append_and_later_ones_go_on(tmp_path: Path, error: int) -> None:
    files = FaultyFiles(error=error, only=WRITES)
    log = faulty_log(tmp_path, files)
    end = log.end_offset

    files.fail_at = 0
    with pytest.raises(DiskFullError, match=r"clicks-0: append at offset 15"):
        append(log, message("refused"))

    assert not log.is_offline
    assert log.end_offset == end
    assert log.state.tail.messages == 0
    assert read_all(log) == message("first")
    assert append(log, message("later")) == end
    log.flush()
    assert kafka_files(tmp_path / "clicks-0").popitem()[1] == message("first") + message("later")


def test_what_a_full_disk_took_of_an_append_is_cut_off(tmp_path: Path) -> None:
    class FillingFiles(FaultyFiles):
        """Takes half of a write, then has no room."""

        def before(self, name, arguments):  # type: ignore[no-untyped-def]
            if name in WRITES and self.counted:
                self.error = ENOSPC
                self.fail_at = 1
            return super().before(name, arguments)

    files = FillingFiles(only=WRITES)
    log = faulty_log(tmp_path, files)
    files.fail_at, files.error = 0, None

    with pytest.raises(DiskFullError):
        log.append([message("refused"), message("too")], 30, 2, NOW_MS)

    assert files.counted == 2
    assert kafka_files(tmp_path / "clicks-0").popitem()[1] == message("first")


def test_no_room_for_a_new_segment_leaves_the_log_as_it_is(tmp_path: Path) -> None:
    files = FaultyFiles(error=ENOSPC, only=("open_new",))
    log = faulty_log(tmp_path, files, segment_bytes=10)
    files.fail_at = 0

    with pytest.raises(DiskFullError):
        append(log, message("refused"))
    assert not log.is_offline
    append(log, message("later"))
    log.flush()

    assert list(kafka_files(tmp_path / "clicks-0").values()) == [message("first"), message("later")]


def test_a_full_disk_that_cannot_even_cut_takes_the_log_offline(tmp_path: Path) -> None:
    files = FaultyFiles(error=ENOSPC, only=(*WRITES, "ftruncate"), stays=True)
    log = faulty_log(tmp_path, files)
    files.fail_at = 0

    with pytest.raises(UncertainAppendError):
        append(log, message("refused"))
    assert log.is_offline
    assert read_all(log) == message("first")


# -- short writes -------------------------------------------------------------------------------


@pytest.mark.parametrize("buffers", [1, 2, 1500])
@pytest.mark.parametrize("at", [0, 1])
def test_a_short_write_is_continued(tmp_path: Path, buffers: int, at: int) -> None:
    files = FaultyFiles(error=None, only=WRITES)
    log = faulty_log(tmp_path, files)
    parts = [message(f"{number}") for number in range(buffers)]
    files.fail_at = at

    for _ in range(2):
        log.append(parts, sum(map(len, parts)), buffers, NOW_MS)
    log.flush()

    assert files.failed == 1
    assert read_all(log) == message("first") + 2 * b"".join(parts)


# -- a dying disk -------------------------------------------------------------------------------


def test_an_io_error_in_an_append_takes_the_log_offline_and_reopening_brings_it_back(
    tmp_path: Path,
) -> None:
    files = FaultyFiles(error=EIO, only=WRITES)
    log = faulty_log(tmp_path, files)
    append(log, message("written"))
    files.fail_at = 1
    with pytest.raises(LogOfflineError, match="Input/output error"):
        append(log, message("refused"))

    assert log.is_offline
    assert "append at offset 32" in str(log.offline_reason)
    with pytest.raises(LogOfflineError):
        append(log, message("refused"))
    with pytest.raises(LogOfflineError):
        log.flush()
    assert read_all(log) == message("first")

    report = log.reopen(NOW_MS)
    assert (report.messages, report.dropped_bytes) == (1, 0)
    assert not log.is_offline
    assert read_all(log) == message("first") + message("written")
    append(log, message("later"))
    log.flush()
    assert read_all(log) == message("first") + message("written") + message("later")


class HalfFiles(FaultyFiles):
    """Takes half of a write, then fails."""

    def before(self, name, arguments):  # type: ignore[no-untyped-def]
        if name in WRITES and self.counted == 1:
            self.error = EIO
            self.stays = True
        return super().before(name, arguments)


@pytest.mark.parametrize("restarted", [False, True], ids=["reopened", "killed and started"])
def test_bytes_of_a_refused_append_do_not_come_back(tmp_path: Path, restarted: bool) -> None:
    """The first buffer is a whole message and was written; its append was refused all the same."""
    files = HalfFiles(only=WRITES)
    log = faulty_log(tmp_path, files)
    files.fail_at, files.error, files.stays = 0, None, False
    same = message("refused")
    with pytest.raises(LogOfflineError):
        log.append([same, same], 2 * len(same), 2, NOW_MS)
    assert files.counted == 2
    files.fail_at = None

    if restarted:
        log = open_log(tmp_path / "clicks-0")
    else:
        log.reopen(NOW_MS)

    assert read_all(log) == message("first")


def test_a_failed_fsync_is_never_tried_again_as_if_nothing_had_happened(tmp_path: Path) -> None:
    files = FaultyFiles(error=EIO, only=("fdatasync",))
    log = faulty_log(tmp_path, files)
    append(log, message("second"), message("third"))
    files.fail_at = 0
    with pytest.raises(LogOfflineError, match="flush up to offset"):
        log.flush()
    synced = files.calls.count("fdatasync")

    for _ in range(3):
        with pytest.raises(LogOfflineError):
            log.flush()
    assert files.calls.count("fdatasync") == synced
    assert log.high_watermark == len(message("first"))
    assert log.state.tail.messages == 2


def test_reopening_writes_the_tail_again_before_it_syncs(tmp_path: Path) -> None:
    """The kernel may have marked the pages clean that it failed to write."""
    files = FaultyFiles(error=EIO, only=("fdatasync",))
    log = faulty_log(tmp_path, files)
    append(log, message("second"))
    files.fail_at = 0
    with pytest.raises(LogOfflineError):
        log.flush()
    # What such a kernel does: the page's bytes were never written and are dropped from memory.
    segment = tmp_path / "clicks-0" / "00000000000000000000.kafka"
    done = len(files.calls)

    log.reopen(NOW_MS)

    calls = files.calls[done:]
    assert calls.index("pwritev") < calls.index("fdatasync")
    assert segment.read_bytes() == message("first") + message("second")
    assert log.high_watermark == log.end_offset == segment.stat().st_size


def test_what_the_disk_lost_is_dropped_and_counted_when_reopening(tmp_path: Path) -> None:
    files = FaultyFiles(error=EIO, only=("fdatasync",))
    log = faulty_log(tmp_path, files)
    append(log, message("kept"), message("lost!"), message("after"))
    files.fail_at = 0
    with pytest.raises(LogOfflineError):
        log.flush()
    kept = len(message("first") + message("kept"))
    path = tmp_path / "clicks-0" / "00000000000000000000.kafka"
    path.write_bytes(path.read_bytes()[:kept] + bytes(30))

    report = log.reopen(NOW_MS)

    assert report.dropped_bytes == 30
    assert log.end_offset == log.high_watermark == path.stat().st_size == kept
    assert read_all(log) == message("first") + message("kept")


def test_reopening_over_several_unflushed_segments(tmp_path: Path) -> None:
    files = FaultyFiles(error=EIO, only=("fdatasync",))
    log = faulty_log(tmp_path, files, segment_bytes=10)
    texts = [message(f"number {number}") for number in range(4)]
    for number, text in enumerate(texts):
        append(log, text, now_ms=NOW_MS + number)
    files.fail_at = 2
    with pytest.raises(LogOfflineError):
        log.flush()

    report = log.reopen(NOW_MS)

    assert (report.messages, report.dropped_bytes) == (4, 0)
    assert read_all(log) == message("first") + b"".join(texts)
    assert len(kafka_files(tmp_path / "clicks-0")) == 5
    assert [info.last_append_ms for info in log.segment_infos()] == [
        NOW_MS,
        *(NOW_MS + number for number in range(4)),
    ]


def test_a_disk_that_still_fails_keeps_the_log_offline(tmp_path: Path) -> None:
    files = FaultyFiles(error=EIO, only=("fdatasync",), stays=True)
    log = faulty_log(tmp_path, files)
    append(log, message("second"))
    files.fail_at = 0
    with pytest.raises(LogOfflineError):
        log.flush()
    for _ in range(2):
        with pytest.raises(LogOfflineError, match="reopen"):
            log.reopen(NOW_MS)
        assert log.is_offline
    files.fail_at = None
    assert log.reopen(NOW_MS).dropped_bytes == 0
    assert read_all(log) == message("first") + message("second")


def test_reopening_a_healthy_log_changes_nothing(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = faulty_log(tmp_path, files)
    append(log, message("second"))
    done = len(files.calls)
    assert log.reopen(NOW_MS).dropped_bytes == 0
    assert files.calls[done:] == []
    assert log.state.tail.messages == 1


def test_one_bad_log_leaves_the_others_alone(tmp_path: Path) -> None:
    files = FaultyFiles(error=EIO, only=(*WRITES, "fdatasync"), path_part="bad-0", stays=True)
    directory = DataDirectory(tmp_path / "logs", lambda topic: settings(), files)
    directory.open(NOW_MS)
    bad, good = directory.create("bad", 0), directory.create("good", 0)
    for log in (bad, good):
        append(log, message("first"))
        log.flush()
    files.fail_at = files.counted

    with pytest.raises(LogOfflineError):
        append(bad, message("second"))
    append(good, message("second"))
    good.flush()

    assert read_all(good) == message("first") + message("second")
    assert read_all(bad) == message("first")
    assert directory.close() is False


# -- the index, descriptors, deletes ------------------------------------------------------------


def test_an_index_that_cannot_be_written_costs_no_message(tmp_path: Path) -> None:
    files = FaultyFiles(error=ENOSPC, path_part=".timeindex", stays=True, fail_at=0)
    log = faulty_log(tmp_path, files)
    append(log, message("second"), now_ms=NOW_MS + 1)

    assert log.flush() == log.end_offset
    assert log.index_failures == 2
    assert not log.is_offline
    assert read_all(log) == message("first") + message("second")

    files.fail_at = None
    append(log, message("third"), now_ms=NOW_MS + 2)
    log.flush()
    assert log.segment_infos()[0].last_append_ms == NOW_MS + 2


def test_without_a_descriptor_the_append_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    files = FaultyFiles(error=EMFILE, only=("open_append", "open_new", "open_read"), stays=True)
    log = faulty_log(tmp_path, files, segment_bytes=10)
    files.fail_at = 0
    with pytest.raises(StorageError, match="Too many open files"):
        append(log, message("second"))
    assert not log.is_offline
    files.fail_at = None
    append(log, message("second"))
    log.flush()
    assert read_all(log) == message("first") + message("second")


def test_when_descriptors_run_out_idle_ones_are_given_up_first(tmp_path: Path) -> None:
    files = FaultyFiles(error=EMFILE, only=("open_append", "open_new", "open_read"))
    log = faulty_log(tmp_path, files, segment_bytes=10)
    append(log, message("second"))
    log.flush()
    read_all(log)
    assert files.opened
    files.fail_at = files.counted
    append(log, message("third"))
    assert files.failed == 1
    log.flush()
    assert read_all(log) == message("first") + message("second") + message("third")


@pytest.mark.parametrize("number", range(3))
def test_a_flush_without_a_descriptor_is_tried_again(tmp_path: Path, number: int) -> None:
    """The directory is opened for two segments' names, its parent for its own, and for renames."""
    files = FaultyFiles(error=EMFILE, only=("fsync_directory",), stays=True)
    log = Log("clicks", 0, str(tmp_path / "clicks-0"), settings(10), files)
    (tmp_path / "clicks-0").mkdir()
    log.open(clean=False, now_ms=NOW_MS, is_new_directory=True)
    texts = [message(f"number {number}") for number in range(3)]
    for at, text in enumerate(texts):
        append(log, text, now_ms=NOW_MS + at)
    files.fail_at = files.counted + number
    for _ in range(2):
        with pytest.raises(StorageError, match="Too many open files") as caught:
            log.flush()
        assert not isinstance(caught.value, LogOfflineError)
    assert (log.is_offline, log.high_watermark, log.state.tail.messages) == (False, 0, 3)
    assert log.state.tail.first_ms == NOW_MS
    append(log, message("later"), now_ms=NOW_MS + 3)
    files.fail_at = None
    done = len(files.calls)

    assert log.flush() == log.end_offset

    assert "fsync_directory" in files.calls[done:]
    assert read_all(log) == b"".join(texts) + message("later")
    assert [info.last_append_ms for info in log.segment_infos()] == [NOW_MS + n for n in range(4)]
    assert not list((tmp_path / "clicks-0").glob("*.unflushed"))


def test_an_append_during_a_flush_of_nothing_that_fails_still_has_a_time(tmp_path: Path) -> None:
    """A flush that is due by the age of the oldest append would never come."""

    class Meanwhile(FaultyFiles):
        def before(self, name, arguments):  # type: ignore[no-untyped-def]
            if name == "fsync_directory" and not log.end_offset:
                append(log, message("meanwhile"), now_ms=NOW_MS + 5)
            return super().before(name, arguments)

    files = Meanwhile(error=EMFILE, only=("fsync_directory",), stays=True)
    log = Log("clicks", 0, str(tmp_path / "clicks-0"), settings(), files)
    (tmp_path / "clicks-0").mkdir()
    log.open(clean=False, now_ms=NOW_MS, is_new_directory=True)
    files.fail_at = files.counted
    with pytest.raises(StorageError, match="Too many open files"):
        log.flush()
    assert log.state.tail.first_ms == NOW_MS + 5
    files.fail_at = None
    log.flush()
    assert log.state.tail.first_ms is None


def test_a_read_without_a_descriptor_is_an_error_of_ours(tmp_path: Path) -> None:
    files = FaultyFiles(error=EMFILE, only=("open_append", "open_read"), stays=True)
    log = open_log(tmp_path / "clicks-0", files)
    append(log, message("first"))
    log.flush()
    log.state.descriptors.close_idle()
    files.fail_at = files.counted
    with pytest.raises(StorageError, match="Too many open files"):
        log.read(0, 10)


def test_a_delete_that_fails_half_way_leaves_a_log_that_works(tmp_path: Path) -> None:
    files = FaultyFiles(error=EIO, only=("unlink",), path_part=".kafka")
    log = open_log(tmp_path / "roll-0", files, log_settings=settings(10))
    for number in range(4):
        append(log, message(f"{number}"))
    log.flush()
    files.fail_at = 1

    with pytest.raises(StorageError, match="delete segments"):
        log.delete_oldest(3)

    assert log.earliest == 33
    assert read_all(log) == message("3")
    with pytest.raises(OffsetOutOfRangeError):
        log.read(22, 10)
    log.close()
    again = open_log(tmp_path / "roll-0", log_settings=settings(10))
    assert read_all(again) == b"".join(message(f"{number}") for number in (1, 2, 3))
