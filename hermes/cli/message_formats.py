"""Formats messages for `consume`: payloads, JSON, or kcat's format strings."""

import base64
import json
import re
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from hermes.cli.options import option_type
from hermes.cli.partition_reader import Chunk
from hermes.cli.terminal import harmless
from hermes.protocol import RecordMessage, message_start
from hermes.protocol.records import Headers


class ConsumedMessage(NamedTuple):
    """A message and where it was found.

    Attributes:
        offset: where the message starts; in a compressed set, where that set starts.
        next_offset: where to resume reading after it; in a compressed set, where the set starts
            for all messages but the last.
        payload: None for a tombstone.
        time_ms: a record's time, or when the message was appended, in ms since 1970; -1 if unknown.
        key, headers: a record's.
    """

    topic: str
    partition: int
    offset: int
    next_offset: int
    payload: bytes | None
    time_ms: int = -1
    key: bytes | None = None
    headers: Headers = ()


class MessageRenderer(NamedTuple):
    """How messages are written. `render`: makes the bytes for stdout of a chunk."""

    render: Callable[[Chunk], bytes]
    needs_times: bool = False


def choose_renderer(
    template: str | None, as_json: bool, *, has_values: bool = False
) -> MessageRenderer:
    """Choose how messages are written.

    Args:
        template: a format, see `MessageFormat`; None for one payload per line.
        has_values: whether payloads are JSON, to be embedded in these objects.

    Raises:
        ValueError: the format is invalid; the text says why.
    """
    if as_json:
        line = _value_line if has_values else json_line
        return MessageRenderer(lambda chunk: b"".join(map(line, consumed_messages(chunk))))
    on_terminal = sys.stdout.isatty()
    if template is None:
        if on_terminal:
            return MessageRenderer(lambda chunk: harmless(_payload_lines(chunk)))
        return MessageRenderer(_payload_lines)
    compiled = MessageFormat(template, harmless) if on_terminal else MessageFormat(template)
    return MessageRenderer(
        lambda chunk: b"".join(map(compiled.render, consumed_messages(chunk))),
        compiled.needs_time,
    )


def payload_json(payload: bytes | None) -> dict[str, str | None]:
    """A payload, which may be any bytes, as `payload` or `payload_base64` in JSON."""
    return _bytes_json("payload", payload)


def _bytes_json(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _payload_lines(chunk: Chunk) -> bytes:
    # A message is a tuple that begins with its payload.
    payloads = [message[0] or b"" for message, _ in chunk.messages]
    payloads.append(b"")
    return b"\n".join(payloads)


def consumed_messages(chunk: Chunk) -> Iterator[ConsumedMessage]:
    """The messages of a chunk, each with where (and when, if known) it was found."""
    offset, times = chunk.offset, iter(chunk.times)
    span = next(times, None)
    for message, following in chunk.messages:
        while span is not None and span.end_offset <= offset:
            span = next(times, None)
        time_ms = -1 if span is None or span.time_ms is None else span.time_ms
        offset = message_start(message, offset, following)
        if isinstance(message, RecordMessage):
            time_ms = -1 if message.timestamp_ms is None else message.timestamp_ms
        yield ConsumedMessage(
            chunk.topic,
            chunk.partition,
            offset,
            following,
            message.payload,
            time_ms,
            message.key,
            message.headers,
        )
        offset = following


def json_line(message: ConsumedMessage) -> bytes:
    shown = {**_place(message), **_record(message), **payload_json(message.payload)}
    return json.dumps(shown).encode() + b"\n"


def _value_line(message: ConsumedMessage) -> bytes:
    place = json.dumps({**_place(message), **_record(message)}).encode().removesuffix(b"}")
    return place + b', "value": ' + (message.payload or b"null") + b"}\n"


def _record(message: ConsumedMessage) -> dict[str, object]:
    shown: dict[str, object] = {}
    if message.key is not None:
        shown |= _bytes_json("key", message.key)
    if message.headers:
        shown["headers"] = [
            {"name": name, **_bytes_json("value", value)} for name, value in message.headers
        ]
    return shown


def _place(message: ConsumedMessage) -> dict[str, object]:
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "next_offset": message.next_offset,
        **({"time_ms": message.time_ms} if message.time_ms >= 0 else {}),
    }


# -- format strings -----------------------------------------------------------------------------

FORMAT_HELP: Final = (
    "%s payload, %S its size, %R its size as 4 bytes (big-endian), %t topic, %p partition, "
    "%o offset, %O the next message's offset, %% a percent sign; \\n \\r \\t \\\\ \\0 \\xHH. "
    "%T the time of a record, or when the broker appended a message (ms since 1970, -1 if "
    "unknown). Of topics of Kafka's format: %k key, %K its size, %h headers; of others these are "
    "empty, -1 and empty. The size of a tombstone, or of no key, is -1."
)


def _size(value: bytes | None) -> int:
    return -1 if value is None else len(value)


_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}

_TOKENS: Final[dict[str, Callable[[ConsumedMessage], bytes]]] = {
    "s": lambda message: message.payload or b"",
    "S": lambda message: b"%d" % _size(message.payload),
    "R": lambda message: struct.pack(">i", _size(message.payload)),
    "t": lambda message: message.topic.encode(),
    "p": lambda message: b"%d" % message.partition,
    "o": lambda message: b"%d" % message.offset,
    "O": lambda message: b"%d" % message.next_offset,
    "k": lambda message: message.key or b"",
    "K": lambda message: b"%d" % _size(message.key),
    "T": lambda message: b"%d" % message.time_ms,
    "h": lambda message: b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value)
        for name, value in message.headers
    ),
    "%": lambda _message: b"%",
}

_PIECE: Final = re.compile(r"%(?P<token>.?)|\\(?P<escape>x[0-9a-fA-F]{2}|.?)", re.DOTALL)


class MessageFormat:
    """A compiled format.

    Args:
        template: text with kcat's tokens and escapes; see `FORMAT_HELP`.
        shown: escapes what replaces a token for a terminal; the template's own bytes, which are
            the user's, stay as they are.

    Raises:
        ValueError: a token or an escape is unknown; the text names it, and the known ones.
    """

    def __init__(self, template: str, shown: Callable[[bytes], bytes] | None = None) -> None:
        self._shown = shown
        self.needs_time = False
        self._pieces: list[Callable[[ConsumedMessage], bytes]] = []
        position = 0
        for match in _PIECE.finditer(template):
            self._add_literal(template[position : match.start()].encode("utf-8", "surrogateescape"))
            position = match.end()
            if match["token"] is not None:
                self._add_token(match["token"])
            else:
                self._add_literal(_unescape(match["escape"]))
        self._add_literal(template[position:].encode("utf-8", "surrogateescape"))

    def render(self, message: ConsumedMessage) -> bytes:
        """The bytes of one message; no newline is added."""
        return b"".join([piece(message) for piece in self._pieces])

    def _add_literal(self, literal: bytes) -> None:
        if literal:
            self._pieces.append(lambda _message: literal)

    def _add_token(self, name: str) -> None:
        if name not in _TOKENS:
            known = " ".join(f"%{token}" for token in _TOKENS)
            raise ValueError(f"%{name} is not a token of a format; known are {known}")
        self.needs_time |= name == "T"
        token, shown = _TOKENS[name], self._shown
        self._pieces.append(token if shown is None else lambda message: shown(token(message)))


def _parse_delimiter(text: str) -> bytes:
    delimiter = MessageFormat(text.replace("%", "%%")).render(ConsumedMessage("", 0, 0, 0, b""))
    if not delimiter:
        raise ValueError("a delimiter can't be empty")
    return delimiter


def _unescape(escape: str) -> bytes:
    if escape.startswith("x") and len(escape) == 3:
        return bytes.fromhex(escape[1:])
    if escape not in _ESCAPES:
        raise ValueError(
            f"\\{escape} is not an escape of a format; known are \\n \\r \\t \\\\ \\0 \\xHH"
        )
    return _ESCAPES[escape]


DELIMITER: Final = option_type(_parse_delimiter, "text")
