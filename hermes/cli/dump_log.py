"""`hermes dump-log`: the contents of segment files, message by message."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from hermes.cli.dump_batches import dump_batches, way_on
from hermes.cli.exit_codes import EXIT_FAILURE
from hermes.cli.message_formats import payload_json
from hermes.cli.options import JSON_OPTION, MAX_EXPANDED_OPTION, MAX_MESSAGE_OPTION
from hermes.cli.terminal import note, write_json, write_line
from hermes.offline.batch_inspection import is_kafka_segment
from hermes.offline.inspection import BadRange, InspectedMessage, Limits, SegmentFile
from hermes.protocol import Codec, Message
from hermes.protocol.expansion import Expansion
from hermes.protocol.messages import CODEC_MASK
from hermes.storage.segment import BESIDE

# By the two bits of the attributes.
_CODEC_NAMES = (*(codec.name.lower() for codec in Codec), "codec-3")


@click.command("dump-log", short_help="Show the contents of segment files.")
@click.argument(
    "paths",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option("--deep", is_flag=True, help="Show the messages inside compressed ones too.")
@click.option("--payloads", is_flag=True, help="Show the messages' payloads.")
@MAX_MESSAGE_OPTION
@MAX_EXPANDED_OPTION
@JSON_OPTION
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[Path, ...],
    deep: bool,
    payloads: bool,
    max_message_bytes: int,
    max_expanded_bytes: int,
    as_json: bool,
) -> None:
    """Show the messages in segment FILEs, of Hermes or of Kafka.

    Of files that end in .log, which hold record batches, a line stands for a batch.

    Offsets count from the one in a file's name. Whatever is not a valid message is shown with the
    reason and where the next valid one starts; then the exit status is 1.
    """
    for path in paths:
        if path.suffix in _BESIDE:
            raise click.UsageError(
                f"{path} isn't a segment, but kept beside one: name segments (*.kafka, *.log), or "
                "verify all of it by hermes check-log"
            )
    limits = Limits(max_message_bytes, max_expanded_bytes)
    damaged = 0
    for path in paths:
        if is_kafka_segment(path):
            damaged += dump_batches(path, limits, deep=deep, payloads=payloads, as_json=as_json)
            continue
        with SegmentFile(path, limits) as segment:
            if not as_json:
                size = segment.end_offset - segment.base_offset
                write_line(f"{path}: {size} bytes from offset {segment.base_offset}")
                write_line(_HEADINGS)
            for found in segment.walk():
                row = _row(path, found)
                damaged += not row["valid"]
                for each in [row, *(_inner_rows(row, found, limits) if deep else ())]:
                    _write(each, payloads=payloads, as_json=as_json)
    if damaged:
        note(f"{damaged} places are damaged" if damaged > 1 else "one place is damaged")
        ctx.exit(EXIT_FAILURE)


_BESIDE = {suffix for suffixes in BESIDE.values() for suffix in suffixes}

_HEADINGS = f"{'OFFSET':>12} {'SIZE':>9} {'MAGIC':>5} {'CODEC':<7} {'CRC':<10}  STATE"


def _row(path: Path, found: InspectedMessage | BadRange) -> dict[str, Any]:
    place = {"file": str(path), "offset": found.offset}
    if isinstance(found, BadRange):
        size = found.end_offset - found.offset
        bad = {"next_offset": found.next_offset, "size_bytes": size, "valid": False}
        return {**place, **bad, "problem": found.reason}
    is_set = found.message.attributes & CODEC_MASK
    return {
        **place,
        "next_offset": found.end_offset,
        "size_bytes": found.size_bytes,
        "valid": found.problem is None,
        **({"problem": found.problem} if found.problem else {}),
        **_message_values(found.message),
        **({"message_count": found.message_count} if is_set else {}),
    }


def _inner_rows(
    row: dict[str, Any], found: InspectedMessage | BadRange, limits: Limits
) -> Iterator[dict[str, Any]]:
    if isinstance(found, BadRange) or found.problem or "message_count" not in row:
        return
    place = {key: row[key] for key in ("file", "offset", "next_offset")}
    messages = Expansion(limits.max_expanded_bytes).messages(found.message)
    for number, message in enumerate(messages, 1):
        size = len(message.encode())
        inside = {"inside": number, "size_bytes": size, "valid": True}
        yield {**place, **inside, **_message_values(message)}


def _message_values(message: Message) -> dict[str, Any]:
    return {
        "magic": message.magic,
        "attributes": message.attributes,
        "codec": _CODEC_NAMES[message.attributes & CODEC_MASK],
        "crc": message.crc,
        "payload_bytes": len(message.payload),
        "message": message,
    }


def _write(row: dict[str, Any], *, payloads: bool, as_json: bool) -> None:
    message: Message | None = row.pop("message", None)
    shown = message.payload if message and payloads and "message_count" not in row else None
    if as_json:
        write_json({**row, **({} if shown is None else payload_json(shown))})
        return
    place = f"inside: {row['inside']}" if "inside" in row else row["offset"]
    start = f"{place:>12} {row['size_bytes']:>9}"
    state = "ok" if row["valid"] else f"BAD: {row['problem']}"
    if message is None:
        write_line(f"{start} {state}; {way_on(row, 'message')}")
        return
    if row["valid"] and "message_count" in row:
        state += f", {row['message_count']} messages inside"
    if shown is not None:
        state += f"  {shown.decode('utf-8', 'backslashreplace')!r}"
    crc = f"{row['crc']:#010x}"
    write_line(f"{start} {row['magic']:>5} {row['codec']:<7} {crc}  {state}")
