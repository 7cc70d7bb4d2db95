"""One Kafka client's connection: a `BrokerConnection` whose requests are Kafka's.

Order and bounds are the same: see there. Kafka's own broker takes one request of a connection at a
time; here Produce requests don't wait for the flush of those before them.
"""

from contextlib import suppress
from typing import Final

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import ServerFactory

from hermes.broker.connection import BrokerConnection
from hermes.broker.connections import Connections
from hermes.errors import RemoteProtocolError
from hermes.kafka.apis import FETCH, PRODUCE
from hermes.kafka.authenticating import KafkaGate
from hermes.kafka.dispatching import Dispatcher
from hermes.kafka.frames import Frame, PlainFetch, ProduceFrame, ReadFrame, ReplicaFrame
from hermes.kafka.replicas.fetches import CLIENT_ID, VERSION
from hermes.protocol import core
from hermes.protocol.framing import Frames
from hermes.protocol.messages import SIZE
from hermes.protocol.record_batches import BatchHeader
from hermes.protocol.wire import Buffer
from hermes.server.policies import ListenerPolicy

#: The largest request other than Produce. Decoded it takes up to thirty times that.
LARGEST_OTHER_BYTES: Final = 2 << 20

#: Smaller frames are copied, so that they don't keep what they were received with.
_COPY_BYTES: Final = 64 * 1024

#: Larger fetches are decoded, so that what they hold while they wait is counted.
_FETCH_BYTES: Final = 1024

_PRODUCE_KEY: Final = PRODUCE.to_bytes(2)
_KEY_END: Final = SIZE.size + len(_PRODUCE_KEY)


class FrameReceiver(Frames):
    """The receiving half, as 0.7's `RequestReceiver`; only requests of Produce may be large.

    Those that are plain, as nearly all of a producer with little to send and of a consumer that
    reads one partition, are checked on the way.
    """

    __slots__ = ("_error", "_largest", "_largest_fetch")

    receive_data = Frames.feed

    def __init__(self, max_request_bytes: int) -> None:
        super().__init__(max_request_bytes, "a request")
        self._error: str | None = None
        self.limit(max_request_bytes, 0)

    def limit(self, max_request_bytes: int, max_message_bytes: int) -> None:
        """Change the limit of requests; that of messages is checked where they are appended."""
        self.max_bytes = max_request_bytes
        self._largest = min(max_request_bytes, _COPY_BYTES)  # of plain ones
        self._largest_fetch = min(max_request_bytes, _FETCH_BYTES)

    def next_request(self) -> Frame | PlainFetch | None:
        """Take the next request; None when more bytes must arrive first.

        Raises RemoteProtocolError: it is no request; close the connection. Further calls raise it
        again.
        """
        if self._error is not None:
            raise RemoteProtocolError(self._error)
        data: Buffer
        try:
            while True:
                used = self.data
                plain = core.plain_produce(BatchHeader, used, self.position, self._largest)
                if plain is not None:
                    start, stop = self.position + SIZE.size, plain[0]
                    self.data, self.position = (used, stop) if stop < len(used) else (b"", 0)
                    return ProduceFrame(bytes(used[start:stop]), plain)
                fetch = core.single_fetch(PlainFetch, used, self.position, self._largest_fetch)
                if fetch is not None:
                    stop = self.position + SIZE.size + len(fetch.data)
                    self.data, self.position = (used, stop) if stop < len(used) else (b"", 0)
                    return fetch
                known = core.whole_request(used, self.position, self._largest)
                if known is not None:
                    start, stop = self.position + SIZE.size, known[0]
                    self.data, self.position = (used, stop) if stop < len(used) else (b"", 0)
                    data = bytes(used[start:stop])
                    if known[1] == FETCH and known[4] == CLIENT_ID:
                        return _other(Frame(data))
                    return ReadFrame(data, known)
                end = self.frame_end()
                if end is None:
                    return None
                if self.data is used:
                    break
        except RemoteProtocolError as refusal:
            self._error = str(refusal)
            raise
        data = self.take(end)
        if len(data) <= _COPY_BYTES:
            data = bytes(data)
        return ProduceFrame(data, None) if data[:2] == _PRODUCE_KEY else _other(Frame(data))

    def _frame_bytes(self, data: Buffer, position: int) -> int:
        needed = super()._frame_bytes(data, position)
        if needed > LARGEST_OTHER_BYTES and len(data) - position >= _KEY_END:
            key = data[position + SIZE.size : position + _KEY_END]
            if key != _PRODUCE_KEY:
                raise RemoteProtocolError(
                    f"a request of type {int.from_bytes(key, signed=True)} declares "
                    f"{needed - SIZE.size} bytes; up to {LARGEST_OTHER_BYTES} are allowed"
                )
        return needed


def _other(frame: Frame) -> Frame:
    """A request that isn't Produce; one of a broker's for copies as such."""
    if frame.key == FETCH:
        with suppress(RemoteProtocolError):  # whoever serves it says so
            frame.read_header()
            if frame.client_id == CLIENT_ID and frame.version == VERSION:
                replica = ReplicaFrame(frame.data)
                replica.version, replica.correlation_id = frame.version, frame.correlation_id
                replica.client_id, replica.body = frame.client_id, frame.body
                return replica
    return frame


class KafkaConnection(BrokerConnection):
    _pipelined = (ProduceFrame, ReplicaFrame)
    _gate_kind = KafkaGate

    def _new_receiver(self) -> FrameReceiver:
        return FrameReceiver(self._connections.config.max_request_bytes)


class KafkaFactory(ServerFactory):
    noisy = False

    def __init__(
        self, connections: Connections, dispatcher: Dispatcher, policy: ListenerPolicy
    ) -> None:
        self._connections = connections
        self._dispatcher = dispatcher
        self._policy = policy

    def buildProtocol(self, addr: IAddress | None) -> KafkaConnection | None:
        if not self._connections.has_room(addr):
            return None
        return KafkaConnection(self._connections, self._policy, self._dispatcher)
