"""What a Kafka client sends: frames, and the header that each request begins with.

    v1   int16 key | int16 version | int32 correlation id | nullable string client id
    v2   ... | tags

Bodies stay bytes here; `dispatching` has them decoded.
"""

from struct import Struct, error
from typing import Final

from hermes.errors import RemoteProtocolError
from hermes.kafka.apis import PRODUCE
from hermes.protocol.framing import Frames
from hermes.protocol.messages import SIZE
from hermes.protocol.wire import Buffer

#: The largest request other than Produce. Decoded it takes up to thirty times that.
LARGEST_OTHER_BYTES: Final = 2 << 20

#: More tags than this, of which a version may have a few, are refused.
MAX_TAGS: Final = 64

#: Smaller frames are copied, so that they don't keep what they were received with.
_COPY_BYTES: Final = 64 * 1024

_HEAD: Final = Struct(">hhih")
_KEY_END: Final = SIZE.size + 2


class Frame:
    """One request, not decoded. Its header isn't, either, before `read_header`.

    Attributes:
        data: all of it; a view of what was received if it is large.
        client_id: empty where the client gives none.
        body: where the body begins; or the header's tags, in flexible versions.
    """

    __slots__ = ("body", "client_id", "correlation_id", "data", "key", "version")

    version: int
    correlation_id: int
    client_id: str
    body: int

    def __init__(self, data: Buffer) -> None:
        self.data = data
        self.key = int.from_bytes(data[:2], signed=True)

    def read_header(self) -> None:
        """Raises RemoteProtocolError where there is no valid header."""
        data = self.data
        try:
            _, self.version, self.correlation_id, length = _HEAD.unpack_from(data)
        except error:
            raise RemoteProtocolError(
                f"a request of {len(data)} bytes is too short for a header"
            ) from None
        self.body = _HEAD.size + max(length, 0)
        if length < -1 or self.body > len(data):
            raise RemoteProtocolError(f"a request of {len(data)} bytes has no client id to its end")
        self.client_id = bytes(data[_HEAD.size : self.body]).decode(errors="replace")


def after_tags(data: Buffer, position: int) -> int:
    """The position after tags: a count, then of each its number, its size and its value.

    Raises:
        IndexError: they don't end, or there are too many.
    """
    count, position = _varint(data, position)
    if count > MAX_TAGS:
        raise IndexError(f"it has {count} tags")
    for _ in range(count):
        _, position = _varint(data, position)
        size, position = _varint(data, position)
        position += size
    return position


def varint(value: int) -> bytes:
    """Encode an unsigned number, seven bits a byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _varint(data: Buffer, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
        if shift > 28:
            raise IndexError("a number that doesn't end")


class ProduceFrame(Frame):
    """A Produce request: taken while those before it wait for their flush."""

    __slots__ = ()


class _KafkaFrames(Frames):
    """Frames, of which only those of Produce may be large."""

    def _frame_bytes(self, data: Buffer, position: int) -> int:
        needed = super()._frame_bytes(data, position)
        if needed > LARGEST_OTHER_BYTES and len(data) - position >= _KEY_END:
            key = int.from_bytes(data[position + SIZE.size : position + _KEY_END], signed=True)
            if key != PRODUCE:
                raise RemoteProtocolError(
                    f"a request of type {key} declares {needed - SIZE.size} bytes; "
                    f"up to {LARGEST_OTHER_BYTES} are allowed"
                )
        return needed


class FrameReceiver:
    """The receiving half of a connection: as `RequestReceiver` is for 0.7's."""

    __slots__ = ("_error", "_frames")

    def __init__(self, max_request_bytes: int) -> None:
        self._frames = _KafkaFrames(max_request_bytes, "a request")
        self._error: str | None = None

    def limit(self, max_request_bytes: int, max_message_bytes: int) -> None:
        """Change the limit of requests; that of messages is checked where they are appended."""
        self._frames.max_bytes = max_request_bytes

    def receive_data(self, data: Buffer) -> None:
        """Add any piece of the stream, which must not change afterwards."""
        self._frames.feed(data)

    @property
    def buffered_bytes(self) -> int:
        return self._frames.buffered_bytes

    @property
    def missing_bytes(self) -> int:
        """How many bytes the incomplete request still needs, by its declared size; 0 if none."""
        return self._frames.missing_bytes

    def next_request(self) -> Frame | None:
        """Take the next request; None when more bytes must arrive first.

        Raises:
            RemoteProtocolError: it is no request; close the connection. Further calls raise it
                again.
        """
        if self._error is not None:
            raise RemoteProtocolError(self._error)
        try:
            end = self._frames.frame_end()
            if end is None:
                return None
            data: Buffer = self._frames.take(end)
            if len(data) <= _COPY_BYTES:
                data = bytes(data)
            is_produce = int.from_bytes(data[:2], signed=True) == PRODUCE
            return ProduceFrame(data) if is_produce else Frame(data)
        except RemoteProtocolError as refusal:
            self._error = str(refusal)
            raise
