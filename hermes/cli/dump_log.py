"""`hermes dump-log`: what is in a segment's file, message by message."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from hermes.cli.exits import EXIT_FAILURE
from hermes.cli.options import JSON_OPTION, MAX_EXPANDED_OPTION, MAX_MESSAGE_OPTION
from hermes.cli.payloads import payload_json
from hermes.cli.terminal import note, write_json, write_line
from hermes.protocol import Codec, Message
from hermes.protocol.expansion import Expansion
from hermes.protocol.messages import CODEC_MASK
from hermes.storage.inspection import BadRange, Limits, SegmentFile, StoredMessage

__all__ = ["command"]

# By the two bits of the attributes.
_CODEC_NAMES = (*(codec.name.lower() for codec in Codec), "codec-3")


@click.command("dump-log", short_help="Show what is in a segment's file.")
@click.argument(
    "paths",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option("--deep", is_flag=True, help="Show the messages inside compressed ones too.")
@click.option("--payloads", is_flag=True, help="Show what the messages say.")
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
    """Show the messages in segment FILEs, of Hermes or of Kafka 0.7.

    Offsets count from the one in a file's name. Whatever is no valid message is shown with what
    is wrong with it and where the next good one starts; then the exit status is 1.
    """
    limits = Limits(max_message_bytes, max_expanded_bytes)
    show: Callable[..., Iterator[Any]] = _json_rows if as_json else _text_rows
    write: Callable[[Any], None] = write_json if as_json else write_line
    problems = 0
    for path in paths:
        with SegmentFile(path, limits) as segment:
            if not as_json:
                size = segment.end_offset - segment.base_offset
                write_line(f"{path}: {size} bytes from offset {segment.base_offset}")
                write_line(_HEADINGS)
            for found in segment.walk():
                problems += not isinstance(found, StoredMessage) or found.problem is not None
                inner = _inner_messages(found, limits) if deep else []
                for row in show(path, found, inner, payloads):
                    write(row)
    if problems:
        note(f"{problems} places are damaged" if problems > 1 else "one place is damaged")
        ctx.exit(EXIT_FAILURE)


def _codec_name(message: Message) -> str:
    """How a message says it is compressed; `codec-3` is the one that isn't assigned."""
    return _CODEC_NAMES[message.attributes & CODEC_MASK]


def _inner_messages(found: StoredMessage | BadRange, limits: Limits) -> list[Message]:
    """The messages of a compressed set; none for anything else."""
    if isinstance(found, BadRange) or found.problem or _codec_name(found.message) == "none":
        return []
    return list(Expansion(limits.max_expanded_bytes).messages(found.message))


# -- for people ---------------------------------------------------------------------------------

_HEADINGS = f"{'OFFSET':>12} {'SIZE':>9} {'MAGIC':>5} {'CODEC':<7} {'CRC':<10}  STATE"


def _text_rows(
    path: Path, found: StoredMessage | BadRange, inner: list[Message], payloads: bool
) -> Iterator[str]:
    if isinstance(found, BadRange):
        yield f"{found.offset:>12} {found.end_offset - found.offset:>9} {_bad_text(found)}"
        return
    is_set = _codec_name(found.message) != "none"
    state = f"BAD: {found.problem}" if found.problem else "ok"
    if is_set and not found.problem:
        state += f", {found.message_count} messages inside"
    shown = _payload_text(found.message) if payloads and not is_set else ""
    yield _text_row(str(found.offset), found.size_bytes, found.message, state + shown)
    for number, message in enumerate(inner, 1):
        shown = _payload_text(message) if payloads else ""
        yield _text_row(f"inside: {number}", len(message.encode()), message, "ok" + shown)


def _text_row(place: str, size_bytes: int, message: Message, state: str) -> str:
    codec = _codec_name(message)
    return f"{place:>12} {size_bytes:>9} {message.magic:>5} {codec:<7} {message.crc:#010x}  {state}"


def _bad_text(bad: BadRange) -> str:
    if bad.next_offset is None:
        return f"BAD: {bad.reason}; no good message follows"
    return f"BAD: {bad.reason}; the next good message starts at {bad.next_offset}"


def _payload_text(message: Message) -> str:
    return f"  {message.payload.decode('utf-8', 'backslashreplace')!r}"


# -- for programs -------------------------------------------------------------------------------


def _json_rows(
    path: Path, found: StoredMessage | BadRange, inner: list[Message], payloads: bool
) -> Iterator[dict[str, Any]]:
    place = {"file": str(path), "offset": found.offset}
    if isinstance(found, BadRange):
        size = found.end_offset - found.offset
        bad = {"next_offset": found.next_offset, "size_bytes": size, "valid": False}
        yield {**place, **bad, "problem": found.reason}
        return
    place["next_offset"] = found.end_offset
    is_set = _codec_name(found.message) != "none"
    yield {
        **place,
        "size_bytes": found.size_bytes,
        "valid": found.problem is None,
        **({"problem": found.problem} if found.problem else {}),
        **_message_json(found.message, payloads and not is_set),
        **({"message_count": found.message_count} if is_set else {}),
    }
    for number, message in enumerate(inner, 1):
        size = len(message.encode())
        yield {
            **place,
            "inside": number,
            "size_bytes": size,
            "valid": True,
            **_message_json(message, payloads),
        }


def _message_json(message: Message, payloads: bool) -> dict[str, Any]:
    return {
        "magic": message.magic,
        "attributes": message.attributes,
        "codec": _codec_name(message),
        "crc": message.crc,
        "payload_bytes": len(message.payload),
        **(payload_json(message.payload) if payloads else {}),
    }
