"""What the console changes in a cluster of two brokers: the brokers are asked whose part it is."""

import time
from collections.abc import Callable, Iterator
from urllib.parse import parse_qsl

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from hermes.client import FetchRequest, SimpleConsumer
from hermes.security import PLAIN
from hermes.testing import RunningKafka, running_kafka

from .test_actions import Acting
from .test_pages import body, text

Brokers = tuple[RunningKafka, RunningKafka]


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    first = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}
    with running_kafka(settings=first) as one:
        second = {"coordination": "zookeeper", "zookeeper_connect": one.zookeeper_connect}
        with running_kafka(settings={**second, "broker_id": 1}) as two:
            until(lambda: all(brokers_known(each) == [0, 1] for each in (one, two)))
            yield one, two


@pytest.fixture(params=[False, True], ids=["beside", "in a broker"])
def pages(brokers: Brokers, request: pytest.FixtureRequest) -> Iterator[Acting]:
    """A console that finds coordinators by coordination; and one that asks its own broker first."""
    first = brokers[0]
    host, _, port = first.bootstrap_servers.rpartition(":")
    own = {"broker_id": 0, "kafka": (host, int(port), PLAIN)}
    made = Acting(first, **(own if request.param else {}))
    yield made
    made.console.close()


def brokers_known(broker: RunningKafka) -> list[int]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    return sorted(admin.list_topics(timeout=60.0).brokers)


def topics_of(broker: RunningKafka) -> dict[str, list[int]]:
    with SimpleConsumer(broker.host, broker.port) as consumer:
        return {each.topic: list(each.numbers) for each in consumer.metadata().topics}


def all_numbers(brokers: Brokers, topic: str) -> list[int]:
    return sorted(number for each in brokers for number in topics_of(each).get(topic, []))


def until(condition: Callable[[], bool]) -> None:
    """Wait: the broker that wasn't asked does its part once it has seen what is to be done."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "a broker hasn't done its part"
        time.sleep(0.02)


def setting(broker: RunningKafka, topic: str, name: str) -> str:
    with SimpleConsumer(broker.host, broker.port) as consumer:
        return next(e.value for e in consumer.describe_settings(topic) if e.name == name)


def test_a_topic_of_kafkas_format_is_one_of_the_whole_cluster(
    brokers: Brokers, pages: Acting
) -> None:
    assert 'name="broker-1"' in pages("create-topic")
    made = pages.post("create-topic", name="shared", format="kafka", partitions="4")
    assert made.status == 303, body(made)
    until(lambda: all_numbers(brokers, "shared") == [0, 1, 2, 3])
    assert all(topics_of(each)["shared"] for each in brokers)
    path = ("topics", "shared", "settings")
    assert "Now 4." in text(pages(*path))
    change = {"flush_messages": "9", "was-flush_messages": "1"}
    assert pages.post(*path, **change).status == 303
    assert pages.post(*path, grow="1", partitions="6").status == 303
    until(lambda: [setting(each, "shared", "flush_messages") for each in brokers] == ["9", "9"])
    until(lambda: all_numbers(brokers, "shared") == [0, 1, 2, 3, 4, 5])
    assert pages.post(*path, delete="1", confirm="shared").status == 303
    until(lambda: not any("shared" in topics_of(each) for each in brokers))


def test_a_topic_of_the_old_format_is_each_brokers_own(brokers: Brokers, pages: Acting) -> None:
    new = {"format": "0.7", "partitions": "2"}
    refused = pages.post("create-topic", name="own", **new)
    assert (refused.status, 'id="brokers-error"' in body(refused)) == (400, True)
    assert pages.post("create-topic", name="own", **new, **{"broker-1": "on"}).status == 303
    assert ["own" in topics_of(each) for each in brokers] == [False, True]
    both = {"broker-0": "on", "broker-1": "on"}
    partly = pages.post("create-topic", name="own", **new, **both)
    assert partly.status == 400
    assert "it is created on broker 0 by now" in body(partly)
    path = ("topics", "own", "settings")
    assert "all 2 brokers that have the topic" in text(pages(*path))
    change = {"flush_messages": "9", "was-flush_messages": "1"}
    assert pages.post(*path, **change).status == 303
    assert pages.post(*path, grow="1", partitions="3").status == 303
    assert [topics_of(each)["own"] for each in brokers] == [[0, 1, 2]] * 2
    assert [setting(each, "own", "flush_messages") for each in brokers] == ["9", "9"]
    sent = pages.post("topics", "own", "produce", value="text", payload="x", partition="1-2")
    assert "sent=1-2" in sent.headers["Location"]
    assert pages.post(*path, delete="1", confirm="own").status == 303
    assert ["own" in topics_of(each) for each in brokers] == [False, False]


def test_messages_and_groups_are_of_whichever_broker_has_them(
    brokers: Brokers, pages: Acting
) -> None:
    pages.post("create-topic", name="spread", format="kafka", partitions="4")
    until(lambda: all_numbers(brokers, "spread") == [0, 1, 2, 3])
    for number, partition in enumerate(("", *_names(brokers, "spread"))):
        form = {"value": "text", "payload": str(number), "partition": partition}
        sent = pages.post("topics", "spread", "produce", **form)
        assert sent.status == 303, body(sent)
        given = dict(parse_qsl(sent.headers["Location"].partition("?")[2]))
        broker_id, _, at = given["sent"].partition("-")
        assert given["sent"] == (partition or given["sent"])
        broker = brokers[int(broker_id)]
        with SimpleConsumer(broker.host, broker.port) as consumer:
            fetched = consumer.fetch(FetchRequest("spread", int(at), int(given["offset"]), 1 << 20))
            assert next(iter(fetched))[0].payload == str(number).encode()
    for group in ("a", "b", "c", "d", "e", "f"):  # either broker coordinates some
        consumer = Consumer(
            {"bootstrap.servers": brokers[0].bootstrap_servers, "group.id": group, "log_level": 0}
        )
        places = [TopicPartition("spread", number, 0) for number in range(4)]
        consumer.commit(offsets=places, asynchronous=False)
        changes = '[["spread", "%d", 0, 1]]'
        for number in range(4):
            path = ("groups", group, "reset")
            assert "Then" in text(pages(*path, kind="kafka", to="latest"))
            assert pages.post(*path, kind="kafka", changes=changes % number).status == 303
        found = consumer.committed(places, 60.0)
        assert [each.offset for each in found] == [1, 1, 1, 1]
        consumer.close()
        gone = pages.post("groups", group, "delete", kind="kafka", confirm=group)
        assert gone.status == 303, body(gone)


def _names(brokers: Brokers, topic: str) -> list[str]:
    return [
        f"{number}-{partition}"
        for number, each in enumerate(brokers)
        for partition in topics_of(each)[topic]
    ]
