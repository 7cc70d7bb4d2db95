"""What brokers ask of each other about transactions.

To each other broker there is a connection for joins, one for markers in partitions, and one for
markers of groups, which wait for the store of offsets. Each has one request at a time under way:
what is asked meanwhile goes into the next one together, and is flushed together there.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from struct import Struct
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from twisted.internet.defer import CancelledError, Deferred, gatherResults, succeed
from twisted.python.failure import Failure

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
from hermes.transactions.state import Place, group_at

_WRITE_MARKERS, _MARKERS_VERSION = 27, 2
_ADD_PARTITIONS, _ADD_VERSION = 24, 5

#: How long a broker may take: others lead by then what one led that sleeps, and all of a
#: transaction waits for it.
_SECONDS: Final = 10.0

#: So many questions go into one request.
_MOST_TOGETHER: Final = 64

_PRODUCER: Final = Struct(">qh")
_INT32: Final = Struct(">i")
_RESULT: Final = Struct(">ih")

_Codes: TypeAlias = Mapping[Place, Code]


class _Marking(NamedTuple):
    marker: Marker
    version: int
    places: Collection[Place]


class _Joining(NamedTuple):
    transactional_id: str
    producer: Producer
    places: Collection[Place]
    verify_only: bool


_Question = TypeVar("_Question", _Marking, _Joining)


class RemoteBrokers:
    """Lives in the reactor's thread.

    What is asked fails with HermesError: there is no answer, and it may be done or not.

    Args:
        other: where another broker listens, by what it says of itself; None if nowhere.
    """

    def __init__(
        self, topics: ClusterTopics, other: Callable[[BrokerListeners], OtherBroker | None]
    ) -> None:
        self._topics = topics
        self._other = other
        self._joins: dict[int, _Line[_Joining]] = {}
        self._markers: dict[tuple[int, bool], _Line[_Marking]] = {}
        self._is_stopped = False

    def stop(self) -> "Deferred[list[None]]":
        self._is_stopped = True
        lines: list[_Line[Any]] = [*self._joins.values(), *self._markers.values()]
        return gatherResults([each.close() for each in lines])

    def write_markers(
        self, broker_id: int, marker: Marker, version: int, places: Collection[Place]
    ) -> "Deferred[_Codes]":
        """Have another broker end a producer's transaction in partitions or groups of its own."""
        key = broker_id, any(group_at(each) is not None for each in places)
        line = self._markers.get(key)
        if line is None:
            connect = self._connector(broker_id)
            line = self._markers[key] = _Line(connect, _markers_request, _markers_codes)
        return line.ask(_Marking(marker, version, places))

    def add_partitions(
        self,
        broker_id: int,
        transactional_id: str,
        producer: Producer,
        places: Collection[Place],
        *,
        verify_only: bool,
    ) -> "Deferred[_Codes]":
        """Have a producer's coordinator take partitions into its transaction, or look for them."""
        line = self._joins.get(broker_id)
        if line is None:
            connect = self._connector(broker_id)
            line = self._joins[broker_id] = _Line(connect, _joins_request, _joins_codes)
        return line.ask(_Joining(transactional_id, producer, places, verify_only))

    def _connector(self, broker_id: int) -> Callable[[], "Deferred[OutgoingConnection]"]:
        def connect() -> "Deferred[OutgoingConnection]":
            listeners = self._topics.registered().get(broker_id)
            other = None if listeners is None else self._other(listeners)
            if other is None or self._is_stopped:
                raise BrokerUnavailableError(f"broker {broker_id} isn't there now")
            return other.connect()

        return connect


class _Line(Generic[_Question]):
    """Asks one broker one kind of question, over a connection that is made when it is needed."""

    def __init__(
        self,
        connect: Callable[[], "Deferred[OutgoingConnection]"],
        encode: Callable[[Sequence[_Question]], KafkaRequest],
        decode: Callable[[KafkaReader, Sequence[_Question]], Sequence[_Codes]],
    ) -> None:
        self._connect = connect
        self._encode: Callable[[Sequence[_Question]], KafkaRequest] = encode
        self._decode: Callable[[KafkaReader, Sequence[_Question]], Sequence[_Codes]] = decode
        self._connection: OutgoingConnection | None = None
        self._waiting: list[tuple[_Question, Deferred[_Codes]]] = []
        self._is_asking = False
        self._under_way: Deferred[Any] | None = None

    def ask(self, question: _Question) -> "Deferred[_Codes]":
        answer: Deferred[_Codes] = Deferred()
        self._waiting.append((question, answer))
        if not self._is_asking:
            Deferred.fromCoroutine(self._ask_all())
        return answer

    def close(self) -> "Deferred[None]":
        if self._under_way is not None:
            self._under_way.cancel()
        return succeed(None) if self._connection is None else self._connection.close()

    async def _ask_all(self) -> None:
        self._is_asking = True
        while self._waiting:
            some, self._waiting = self._waiting[:_MOST_TOGETHER], self._waiting[_MOST_TOGETHER:]
            try:
                told = await self._ask([question for question, _ in some])
            except Exception as error:
                for _, answer in some:
                    _tell(answer, Failure(error))  # type: ignore[no-untyped-call]
            else:
                for (_, answer), codes in zip(some, told, strict=True):
                    _tell(answer, codes)
        self._is_asking = False

    async def _ask(self, questions: Sequence[_Question]) -> Sequence[_Codes]:
        try:
            if self._connection is None or not self._connection.is_open:
                connecting = self._under_way = self._connect()
                self._connection = await connecting
            asking = self._under_way = self._connection.ask(self._encode(questions), _SECONDS)
            answer = await asking
        except CancelledError:
            raise BrokerUnavailableError("this broker stops") from None
        finally:
            self._under_way = None
        found = self._decode(KafkaReader(answer, 0, is_flexible=True), questions)
        if len(found) != len(questions):
            raise RemoteProtocolError(f"{len(found)} answers to {len(questions)} questions")
        return [
            {place: codes.get(place, Code.UNKNOWN_SERVER_ERROR) for place in question.places}
            for question, codes in zip(questions, found, strict=True)
        ]


def _tell(answer: "Deferred[_Codes]", outcome: "_Codes | Failure") -> None:
    if not answer.called:  # else whoever asked has cancelled it
        answer.callback(outcome)


def _markers_request(asked: Sequence[_Marking]) -> KafkaRequest:
    parts = [encode_length(len(asked), is_flexible=True)]
    for marker, version, places in asked:
        parts += (
            _PRODUCER.pack(marker.producer_id, marker.producer_epoch),
            bytes([marker.is_commit]),
            encode_places(places),
            _INT32.pack(marker.coordinator_epoch),
            bytes([version]),
            b"\0",
        )
    parts.append(b"\0")
    return KafkaRequest(_WRITE_MARKERS, _MARKERS_VERSION, b"".join(parts), True)


def _markers_codes(reader: KafkaReader, _: object) -> Sequence[_Codes]:
    found = []
    for _ in reader.each():
        reader.int64()  # the producer's id
        found.append(_results(reader))
        reader.tags()
    return found


def _joins_request(asked: Sequence[_Joining]) -> KafkaRequest:
    parts = [encode_length(len(asked), is_flexible=True)]
    for transactional_id, producer, places, verify_only in asked:
        parts += (
            encode_text(transactional_id, is_flexible=True),
            _PRODUCER.pack(*producer),
            bytes([verify_only]),
            encode_places(places),
            b"\0",
        )
    parts.append(b"\0")
    return KafkaRequest(_ADD_PARTITIONS, _ADD_VERSION, b"".join(parts), True)


def _joins_codes(reader: KafkaReader, asked: Sequence[_Joining]) -> Sequence[_Codes]:
    reader.int32()  # throttle time
    code = Code(reader.int16())
    if code is not Code.NONE:
        return [dict.fromkeys(each.places, code) for each in asked]
    found = []
    for _ in reader.each():
        reader.text()  # the transactional id
        found.append(_results(reader))
        reader.tags()
    return found


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
