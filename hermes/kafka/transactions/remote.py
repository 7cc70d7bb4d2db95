"""What brokers ask of each other about transactions.

To each other broker there is a connection for markers and one for joins: answers come in the order
of requests, and a marker may wait for the disk of a group's offsets.
"""

from collections.abc import Callable, Collection, Mapping
from struct import Struct
from typing import Final, TypeAlias

from twisted.internet.defer import CancelledError, Deferred, DeferredList, gatherResults

from hermes.cluster.cluster_topics import ClusterTopics
from hermes.coordination.listeners import BrokerListeners
from hermes.errors import BrokerUnavailableError, RemoteProtocolError
from hermes.kafka.other_brokers import OtherBroker
from hermes.kafka.outgoing import OutgoingConnection
from hermes.protocol.kafka_errors import Code
from hermes.protocol.kafka_primitives import KafkaReader, encode_length, encode_text
from hermes.protocol.kafka_requests import KafkaRequest
from hermes.protocol.transaction_markers import Marker
from hermes.transactions.deciding import Producer
from hermes.transactions.records import encode_places
from hermes.transactions.state import Place

_WRITE_MARKERS, _MARKERS_VERSION = 27, 2
_ADD_PARTITIONS, _ADD_VERSION = 24, 5

#: How long a broker may take: others lead by then what one led that sleeps, and all of a
#: transaction waits for it.
_SECONDS: Final = 10.0

#: A broker, and what it is asked.
_Key: TypeAlias = tuple[int, int]

_PRODUCER: Final = Struct(">qh")
_INT32: Final = Struct(">i")
_RESULT: Final = Struct(">ih")


class RemoteBrokers:
    """Lives in the reactor's thread.

    Args:
        other: where another broker listens, by what it says of itself; None if nowhere.
    """

    def __init__(
        self, topics: ClusterTopics, other: Callable[[BrokerListeners], OtherBroker | None]
    ) -> None:
        self._topics = topics
        self._other = other
        self._connections: dict[_Key, OutgoingConnection] = {}
        self._connecting: dict[_Key, Deferred[OutgoingConnection]] = {}
        self._is_stopped = False

    def stop(self) -> "Deferred[list[None]]":
        self._is_stopped = True
        for each in list(self._connecting.values()):
            each.cancel()
        closed = [each.close() for each in self._connections.values()]
        self._connections.clear()
        return gatherResults(closed)

    async def write_markers(
        self, broker_id: int, marker: Marker, version: int, places: Collection[Place]
    ) -> Mapping[Place, Code]:
        """Have another broker end a producer's transaction in places of its own."""
        body = await self._ask(broker_id, _markers_request(marker, version, places))
        reader = KafkaReader(body, 0, is_flexible=True)
        found: dict[Place, Code] = {}
        for _ in reader.each():
            reader.int64()
            found.update(_results(reader))
            reader.tags()
        return found

    async def add_partitions(
        self,
        broker_id: int,
        transactional_id: str,
        producer: Producer,
        places: Collection[Place],
        *,
        verify_only: bool,
    ) -> Mapping[Place, Code]:
        """Have a producer's coordinator take partitions into its transaction, or look for them."""
        parts = (
            encode_length(1, is_flexible=True),
            encode_text(transactional_id, is_flexible=True),
            _PRODUCER.pack(*producer),
            bytes([verify_only]),
            encode_places(places),
            b"\0\0",
        )
        request = KafkaRequest(_ADD_PARTITIONS, _ADD_VERSION, b"".join(parts), True)
        reader = KafkaReader(await self._ask(broker_id, request), 0, is_flexible=True)
        reader.int32()  # throttle time
        code = Code(reader.int16())
        found: dict[Place, Code] = {}
        for _ in reader.each():
            reader.text()
            found.update(_results(reader))
            reader.tags()
        return {each: found.get(each, code) for each in places}

    # -- connections ----------------------------------------------------------------------------

    async def _ask(self, broker_id: int, request: KafkaRequest) -> memoryview:
        """Raises HermesError: there is no answer, and what was asked may be done or not."""
        key = broker_id, request.key
        connection = self._connections.get(key)
        if connection is None or not connection.is_open:
            connection = await self._connect(key)
        return await connection.ask(request, _SECONDS)

    async def _connect(self, key: _Key) -> OutgoingConnection:
        broker_id, _ = key
        if self._is_stopped:
            raise BrokerUnavailableError("this broker stops")
        under_way = self._connecting.get(key)
        if under_way is None:
            listeners = self._topics.registered().get(broker_id)
            other = None if listeners is None else self._other(listeners)
            if other is None:
                raise BrokerUnavailableError(f"broker {broker_id} isn't there now")
            under_way = self._connecting[key] = other.connect()
            try:
                connection = await under_way
            except CancelledError:
                if not self._is_stopped:
                    raise
                raise BrokerUnavailableError("this broker stops") from None
            finally:
                del self._connecting[key]
            self._connections[key] = connection
            return connection
        await DeferredList([under_way], consumeErrors=True)
        found = self._connections.get(key)
        if found is None or not found.is_open:
            raise BrokerUnavailableError(f"broker {broker_id} can't be reached now")
        return found


def _markers_request(marker: Marker, version: int, places: Collection[Place]) -> KafkaRequest:
    parts = (
        encode_length(1, is_flexible=True),
        _PRODUCER.pack(marker.producer_id, marker.producer_epoch),
        bytes([marker.is_commit]),
        encode_places(places),
        _INT32.pack(marker.coordinator_epoch),
        bytes([version]),
        b"\0\0",
    )
    return KafkaRequest(_WRITE_MARKERS, _MARKERS_VERSION, b"".join(parts), True)


def _results(reader: KafkaReader) -> dict[Place, Code]:
    found: dict[Place, Code] = {}
    for _ in reader.each():
        name = reader.text() or ""
        for _ in reader.each():
            number, code = reader.numbers(_RESULT)
            try:
                found[name, number] = Code(code)
            except ValueError:
                raise RemoteProtocolError(f"a broker answers with the error {code}") from None
            reader.tags()
        reader.tags()
    return found
