"""Message boundaries near an offset."""

from pathlib import Path
from threading import Thread

import pytest
from storage_fakes import WatchedFiles
from storage_logs import NOW_MS, append, message, open_log, settings, write_segments

from hermes.errors import OffsetOutOfRangeError
from hermes.storage.kafka_0_7 import NOTE_EVERY_BYTES


def boundaries(parts: list[bytes]) -> list[int]:
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    return ends


@pytest.mark.parametrize("made_by", ["us", "kafka"])
def test_every_offset_of_a_log(tmp_path: Path, made_by: str) -> None:
    parts = [message("x" * (number * 7 % 40)) for number in range(40)]
    if made_by == "us":
        log = open_log(tmp_path / "clicks-0", log_settings=settings(300))
        for number, part in enumerate(parts):
            append(log, part, now_ms=NOW_MS + number // 5)
            if number % 7 == 0:
                log.flush()
        log.flush()
    else:
        segments = [b"".join(parts[start : start + 10]) for start in range(0, 40, 10)]
        write_segments(tmp_path / "clicks-0", segments)
        log = open_log(tmp_path / "clicks-0", clean=True)
    ends = boundaries(parts)
    for offset in range(ends[-1] + 1):
        assert log.boundary_before(offset) == max(end for end in ends if end <= offset)


def test_beyond_the_visible_end_it_is_the_visible_end(tmp_path: Path) -> None:
    log = open_log(tmp_path / "clicks-0")
    append(log, message("one"))
    log.flush()
    append(log, message("two"))
    assert log.boundary_before(10**18) == log.high_watermark == 13
    assert log.boundary_before(20) == 13


def test_an_empty_log_has_the_one_boundary(tmp_path: Path) -> None:
    log = open_log(tmp_path / "clicks-0")
    assert log.boundary_before(0) == log.boundary_before(5) == 0


def test_before_the_earliest_there_is_none(tmp_path: Path) -> None:
    log = open_log(tmp_path / "clicks-0", log_settings=settings(10))
    append(log, message("x"))
    append(log, message("y"))
    log.flush()
    log.delete_oldest(1)
    for offset in (-1, 0, 10):
        with pytest.raises(OffsetOutOfRangeError):
            log.boundary_before(offset)
    assert log.boundary_before(11) == 11


def test_damage_is_stepped_over_as_recovery_does(tmp_path: Path) -> None:
    good = message("good" * 5)
    bad = bytes(40)
    torn = bytearray(message("torn" * 9))
    torn[0:4] = (2**30).to_bytes(4, "big")
    write_segments(tmp_path / "clicks-0", [good + bad + good + bytes(torn) + good])
    log = open_log(tmp_path / "clicks-0", clean=True)
    ends = boundaries([good, bad, good, bytes(torn), good])
    for offset in range(ends[-1]):
        assert log.boundary_before(offset) == max(end for end in ends if end <= offset)


def test_damage_at_the_end_begins_at_a_boundary(tmp_path: Path) -> None:
    write_segments(tmp_path / "clicks-0", [message("good") + b"\xff" * 30])
    log = open_log(tmp_path / "clicks-0", clean=True)
    assert log.boundary_before(25) == 14
    assert log.boundary_before(44) == 44


def test_payloads_are_skipped_and_walks_are_remembered(tmp_path: Path) -> None:
    large = message(b"x" * 1_000_000)
    write_segments(tmp_path / "clicks-0", [large * 20])
    files = WatchedFiles()
    log = open_log(tmp_path / "clicks-0", files, clean=True)
    wanted = 19 * len(large) + 5

    assert log.boundary_before(wanted) == 19 * len(large)
    assert files.bytes_read < 20 * 70_000
    first = files.bytes_read
    assert log.boundary_before(wanted) == 19 * len(large)
    assert files.bytes_read - first <= 2 * (NOTE_EVERY_BYTES // len(large) + 1) * 66_000
    assert log.state.view.segments[0].boundaries.noted == [5 * len(large) * n for n in (1, 2, 3)]


def test_searches_at_once_share_the_walk(tmp_path: Path) -> None:
    large = message(b"x" * 60_000)
    write_segments(tmp_path / "clicks-0", [large * 500])
    wanted = 499 * len(large) + 7
    found = []

    class OneAskedMeanwhile(WatchedFiles):
        def after(self, name, arguments, result):  # type: ignore[no-untyped-def]
            if name == "pread" and self.calls.count("pread") == 20:
                other.start()

    files = OneAskedMeanwhile()
    log = open_log(tmp_path / "clicks-0", files, clean=True)
    other = Thread(target=lambda: found.append(log.boundary_before(wanted)))
    found.append(log.boundary_before(wanted))
    other.join()
    assert found == [499 * len(large)] * 2
    # A chunk leads over two messages. What comes after the last note may be read twice.
    assert files.bytes_read < 250 * 66_000 + NOTE_EVERY_BYTES


def test_our_index_spares_most_of_the_walk(tmp_path: Path) -> None:
    files = WatchedFiles()
    log = open_log(tmp_path / "clicks-0", files)
    for number in range(200):
        append(log, *[message("x" * 90)] * 20, now_ms=NOW_MS + number)
    log.flush()
    files.bytes_read = 0
    assert log.boundary_before(300_050) == 300_000
    assert files.bytes_read < 5000
