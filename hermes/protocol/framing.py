"""Cutting a stream of bytes into frames: `int32 size`, then that many bytes.

Theory of operation. Bytes wait in a queue of the chunks as they were received, and are not moved.
Frames that are whole within a chunk are used right there. A frame that spans chunks is gathered
in a bytearray that grows as its bytes arrive, and then joins the queue as a chunk of its own. A
size prefix is only a declaration: it is checked at once, and never allocates.
"""

from collections import deque
from typing import Final

from hermes.errors import RemoteProtocolError
from hermes.protocol.messages import SIZE
from hermes.protocol.protocol_detection import client_hint, not_a_broker
from hermes.protocol.wire import Buffer

# Gathered frames up to this size are made bytes, which are faster to slice than a memoryview.
_COPY_BYTES: Final = 128 * 1024


def refused_size(address: str, size: int, max_bytes: int) -> RemoteProtocolError:
    """Make the error for an answer whose size, as declared by its first four bytes, is refused."""
    known = not_a_broker(SIZE.pack(size))
    if known is not None:
        return RemoteProtocolError(f"{address} {known}")
    return RemoteProtocolError(
        f"{address} sent an answer of {size} bytes; up to {max_bytes} are allowed. "
        "Is this the port of a broker?"
    )


class Frames:
    """Cuts a stream of `int32 size | body` into frames.

    Args:
        what: how errors call a frame, for instance "a request".

    Attributes:
        max_bytes: the largest size that may be declared, 1 or more; may be changed.
        data: the chunk that is being used.
        position: how far it has been used.
        chunks: those after it, each with where to start.
        partial: the start of a frame, its size included. Empty with the other two, nothing is held.
    """

    __slots__ = ("_waiting_bytes", "_what", "chunks", "data", "max_bytes", "partial", "position")

    def __init__(self, max_bytes: int, what: str) -> None:
        self.max_bytes = max_bytes
        self._what = what
        self.chunks: deque[tuple[Buffer, int]] = deque()
        self._waiting_bytes = 0  # in those
        self.partial = bytearray()
        self.data: Buffer = b""
        self.position = 0

    def feed(self, data: Buffer) -> None:
        """Add received bytes; they must not change afterwards."""
        if self.position == len(self.data) and not self.chunks and not self.partial:
            self.data, self.position = data, 0
        elif data:
            self.chunks.append((data, 0))
            self._waiting_bytes += len(data)

    @property
    def buffered_bytes(self) -> int:
        return len(self.data) - self.position + self._waiting_bytes + len(self.partial)

    @property
    def missing_bytes(self) -> int:
        """How many bytes the incomplete frame still needs, by its declared size; 0 if unknown.

        Whether that is allowed is said once more of it comes.
        """
        partial = self.partial
        if self.chunks or len(partial) < SIZE.size:
            return 0
        size: int = SIZE.unpack_from(partial)[0]
        return SIZE.size + size - len(partial)

    def frame_end(self) -> int | None:
        """Find a whole frame, moving on to later chunks as needed.

        Returns:
            Where the frame ends in `data`; it starts at `position`, with its size. None when more
            bytes must arrive first.

        Raises:
            RemoteProtocolError: the size is not allowed. The stream can't be read any further.
        """
        while True:
            available = len(self.data) - self.position
            if available >= SIZE.size:
                needed = self._frame_bytes(self.data, self.position)
                if available >= needed:
                    return self.position + needed
            if not self._advance():
                return None

    def take(self, end: int) -> memoryview:
        data, start = self.data, self.position + SIZE.size
        self.move(end)
        return memoryview(data)[start:end]

    def move(self, position: int) -> None:
        """Say how far the chunk has been used; one that is used up is let go."""
        self.data, self.position = (self.data, position) if position < len(self.data) else (b"", 0)

    def _frame_bytes(self, data: Buffer, position: int) -> int:
        size: int = SIZE.unpack_from(data, position)[0]
        if not 0 < size <= self.max_bytes:
            raise self._refused(size)
        return SIZE.size + size

    def _refused(self, size: int) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"{self._what} declares {size} bytes; 1 to {self.max_bytes} are allowed"
            f"{client_hint(SIZE.pack(size))}"
        )

    def _advance(self) -> bool:
        """Make the next chunk the current one; False when there is none."""
        # The rest of the current chunk is the start of a frame: it is set aside, completed from
        # the chunks that follow, and becomes a chunk of its own.
        if self.position < len(self.data):
            self.partial += memoryview(self.data)[self.position :]
        self.data, self.position = b"", 0
        while self.chunks:
            chunk, start = self.chunks.popleft()
            self._waiting_bytes -= len(chunk) - start
            if not self.partial:
                self.data, self.position = chunk, start
                return True
            stop = self._gather(chunk, start)
            if stop is not None:
                if stop < len(chunk):
                    self.chunks.appendleft((chunk, stop))
                    self._waiting_bytes += len(chunk) - stop
                whole, self.partial = self.partial, bytearray()
                self.data = bytes(whole) if len(whole) <= _COPY_BYTES else memoryview(whole)
                return True
        return False

    def _gather(self, chunk: Buffer, start: int) -> int | None:
        """Complete the frame set aside; returns where it ends, or None if it needs more bytes."""
        partial, view = self.partial, memoryview(chunk)
        if len(partial) < SIZE.size:
            stop = start + SIZE.size - len(partial)
            partial += view[start:stop]
            start = stop
            if len(partial) < SIZE.size:
                return None
        needed = self._frame_bytes(partial, 0)
        stop = start + needed - len(partial)
        partial += view[start:stop]
        return stop if len(partial) == needed else None
