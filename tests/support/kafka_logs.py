"""Logs of Kafka's format for tests of the storage: batches, and reading everything back."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from storage_fakes import UnsyncedFiles
from storage_logs import NOW_MS, bytes_of, settings

from hermes.protocol.record_batches import (
    HEADER_BYTES,
    BatchHeader,
    BatchRules,
    check_batches,
    decode_header,
    is_intact,
    next_in,
    placed,
    with_crc,
)
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch, iterate_records
from hermes.storage import FileLayer, Log, LogSettings, RecoveryReport
from hermes.storage.kafka_format import KAFKA

TOPIC_ID = UUID("0c4a3c1e-5cb5-4f1d-9a5e-1f2e3d4c5b6a")


def record(
    value: bytes | None,
    *,
    key: bytes | None = None,
    timestamp_ms: int = NOW_MS,
    offset: int = 0,
) -> Record:
    return Record(offset, timestamp_ms, key, value)


def sent(values: Sequence[Record | bytes], codec: RecordCodec = RecordCodec.NONE) -> bytes:
    """A batch as a producer sends it."""
    made = [each if isinstance(each, Record) else record(each) for each in values]
    numbered = [each._replace(offset=number) for number, each in enumerate(made)]
    return encode_batch(numbered, codec)


def open_kafka_log(
    path: Path,
    files: FileLayer | None = None,
    segment_bytes: int = 1 << 30,
    *,
    clean: bool = False,
    log_settings: LogSettings | None = None,
    is_sole_copy: bool = True,
) -> tuple[Log, RecoveryReport | None]:
    """Open the log in a directory, made when missing; its name is `<topic>-<partition>`."""
    path.mkdir(exist_ok=True)
    files = UnsyncedFiles() if files is None else files
    topic, _, partition = path.name.rpartition("-")
    log = Log(
        topic,
        int(partition),
        str(path),
        log_settings or settings(segment_bytes),
        files,
        log_format=KAFKA,
        topic_id=TOPIC_ID,
    )
    log.is_sole_copy = is_sole_copy
    return log, log.open(clean=clean, now_ms=NOW_MS)


def append_batch(log: Log, batch: bytes, now_ms: int = NOW_MS, *, is_told: bool = True) -> int:
    """Append what a producer has sent; `is_told`: the log is told of batches, as by a broker."""
    headers = check_batches(batch, BatchRules(1 << 30))
    parts = placed(batch, headers, log.end_offset, log.leader_epoch)
    end, batches = log.end_offset, []
    for each in headers:
        end += each.last_offset_delta + 1
        batches.append((each.size_bytes, end - 1, each.max_timestamp_ms))
    count = end - log.end_offset
    return log.append(parts, sum(map(len, parts)), count, now_ms, batches if is_told else ())


def append_values(log: Log, *values: Record | bytes, now_ms: int = NOW_MS) -> int:
    """Append messages as one batch."""
    return append_batch(log, sent(values), now_ms)


def batches_in(data: bytes) -> list[tuple[BatchHeader, bytes]]:
    """The whole batches that bytes begin with."""
    found, position = [], 0
    while position + 61 <= len(data):
        header = decode_header(data, position)
        if position + header.size_bytes > len(data):
            break
        found.append((header, data[position : position + header.size_bytes]))
        position += header.size_bytes
    return found


def read_batches(
    log: Log, offset: int | None = None, max_bytes: int = 1 << 20
) -> list[tuple[BatchHeader, bytes]]:
    """All visible batches from an offset on, read as a consumer does."""
    offset, found = log.earliest if offset is None else offset, []
    while offset < log.high_watermark:
        with log.read(offset, max_bytes, whole_first=True) as part:
            if not part.length:
                break
            data = bytes_of(log, part)
        read = batches_in(data)
        assert read
        assert read[0][0].next_offset > offset
        found += read
        offset = read[-1][0].next_offset
    return found


def read_records(log: Log, offset: int | None = None) -> list[Record]:
    """All visible messages from an offset on."""
    first = log.earliest if offset is None else offset
    return [
        each
        for header, data in read_batches(log, offset)
        for each in iterate_records(data, header)
        if each.offset >= first
    ]


class Batch(NamedTuple):
    """A valid batch, and where it lies in the bytes that it was found in."""

    position: int
    end_position: int
    base_offset: int
    end_offset: int


def raw_batch(base_offset: int, count: int, body: bytes = b"body") -> bytes:
    """A batch that says that it holds `count` messages, whatever its body is."""
    size = HEADER_BYTES + len(body)
    header = BatchHeader(
        base_offset, size, 0, 0, 0, count - 1, NOW_MS, NOW_MS + base_offset, -1, -1, -1, count
    )
    return with_crc(header, body) + body


def raw_batches(data: bytes, offset: int) -> Iterator[Batch]:
    """All valid batches from a position on; what is damaged between them is skipped."""
    position = 0
    while position < len(data):
        header = next_in(data, position)
        end = position + (0 if header is None else header.size_bytes)
        if header is None or header.base_offset < offset or not is_intact(data[position:end]):
            position += 1
            continue
        offset = header.next_offset
        yield Batch(position, end, header.base_offset, offset)
        position = end


def check_indexes(path: Path, *, may_lack: bool = False) -> None:
    """Hold the indexes of a closed log's segment against it, as Kafka's DumpLogSegments does.

    Args:
        path: the segment.
        may_lack: whether they may be missing or end too early, since the disk refused a write.
    """
    data, base = path.read_bytes(), int(path.stem)
    batches, position = {}, 0
    for header, batch in batches_in(data):
        batches[position] = header
        position += len(batch)
    assert position == len(data)
    index = _index(path.with_suffix(".index"), may_lack)
    entries = [
        (int.from_bytes(index[n : n + 4], "big"), int.from_bytes(index[n + 4 : n + 8], "big"))
        for n in range(0, len(index), 8)
    ]
    assert len(index) % 8 == 0
    assert may_lack or len(entries) >= len(data) // 6000
    for relative, position in entries:
        assert batches[position].last_offset == base + relative
    times = _index(path.with_suffix(".timeindex"), may_lack)
    assert len(times) % 12 == 0
    newest = -1
    for n in range(0, len(times), 12):
        time_ms = int.from_bytes(times[n : n + 8], "big")
        last = base + int.from_bytes(times[n + 8 : n + 12], "big")
        assert time_ms > newest
        newest = time_ms
        assert [h.max_timestamp_ms for h in batches.values() if h.last_offset == last] == [time_ms]
    assert may_lack or newest == max(
        [-1, *(header.max_timestamp_ms for header in batches.values())]
    )


def _index(path: Path, may_lack: bool) -> bytes:
    return b"" if may_lack and not path.exists() else path.read_bytes()
