"""`hermes dump-log` of segments of record batches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes.cli.message_formats import payload_json
from hermes.cli.terminal import write_json, write_line
from hermes.errors import InvalidMessageError
from hermes.offline.batch_inspection import BadBytes, BatchFile, InspectedBatch
from hermes.offline.inspection import Limits
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record

_MARKERS = {b"\0\0": "abort", b"\0\1": "commit"}

_HEADINGS = f"{'OFFSET':>12} {'SIZE':>9} {'COUNT':>7} {'CODEC':<7} {'CRC':<10}  STATE"


def dump_batches(path: Path, limits: Limits, *, deep: bool, payloads: bool, as_json: bool) -> int:
    """Show a segment; how many places are damaged. `limits` says how far batches may expand."""
    damaged = 0
    with BatchFile(path, limits) as segment:
        if not as_json:
            write_line(f"{path}: {segment.size_bytes} bytes from offset {segment.base_offset}")
            write_line(_HEADINGS)
        for found in segment.walk():
            row = _row(segment, found)
            damaged += not row["valid"]
            if as_json:
                write_json({"file": str(path), **row})
            else:
                _write(row)
            if isinstance(found, InspectedBatch) and (deep or payloads):
                for record in _records(segment, found):
                    _write_record(path, record, payloads=payloads, as_json=as_json)
    return damaged


def _records(segment: BatchFile, batch: InspectedBatch) -> Iterator[Record]:
    if batch.problem is None:
        try:
            yield from segment.records(batch)
        except InvalidMessageError:  # shown with the batch
            return


def _row(segment: BatchFile, found: InspectedBatch | BadBytes) -> dict[str, Any]:
    if isinstance(found, BadBytes):
        return {
            "offset": found.offset,
            "next_offset": found.next_offset,
            "position": found.position,
            "size_bytes": found.end_position - found.position,
            "valid": False,
            "problem": found.reason,
        }
    header = found.header
    names = [codec.name.lower() for codec in RecordCodec]
    return {
        "offset": header.base_offset,
        "next_offset": header.next_offset,
        "position": found.position,
        "size_bytes": header.size_bytes,
        "valid": found.problem is None,
        **({"problem": found.problem} if found.problem else {}),
        "magic": 2,
        "attributes": header.attributes,
        "codec": names[header.codec] if header.codec < len(names) else f"codec-{header.codec}",
        "crc": header.crc,
        "message_count": header.record_count,
        "leader_epoch": header.leader_epoch,
        "max_timestamp_ms": header.max_timestamp_ms,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        **({"transactional": True} if header.is_transactional else {}),
        **({"marker": _marker(segment, found)} if header.is_control else {}),
    }


def _marker(segment: BatchFile, batch: InspectedBatch) -> str:
    """What a control batch says of its transaction."""
    keys = [each.key or b"" for each in _records(segment, batch)]
    return _MARKERS.get(keys[0][2:4], "unknown") if keys else "removed"


def way_on(row: dict[str, Any], noun: str) -> str:
    """Where reading could go on after a damaged place."""
    following = row["next_offset"]
    if following is None:
        return f"no good {noun} follows"
    return f"the next good {noun} starts at {following}"


def _write(row: dict[str, Any]) -> None:
    state = "ok" if row["valid"] else f"BAD: {row['problem']}"
    start = f"{row['offset']:>12} {row['size_bytes']:>9}"
    if "magic" not in row:
        write_line(f"{start} {state}; {way_on(row, 'batch')}")
        return
    if row["producer_id"] >= 0:
        state += f", producer {row['producer_id']} epoch {row['producer_epoch']}"
        state += f" from {row['base_sequence']}" if "marker" not in row else ""
    if "marker" in row:
        state += f", marker: {row['marker']}"
    elif "transactional" in row:
        state += ", in a transaction"
    count, codec = row["message_count"], row["codec"]
    write_line(f"{start} {count:>7} {codec:<7} {row['crc']:#010x}  {state}")


def _write_record(path: Path, record: Record, *, payloads: bool, as_json: bool) -> None:
    if as_json:
        row: dict[str, Any] = {
            "file": str(path),
            "inside": True,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key_bytes": None if record.key is None else len(record.key),
            "payload_bytes": None if record.value is None else len(record.value),
            "headers": len(record.headers),
        }
        if payloads and record.key is not None:
            row["key"] = payload_json(record.key)
        if payloads and record.value is not None:
            row |= payload_json(record.value)
        write_json(row)
        return
    size = "none" if record.value is None else str(len(record.value))
    shown = f"{record.offset:>12} {size:>9} inside, at {record.timestamp_ms} ms"
    if payloads:
        key, value = (
            "none" if each is None else repr(each.decode("utf-8", "backslashreplace"))
            for each in (record.key, record.value)
        )
        shown += f", key {key}: {value}"
    write_line(shown)
