"""From received bytes to requests and responses: pure state, no socket.

The reader of a socket feeds what arrives, in pieces of any size, to `receive_data`, and then takes
what is complete until `next_...` returns None. How bytes are held: `hermes.protocol.framing`.

A broker's work is mostly produce requests of one producer for one partition, one after the other.
`RequestReceiver` therefore recognizes the bytes of type, topic and partition instead of decoding
them again, checks plain message sets on the way, and hands out whole runs of such requests. A fetch
that goes on where the last one ended is recognized, too.
"""

import struct
from typing import Any, ClassVar, Final

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
from hermes.protocol.own_requests import AcknowledgedProduceRequest, WaitingFetchRequest
from hermes.protocol.record_requests import RecordFetchRequest
from hermes.protocol.requests import FetchRequest, ProduceRequest
from hermes.protocol.wire import Buffer, ByteReader

#: Type (and version) of what is recognized, and where its topic is.
_PRODUCE_TYPE: Final = bytes(2)
_PRODUCE_TOPIC_AT: Final = 2
_ACKNOWLEDGED_TYPE: Final = AcknowledgedProduceRequest.TYPE.to_bytes(2) + bytes(2)
_ACKNOWLEDGED_TOPIC_AT: Final = 12
_ONE: Final = b"\0\1"
_TOPIC_LENGTH: Final = struct.Struct(">h")

#: What a fetch of one partition ends with: where it starts, and how much at most; and the requests
#: that may be such, of which the next one nearly always differs in nothing else.
_FETCH_END: Final = struct.Struct(">qi")
_FETCHES: Final = (FetchRequest, WaitingFetchRequest, RecordFetchRequest)
_LONGEST_FETCH: Final = 512

#: Larger acknowledged produces aren't checked on the way.
_LARGEST_ACKNOWLEDGED: Final = 64 * 1024


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


class PlainAcknowledgedProduce:
    """An acknowledged produce (type 64) of one set, which was checked as those of a `ProduceRun`.

    Attributes:
        acks: an `Acks`, or a number that is not assigned yet.
        timeout_ms: as of an `AcknowledgedProduceRequest`.
        message_set: a copy if it is of one message, otherwise a view of what was received.
    """

    TYPE: ClassVar[int] = AcknowledgedProduceRequest.TYPE

    __slots__ = ("acks", "message_count", "message_set", "partition", "timeout_ms", "topic")

    def __init__(self, known: "_ProducePrefix", message_set: Buffer, message_count: int) -> None:
        self.topic = known.topic
        self.partition = known.partition
        self.acks = known.acks
        self.timeout_ms = known.timeout_ms
        self.message_set = message_set
        self.message_count = message_count

    def decoded(self) -> AcknowledgedProduceRequest:
        produce = ProduceRequest(self.topic, self.partition, self.message_set)
        return AcknowledgedProduceRequest(self.acks, self.timeout_ms, (produce,))


class RequestReceiver(Frames):
    """The receiving half of a broker's connection.

        receiver.receive_data(data)
        while (request := receiver.next_request()) is not None:
            serve(request)

    Requests may declare 1 to `max_request_bytes`; payloads in a run are up to `max_message_bytes`.
    """

    __slots__ = ("_error", "_fetch", "_largest", "_produce")

    receive_data = Frames.feed

    def __init__(self, max_request_bytes: int, max_message_bytes: int) -> None:
        super().__init__(max_request_bytes, "a request")
        self.limit(max_request_bytes, max_message_bytes)
        self._produce: _ProducePrefix | None = None
        self._fetch: tuple[bytes, Any] = b"", None  # how the last one begins, and that
        self._error: str | None = None  # not the exception: it refers to the frames, they to us

    def limit(self, max_request_bytes: int, max_message_bytes: int) -> None:
        self.max_bytes = max_request_bytes
        # No larger request goes through the fast loop, which therefore needs no other size check.
        self._largest = min(max_request_bytes, max_message_bytes)

    def next_request(
        self,
    ) -> Request | ProduceRun | PlainAcknowledgedProduce | LongRequest | LongProduce | None:
        """Take what is next in the stream.

        Returns:
            A run of checked produce requests, one that is to be acknowledged, or any other as
            `decode_request` makes it (one with very many entries as a `LongRequest` or
            `LongProduce`, not yet decoded), or None when more bytes must arrive first. Views in it
            keep the received bytes alive.

        Raises:
            RemoteProtocolError: the peer broke the protocol; close the connection, as 0.7 does.
                Everything before it was handed out. Every further call raises it again.
        """
        if self._error is not None:
            raise RemoteProtocolError(self._error)
        run: ProduceRun | None = None
        begins, fetch = self._fetch
        try:
            while (end := self.frame_end()) is not None:
                if begins and (
                    run is None
                    and self.data[self.position + SIZE.size : end - _FETCH_END.size] == begins
                ):
                    return self._fetch_again(fetch, end)
                known = self._recognize(end, run)
                if known is None:
                    break
                if known.is_acknowledged:
                    plain = self._acknowledged(known, end)
                    if plain is None:
                        break
                    return plain
                extended = self._extend(run, known, end)
                if extended is None:
                    break
                run = extended
                if known.partition < 0:
                    break
            if run is not None or end is None:
                return run
            frame = self.take(end)
            request = long_request(frame) or decode_request(frame)
            if isinstance(request, _FETCHES) and len(frame) <= _LONGEST_FETCH:
                self._note_fetch(request, bytes(frame))
            return request
        except RemoteProtocolError as error:
            self._error = str(error)
            if run is None:
                raise
            return run

    def _recognize(self, end: int, run: ProduceRun | None) -> "_ProducePrefix | None":
        """Identify the produce at the current position; None when it doesn't fit into a run."""
        # A frame for another partition ends the run; without a run, its partition becomes the one
        # that is recognized from now on.
        data, start = self.data, self.position + SIZE.size
        known = self._produce
        if known is not None and data[start : start + known.length] == known.prefix:
            return known
        if run is not None:
            return None
        if data[start : start + 2] == _PRODUCE_TYPE:
            topic_at = start + _PRODUCE_TOPIC_AT
        elif (
            data[start : start + 4] == _ACKNOWLEDGED_TYPE
            and data[start + _ACKNOWLEDGED_TOPIC_AT - 2 : start + _ACKNOWLEDGED_TOPIC_AT] == _ONE
        ):
            topic_at = start + _ACKNOWLEDGED_TOPIC_AT
        else:
            return None
        if topic_at + 2 > end:
            return None
        stop = topic_at + 2 + int(_TOPIC_LENGTH.unpack_from(data, topic_at)[0]) + 4
        if not topic_at + 6 <= stop <= end:
            return None
        self._produce = _ProducePrefix(bytes(data[start:stop]))
        return self._produce

    def _note_fetch(self, request: Any, frame: bytes) -> None:
        """Recognize the next one, if this is for one partition and has nothing behind it."""
        is_one = type(request) is FetchRequest or len(request.fetches) == 1
        if is_one and request.encode()[SIZE.size :] == frame:
            self._fetch = frame[: -_FETCH_END.size], request

    def _fetch_again(
        self, last: Any, end: int
    ) -> FetchRequest | WaitingFetchRequest | RecordFetchRequest:
        """Take a request that differs from the last one in what it ends with."""
        offset, max_size = _FETCH_END.unpack_from(self.data, end - _FETCH_END.size)
        self.move(end)
        if type(last) is FetchRequest:
            return FetchRequest(last.topic, last.partition, offset, max_size)
        (fetch,) = last.fetches
        fetch = FetchRequest(fetch.topic, fetch.partition, offset, max_size)
        kind: type[WaitingFetchRequest] = type(last)
        return kind(last.max_wait_ms, last.min_bytes, (fetch,))

    def _acknowledged(self, known: "_ProducePrefix", end: int) -> PlainAcknowledgedProduce | None:
        """Take a plain acknowledged produce; None when it isn't, and was left in place."""
        buffers: list[Buffer] = []
        if known.partition < 0 or end - self.position > _LARGEST_ACKNOWLEDGED:
            return None
        position, _, message_count = core.collect_produces(
            self.data, self.position, end, known.prefix, self._largest, buffers
        )
        if not buffers:
            return None
        self.move(position)
        return PlainAcknowledgedProduce(known, buffers[0], message_count)

    def _extend(
        self, run: ProduceRun | None, known: "_ProducePrefix", end: int
    ) -> ProduceRun | None:
        """Take plain produces for one partition from the current chunk, and add them to a run."""
        # Whatever isn't plain ends it and is left in place. The first request ends at `end`; the
        # others follow, unless the partition is negative: then only the first is taken. None when
        # nothing was taken.
        if known.partition >= 0:
            end = len(self.data)
        buffers: list[Buffer] = []
        position, byte_count, message_count = core.collect_produces(
            self.data, self.position, end, known.prefix, self._largest, buffers
        )
        if not buffers:
            return None
        self.move(position)
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

    __slots__ = (
        "acks",
        "is_acknowledged",
        "length",
        "partition",
        "prefix",
        "timeout_ms",
        "topic",
    )

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.length = len(prefix)
        self.is_acknowledged = not prefix.startswith(_PRODUCE_TYPE)
        self.acks = self.timeout_ms = 0
        reader = ByteReader(prefix + bytes(4))
        if self.is_acknowledged:
            reader.position = len(_ACKNOWLEDGED_TYPE)
            self.acks, self.timeout_ms = reader.int16(), reader.int32()
            reader.position = _ACKNOWLEDGED_TOPIC_AT
        else:
            reader.position = _PRODUCE_TOPIC_AT
        produce = ProduceRequest.decode(reader)
        self.topic = produce.topic
        self.partition = produce.partition
