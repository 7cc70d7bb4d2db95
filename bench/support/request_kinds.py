"""Small requests, made beforehand and sent one after the other by raw sockets."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, TypeAlias

from bench.support import kafka_frames
from bench.support.consumer import WaitingConsumer
from bench.support.counting import CountedBroker
from bench.support.load import STORED_BYTES, connect, latest_offset, make_payloads, read_answer
from hermes.protocol import (
    AcknowledgedProduceRequest,
    Acks,
    FetchRequest,
    ProduceRequest,
    encode_message_set,
)

__all__ = ["EMBEDDED", "KINDS", "TOPICS", "Kind", "Makes"]

#: Makes so many requests.
Makes: TypeAlias = Callable[[int], None]

_WAIT_MS = 60_000
_TIMEOUT_MS = 30_000
_IDLE = 50  # consumers
_IDLE_WAIT_MS = 200
_FETCHED = 100  # messages, which are 21 KB
_WIDE = 1000  # partitions
_BATCHES = 10
_RUN = 100
_ALL, _ONE = -1, 1

#: How offsets are committed with coordination.
EMBEDDED: Final = {
    "coordination": "embedded",
    "coordination_listen": "tcp:0:interface=127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request.

    Attributes:
        title: what it is, for the table.
        prepare: given a broker, a topic of its own and a place for what is to be closed, does what
            comes first.
        below: the thousand instructions that it has to stay below.
        less: the kind that is taken off: what goes with each of these requests.
        is_part: whether it is there to be taken off others, and is no row unless asked for.
        is_embedded: whether its broker has embedded coordination.
    """

    title: str
    prepare: Callable[[CountedBroker, str, ExitStack], Makes]
    below: float | None = None
    less: str = ""
    is_part: bool = False
    is_embedded: bool = False


def _kafka_produce(*, acks: int, messages: int = 1, rests: bool = False) -> Callable[..., Makes]:
    def prepare(broker: CountedBroker, topic: str, stack: ExitStack) -> Makes:
        frame = kafka_frames.produce_frame(topic, make_payloads(messages), acks=acks)
        connection = stack.enter_context(connect(broker.kafka_address))

        def make(count: int) -> None:
            for _ in range(count):
                kafka_frames.exchange(connection, frame)
                if rests:
                    broker.rest()

        return make

    return prepare


def _kafka_fetch(*, batches: int, messages: int) -> Callable[..., Makes]:
    """Behind the end: all there is, of so many batches of so many messages."""

    def prepare(broker: CountedBroker, topic: str, stack: ExitStack) -> Makes:
        connection = stack.enter_context(connect(broker.kafka_address))
        batch = kafka_frames.produce_frame(topic, make_payloads(messages), acks=_ALL)
        for _ in range(batches):
            kafka_frames.exchange(connection, batch)
        frame = kafka_frames.fetch_frame(topic, 0, max_wait_ms=0)
        least = batches * messages * 200

        def make(count: int) -> None:
            for _ in range(count):
                if len(kafka_frames.exchange(connection, frame)) < least:
                    raise ConnectionError("the broker answered a fetch with too little")

        return make

    return prepare


def _kafka_waiting_fetch(broker: CountedBroker, topic: str, stack: ExitStack) -> Makes:
    produce = kafka_frames.produce_frame(topic, make_payloads(1), acks=_ONE)
    producing, waiting = (stack.enter_context(connect(broker.kafka_address)) for _ in range(2))
    offset = 0

    def make(count: int) -> None:
        nonlocal offset
        for _ in range(count):
            waiting.sendall(kafka_frames.fetch_frame(topic, offset, max_wait_ms=_WAIT_MS))
            broker.rest()
            kafka_frames.exchange(producing, produce)
            kafka_frames.receive(waiting)
            broker.rest()
            offset += 1

    return make


def _kafka_wide_fetch(*, has_session: bool) -> Callable[..., Makes]:
    """Of many partitions, of which one has a message each time."""

    def prepare(broker: CountedBroker, topic: str, stack: ExitStack) -> Makes:
        produce = kafka_frames.produce_frame(topic, make_payloads(1), acks=_ONE)
        producing, fetching = (stack.enter_context(connect(broker.kafka_address)) for _ in range(2))
        wide, others = kafka_frames.fetch_frame, [0] * (_WIDE - 1)
        frame = wide(topic, 0, *others, max_wait_ms=0, epoch=0 if has_session else -1)
        session = kafka_frames.session_of(kafka_frames.exchange(fetching, frame))
        if (session > 0) is not has_session:
            raise ConnectionError("the broker began no session, or one that nobody wanted")
        offset = epoch = 0

        def make(count: int) -> None:
            nonlocal offset, epoch
            for _ in range(count):
                kafka_frames.exchange(producing, produce)
                broker.rest()
                epoch += 1
                if has_session:
                    frame = wide(topic, offset, max_wait_ms=0, session=session, epoch=epoch)
                else:
                    frame = wide(topic, offset, *others, max_wait_ms=0)
                kafka_frames.exchange(fetching, frame)
                offset += 1

        return make

    return prepare


def _kafka_empty_fetch(broker: CountedBroker, topic: str, stack: ExitStack) -> Makes:
    """Of many consumers, whose times are up one after the other."""
    frame = kafka_frames.fetch_frame(topic, 0, max_wait_ms=_IDLE_WAIT_MS)
    waiting = [stack.enter_context(connect(broker.kafka_address)) for _ in range(_IDLE)]

    def make(count: int) -> None:
        for begin in range(0, count, _IDLE):
            some = waiting[: count - begin]
            for each in some:
                each.sendall(frame)
            for each in some:
                kafka_frames.receive(each)

    return make


def _metadata(broker: CountedBroker, topic: str, stack: ExitStack) -> Makes:
    return _repeating(broker, stack, kafka_frames.metadata_frame(topic))


def _heartbeat(broker: CountedBroker, topic: str, stack: ExitStack) -> Makes:
    connection = stack.enter_context(connect(broker.kafka_address))
    member, generation = kafka_frames.join(connection, topic)
    return _repeating(broker, stack, kafka_frames.heartbeat_frame(topic, member, generation))


def _consumer_heartbeat(broker: CountedBroker, topic: str, stack: ExitStack) -> Makes:
    connection = stack.enter_context(connect(broker.kafka_address))
    member, epoch = kafka_frames.consumer_join(connection, topic)
    return _repeating(broker, stack, kafka_frames.consumer_heartbeat_frame(topic, member, epoch))


def _commit(broker: CountedBroker, topic: str, stack: ExitStack) -> Makes:
    connection = stack.enter_context(connect(broker.kafka_address))
    member, generation = kafka_frames.join(connection, topic)
    return _repeating(broker, stack, kafka_frames.commit_frame(topic, member, generation))


def _repeating(broker: CountedBroker, stack: ExitStack, frame: bytes) -> Makes:
    connection = stack.enter_context(connect(broker.kafka_address))

    def make(count: int) -> None:
        for _ in range(count):
            kafka_frames.exchange(connection, frame)

    return make


def _own_produce(broker: CountedBroker, topic: str, stack: ExitStack) -> Makes:
    connection = stack.enter_context(connect(broker.address))
    produce = ProduceRequest(topic, 0, encode_message_set(make_payloads(1)))
    frame = AcknowledgedProduceRequest(Acks.FLUSHED, _TIMEOUT_MS, (produce,)).encode()

    def make(count: int) -> None:
        for _ in range(count):
            connection.sendall(frame)
            read_answer(connection)

    return make


def _own_waiting_fetch(broker: CountedBroker, topic: str, stack: ExitStack) -> Makes:
    frame = ProduceRequest(topic, 0, encode_message_set(make_payloads(1))).encode()
    producing, waiting = (stack.enter_context(connect(broker.address)) for _ in range(2))
    consumer = WaitingConsumer(waiting, topic, max_wait_ms=_WAIT_MS)
    producing.sendall(frame)  # which creates the topic
    broker.rest()
    consumer.seek_to_end()

    def make(count: int) -> None:
        for _ in range(count):
            consumer.request()
            broker.rest()
            producing.sendall(frame)
            consumer.skip()
            broker.rest()

    return make


def _produces_in_a_run(broker: CountedBroker, topic: str, stack: ExitStack) -> Makes:
    frame = ProduceRequest(topic, 0, encode_message_set(make_payloads(1))).encode()
    connection = stack.enter_context(connect(broker.address))

    def make(count: int) -> None:
        connection.sendall(frame * (_RUN * count))
        latest_offset(connection, topic)

    return make


def _produces_alone(broker: CountedBroker, topic: str, stack: ExitStack) -> Makes:
    frame = ProduceRequest(topic, 0, encode_message_set(make_payloads(1))).encode()
    connection = stack.enter_context(connect(broker.address))

    def make(count: int) -> None:
        for _ in range(count):
            connection.sendall(frame)
            broker.rest()

    return make


def _fetch(broker: CountedBroker, topic: str, stack: ExitStack) -> Makes:
    connection = stack.enter_context(connect(broker.address))
    messages = encode_message_set(make_payloads(_FETCHED))
    connection.sendall(ProduceRequest(topic, 0, messages).encode())
    broker.rest()
    frame = FetchRequest(topic, 0, 0, _FETCHED * STORED_BYTES).encode()

    def make(count: int) -> None:
        for _ in range(count):
            connection.sendall(frame)
            if len(read_answer(connection)) != _FETCHED * STORED_BYTES:
                raise ConnectionError("the broker answered a fetch with too little")

    return make


KINDS: Final = {
    "kafka-produce-all": Kind("Kafka Produce, acks=all", _kafka_produce(acks=_ALL), below=150),
    "kafka-produce-1": Kind("Kafka Produce, acks=1", _kafka_produce(acks=_ONE), below=80),
    "kafka-produce-1-alone": Kind(
        "the same, one flush each", _kafka_produce(acks=_ONE, rests=True), is_part=True
    ),
    "kafka-produce-all-50": Kind(
        "Kafka Produce, acks=all, 50 messages", _kafka_produce(acks=_ALL, messages=50)
    ),
    "kafka-fetch-waiting": Kind(
        "Kafka Fetch, waiting at the end",
        _kafka_waiting_fetch,
        below=100,
        less="kafka-produce-1-alone",
    ),
    "kafka-fetch-empty": Kind("Kafka Fetch, timing out empty", _kafka_empty_fetch),
    "kafka-fetch": Kind("Kafka Fetch, one message", _kafka_fetch(batches=1, messages=1)),
    "kafka-fetch-21k": Kind(
        "Kafka Fetch, 21 KB", _kafka_fetch(batches=_BATCHES, messages=_FETCHED // _BATCHES)
    ),
    "kafka-fetch-wide": Kind(
        f"Kafka Fetch, {_WIDE} partitions, one message",
        _kafka_wide_fetch(has_session=False),
        less="kafka-produce-1-alone",
    ),
    "kafka-fetch-session": Kind(
        "the same in a fetch session",
        _kafka_wide_fetch(has_session=True),
        less="kafka-produce-1-alone",
    ),
    "heartbeat": Kind("Heartbeat", _heartbeat, below=100),
    "consumer-heartbeat": Kind("ConsumerGroupHeartbeat", _consumer_heartbeat),
    "commit": Kind("OffsetCommit, local groups", _commit, below=250),
    "commit-embedded": Kind(
        "OffsetCommit, embedded coordination", _commit, below=250, is_embedded=True
    ),
    "metadata": Kind("Metadata, one topic", _metadata),
    "own-produce": Kind("own produce, flushed", _own_produce, below=120),
    "own-fetch-waiting": Kind(
        "own fetch, waiting at the end", _own_waiting_fetch, less="produce-alone"
    ),
    "produce": Kind(f"0.7 produce, {_RUN} in a run", _produces_in_a_run),
    "produce-alone": Kind("0.7 produce, one flush each", _produces_alone, is_part=True),
    "fetch-21k": Kind("0.7 fetch, 21 KB", _fetch, below=90),
}

_OF_MANY = ("kafka-fetch-wide", "kafka-fetch-session")

#: broker.yaml's `topics`: the kinds whose topic is of Kafka's format.
TOPICS: Final = {
    name: {"partitions": _WIDE if name in _OF_MANY else 1, "format": "kafka"}
    for name in KINDS
    if not name.startswith(("own-", "produce", "fetch"))
}
