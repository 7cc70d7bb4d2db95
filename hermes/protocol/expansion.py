"""The contents of a compressed message: the messages of the set that its payload expands to.

Sets may nest, so one small message can mean a great deal of work. An `Expansion` is the
budget for it: bytes expanded are counted over all levels, and the levels are counted too. A
compressed message is charged some bytes even if it is empty.
"""

from collections.abc import Iterator
from typing import Final

from hermes.errors import InvalidMessageError
from hermes.protocol import core
from hermes.protocol.compression import Budget, Codec, expand
from hermes.protocol.messages import SIZE, Message, decode_message
from hermes.protocol.wire import Buffer

#: What a compressed set may expand to unless the caller says otherwise.
DEFAULT_MAX_EXPANDED_BYTES: Final = 64 * 1024 * 1024

#: How deep compressed sets may nest. 0.7's own limit is its stack; its clients never nest.
MAX_NESTING: Final = 16

_LARGE_BYTES: Final = 1024 * 1024


class Expansion:
    """Expands compressed messages until its budget is spent.

    `limit`: how many bytes all payloads together may expand to, over all levels of nesting. Each
    compressed message, and each gzip member and snappy block within, is charged at least
    `MIN_CHARGE_BYTES`.
    """

    __slots__ = ("_budget",)

    def __init__(self, limit: int) -> None:
        self._budget = Budget(limit)

    def count(self, message: Message, depth: int = 1) -> int:
        """Check everything inside a compressed message, and count its uncompressed messages.

        Args:
            depth: how many levels deep its contents are.

        Raises:
            InvalidMessageError: something inside is damaged, or nested too deep. No offset.
            ExpandedTooLargeError: the budget is spent.
        """
        data: Buffer = self._expand(message, depth)
        if len(data) > _LARGE_BYTES:  # slices of small ones are cheaper as copies
            data = memoryview(data)
        count, position = core.count_uncompressed(data, 0, len(data))
        while (following := _message_end(data, position)) is not None:
            each = decode_message(data, position, following)
            count += 1 if each.codec is Codec.NONE else self.count(each, depth + 1)
            more, position = core.count_uncompressed(data, following, len(data))
            count += more
        return count

    def messages(self, message: Message, depth: int = 1) -> Iterator[Message]:
        """Iterate over the uncompressed messages inside, of all levels; raises as `count` does."""
        expanded = self._expand(message, depth)
        for each in _whole_messages(bytes(expanded)):  # payloads are slices of it
            if each.codec is Codec.NONE:
                yield each
            else:
                yield from self.messages(each, depth + 1)

    def _expand(self, message: Message, depth: int) -> bytes | bytearray:
        if depth > MAX_NESTING:
            raise InvalidMessageError(f"compressed sets are nested more than {MAX_NESTING} deep")
        return expand(message.codec, message.payload, self._budget)


def _whole_messages(data: Buffer) -> Iterator[Message]:
    position = 0
    while (following := _message_end(data, position)) is not None:
        yield decode_message(data, position, following)
        position = following


def _message_end(data: Buffer, position: int) -> int | None:
    """Where a message of an inner set ends, by 0.7's rules; None when the set ends before it.

    An incomplete message ends the set, unless it is the first; less than a length always ends it.
    """
    if len(data) - position < SIZE.size:
        return None
    size: int = SIZE.unpack_from(data, position)[0]
    if size < 0:
        raise InvalidMessageError("a message inside a compressed one has a negative length")
    following = position + SIZE.size + size
    if following <= len(data):
        return following
    if position == 0:
        raise InvalidMessageError("the first message inside a compressed one is incomplete")
    return None
