"""Appends of mirrors through a real broker: each range once, positions, spans, pipelining."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from hermes import FetchRequest, SimpleConsumer
from hermes.client import SyncProducer
from hermes.client.mirrored import MirroredPartitions, source_name
from hermes.coordination.cluster_id import cluster_id
from hermes.coordination.sessions import Session
from hermes.errors import (
    ClientError,
    InvalidMessageBrokerError,
    InvalidSourceError,
    SourceGapError,
    SourceOverlapError,
    UnknownTopicError,
    WrongPartitionError,
)
from hermes.protocol import MirroredSet, SourceFlags, encode_message_set
from hermes.testing import RunningBroker, running_broker

A = source_name("4f6f9d0c-6d0d-4f43-a6b8-6a0a3b2f4a10", "clicks", 3, 0)
B = source_name("4f6f9d0c-6d0d-4f43-a6b8-6a0a3b2f4a10", "clicks", 3, 1)

VERBATIM, FOLLOWS = SourceFlags.VERBATIM, SourceFlags.FOLLOWS


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(settings={"num_partitions": 3}) as broker:
        yield broker


@pytest.fixture
def target(broker: RunningBroker) -> Iterator[MirroredPartitions]:
    with MirroredPartitions(broker.host, broker.port) as target:
        yield target


def messages(*payloads: bytes) -> bytes:
    return bytes(encode_message_set(payloads))


def copied(
    topic: str, begin: int, data: bytes, flags: int = VERBATIM, source: str = A
) -> MirroredSet:
    return MirroredSet(topic, 0, source, begin, begin + len(data), flags, data)


def fetched(broker: RunningBroker, topic: str, partition: int = 0) -> list[bytes]:
    with SimpleConsumer(broker.host, broker.port) as consumer:
        found = consumer.fetch(FetchRequest(topic, partition, 0, 1 << 20))
        return [message.payload for message, _ in found]


def test_a_range_is_stored_once(broker: RunningBroker, target: MirroredPartitions) -> None:
    first, second = messages(b"a", b"bb"), messages(b"ccc")
    with pytest.raises(UnknownTopicError):
        target.positions("once")
    assert target.send([copied("once", 100, first)]) == [(0, 100 + len(first), None)]
    assert target.send([copied("once", 100, first)]) == [(None, 100 + len(first), None)]
    following = copied("once", 100 + len(first), second, VERBATIM | FOLLOWS)
    end = 100 + len(first) + len(second)
    assert target.send([following, following]) == [(len(first), end, None), (None, end, None)]
    assert fetched(broker, "once") == [b"a", b"bb", b"ccc"]
    assert target.positions("once") == [(0, 0, end - 100, {A: end})]
    assert target.positions("once", 1) == []


def test_what_overlaps_or_leaves_a_gap_is_refused(
    broker: RunningBroker, target: MirroredPartitions
) -> None:
    data = messages(b"a", b"b")
    half = len(data) // 2
    (outcome,) = target.send([copied("refused", 10, data, VERBATIM | FOLLOWS)])
    assert isinstance(outcome.error, SourceGapError)
    assert outcome.position == -1
    target.send([copied("refused", 10, data)])
    overlapping, beyond, cut = target.send(
        [
            copied("refused", 10 + half, data),
            copied("refused", 500, data, VERBATIM | FOLLOWS),
            copied("refused", 10 + len(data), data[half:], VERBATIM | FOLLOWS),
        ]
    )
    assert isinstance(overlapping.error, SourceOverlapError)
    assert overlapping.position == 10 + len(data)
    assert isinstance(beyond.error, SourceGapError)
    assert cut.error is None
    assert target.send([copied("refused", 500, data)])[0].error is None  # a gap that is meant
    assert fetched(broker, "refused") == [b"a", b"b", b"b", b"a", b"b"]


def test_what_no_mirror_can_mean_is_refused(
    broker: RunningBroker, target: MirroredPartitions
) -> None:
    data = messages(b"a")
    size = len(data)
    outcomes = target.send(
        [
            MirroredSet("wrong", 0, "", 0, size, 0, data),
            MirroredSet("wrong", 0, "x" * 513, 0, size, 0, data),
            MirroredSet("wrong", 0, A, 0, size + 1, VERBATIM, data),
            MirroredSet("wrong", 0, A, 5, 4, 0, b""),
            MirroredSet("wrong", 0, A, 5, 5, 0, data),
            MirroredSet("wrong", 0, A, -1, 5, 0, data),
            MirroredSet("wrong", 0, A, 0, size, 128, data),
            MirroredSet("wrong", 0, A, 0, 100, 0, data[:-1]),
            MirroredSet("wrong", -1, A, 0, size, 0, data),
            MirroredSet("wrong", 3, A, 0, size, 0, data),
        ]
    )
    kinds = [type(outcome.error) for outcome in outcomes]
    assert (
        kinds == [InvalidSourceError] * 7 + [InvalidMessageBrokerError] + [WrongPartitionError] * 2
    )
    assert target.positions("wrong") == [(0, 0, 0, {})]


def test_an_empty_set_moves_the_position(broker: RunningBroker, target: MirroredPartitions) -> None:
    assert target.send([MirroredSet("empty", 0, A, 0, 70, 0, b"")]) == [(None, 70, None)]
    data = messages(b"a")
    assert target.send([copied("empty", 70, data, VERBATIM | FOLLOWS)])[0].offset == 0
    assert target.positions("empty")[0].positions == {A: 70 + len(data)}


def test_requests_may_be_on_their_way_together(
    broker: RunningBroker, target: MirroredPartitions
) -> None:
    payloads = [b"%d" % number for number in range(200)]
    position = 0
    outcomes = []
    for payload in payloads:
        data = messages(payload)
        flags = VERBATIM | FOLLOWS if position else VERBATIM
        target.begin([copied("pipelined", position, data, flags)])
        position += len(data)
        if target.in_flight == 8:
            outcomes += target.finish()
    with pytest.raises(ClientError, match="wait"):
        target.positions("pipelined")
    while target.in_flight:
        outcomes += target.finish()
    with pytest.raises(ClientError, match="no request"):
        target.finish()
    assert len(outcomes) == len(payloads)
    assert all(outcome.error is None for outcome in outcomes)
    assert target.positions("pipelined")[0].positions[A] == position
    assert fetched(broker, "pipelined") == payloads


def test_positions_are_told_of_many_partitions_and_sources(
    broker: RunningBroker, target: MirroredPartitions
) -> None:
    data = messages(b"a")
    sources = [source_name("u", "t", 0, number) for number in range(700)]
    for first in range(0, len(sources), 50):
        some = sources[first : first + 50]
        target.send([MirroredSet("many", 2, each, 0, 9, 0, data) for each in some])
    target.send([copied("many", 0, data)])
    told = target.positions("many")
    assert [each.partition for each in told] == [0, 2]
    assert told[0].positions == {A: len(data)}
    assert told[1].positions == dict.fromkeys(sources, 9)
    assert target.positions("many", 2) == [told[1]]


def test_offsets_translate(broker: RunningBroker, target: MirroredPartitions) -> None:
    sizes = [len(messages(b"x" * n)) for n in range(1, 41)]
    position = 1000
    with SyncProducer(broker.host, broker.port) as producer:
        for n, size in enumerate(sizes, start=1):
            target.send([copied("map", position, messages(b"x" * n))])
            position += size
            if n % 10 == 0:
                producer.send("map", 0, messages(b"local"))
                producer.barrier()
                target.send([copied("map", 10 * n, messages(b"other"), source=B)])
    found = target.source_map("map", 0)
    assert found.positions == {A: position, B: 400 + len(messages(b"other"))}
    assert len(found.spans(A)) == 4
    payloads = fetched(broker, "map")
    with SimpleConsumer(broker.host, broker.port) as consumer:
        place = 1000
        for n, size in enumerate(sizes, start=1):
            there = found.to_target(A, place)
            (message, _), *_ = consumer.fetch(FetchRequest("map", 0, there, 1 << 20))
            assert message.payload == b"x" * n
            place += size
    assert len(payloads) == 48
    assert found.to_target(A, position) == found.end
    assert found.to_target(A, 0) == 0
    assert found.to_target("nobody", 5) == found.end


def test_a_cluster_has_an_id(target: MirroredPartitions, broker: RunningBroker) -> None:
    with SimpleConsumer(broker.host, broker.port) as consumer:
        assert consumer.cluster_id() == target.cluster_id() == str(UUID(target.cluster_id()))
    with running_broker(settings={"coordination": "embedded"}) as other:
        with MirroredPartitions(other.host, other.port) as second:
            found = second.cluster_id()
        assert other.zookeeper_connect is not None
        session = Session(other.zookeeper_connect)
        session.start()
        try:
            assert cluster_id(session) == found != target.cluster_id()
        finally:
            session.stop()
