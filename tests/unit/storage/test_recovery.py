"""The scan: which bytes are messages, and what follows damage."""

import random
import zlib
from pathlib import Path

import pytest
from storage_fakes import WatchedFiles
from storage_logs import message

from hermes.protocol import Codec, encode_message_set
from hermes.storage import RecoveryReport, scan

LIMIT = 2000


def scan_bytes(
    tmp_path: Path, data: bytes, *, start: int = 0, base: int = 0, limit: int = LIMIT
) -> RecoveryReport:
    path = tmp_path / "segment"
    path.write_bytes(data)
    files = WatchedFiles()
    descriptor = files.open_read(str(path))
    try:
        return scan(
            files,
            descriptor,
            start + base,
            base + len(data),
            base_offset=base,
            max_message_bytes=limit,
        )
    finally:
        files.close(descriptor)


def resized(data: bytes, size: int) -> bytes:
    """A message whose size field says something else."""
    return size.to_bytes(4, "big", signed=True) + data[4:]


ONE, TWO, THREE = (message(text * 20) for text in ("one", "two", "three"))
# Snappy stores what it can't compress as it is: whole messages stand inside it in plain sight.
EMBEDDED = encode_message_set([random.Random(1).randbytes(40) for _ in range(4)], Codec.SNAPPY)
assert message(random.Random(1).randbytes(40)) in EMBEDDED


@pytest.mark.parametrize("base", [0, 12345])
def test_valid_messages_of_all_kinds(tmp_path: Path, base: int) -> None:
    magic0 = b"\0\0\0\x08\0" + zlib.crc32(b"old").to_bytes(4, "big") + b"old"
    empty = message("")
    data = ONE + magic0 + empty + EMBEDDED + TWO
    assert scan_bytes(tmp_path, data, base=base) == RecoveryReport(base, base + len(data), 5)


def test_nothing_at_all(tmp_path: Path) -> None:
    assert scan_bytes(tmp_path, b"") == RecoveryReport(0, 0)


def test_it_starts_where_it_is_told(tmp_path: Path) -> None:
    report = scan_bytes(tmp_path, b"?" * 50 + ONE + TWO, start=50)
    assert report == RecoveryReport(50, 50 + len(ONE + TWO), 2)


def test_a_message_larger_than_a_chunk_and_than_the_limit_is_valid(tmp_path: Path) -> None:
    large = message(random.Random(2).randbytes(700_000))
    data = ONE + large + TWO
    assert scan_bytes(tmp_path, data, limit=100) == RecoveryReport(0, len(data), 3)


@pytest.mark.parametrize("cut", range(1, len(TWO)))
def test_a_torn_message_is_a_bad_tail(tmp_path: Path, cut: int) -> None:
    report = scan_bytes(tmp_path, ONE + TWO[:cut])
    assert report == RecoveryReport(0, len(ONE), 1, (), cut)


def test_nothing_is_looked_for_inside_a_torn_message(tmp_path: Path) -> None:
    for cut in range(1, len(EMBEDDED)):
        assert scan_bytes(tmp_path, ONE + EMBEDDED[:cut]) == RecoveryReport(0, len(ONE), 1, (), cut)


@pytest.mark.parametrize(
    "tail",
    [bytes(n) for n in (1, 4, 5, 9, 10, 100, 5000)]
    + [random.Random(n).randbytes(n) for n in (1, 9, 30, 5000)]
    + [b"\xff" * 100, b"\0\0\0\x05" * 30, b"\0\0\0\x06\x01\0" * 30, b"\x7f\xff\xff\xff\x01\0" * 9],
)
def test_a_tail_of_nonsense(tmp_path: Path, tail: bytes) -> None:
    assert scan_bytes(tmp_path, ONE + TWO + tail) == RecoveryReport(
        0, len(ONE + TWO), 2, (), len(tail)
    )


@pytest.mark.parametrize(
    "bad",
    [
        TWO[:-1] + b"?",  # payload
        TWO[:6] + b"????" + TWO[10:],  # CRC
        TWO[:4] + b"\x07" + TWO[5:],  # magic
        TWO[:4] + b"\x00" + TWO[5:],  # the other magic
        resized(TWO, 0),
        resized(TWO, -1),
        resized(TWO, 4),
        resized(TWO, len(TWO) - 5),
        resized(TWO, len(TWO) - 4 + 7),
        resized(TWO, len(TWO) - 4 + len(THREE)),  # leads behind the next message
        resized(TWO, len(TWO + THREE + ONE) - 4),  # leads to the end exactly
        resized(TWO, 1500),  # leads beyond the end
        resized(TWO, LIMIT + 1000),
        resized(TWO, 2**31 - 1),
        bytes(len(TWO)),
        b"\xff" * len(TWO),
        EMBEDDED[:-1] + b"?",
        EMBEDDED[:20] + bytes(8) + EMBEDDED[28:],
        resized(EMBEDDED, 1900),
        resized(EMBEDDED, len(EMBEDDED) - 4 + 50),
        resized(EMBEDDED, -5),
    ],
)
@pytest.mark.parametrize("behind", [b"", THREE[:20], bytes(64)], ids=["", "torn", "zeros"])
def test_a_bad_message_is_reported_and_those_behind_it_are_kept(
    tmp_path: Path, bad: bytes, behind: bytes
) -> None:
    data = ONE + bad + THREE + ONE
    report = scan_bytes(tmp_path, data + behind)
    assert report == RecoveryReport(0, len(data), 3, ((len(ONE), len(ONE + bad)),), len(behind))


@pytest.mark.parametrize(
    "bad", [TWO[:-1] + b"?", TWO[:6] + b"????" + TWO[10:], EMBEDDED[:-1] + b"?", bytes(30)]
)
def test_a_bad_message_at_the_end_is_a_bad_tail(tmp_path: Path, bad: bytes) -> None:
    report = scan_bytes(tmp_path, ONE + bad)
    assert report == RecoveryReport(0, len(ONE), 1, (), len(bad))


@pytest.mark.parametrize("size", [0, -1, 5, 20, 21, 500, LIMIT, 2**31 - 1])
def test_a_last_message_with_a_damaged_size_is_a_bad_tail(tmp_path: Path, size: int) -> None:
    assert scan_bytes(tmp_path, ONE + resized(EMBEDDED, size)) == RecoveryReport(
        0, len(ONE), 1, (), len(EMBEDDED)
    )


def test_several_bad_messages_in_a_row_are_one_range(tmp_path: Path) -> None:
    bad = TWO[:-1] + b"?"
    data = ONE + bad * 5 + THREE + bad + ONE
    start = len(ONE)
    assert scan_bytes(tmp_path, data).bad_ranges == (
        (start, start + 5 * len(bad)),
        (start + 5 * len(bad) + len(THREE), len(data) - len(ONE)),
    )


def test_missing_and_nonsense_blocks_in_the_middle(tmp_path: Path) -> None:
    for block in (bytes(512), random.Random(7).randbytes(512), b"\xff" * 512):
        data = bytearray((ONE + TWO + THREE) * 10)
        data[200:712] = block
        report = scan_bytes(tmp_path, bytes(data))
        assert report.valid_end == len(data)
        ((start, end),) = report.bad_ranges
        assert start <= 200
        assert 712 <= end <= 712 + len(THREE)
        assert scan_bytes(tmp_path, bytes(data[end:])).dropped_bytes == 0


def test_damage_longer_than_a_search_window(tmp_path: Path) -> None:
    for block in (bytes(3_000_000), random.Random(3).randbytes(2_500_000)):
        data = ONE + block + TWO
        report = scan_bytes(tmp_path, data, limit=1000)
        assert report == RecoveryReport(0, len(data), 2, ((len(ONE), len(ONE) + len(block)),), 0)


def test_a_large_message_behind_damage_is_found_across_windows(tmp_path: Path) -> None:
    """It holds whole messages in plain sight, and starts just before a window ends."""
    limit = 300_000
    large = message((b"?" * 1000 + ONE) * 250)
    for distance in (10, 1000, 100_000, 260_000, 299_000):
        block = b"\xff" * (4 * limit + 40 - distance)
        data = ONE + block + large + TWO
        report = scan_bytes(tmp_path, data, limit=limit)
        assert report.bad_ranges == ((len(ONE), len(ONE + block)),)
        assert report.messages == 3


@pytest.mark.parametrize("kind", ["zeros", "nonsense", "bad messages"])
def test_the_work_is_linear(tmp_path: Path, kind: str) -> None:
    """Bytes read stay within a small multiple of the bytes that are there."""
    tail = {
        "zeros": bytes(4_000_000),
        "nonsense": random.Random(5).randbytes(4_000_000),
        "bad messages": (TWO[:-1] + b"?") * 50_000,
    }[kind]
    path = tmp_path / "segment"
    path.write_bytes(ONE + tail)
    files = WatchedFiles()
    descriptor = files.open_read(str(path))
    report = scan(files, descriptor, 0, len(ONE + tail), max_message_bytes=LIMIT)
    files.close(descriptor)
    assert report.dropped_bytes == len(tail)
    assert files.bytes_read < 4 * len(tail)
