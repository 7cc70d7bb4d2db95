"""From received bytes to requests and responses: pure state, no socket.

The reader of a socket feeds what arrives, in pieces of any size, to `receive_data`, and then takes
what is complete until `next_...` returns None. How bytes are held: `hermes.protocol.framing`.

A broker's work is mostly produce requests of one producer for one partition, one after the other.
`RequestReceiver` therefore recognizes the bytes of type, topic and partition instead of decoding
them again, checks plain message sets on the way, and hands out whole runs of such requests.
"""

import struct
from typing import Final

from hermes.errors import RemoteProtocolError
from hermes.protocol import core
from hermes.protocol.decoding import (
    LongProduce,
    LongRequest,
    Request,
    decode_request,
    long_request,
)
from hermes.protocol.framing import Frames, refused_size
from hermes.protocol.messages import SIZE
from hermes.protocol.requests import ProduceRequest
from hermes.protocol.wire import Buffer, ByteReader

_PRODUCE_TYPE: Final = bytes(2)
_TOPIC_LENGTH: Final = struct.Struct(">h")


class ProduceRun:
    """Produce requests (type 0) for one partition whose sets were checked and are ready to append.

    Every set consists of whole, intact messages of magic 1 without attributes, within the limits,
    at least one. Neither the topic nor the partition has been checked.

    Attributes:
        partition: the partition's number. -1, which lets the broker choose for each request,
            comes with a single request.
        buffers: the message sets, to be appended in this order. Small ones are copies, large ones
            views of what was received; they belong to the run.
    """

    __slots__ = ("buffers", "byte_count", "message_count", "partition", "request_count", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.buffers: list[Buffer] = []
        self.byte_count = 0
        self.message_count = 0
        self.request_count = 0

    def __repr__(self) -> str:
        return (
            f"ProduceRun({self.topic!r}, {self.partition}, {self.request_count} requests, "
            f"{self.message_count} messages, {self.byte_count} bytes)"
        )


class RequestReceiver:
    """The receiving half of a broker's connection.

        receiver.receive_data(data)
        while (request := receiver.next_request()) is not None:
            serve(request)

    Requests may declare 1 to `max_request_bytes`; payloads in a run are up to `max_message_bytes`.
    """

    __slots__ = ("_error", "_frames", "_largest", "_produce")

    def __init__(self, max_request_bytes: int, max_message_bytes: int) -> None:
        self._frames = Frames(max_request_bytes, "a request")
        self.limit(max_request_bytes, max_message_bytes)
        self._produce: _ProducePrefix | None = None
        self._error: str | None = None  # not the exception: it refers to the frames, they to us

    def limit(self, max_request_bytes: int, max_message_bytes: int) -> None:
        self._frames.max_bytes = max_request_bytes
        # No larger request goes through the fast loop, which therefore needs no other size check.
        self._largest = min(max_request_bytes, max_message_bytes)

    def receive_data(self, data: Buffer) -> None:
        """Add any piece of the stream, which must not change afterwards."""
        self._frames.feed(data)

    @property
    def buffered_bytes(self) -> int:
        return self._frames.buffered_bytes

    @property
    def partial_bytes(self) -> int:
        """How many bytes of an incomplete request are held; 0 while anything can be taken.

        Right after `next_request` returned None it equals `buffered_bytes`.
        """
        return self._frames.partial_bytes

    @property
    def missing_bytes(self) -> int:
        """How many bytes the incomplete request still needs, by its declared size; 0 if none."""
        return self._frames.missing_bytes

    def next_request(self) -> Request | ProduceRun | LongRequest | LongProduce | None:
        """Take what is next in the stream.

        Returns:
            A run of checked produce requests, or any other request as `decode_request` makes it
            (one with very many entries as a `LongRequest` or `LongProduce`, not yet decoded), or
            None when more bytes must arrive first. Views in it keep the received bytes alive.

        Raises:
            RemoteProtocolError: the peer broke the protocol; close the connection, as 0.7 does.
                Everything before it was handed out. Every further call raises it again.
        """
        if self._error is not None:
            raise RemoteProtocolError(self._error)
        run: ProduceRun | None = None
        try:
            while (end := self._frames.frame_end()) is not None:
                known = self._recognize(end, run)
                if known is None:
                    break
                extended = self._extend(run, known, end)
                if extended is None:
                    break
                run = extended
                if known.partition < 0:
                    break
            if run is not None or end is None:
                return run
            frame = self._frames.take(end)
            return long_request(frame) or decode_request(frame)
        except RemoteProtocolError as error:
            self._error = str(error)
            if run is None:
                raise
            return run

    def _recognize(self, end: int, run: ProduceRun | None) -> "_ProducePrefix | None":
        """Identify the produce at the current position; None when it doesn't fit into a run.

        A frame for another partition ends the run; without a run, its partition becomes the one
        that is recognized from now on.
        """
        data, start = self._frames.data, self._frames.position + SIZE.size
        known = self._produce
        if known is not None and data[start : start + known.length] == known.prefix:
            return known
        if run is not None or data[start : start + 2] != _PRODUCE_TYPE:
            return None
        if start + 4 > end:
            return None
        stop = start + 4 + int(_TOPIC_LENGTH.unpack_from(data, start + 2)[0]) + 4
        if not start + 8 <= stop <= end:
            return None
        self._produce = _ProducePrefix(bytes(data[start:stop]))
        return self._produce

    def _extend(
        self, run: ProduceRun | None, known: "_ProducePrefix", end: int
    ) -> ProduceRun | None:
        """Take plain produces for one partition from the current chunk, and add them to a run.

        Whatever isn't plain ends it and is left in place. The first request ends at `end`; the
        others follow, unless the partition is negative: then only the first is taken. None when
        nothing was taken.
        """
        frames = self._frames
        if known.partition >= 0:
            end = len(frames.data)
        buffers: list[Buffer] = []
        frames.position, byte_count, message_count = core.collect_produces(
            frames.data, frames.position, end, known.prefix, self._largest, buffers
        )
        if not buffers:
            return None
        run = run or ProduceRun(known.topic, known.partition)
        run.buffers += buffers
        run.byte_count += byte_count
        run.message_count += message_count
        run.request_count += len(buffers)
        return run


class _ResponseFrames(Frames):
    """Frames of an address, whose first bytes may be those of another server."""

    __slots__ = ()

    def _refused(self, size: int) -> RemoteProtocolError:
        return refused_size(self._what, size, self.max_bytes)


class ResponseReceiver:
    """The receiving half of a client's connection; errors name the server's address."""

    __slots__ = ("_frames",)

    def __init__(self, max_response_bytes: int, address: str = "the broker") -> None:
        self._frames = _ResponseFrames(max_response_bytes, address)

    def receive_data(self, data: Buffer) -> None:
        """Add received bytes; they must not change afterwards."""
        self._frames.feed(data)

    @property
    def buffered_bytes(self) -> int:
        return self._frames.buffered_bytes

    def next_response(self) -> memoryview | None:
        """Take the next response, without its size prefix; None when more bytes must arrive first.

        It is a view that keeps the received bytes alive. After a RemoteProtocolError, for a size
        that is not allowed, close the connection.
        """
        end = self._frames.frame_end()
        return None if end is None else self._frames.take(end)


class _ProducePrefix:
    """The first bytes of a produce request, up to the partition, and their meaning."""

    __slots__ = ("length", "partition", "prefix", "topic")

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.length = len(prefix)
        produce = ProduceRequest.decode(ByteReader(prefix[2:] + bytes(4)))
        self.topic = produce.topic
        self.partition = produce.partition
