"""What clients ask of a simulated broker, as calls: the product's handlers without the bytes.

A request goes through the network on a connection, is carried out in the broker's reactor in the
order of its arrival, and is answered on the same connection: a result, or a code of Kafka's.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from brokers import SimulatedBroker
from invariants_today import Partition
from machines import Process
from network import Connection
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.coordination.kafka_topics import parse_topic, topic_node_path
from hermes.coordination.replicas import replicas_path
from hermes.coordination.throttles import Throttle
from hermes.errors import HermesError
from hermes.groups.offsets import Committed, TopicPartition
from hermes.kafka.admin_records import _begin, _end
from hermes.kafka.admin_replicas import _changed, _move
from hermes.kafka.producing.produce import Produce
from hermes.kafka.producing.produce_messages import Entry, ProduceRequest
from hermes.protocol.kafka_errors import Code, KafkaError, code_of
from hermes.protocol.record_batches import HEADER_BYTES, is_intact, next_in
from hermes.protocol.records import Record, iterate_records
from hermes.replication.state import parse_replicas
from hermes.server.clients import UNKNOWN_CLIENT
from hermes.server.outcomes import CloseConnection
from hermes.storage import Log

__all__ = ["Client", "LostError", "RefusedError", "Topic"]

#: How long a client waits for an answer, in seconds.
ANSWER_SECONDS = 5.0

#: How long a deletion of records may take in all copies.
DELETE_SECONDS = 4.0


class LostError(Exception):
    """No answer came: it was done, or not."""


class RefusedError(Exception):
    """The broker answered with an error."""

    def __init__(self, code: Code, text: str = "") -> None:
        super().__init__(f"{code.name} {text}".strip())
        self.code = code


class Topic(NamedTuple):
    """A topic as a broker told it: who leads each partition; `has_copies`: it isn't always one."""

    name: str
    id: UUID
    leaders: tuple[int, ...]
    has_copies: bool = False


class Produced(NamedTuple):
    code: Code
    base_offset: int


class Fetched(NamedTuple):
    """Attributes:
    start, end: the log's first offset, and its high watermark, when it was read.
    is_end_known: whether who said so knows all that was committed: who leads, and knows what
        leaders before it have.
    """

    topic_id: UUID
    start: int
    end: int
    records: Sequence[Record]
    is_end_known: bool = True


async def metadata(broker: SimulatedBroker, name: str) -> Topic:
    topics = broker.server.topics
    found = topics.get(name)
    if found is None:
        raise KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION)
    broker.books.see(found.id, name, len(found.partitions))
    numbers = range(len(found.partitions))
    leaders = tuple(found.leader(each) for each in numbers)
    return Topic(name, found.id, leaders, any(found.copies))


async def produce(
    broker: SimulatedBroker, topic: str | UUID, number: int, batch: bytes, acks: int = -1
) -> Produced:
    (listener,) = broker.server.topics.listeners()
    call: Any = SimpleNamespace(
        server=broker.server,
        client=SimpleNamespace(listener=listener),
        version=13,
        correlation_id=0,
        frame=SimpleNamespace(data=batch),
        permits_topic=lambda *_: True,
        let_pass=lambda: None,
        step_aside=lambda: None,
    )
    entry = Entry(topic, number, memoryview(batch))
    await Produce(call, ProduceRequest(None, acks, 30_000, [entry])).answer(0.0)
    return Produced(entry.code, entry.base_offset)


async def fetch(
    broker: SimulatedBroker, topic: str, number: int, offset: int | None, most_bytes: int = 1 << 20
) -> Fetched:
    """Read from an offset on; None is the log's start."""
    server = broker.server
    partition = server.topics.partition(topic, number)
    log = partition.log
    found = _topic(broker, topic)
    log.check_readable()
    start, end = log.earliest, log.high_watermark
    begin = start if offset is None else offset
    records, is_known = [], is_end_known(broker, topic, number)
    if begin > end:
        raise KafkaError(Code.OFFSET_OUT_OF_RANGE if is_known else Code.OFFSET_NOT_AVAILABLE)
    if begin < end:
        with log.read(begin, most_bytes, whole_first=True) as part:
            try:
                data = log.files.pread(part.fileno(), part.length, part.position)
            except OSError as error:  # as where it is sent from
                raise CloseConnection(f"{error}", "kafka", "unreadable") from None
            if not broker.disk.files.is_durable(part.fileno(), data, part.position):
                broker.world.fail(f"{log.name}: {begin} on is shown, and isn't on the disk")
        records = records_in(data)
    visible = [each for each in records if begin <= each.offset < end]
    return Fetched(found.id, start, end, visible, is_known)


def is_end_known(broker: SimulatedBroker, topic: str, number: int) -> bool:
    """Whether a broker that leads a partition knows all that was ever committed of it."""
    leadership = broker.server.topics.partition(topic, number).leadership
    if leadership is None:
        return _stands(broker, _topic(broker, topic))
    return leadership.is_end_known and leadership.epoch == _epoch(broker, topic, number)


def _stands(broker: SimulatedBroker, topic: ClusterTopic) -> bool:
    """Whether a topic isn't deleted, whatever the broker has heard."""
    path = topic_node_path(topic.name)
    node = broker.coordination.nodes(path).get(path)
    return node is not None and parse_topic(path, node).id == topic.id


def _epoch(broker: SimulatedBroker, topic: str, number: int) -> int:
    """In which epoch a partition is by now, whatever the broker has heard."""
    path = replicas_path(topic)
    node = broker.coordination.nodes(path).get(path)
    state = None if node is None else parse_replicas(path, node).state_of(number)
    return -1 if state is None else state.epoch


def records_in(data: bytes, *, has_markers: bool = False) -> list[Record]:
    """What can be read: bytes that a loss of power has damaged before they were flushed stay.

    `has_markers`: with those of transactions.
    """
    records, position = list[Record](), 0
    while position < len(data) - HEADER_BYTES:
        header = next_in(data, position)
        end = position + (0 if header is None else header.size_bytes)
        if header is not None and is_intact(data[position:end]):
            if has_markers or not header.is_control:
                records += iterate_records(data, header, position)
            position = end
        else:
            position += 1
    return records


def read_whole(log: Log, *, has_markers: bool = False) -> list[Record]:
    """All that a log has, as `records_in` reads it; segments below its start may be unreadable."""
    records = list[Record]()
    segments = log.view.segments
    for segment, after in zip(segments, (*segments[1:], None), strict=True):
        if after is not None and after.base_offset <= log.earliest:
            continue
        descriptor = log.files.open_read(segment.file.path)
        records += records_in(log.files.pread(descriptor, 1 << 30, 0), has_markers=has_markers)
        log.files.close(descriptor)
    return [each for each in records if log.earliest <= each.offset < log.high_watermark]


async def init_producer(broker: SimulatedBroker) -> int:
    return await broker.server.producer_ids.take()


async def create(
    broker: SimulatedBroker, name: str, partitions: int, settings: dict[str, str]
) -> UUID:
    made = await broker.server.topic_changes.create(name, partitions, settings, UNKNOWN_CLIENT)
    return made.id


def _topic(broker: SimulatedBroker, name: str) -> Any:
    found = broker.server.topics.get(name)
    if found is None:
        raise KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION)
    return found


async def grow(broker: SimulatedBroker, name: str, partitions: int) -> None:
    await broker.server.topic_changes.grow(_topic(broker, name), partitions, UNKNOWN_CLIENT)


async def alter(broker: SimulatedBroker, name: str, settings: dict[str, str]) -> None:
    await broker.server.topic_changes.alter(_topic(broker, name), settings, (), UNKNOWN_CLIENT)


async def delete(broker: SimulatedBroker, name: str) -> UUID:
    found = _topic(broker, name)
    broker.books.see(found.id, name).is_doomed = True
    await broker.server.topic_changes.delete(found, UNKNOWN_CLIENT)
    return found.id


async def delete_records(broker: SimulatedBroker, name: str, number: int, offset: int) -> int:
    partition = Partition(_topic(broker, name).id, number)
    broker.books.wants_deleted(partition, offset)
    call: Any = SimpleNamespace(server=broker.server)
    code, low = await _end(await _begin(name, number, offset, DELETE_SECONDS, call))
    if code is not Code.NONE:
        raise KafkaError(code)
    broker.books.deleted(partition, offset)
    return low


async def move(
    broker: SimulatedBroker, name: str, number: int, target: Sequence[int] | None
) -> None:
    """Have others have copies of a partition; None cancels that."""
    call: Any = SimpleNamespace(server=broker.server)
    change = _move(name, number, target, True, call)
    error = (await _changed(name, {number: change}, call))[number]
    if error is not None:
        raise error


async def throttle(broker: SimulatedBroker, broker_id: int, rate: int | None) -> None:
    await broker.server.replica_changes.throttle(broker_id, lambda _: Throttle(rate, rate))


async def coordinator(broker: SimulatedBroker, group: str) -> int | None:
    return broker.server.groups.local.coordinator_for(group)


def of_groups(name: str) -> Callable[..., Awaitable[Any]]:
    """A request that the coordinator takes as it is."""

    async def ask(broker: SimulatedBroker, *arguments: Any) -> Any:
        return await getattr(broker.server.groups, name)(*arguments)

    ask.__name__ = name
    return ask


join, sync, heartbeat = of_groups("join"), of_groups("sync"), of_groups("heartbeat")
leave, fetch_offsets = of_groups("leave"), of_groups("fetch")
consumer_heartbeat = of_groups("consumer_heartbeat")


async def commit(
    broker: SimulatedBroker,
    group: str,
    member_id: str,
    epoch: int,
    offsets: Mapping[tuple[str, UUID, int], int],
    knows_epochs: bool,
) -> Code:
    """Commit offsets of partitions, which topics' names and ids tell."""
    now_ms, found = broker.server.shared.now_ms(), {}
    for (name, topic_id, number), offset in offsets.items():
        topic = _topic(broker, name)
        if topic.id != topic_id or number >= len(topic.partitions):
            raise KafkaError(Code.UNKNOWN_TOPIC_ID)
        found[TopicPartition(name, number)] = Committed(offset, -1, "", now_ms, -1, topic_id)
    return await broker.server.groups.commit(group, member_id, None, epoch, found, knows_epochs)


class Client:
    """A client's connections to brokers, from a process of its own; no retries.

    Attributes:
        process: where it lives.
        is_over: whether it asks nothing more.
    """

    def __init__(self, process: Process, brokers: dict[int, SimulatedBroker], name: str) -> None:
        self.process = process
        self.brokers = brokers
        self.name = name
        self.is_over = False
        self._connections: dict[int, Connection] = {}
        self._asked: dict[Connection, list[Deferred[Any]]] = {}

    def sleep(self, seconds: float) -> "Deferred[None]":
        slept: Deferred[None] = Deferred()
        self.process.clock.callLater(seconds, slept.callback, None)
        return slept

    async def ask(
        self,
        broker_id: int,
        request: Callable[..., Awaitable[Any]],
        *arguments: Any,
        seconds: float = ANSWER_SECONDS,
    ) -> Any:
        """Ask a broker, and wait for the answer.

        Raises:
            LostError: none came.
            RefusedError: it was an error.
        """
        connection = self._connections.get(broker_id)
        if connection is None or connection not in self._asked:  # as it has heard that it is lost
            connection = self._connect(broker_id)
            if connection is None:
                await self.sleep(0.05)
                raise LostError("not connected")
        answered: Deferred[Any] = Deferred()
        self._asked[connection].append(answered)
        timer = self.process.clock.callLater(seconds, self._late, connection)
        broker = self.brokers[broker_id]
        connection.to_server(_serve, connection, broker, request, arguments, answered, self)
        try:
            result = await answered
        finally:
            if timer.active():
                timer.cancel()
        if isinstance(result, RefusedError):
            raise result
        return result

    def _connect(self, broker_id: int) -> Connection | None:
        broker = self.brokers.get(broker_id)
        if broker is None or not broker.is_serving:
            return None
        made: list[Connection] = []
        connection = broker.network.connect(
            self.process, broker.machine, lambda: self._lost(made[0])
        )
        if connection is not None:
            made.append(connection)
            self._connections[broker_id] = connection
            self._asked[connection] = []
        return connection

    def _late(self, connection: Connection) -> None:
        connection.lose()
        self._lost(connection)

    def _lost(self, connection: Connection) -> None:
        for each in self._asked.pop(connection, ()):
            if not each.called:
                each.errback(Failure(LostError("the connection is lost")))

    def answered(self, connection: Connection, answered: "Deferred[Any]", result: Any) -> None:
        waiting = self._asked.get(connection)
        world = self.process.world
        if world.is_traced:
            world.note(self.name, f"is answered {result!r:.300}")
        if waiting is not None and answered in waiting:
            waiting.remove(answered)
            answered.callback(result)


def _serve(
    connection: Connection,
    broker: SimulatedBroker,
    request: Callable[..., Awaitable[Any]],
    arguments: tuple[Any, ...],
    answered: "Deferred[Any]",
    client: Client,
) -> None:
    """In the broker's reactor: carry a request out, and answer it."""
    if broker.server is None or broker.run is None:
        connection.lose()
        return
    if broker.world.is_traced:
        said = [each for each in arguments if not callable(each)]  # those are never the same
        what = f"{request.__name__}{said!r:.300}"
        broker.world.note(broker.machine.process, f"is asked by {client.name}: {what}")

    def answer(result: Any) -> None:
        if isinstance(result, Failure):
            error = result.value
            if isinstance(error, CloseConnection):
                connection.lose()
                return
            if not isinstance(error, HermesError):
                broker.world.breaks(f"{broker.machine}: {result.getTraceback()}")
                return
            result = RefusedError(code_of(error), str(error))
        connection.to_client(client.answered, connection, answered, result)

    Deferred.fromCoroutine(request(broker, *arguments)).addBoth(answer)
