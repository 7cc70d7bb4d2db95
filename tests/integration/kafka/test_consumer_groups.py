"""Groups of four of each Python client: they share, come, go, commit, and go on from there."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from threading import get_ident

import pytest
from confluent_kafka import Consumer, Producer
from kafka_readers import READERS, Reader

from hermes.client.kafka_asking import KafkaAsker
from hermes.groups.consumer_group import ConsumerGroup
from hermes.groups.consumer_values import ConsumerSettings
from hermes.groups.targets import Assignment
from hermes.testing import RunningKafka, running_kafka

PARTITIONS = 8
_DEADLINE_SECONDS = 120.0


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningKafka]:
    names = [f"{client}.{assignor}" for client in READERS for assignor in ("range", "sticky")]
    topics = {name: {"partitions": PARTITIONS, "format": "kafka"} for name in [*names, "mixed"]}
    settings = {"topics": topics, "group_initial_rebalance_delay": "0s"}
    with running_kafka(settings=settings) as kafka:
        yield kafka


def wait_for(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def produce(broker: RunningKafka, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(_DEADLINE_SECONDS) == 0


def shared(readers: list[Reader]) -> bool:
    """Whether the readers have all partitions, each one, and about as many as the others."""
    for each in readers:
        if each.failure is not None:
            raise each.failure
    owned = sorted(number for each in readers for number in each.partitions)
    counts = [len(each.partitions) for each in readers]
    return owned == list(range(PARTITIONS)) and max(counts) - min(counts) <= 1


@pytest.mark.parametrize("client", READERS)
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_four_that_come_and_go(broker: RunningKafka, client: str, assignor: str) -> None:
    topic = group = f"{client}.{assignor.removeprefix('cooperative-')}"
    first = [f"first {each}" for each in range(200)]
    produce(broker, topic, first)
    with ExitStack() as stack:

        def start() -> Reader:
            reader = READERS[client](broker.bootstrap_servers, group, topic, assignor)
            stack.callback(reader.stop)
            return reader

        readers = [start() for _ in range(4)]
        everybody = list(readers)
        wait_for(lambda: shared(readers), "the four don't share")
        wait_for(lambda: seen(everybody) >= set(first), "not all came")
        readers.pop(0).stop()
        wait_for(lambda: shared(readers), "three don't share what one has left")
        readers.append(start())
        everybody.append(readers[-1])
        wait_for(lambda: shared(readers), "a newcomer gets nothing")
        second = [f"second {each}" for each in range(200)]
        produce(broker, topic, second)
        wait_for(lambda: seen(everybody) >= {*first, *second}, "not all came after the rebalance")
        with asker(broker) as asking:
            # More than once if a busy machine makes them begin again in the meantime.
            wait_for(lambda: committed(readers, asking, group) == [50] * PARTITIONS, "no commit")
            for each in readers:
                each.stop()
            assert offsets(asking, group) == [50] * PARTITIONS
            (described,) = asking.ask("DescribeGroups", 6, groups=[group]).groups
            assert (described.group_state, described.protocol_type) == ("Empty", "consumer")
        produce(broker, topic, ["third"])
        last = start()
        wait_for(lambda: last.values, "nothing came")
        assert last.values == ["third"]


def seen(readers: list[Reader]) -> set[str]:
    return {value for each in readers for value in list(each.values)}


def committed(readers: list[Reader], asking: KafkaAsker, group: str) -> list[int]:
    """What is committed after each reader has done so."""
    for each in readers:
        each.commit()
    wait_for(lambda: all(each.has_committed for each in readers), "they can't commit")
    return offsets(asking, group)


def offsets(asking: KafkaAsker, group: str) -> list[int]:
    """A group's committed offsets of its topic."""
    (found,) = asking.ask("OffsetFetch", 8, groups=[{"group_id": group, "topics": None}]).groups
    return [each.committed_offset for topic in found.topics for each in topic.partitions]


def asker(broker: RunningKafka) -> KafkaAsker:
    host, _, port = str(broker.bootstrap_servers).rpartition(":")
    return KafkaAsker(host, int(port))


def test_one_group_of_all_clients(broker: RunningKafka) -> None:
    values = [str(each) for each in range(100)]
    produce(broker, "mixed", values)
    with ExitStack() as stack:
        readers = []
        for kind in [*READERS.values(), READERS["confluent-kafka"]]:
            readers.append(kind(broker.bootstrap_servers, "mixed", "mixed", "range"))
            stack.callback(readers[-1].stop)
        wait_for(lambda: shared(readers), "they don't share")
        wait_for(lambda: seen(readers) == set(values), "not all came")


def test_a_group_whose_target_is_made_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    counts_as_large = partial(ConsumerSettings, large=PARTITIONS, assignment_interval_ms=100)
    monkeypatch.setattr("hermes.kafka.group_wiring.ConsumerSettings", counts_as_large)
    makers: list[int] = []
    deciders: list[int] = []
    make, begin = Assignment.make, ConsumerGroup.begin_assignment
    monkeypatch.setattr(Assignment, "make", lambda it: makers.append(get_ident()) or make(it))
    monkeypatch.setattr(
        ConsumerGroup,
        "begin_assignment",
        lambda it, now: deciders.append(get_ident()) or begin(it, now),
    )
    heartbeats = {"group_consumer_heartbeat_interval": "100ms"}
    with running_kafka({"many": PARTITIONS}, heartbeats) as kafka, ExitStack() as stack:

        def start() -> Consumer:
            given = {"group.id": "large", "group.protocol": "consumer", "log_level": 0}
            consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, **given})
            stack.callback(consumer.close)
            consumer.subscribe(["many"])
            return consumer

        def is_shared(consumers: list[Consumer], *counts: int) -> bool:
            for each in consumers:
                each.poll(0)
            shares = [{place.partition for place in each.assignment()} for each in consumers]
            is_whole = set().union(*shares) == set(range(PARTITIONS))
            return is_whole and sorted(map(len, shares)) == list(counts)

        first = start()
        wait_for(lambda: is_shared([first], 8), "the first one doesn't get all")
        second, third = start(), start()
        wait_for(lambda: is_shared([first, second, third], 2, 3, 3), "three don't share")
        first.close()
        wait_for(lambda: is_shared([second, third], 4, 4), "two don't take over")
    assert len(makers) >= 3
    assert set(makers).isdisjoint(deciders)
