"""Logs cut, overwritten and damaged at every place: what recovery keeps, and that it is stable."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from storage_fakes import WatchedFiles
from storage_logs import (
    NOW_MS,
    all_files,
    append,
    kafka_files,
    message,
    open_log,
    read_all,
    settings,
    write_segments,
)

from hermes.protocol import Codec, encode_message_set
from hermes.storage import FileLayer, RecoveryReport, scan


def mixed_messages(count: int, seed: int = 1) -> list[bytes]:
    """Plain, empty, compressed, and Snappy sets in which whole messages stand in plain sight."""
    random = Random(seed)
    kinds = (
        lambda: message(random.randbytes(random.randint(0, 40))),
        lambda: message(""),
        lambda: encode_message_set([random.randbytes(20) for _ in range(3)], Codec.SNAPPY),
        lambda: encode_message_set([b"text " * 9] * 3, Codec.GZIP),
        lambda: message(message("a message in a message") * 2),
    )
    return [kinds[number % len(kinds)]() for number in range(count)]


def longest_valid(messages: Sequence[bytes], length: int) -> int:
    """How many of the first `length` bytes are whole messages."""
    end = 0
    for each in messages:
        if end + len(each) > length:
            break
        end += len(each)
    return end


def same_start(one: bytes, other: bytes) -> int:
    """How many bytes two strings share from the start: lost bytes may have been the same."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


class Laid:
    """A log of three segments on disk, written by us or as Kafka leaves it."""

    def __init__(self, directory: Path, made_by: str) -> None:
        self.directory = directory
        self.segments = [mixed_messages(5, 1), mixed_messages(5, 2), mixed_messages(10, 3)]
        self.data = [b"".join(messages) for messages in self.segments]
        if made_by == "kafka":
            write_segments(directory, self.data)
            return
        log = open_log(directory, log_settings=settings(1))
        for number, segment in enumerate(self.segments):
            append(log, segment[0], now_ms=NOW_MS + number)
            log.settings = settings(1 << 30)
            for each in segment[1:]:
                append(log, each, now_ms=NOW_MS + number)
                log.flush()
            log.settings = settings(1)
        log.flush()
        log.close()

    @property
    def last(self) -> Path:
        return max(self.directory.glob("*.kafka"))

    def check_recovery(self, directory: Path, kept: int) -> None:
        """Recover, and again: the last segment keeps so many bytes, and then nothing changes."""
        for _ in range(2):
            log = open_log(directory)
            assert read_all(log) == self.data[0] + self.data[1] + self.data[2][:kept]
            log.close()
            assert list(kafka_files(directory).values()) == [*self.data[:2], self.data[2][:kept]]
        before = all_files(directory)
        open_log(directory).close()
        assert all_files(directory) == before


@pytest.fixture(params=["us", "kafka"])
def laid(request: pytest.FixtureRequest, tmp_path: Path) -> Laid:
    return Laid(tmp_path / "clicks-0", request.param)


def test_cut_at_every_byte_of_the_last_segment(laid: Laid, tmp_path: Path) -> None:
    messages = laid.segments[2]
    for length in range(len(laid.data[2]) + 1):
        copy = tmp_path / f"copy-{length}"
        shutil.copytree(laid.directory, copy)
        os.truncate(copy / laid.last.name, length)
        laid.check_recovery(copy, longest_valid(messages, length))
        shutil.rmtree(copy)


@pytest.mark.parametrize("kind", ["zeros", "ones", "noise"])
def test_a_tail_that_was_never_written_at_every_byte(laid: Laid, tmp_path: Path, kind: str) -> None:
    """The file has its length, but from some byte on not its content."""
    random = Random(9)
    total = len(laid.data[2])
    for length in range(0, total, 3):
        copy = tmp_path / f"copy-{length}"
        shutil.copytree(laid.directory, copy)
        missing = total - length
        tail = {"zeros": bytes(missing), "ones": b"\xff" * missing}.get(kind)
        content = laid.data[2][:length] + (random.randbytes(missing) if tail is None else tail)
        (copy / laid.last.name).write_bytes(content)
        kept = longest_valid(laid.segments[2], same_start(content, laid.data[2]))
        laid.check_recovery(copy, kept)
        shutil.rmtree(copy)


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 3000, b"GARBAGE!!", Random(4).randbytes(3000)])
def test_a_tail_of_something_else(laid: Laid, tmp_path: Path, tail: bytes) -> None:
    with laid.last.open("ab") as file:
        file.write(tail)
    laid.check_recovery(laid.directory, len(laid.data[2]))


@pytest.mark.parametrize("block", [bytes(64), Random(5).randbytes(64)], ids=["zeros", "noise"])
def test_a_lost_block_in_the_middle_costs_only_what_it_hits(tmp_path: Path, block: bytes) -> None:
    messages = mixed_messages(30)
    data = b"".join(messages)
    for start in range(0, len(data) - len(messages[-1]) - len(block), 37):
        damaged = data[:start] + block + data[start + len(block) :]
        write_segments(tmp_path / f"clicks-{start}", [damaged])
        log = open_log(tmp_path / f"clicks-{start}")
        assert read_all(log) == damaged
        assert log.end_offset == len(data)
        log.close()


# -- every bit ----------------------------------------------------------------------------------


class MemoryFiles(FileLayer):
    """One file, in memory."""

    def __init__(self, data: bytearray) -> None:
        self.data = data

    def pread(self, descriptor, length, position):  # type: ignore[no-untyped-def, override]
        return bytes(self.data[position : position + length])


def four_kib() -> list[bytes]:
    messages: list[bytes] = []
    for each in mixed_messages(1000, 11):
        if sum(map(len, messages)) + len(each) > 4096:
            break
        messages.append(each)
    assert sum(map(len, messages)) > 4000
    return messages


def test_a_flip_of_every_bit_throws_nothing_away_that_follows() -> None:
    messages = four_kib()
    data = bytearray(b"".join(messages))
    start = 0
    for number, each in enumerate(messages):
        end = start + len(each)
        for position in range(start, end):
            for bit in range(8):
                data[position] ^= 1 << bit
                report = scan(MemoryFiles(data), 0, 0, len(data), max_message_bytes=100_000)
                data[position] ^= 1 << bit
                if position == start + 5:
                    # The attributes: no CRC covers them, so the message is as good as before.
                    assert report == RecoveryReport(0, len(data), len(messages))
                elif number < len(messages) - 1:
                    expected = RecoveryReport(0, len(data), len(messages) - 1, ((start, end),))
                    assert report == expected, (position, bit)
                else:
                    expected = RecoveryReport(0, start, number, (), len(each))
                    assert report == expected, (position, bit)
        start = end


@pytest.mark.parametrize("made_by", ["us", "kafka"])
def test_opening_a_log_with_a_flipped_bit_keeps_every_byte_but_a_bad_tail(
    tmp_path: Path, made_by: str
) -> None:
    messages = four_kib()
    data = b"".join(messages)
    whole = tmp_path / "whole-0"
    if made_by == "kafka":
        write_segments(whole, [data])
    else:
        log = open_log(whole)
        for number, each in enumerate(messages):
            append(log, each, now_ms=NOW_MS + number)
        log.flush()
        log.close()
    last = len(data) - len(messages[-1])
    for bit in range(0, len(data) * 8, 61):
        copy = tmp_path / f"clicks-{bit}"
        shutil.copytree(whole, copy)
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        (copy / "00000000000000000000.kafka").write_bytes(flipped)
        log = open_log(copy)
        is_tail = bit // 8 >= last and bit // 8 != last + 5
        assert read_all(log) == (flipped[:last] if is_tail else flipped)
        log.close()
        shutil.rmtree(copy)


# -- cost ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("flushed_bytes", [0, 100_000, 3_000_000])
@pytest.mark.parametrize("unflushed_bytes", [0, 1000, 100_000])
def test_recovery_reads_what_was_not_flushed_however_large_the_segment(
    tmp_path: Path, flushed_bytes: int, unflushed_bytes: int
) -> None:
    log = open_log(tmp_path / "clicks-0", WatchedFiles())
    chunk = message("x" * 490) * 20
    for number in range(flushed_bytes // len(chunk)):
        append(log, chunk, now_ms=NOW_MS + number)
        if number % 10 == 9:
            log.flush()
    log.flush()
    for _ in range(unflushed_bytes // 500):
        append(log, chunk[:500], now_ms=NOW_MS + 10**6)
    end = log.end_offset
    log.close()

    files = WatchedFiles()
    log = open_log(tmp_path / "clicks-0", files)

    assert log.high_watermark == end
    index = tmp_path / "clicks-0" / "00000000000000000000.timeindex"
    # Once for its last entry, once for what a power loss may have torn before that.
    index_bytes = 2 * index.stat().st_size if end else 0
    assert files.bytes_read <= 2 * unflushed_bytes + index_bytes + 200
    log.close()
    # What was found is on disk now, and the next look costs next to nothing.
    files = WatchedFiles()
    open_log(tmp_path / "clicks-0", files).close()
    assert files.bytes_read <= index_bytes + 24 + 64
    assert "fdatasync" not in files.calls
