"""What brokers ask of each other about transactions: one connection to each other broker."""

from collections.abc import Callable, Collection, Mapping
from struct import Struct
from typing import Final

from twisted.internet.defer import Deferred, DeferredList, gatherResults

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

_PRODUCER: Final = Struct(">qh")
_INT32: Final = Struct(">i")
_RESULT: Final = Struct(">ih")


class Peers:
    """Lives in the reactor's thread.

    Args:
        other: where another broker listens, by what it says of itself; None if nowhere.
    """

    def __init__(
        self, topics: ClusterTopics, other: Callable[[BrokerListeners], OtherBroker | None]
    ) -> None:
        self._topics = topics
        self._other = other
        self._connections: dict[int, OutgoingConnection] = {}
        self._connecting: dict[int, Deferred[OutgoingConnection]] = {}

    def stop(self) -> "Deferred[list[None]]":
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
        connection = self._connections.get(broker_id)
        if connection is None or not connection.is_open:
            connection = await self._connect(broker_id)
        return await connection.ask(request, _SECONDS)

    async def _connect(self, broker_id: int) -> OutgoingConnection:
        under_way = self._connecting.get(broker_id)
        if under_way is None:
            listeners = self._topics.registered().get(broker_id)
            other = None if listeners is None else self._other(listeners)
            if other is None:
                raise BrokerUnavailableError(f"broker {broker_id} isn't there now")
            under_way = self._connecting[broker_id] = other.connect()
            try:
                connection = await under_way
            finally:
                del self._connecting[broker_id]
            self._connections[broker_id] = connection
            return connection
        await DeferredList([under_way], consumeErrors=True)
        found = self._connections.get(broker_id)
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
