"""From received bytes to requests and answers: pure state, no socket.

Whoever reads a socket feeds what arrives, in any pieces, to `receive_data`, and then takes what
became complete until `next_...` gives None. `hermes.protocol.framing` tells how bytes are held.

A broker's work is mostly produce requests of one producer for one partition, one after the other.
`RequestReceiver` therefore recognises the bytes of type, topic and partition instead of decoding
them again, checks ordinary message sets on the way, and hands out whole runs of such requests.
"""

import struct
from functools import lru_cache
from typing import Final
from zlib import crc32

from hermes.errors import RemoteProtocolError
from hermes.protocol import core
from hermes.protocol.decoding import LongRequest, Request, decode_request, long_request
from hermes.protocol.framing import Frames
from hermes.protocol.loops import PLAIN_FLAGS
from hermes.protocol.messages import SIZE
from hermes.protocol.requests import ProduceRequest
from hermes.protocol.wire import Buffer, Reader

__all__ = ["ProduceRun", "RequestReceiver", "ResponseReceiver"]

_PRODUCE_TYPE: Final = bytes(2)
_TOPIC_LENGTH: Final = struct.Struct(">h")


class ProduceRun:
    """Produce requests (type 0) for one partition whose sets were found in order: append them.

    Every set consists of whole, intact messages of magic 1 without attributes, within the limits,
    at least one. The topic and the partition were not judged.

    Attributes:
        topic: the topic's name.
        partition: the partition's number. -1, which lets the broker choose for each request,
            comes with a single request.
        buffers: the message sets, to be appended in this order. Small ones are copies, large ones
            views of what was received; they belong to the run.
        byte_count: how many bytes the buffers have together.
        message_count: how many messages they hold.
        request_count: how many requests the run stands for.
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

    Args:
        max_request_bytes: the largest size that a request may claim; at least 1.
        max_message_bytes: the largest payload that is handed out in a run unjudged.
    """

    __slots__ = ("_error", "_frames", "_largest", "_produce")

    def __init__(self, max_request_bytes: int, max_message_bytes: int) -> None:
        self._frames = Frames(max_request_bytes, "a request")
        # No larger request goes through the quick loop, which so needs no other check of sizes.
        self._largest = min(max_request_bytes, max_message_bytes)
        self._produce: _ProducePrefix | None = None
        self._error: str | None = None  # not the exception: it refers to the frames, they to us

    def receive_data(self, data: Buffer) -> None:
        """Take what arrived.

        Args:
            data: any piece of the stream; must not change afterwards.
        """
        self._frames.feed(data)

    @property
    def buffered_bytes(self) -> int:
        """How many received bytes are held here."""
        return self._frames.buffered_bytes

    @property
    def partial_bytes(self) -> int:
        """How many bytes of an incomplete request are held; 0 while there is anything to take.

        Right after `next_request` gave None it equals `buffered_bytes`.
        """
        return self._frames.partial_bytes

    @property
    def missing_bytes(self) -> int:
        """How many bytes the incomplete request still lacks, as it claims; 0 if there is none."""
        return self._frames.missing_bytes

    def next_request(self) -> Request | ProduceRun | LongRequest | None:
        """Take what comes next in the stream.

        Returns:
            A run of checked produce requests, or any other request as `decode_request` makes it
            (one with very many entries as a `LongRequest`, which is not decoded yet), or None when
            more bytes must arrive first. Views in it keep what was received alive.

        Raises:
            RemoteProtocolError: the peer broke the protocol; close the connection, as 0.7 does.
                Everything before that was handed out. Every further call raises it again.
        """
        if self._error is not None:
            raise RemoteProtocolError(self._error)
        run: ProduceRun | None = None
        try:
            while (end := self._frames.frame_end()) is not None:
                known = self._recognise(end, run)
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

    def _recognise(self, end: int, run: ProduceRun | None) -> "_ProducePrefix | None":
        """Say which produce the frame at the current position is; None when it fits no run.

        A frame for another partition than the run's ends the run; without a run it becomes the
        one that is recognised from now on.
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
        """Take ordinary produces for one partition from the current chunk, and add them to a run.

        This is the loop that a broker spends most of its time in: once for each request. It is
        written out, with the case of a single message inline, since a call costs as much as
        several of its lines. Whatever is not ordinary ends it and is left where it is.

        Args:
            run: what was taken before, or None.
            known: the beginning of the requests to take.
            end: where the first request ends; the others follow, unless the partition is
                negative: then there is nothing to take but the first.

        Returns:
            The run, a new one if there was none; None when nothing was taken.
        """
        frames, largest = self._frames, self._largest
        data, position = frames.data, frames.position
        prefix, unpack, body_bytes = known.prefix, known.layout.unpack_from, known.body_bytes
        if known.partition >= 0:
            end = len(data)
        view = memoryview(data)
        buffers: list[Buffer] = []
        byte_count = message_count = 0
        last = end - known.layout.size
        while position <= last:
            size, actual, set_bytes, message_bytes, flags, crc = unpack(data, position)
            following = position + 4 + size
            start = position + body_bytes
            stop = start + set_bytes
            if actual != prefix or following > end or stop > following or size > largest:
                break
            if message_bytes == set_bytes - 4:
                if (
                    crc32(data[start + 10 : stop]) != crc
                    or flags != PLAIN_FLAGS
                    or (not crc and message_bytes < 6)
                ):
                    break
                message_count += 1
                buffers.append(data[start:stop])
            elif count := core.count_plain(data, start, stop):
                message_count += count
                buffers.append(view[start:stop])
            else:
                break
            byte_count += set_bytes
            position = following
        if not buffers:
            return None
        frames.position = position
        run = run or ProduceRun(known.topic, known.partition)
        run.buffers += buffers
        run.byte_count += byte_count
        run.message_count += message_count
        run.request_count += len(buffers)
        return run


class ResponseReceiver:
    """The receiving half of a client's connection.

    Args:
        max_response_bytes: the largest size that an answer may claim; at least 1.
    """

    __slots__ = ("_frames",)

    def __init__(self, max_response_bytes: int) -> None:
        self._frames = Frames(max_response_bytes, "an answer")

    def receive_data(self, data: Buffer) -> None:
        """Take what arrived; it must not change afterwards."""
        self._frames.feed(data)

    @property
    def buffered_bytes(self) -> int:
        """How many received bytes are held here."""
        return self._frames.buffered_bytes

    def next_response(self) -> memoryview | None:
        """Take the next answer.

        Returns:
            The answer without its size prefix, as a view that keeps what was received alive, or
            None when more bytes must arrive first.

        Raises:
            RemoteProtocolError: the size is not positive or too large; close the connection.
        """
        end = self._frames.frame_end()
        return None if end is None else self._frames.take(end)


class _ProducePrefix:
    """The first bytes of a produce request, up to the partition, and what they mean."""

    __slots__ = ("body_bytes", "layout", "length", "partition", "prefix", "topic")

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.length = len(prefix)
        produce = ProduceRequest.decode(Reader(prefix[2:] + bytes(4)))
        self.topic = produce.topic
        self.partition = produce.partition
        self.layout = _produce_layout(self.length)
        #: Where the message set begins, counted from the size.
        self.body_bytes = SIZE.size + self.length + SIZE.size


@lru_cache(maxsize=512)
def _produce_layout(length: int) -> struct.Struct:
    """Size, prefix, size of the set, and the header of its first message, if it is plain."""
    return struct.Struct(f">i{length}siIHI")
