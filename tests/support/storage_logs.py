"""Small things that tests of the storage share: messages, logs, and reading everything back."""

import os
from collections.abc import Sequence
from pathlib import Path

from memory_files import FIRST_DESCRIPTOR
from storage_fakes import UnsyncedFiles

from hermes.protocol import encode_message_set
from hermes.storage import FileLayer, Log, LogSettings, LogSlice

#: A moment in 2026, in ms since 1970.
NOW_MS = 1_780_000_000_000


def message(payload: bytes | str) -> bytes:
    """One message as it stands in a log: 10 bytes more than its payload."""
    return encode_message_set([payload.encode() if isinstance(payload, str) else payload])


def settings(segment_bytes: int = 1 << 30, **others: int) -> LogSettings:
    """Settings of a topic, with a small bound on what recovery believes in."""
    return LogSettings(segment_bytes=segment_bytes, **{"max_message_bytes": 100_000, **others})


def open_log(
    directory: Path,
    files: FileLayer | None = None,
    *,
    log_settings: LogSettings | None = None,
    clean: bool = False,
    now_ms: int = NOW_MS,
) -> Log:
    """Open the log in a directory, which is made when missing."""
    directory.mkdir(exist_ok=True)
    files = UnsyncedFiles() if files is None else files
    topic, _, partition = directory.name.rpartition("-")
    log = Log(topic, int(partition), str(directory), log_settings or settings(), files)
    log.open(clean=clean, now_ms=now_ms)
    return log


def write_segment(
    root: Path, data: bytes, *, base: int = 0, partition: str = "clicks-0", suffix: str = ".kafka"
) -> Path:
    """Write bytes as a file of a partition below a data directory, which is made when missing."""
    directory = root / partition
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base:020d}{suffix}"
    path.write_bytes(data)
    return path


def append(log: Log, *messages: bytes, now_ms: int = NOW_MS) -> int:
    """Append messages as one buffer."""
    data = b"".join(messages)
    return log.append([data], len(data), len(messages), now_ms)


def bytes_of(log: Log, part: LogSlice) -> bytes:
    """Read a slice as `sendfile` does: past a file layer on real files, which might fail it."""
    pread = os.pread if part.fileno() < FIRST_DESCRIPTOR else log.files.pread
    return pread(part.fileno(), part.length, part.position)


def read_all(log: Log, offset: int | None = None, max_bytes: int = 1 << 30) -> bytes:
    """Read everything that is visible from an offset on, segment by segment."""
    offset = log.earliest if offset is None else offset
    parts = []
    while True:
        with log.read(offset, max_bytes) as part:
            if not part.length:
                return b"".join(parts)
            parts.append(bytes_of(log, part))
            assert len(parts[-1]) == part.length
            offset += part.length


def kafka_files(directory: Path) -> dict[str, bytes]:
    """What Kafka 0.7 sees of a partition: the files that end in `.kafka`."""
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.kafka"))}


def all_files(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, by its relative path."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def write_segments(directory: Path, segments: Sequence[bytes], *, base_offset: int = 0) -> None:
    """Make a partition as Kafka 0.7 would: nothing but `.kafka` files."""
    directory.mkdir()
    for segment in segments:
        (directory / f"{base_offset:020d}.kafka").write_bytes(segment)
        base_offset += len(segment)
