"""The format of `consume -f`: kcat's tokens, compiled once and rendered for every message."""

import re
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["FORMAT_HELP", "ConsumedMessage", "MessageFormat", "parse_delimiter"]


class ConsumedMessage(NamedTuple):
    """A message and where it was found.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        offset: where the message starts; inside a compressed set, where that set starts.
        next_offset: where to go on reading after it; inside a compressed set, where the set starts
            for all messages but the last.
        payload: the message's bytes.
        time_ms: when the broker appended it, in ms since 1970; -1 when that is not known.
    """

    topic: str
    partition: int
    offset: int
    next_offset: int
    payload: bytes
    time_ms: int = -1


FORMAT_HELP: Final = (
    "%s payload, %S its size, %R its size as 4 bytes (big-endian), %t topic, %p partition, "
    "%o offset, %O the next message's offset, %% a percent sign; \\n \\r \\t \\\\ \\0 \\xHH. "
    "%T when the broker appended it (ms since 1970, -1 if not known). Messages have no keys and "
    "headers: %k and %h are empty, %K is -1."
)

_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}

_TOKENS: Final[dict[str, Callable[[ConsumedMessage], bytes]]] = {
    "s": lambda message: message.payload,
    "S": lambda message: b"%d" % len(message.payload),
    "R": lambda message: struct.pack(">i", len(message.payload)),
    "t": lambda message: message.topic.encode(),
    "p": lambda message: b"%d" % message.partition,
    "o": lambda message: b"%d" % message.offset,
    "O": lambda message: b"%d" % message.next_offset,
    "k": lambda _message: b"",
    "K": lambda _message: b"-1",
    "T": lambda message: b"%d" % message.time_ms,
    "h": lambda _message: b"",
    "%": lambda _message: b"%",
}

_PIECE: Final = re.compile(r"%(?P<token>.?)|\\(?P<escape>x[0-9a-fA-F]{2}|.?)", re.DOTALL)


class MessageFormat:
    """A compiled format.

    Args:
        template: text with kcat's tokens and escapes; see `FORMAT_HELP`.
        shown: applied to what stands for a token, for a terminal say; the template's own bytes,
            which are the user's, stay as they are.

    Raises:
        ValueError: a token or an escape is unknown; the text names it and those there are.

    Attributes:
        needs_time: whether it shows when messages were appended.
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
        """The bytes to write for one message; no newline is added."""
        return b"".join([piece(message) for piece in self._pieces])

    def _add_literal(self, literal: bytes) -> None:
        if literal:
            self._pieces.append(lambda _message: literal)

    def _add_token(self, name: str) -> None:
        if name not in _TOKENS:
            known = " ".join(f"%{token}" for token in _TOKENS)
            raise ValueError(f"%{name} is no token of a format; there are {known}")
        self.needs_time |= name == "T"
        token, shown = _TOKENS[name], self._shown
        self._pieces.append(token if shown is None else lambda message: shown(token(message)))


def parse_delimiter(text: str) -> bytes:
    r"""Read what stands between messages: text with the escapes of a format.

    Raises:
        ValueError: it is empty, or an escape is unknown.
    """
    delimiter = MessageFormat(text.replace("%", "%%")).render(ConsumedMessage("", 0, 0, 0, b""))
    if not delimiter:
        raise ValueError("a delimiter can't be empty")
    return delimiter


def _unescape(escape: str) -> bytes:
    if escape.startswith("x") and len(escape) == 3:
        return bytes.fromhex(escape[1:])
    if escape not in _ESCAPES:
        raise ValueError(
            f"\\{escape} is no escape of a format; there are \\n \\r \\t \\\\ \\0 \\xHH"
        )
    return _ESCAPES[escape]
