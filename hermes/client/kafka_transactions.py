"""What `hermes transactions` asks brokers for: transactions, by their coordinators and by logs."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar

from hermes.client.kafka_brokers import Address, KafkaBrokers
from hermes.errors import SILENT, ClientError
from hermes.protocol.kafka_errors import Code
from hermes.protocol.kafka_primitives import KafkaReader, encode_length, encode_text
from hermes.protocol.kafka_requests import KafkaRequest
from hermes.transactions.state import STATE_TOPIC, State

Place = tuple[str, int]

_TRANSACTIONAL_ID: Final = 1
_DESCRIBE_TRANSACTIONS: Final = 65
_DESCRIBED: Final = Struct(">iqqh")
_IDS_AT_ONCE: Final = 1000
_PLACES_AT_ONCE: Final = 100
_PAUSE_SECONDS: Final = 0.1

#: Those of transactions that are under way, or being ended.
OPEN_STATES: Final = tuple(
    each.label for each in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
)

#: Kafka's errors that are over in a moment, and what is said where they aren't.
_PASSING: Final[Mapping[int, str]] = {
    Code.CONCURRENT_TRANSACTIONS: "its transaction is being ended",
    Code.COORDINATOR_LOAD_IN_PROGRESS: "its coordinator still reads it",
    Code.COORDINATOR_NOT_AVAILABLE: "no broker coordinates it now",
    Code.NOT_COORDINATOR: "it moves to another coordinator",
    Code.NOT_LEADER_OR_FOLLOWER: "another broker leads it by now",
}
_WORDS: Final[Mapping[int, str]] = {
    **_PASSING,
    Code.LEADER_NOT_AVAILABLE: "nobody leads some of their partitions: start who is down",
    Code.TRANSACTIONAL_ID_NOT_FOUND: "there is no such id (hermes transactions list shows all)",
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "you may not do this with it",
    Code.TOPIC_AUTHORIZATION_FAILED: "you may not read the topic",
    Code.CLUSTER_AUTHORIZATION_FAILED: "you may not do this: it takes `admin` of the cluster",
    Code.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
}

_Found = TypeVar("_Found")


class CoordinatedTransaction(NamedTuple):
    """What its coordinator says of a transactional id.

    Attributes:
        state: Kafka's name of it: `Ongoing`.
        started_ms: when the one that is open began, in ms since 1970; else None.
        places: the partitions in it; a group as one of `__consumer_offsets/<group>`.
    """

    name: str
    coordinator: int
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int | None
    places: tuple[Place, ...]

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES


class LoggedTransaction(NamedTuple):
    """An open transaction, as a partition's log has it.

    Attributes:
        start_offset: of its first message there, which those who read committed wait at.
        last_ms: the timestamp of its producer's last batch there.
        coordinator_epoch: that of the last marker for its producer; -1 for none.
    """

    place: Place
    start_offset: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    last_ms: int
    leader: Address


class PassingError(ClientError):
    """What may be otherwise in a moment."""


class KafkaTransactions(KafkaBrokers):
    """The transactions of a cluster. All methods raise ClientError."""

    # -- as coordinators have them --------------------------------------------------------------

    def all(self, states: Sequence[str] = ()) -> list[CoordinatedTransaction]:
        """Those in one of the states, or in any, sorted; see `faults`."""
        found = []
        for broker in self.metadata(()).brokers:
            try:
                listed = self._listed(broker, states)
            except SILENT:
                continue
            found += [each for each in listed if not states or each.state in states]
        return sorted(found)

    def _listed(
        self,
        broker: Any,
        state_filters: Sequence[str] = (),
        producer_id_filters: Sequence[int] = (),
    ) -> list[CoordinatedTransaction]:
        place = broker.host, broker.port
        given = {"state_filters": state_filters, "producer_id_filters": producer_id_filters}

        def names() -> list[str]:
            answer = self.ask(place, "ListTransactions", 0, **given)
            _check(answer.error_code, f"the transactions of broker {broker.node_id}")
            return [each.transactional_id for each in answer.transaction_states]

        listed = self._patiently(names)
        return [
            each
            for first in range(0, len(listed), _IDS_AT_ONCE)
            for each in self._described(broker, listed[first : first + _IDS_AT_ONCE])
        ]

    def describe(self, name: str) -> CoordinatedTransaction:
        def found() -> CoordinatedTransaction:
            each, *_ = self._described(self._coordinator(name), [name])
            return each

        return self._patiently(found)

    def _described(self, broker: Any, names: Sequence[str]) -> list[CoordinatedTransaction]:
        ids = b"".join(encode_text(each, is_flexible=True) for each in names)
        body = encode_length(len(names), is_flexible=True) + ids + b"\0"
        told = self.ask_encoded(
            (broker.host, broker.port),
            KafkaRequest(_DESCRIBE_TRANSACTIONS, 0, body, is_flexible=True),
            lambda answer: list(_read(KafkaReader(answer, 0, is_flexible=True), broker.node_id)),
        )
        found = []
        for code, each in told:
            if code == Code.TRANSACTIONAL_ID_NOT_FOUND and len(names) > 1:
                continue  # it has expired since it was listed
            _check(code, f"transactional id {each.name!r}")
            found.append(each)
        return found

    def _coordinator(self, name: str) -> Any:
        if self._state_partitions() is None:  # to ask would create it
            raise ClientError(f"transactional id {name!r}: nobody has used transactions here")
        given = {"key_type": _TRANSACTIONAL_ID, "coordinator_keys": [name]}
        (found,) = self.ask(self.first, "FindCoordinator", 4, **given).coordinators
        _check(found.error_code, f"transactional id {name!r}")
        self.ids[found.host, found.port] = found.node_id
        return found

    def _state_partitions(self) -> Sequence[Any] | None:
        (topic,) = self.metadata([{"name": STATE_TOPIC}]).topics
        return None if topic.error_code else topic.partitions

    def abort(self, name: str) -> None:
        """Abort an id's transaction, as a new producer with the id would: the old one is fenced."""
        known = self.describe(name)
        if known.state != State.ONGOING.label:
            raise ClientError(f"transactional id {name!r} is {known.state}: nothing is under way")

        def fence() -> None:
            coordinator = self._coordinator(name)
            answer = self.ask(
                (coordinator.host, coordinator.port),
                "InitProducerId",
                4,
                transactional_id=name,
                transaction_timeout=known.timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
            )
            _check(answer.error_code, f"transactional id {name!r}")

        self._patiently(fence)

    def _patiently(self, attempt: Callable[[], _Found]) -> _Found:
        """Try again what may go in a moment, for as long as an answer may take."""
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            try:
                return attempt()
            except PassingError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)

    # -- as logs have them ----------------------------------------------------------------------

    def hanging(
        self, topics: Sequence[str], idle_ms: int, unknown: list[str]
    ) -> list[LoggedTransaction]:
        """Transactions that no coordinator knows of any more, so that none will end them.

        ClientError where any coordinator can't be asked.

        Args:
            topics: those to look at; without any all.
            idle_ms: for how long their producers have sent nothing.
            unknown: gets what keeps some partitions from being looked at.
        """
        latest_ms = time.time() * 1000 - idle_ms
        found = [each for each in self._logged(topics, unknown) if each.last_ms <= latest_ms]
        known = self._coordinated({each.producer_id for each in found})
        return sorted(each for each in found if (each.producer_id, each.place) not in known)

    def end(self, hanging: LoggedTransaction) -> None:
        """Write the marker that aborts it, unless it has ended since."""
        topic, number = hanging.place
        unknown: list[str] = []
        now = [*self._logged_by(hanging.leader, [hanging.place], unknown)]
        for each in unknown:
            raise ClientError(each)
        if hanging not in now:
            raise ClientError(f"{topic}:{number}: it isn't as it was any more: look again")
        marker = {
            "producer_id": hanging.producer_id,
            "producer_epoch": hanging.epoch,
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": [number]}],
            "coordinator_epoch": max(hanging.coordinator_epoch, 0),
        }
        answer = self.ask(hanging.leader, "WriteTxnMarkers", 1, markers=[marker])
        (found,) = answer.markers[0].topics[0].partitions
        _check(found.error_code, f"{topic}:{number}")

    def _logged(self, topics: Sequence[str], unknown: list[str]) -> Iterator[LoggedTransaction]:
        answer = self.metadata([{"name": each} for each in dict.fromkeys(topics)] or None)
        leaders = {each.node_id: (each.host, each.port) for each in answer.brokers}
        by_leader: dict[Address, list[Place]] = {}
        for topic in answer.topics:
            _check(topic.error_code, f"topic {topic.name!r}")
            for each in topic.partitions:
                place = topic.name, each.partition_index
                if each.leader_id in leaders:
                    by_leader.setdefault(leaders[each.leader_id], []).append(place)
                else:
                    unknown.append(f"{topic.name}:{each.partition_index}: nobody leads it")
        for leader, places in by_leader.items():
            try:
                yield from self._logged_by(leader, places, unknown)
            except SILENT:
                continue  # which `faults` tells

    def _logged_by(
        self, leader: Address, places: Sequence[Place], unknown: list[str]
    ) -> Iterator[LoggedTransaction]:
        left = list(places)
        while left:
            some, left = left[:_PLACES_AT_ONCE], left[_PLACES_AT_ONCE:]
            numbers: dict[str, list[int]] = {}
            for topic, number in some:
                numbers.setdefault(topic, []).append(number)
            asked = [{"name": name, "partition_indexes": each} for name, each in numbers.items()]
            answer = self.ask(leader, "DescribeProducers", 0, topics=asked)
            told = [(topic.name, each) for topic in answer.topics for each in topic.partitions]
            for at, (name, each) in enumerate(told):
                place = name, each.partition_index
                if at and each.error_code == Code.POLICY_VIOLATION:
                    left.append(place)  # so many producers don't fit into one answer
                elif each.error_code:
                    unknown.append(_text(each.error_code, f"{name}:{each.partition_index}"))
                else:
                    yield from _open_in(place, leader, each.active_producers)

    def _coordinated(self, producer_ids: Collection[int]) -> set[tuple[int, Place]]:
        """What is in the transactions of these producers, as all coordinators have it."""
        if not producer_ids:
            return set()
        wanted = sorted(producer_ids)
        try:
            for each in self._state_partitions() or ():
                _check(each.error_code, "the transactional ids")
            return {
                (each.producer_id, place)
                for broker in self.metadata(()).brokers
                for each in self._listed(broker, producer_id_filters=wanted)
                for place in each.places
            }
        except ClientError as error:
            raise ClientError(f"not all transactions are known: {error}") from error


def _read(reader: KafkaReader, coordinator: int) -> Iterator[tuple[int, CoordinatedTransaction]]:
    """DescribeTransactions' answer: `kio` can't read that one has never begun."""
    reader.int32()  # throttle time
    for _ in reader.each():
        code, name, state = reader.int16(), reader.text() or "", reader.text() or ""
        timeout_ms, started_ms, producer_id, epoch = reader.numbers(_DESCRIBED)
        places = []
        for _ in reader.each():
            topic = reader.text() or ""
            places += [(topic, reader.int32()) for _ in reader.each()]
            reader.tags()
        reader.tags()
        since = started_ms if state in OPEN_STATES else None
        yield (
            code,
            CoordinatedTransaction(
                name, coordinator, state, producer_id, epoch, timeout_ms, since, tuple(places)
            ),
        )


def _open_in(
    place: Place, leader: Address, producers: Iterable[Any]
) -> Iterator[LoggedTransaction]:
    for each in producers:
        if each.current_txn_start_offset >= 0:
            yield LoggedTransaction(
                place,
                each.current_txn_start_offset,
                each.producer_id,
                each.producer_epoch,
                each.coordinator_epoch,
                each.last_timestamp,
                leader,
            )


def _text(code: int, what: str) -> str:
    again = ": try again in a moment" if code in _PASSING else ""
    return f"{what}: {_WORDS.get(code) or getattr(code, 'name', f'error {code}').upper()}{again}"


def _check(code: int, what: str) -> None:
    if code:
        raise (PassingError if code in _PASSING else ClientError)(_text(code, what))
