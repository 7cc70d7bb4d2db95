"""Message sets as consumers see them: iteration with 0.7's offsets, checks and damage reports.

Source of the rules: Kafka 0.7's ByteBufferMessageSet. A fetched set usually ends within a
message. Iterating yields each message with the offset at which to resume after it; the messages
within a compressed one, except the last, share the offset of its start, since its boundaries are
the only places where reading can resume.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Literal, Self, TypeAlias, TypeVar

from hermes.errors import ExpandedTooLargeError, InvalidMessageError
from hermes.protocol import core, loops
from hermes.protocol.compression import Codec
from hermes.protocol.damage import resume_after, resume_beyond
from hermes.protocol.expansion import DEFAULT_MAX_EXPANDED_BYTES, Expansion
from hermes.protocol.messages import (
    SIZE,
    Message,
    decode_message,
    encode_message_set,
)
from hermes.protocol.wire import Buffer

_R = TypeVar("_R", bound=tuple[Any, ...])

MessageAndOffset: TypeAlias = tuple[Message, int]
"""A message, and the offset in bytes at which to resume after it.

A plain tuple: a named one would take a quarter of the speed of iterating.

Example:
    message, next_offset = next(iter(consumer.fetch(request)))
"""


class MessageSet:
    """The messages in a buffer, in the order of the log.

    Iterating checks every CRC, and may be repeated. Messages own their payloads. It raises
    InvalidMessageError and ExpandedTooLargeError, see `iterate`.

    Example:
        for message, next_offset in MessageSet(fetched, base_offset=offset):
            print(message.payload)

    Args:
        buffer: the bytes of the set; copied unless it is a bytes object.
        base_offset: the offset in the partition's log at which the buffer starts, 0 or more.
        on_corrupt: what iterating does at a damaged message: "raise" InvalidMessageError, or
            "skip" to the next good one and count.
        max_expanded_bytes: what one compressed message may expand to, over all its levels.

    Attributes:
        skipped_count: how many times the last iteration with on_corrupt="skip" skipped a damaged
            message, or a damaged stretch when the lengths are damaged too.
    """

    __slots__ = ("_data", "_max_expanded_bytes", "_skip", "_walked", "base_offset", "skipped_count")

    def __init__(
        self,
        buffer: Buffer,
        base_offset: int = 0,
        *,
        on_corrupt: Literal["raise", "skip"] = "raise",
        max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES,
    ) -> None:
        self._data = bytes(buffer)
        self._max_expanded_bytes = max_expanded_bytes
        self._skip = on_corrupt == "skip"
        self._walked: int | None = None
        self.base_offset = base_offset
        self.skipped_count = 0

    @classmethod
    def of(cls, payloads: Iterable[bytes], codec: Codec = Codec.NONE, *, magic: int = 1) -> Self:
        """Make a set of payloads; see `encode_message_set`."""
        return cls(encode_message_set(payloads, codec, magic=magic))

    @property
    def data(self) -> bytes:
        """The bytes of the set, including an incomplete message at the end."""
        return self._data

    def __len__(self) -> int:
        """How many bytes the set has; for the number of messages it must be iterated over."""
        return len(self._data)

    @property
    def valid_bytes(self) -> int:
        """The size in bytes of the whole messages at the beginning.

        An incomplete message may follow. After a finished iteration this is how far it got,
        skipped damaged messages included; before, it follows from the lengths alone.
        """
        return core.whole_bytes(self._data) if self._walked is None else self._walked

    @property
    def is_read(self) -> bool:
        """Whether an iteration has reached the end."""
        return self._walked is not None

    @property
    def next_offset(self) -> int:
        """Where the next fetch should start: the offset after `valid_bytes`.

        It also advances when the set yields nothing because its compressed messages are empty.
        """
        return self.base_offset + self.valid_bytes

    @property
    def first_message_size(self) -> int | None:
        """The size in bytes of the first message by its declared length, length field included.

        More than the set has: the message is larger than the fetch, or its length is damaged.
        None when even the length is incomplete, or it is negative.
        """
        if len(self._data) < SIZE.size:
            return None
        size: int = SIZE.unpack_from(self._data)[0]
        return SIZE.size + size if size >= 0 else None

    def __iter__(self) -> Iterator[MessageAndOffset]:
        return self.iterate()

    def iterate(self, *, deep: bool = True) -> Iterator[MessageAndOffset]:
        """Iterate over the messages.

        Args:
            deep: whether compressed messages are replaced by the messages inside. If not, only
                their outside is checked.

        Yields:
            The message and the offset at which to resume after it: the start of the compressed
            message that it came from, unless it is the last one inside.

        Raises:
            InvalidMessageError: a message is damaged, and on_corrupt is "raise", or it is the
                first of the set and no good one follows in the buffer. `offset` and
                `next_offset` are absolute. Start again at `next_offset` to skip it.
            ExpandedTooLargeError: a compressed message expands to more than max_expanded_bytes,
                whatever on_corrupt is; raise the limit to read it.
        """
        self.skipped_count = 0
        unusual = partial(self._next_unusual, deep)
        return core.iterate(Message, self._data, self.base_offset, unusual)

    def rows(
        self, make: type[_R], source: tuple[str, int, int], most: int
    ) -> Iterator[loops.ListedRows[_R]]:
        """Iterate over the messages in rows: the fastest way per message.

        Args:
            make: the type of the rows, a type of tuples: `(payload, topic, partition, offset, next
                offset, broker)`. `offset` is where the message starts, or the compressed message
                that it came from.
            source: topic, partition and broker.
            most: maximum rows per batch; a compressed message is never split, though.

        Yields:
            Rows, perhaps none. Consume all before requesting the next ones.

        Raises:
            InvalidMessageError, ExpandedTooLargeError: as `iterate`, after everything before it.
        """
        self.skipped_count = 0
        position = 0
        while True:
            plain = core.Rows(make, self._data, position, self.base_offset, source, most)
            yield plain
            position = plain.position
            if plain.is_cut:
                continue
            taken = self._next_unusual(True, position)
            if taken is None:
                return
            messages, following = taken
            offset = self.base_offset + position
            yield loops.ListedRows(list(_rows_of(make, source, offset, messages)))
            position = following

    def _next_unusual(self, deep: bool, position: int) -> tuple[list[MessageAndOffset], int] | None:
        taken = self._take_unusual(deep, position)
        if taken is None:
            self._walked = position
        return taken

    def _take_unusual(self, deep: bool, position: int) -> tuple[list[MessageAndOffset], int] | None:
        data = self._data
        if len(data) - position < SIZE.size:
            return None
        following = position + SIZE.size + SIZE.unpack_from(data, position)[0]
        if following > len(data):
            is_damaged, resume = resume_beyond(data, position)
            if not is_damaged:
                return None  # the end of the set
            error = InvalidMessageError("its length is wrong")
            return self._skip_or_raise(error, position, resume)
        try:
            return self._take(position, following, deep), following
        except InvalidMessageError as error:
            return self._skip_or_raise(error, position, resume_after(data, position, following))

    def _take(self, position: int, following: int, deep: bool) -> list[MessageAndOffset]:
        message = decode_message(self._data, position, following)
        next_offset = self.base_offset + following
        if not deep or message.codec is Codec.NONE:
            return [(message, next_offset)]
        inner = list(Expansion(self._max_expanded_bytes).messages(message))
        pairs = [(each, self.base_offset + position) for each in inner[:-1]]
        return pairs + [(each, next_offset) for each in inner[-1:]]

    def _skip_or_raise(
        self, error: InvalidMessageError, position: int, resume: int | None
    ) -> tuple[list[MessageAndOffset], int] | None:
        if self._skip and not isinstance(error, ExpandedTooLargeError):
            if resume is not None:
                self.skipped_count += 1
                return [], resume
            if position:  # the next fetch starts here, and so has more to look at
                return None
        offset = self.base_offset + position
        next_offset = None if resume is None else self.base_offset + resume
        after = "none follows in what was read" if resume is None else f"next one: {next_offset}"
        raise type(error)(
            f"damaged message at offset {offset}: {error} (good messages: {after})",
            offset=offset,
            next_offset=next_offset,
        ) from error


def _rows_of(
    make: type[_R], source: tuple[str, int, int], offset: int, messages: list[MessageAndOffset]
) -> Iterator[_R]:
    topic, partition, broker = source
    for message, next_offset in messages:
        yield tuple.__new__(make, (message.payload, topic, partition, offset, next_offset, broker))
        offset = next_offset
