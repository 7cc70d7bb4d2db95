"""Fetched bytes as stretches: runs of intact messages, and what is damaged between them.

Pure functions. Messages stay bytes; compressed ones are checked from outside only.
"""

from collections.abc import Iterator
from typing import NamedTuple

from hermes.errors import InvalidMessageError
from hermes.protocol import Buffer, core
from hermes.protocol.damage import resume_after, resume_beyond
from hermes.protocol.messages import SIZE, decode_message


class Stretch(NamedTuple):
    """A range of a partition of the source.

    Attributes:
        begin, end: where it starts in the partition, and the offset after it.
        data: the messages, end - begin bytes; empty when they are damaged or lost.
        messages: how many; compressed ones count once.
        fault: why there are none; empty when all is well.
        is_verbatim: whether each offset of the range is one of the data.
        is_batch: whether it is a record batch, which is never divided; the data are what the target
            is sent then, not always the source's bytes.
        empty: how many of its offsets have no message at the source, though the rest is intact.
    """

    begin: int
    end: int
    data: Buffer
    messages: int
    fault: str = ""
    is_verbatim: bool = True
    is_batch: bool = False
    empty: int = 0


def stretches(data: bytes, base: int) -> Iterator[Stretch]:
    """Divide what was fetched from a boundary on; it may end within a message.

    `base` is the offset of its first byte.

    Yields:
        Stretches without holes between them, up to the last whole message, or to damage whose end
        can't be seen yet.

    Raises:
        InvalidMessageError: the first message is damaged, and nothing in the data tells where the
            next one starts.
    """
    view = memoryview(data)
    position = 0
    while position < len(data):
        count, end = _intact(data, view, position)
        if end > position:
            yield Stretch(base + position, base + end, view[position:end], count)
            position = end
        if len(data) - position < SIZE.size:
            return
        following = position + SIZE.size + SIZE.unpack_from(data, position)[0]
        if following > len(data):
            is_damaged, resume = resume_beyond(data, position)
            if not is_damaged:
                return
        else:
            resume = resume_after(data, position, following)
        if resume is None and position:
            return  # the next fetch starts here, and so has more to look at
        if resume is None:
            raise InvalidMessageError(
                f"damaged message at offset {base}: no intact one follows in {len(data)} bytes",
                offset=base,
            )
        yield Stretch(base + position, base + resume, b"", 0, "damaged")
        position = resume


def boundaries(data: Buffer) -> Iterator[tuple[int, int]]:
    """Where each message of intact ones starts and ends, relative to the first."""
    position = 0
    while position < len(data):
        following = position + SIZE.size + SIZE.unpack_from(data, position)[0]
        yield position, following
        position = following


def whole_until(data: Buffer, least: int) -> int:
    """The first boundary between intact messages at `least` or after it; at most the end."""
    reached = core.whole_bytes(bytes(data[:least]))
    if reached == least or reached == len(data):
        return reached
    following: int = reached + SIZE.size + SIZE.unpack_from(data, reached)[0]
    return following


def _intact(data: bytes, view: memoryview, start: int) -> tuple[int, int]:
    total, position = core.count_uncompressed(view, start, len(data))
    while len(data) - position >= SIZE.size:
        following = position + SIZE.size + SIZE.unpack_from(data, position)[0]
        if following > len(data):
            break
        try:
            decode_message(view, position, following)
        except InvalidMessageError:
            break
        more, position = core.count_uncompressed(view, following, len(data))
        total += 1 + more
    return total, position
