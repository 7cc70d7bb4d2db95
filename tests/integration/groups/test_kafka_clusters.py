"""Topics of Kafka's clients in a cluster, on both servers: numbered through, and by all alike."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka_raw import ask_once, parts

from hermes.cli import program
from hermes.client import Producer as HermesProducer
from hermes.client import ProducerConfig, SimpleConsumer, SyncProducer
from hermes.console import Access, Console
from hermes.console.cache import ReadCache
from hermes.console.cluster_client import ClusterClient
from hermes.console.cluster_sampler import ClusterSampler
from hermes.console.group_reader import GroupReader
from hermes.console.page_request import PageRequest
from hermes.console.topic_views import TopicReader
from hermes.coordination.sessions import Session
from hermes.coordination.topic_tree import TopicTree
from hermes.errors import RoutingError, SettingRefusedError, TopicExistsError
from hermes.protocol import encode_message_set
from hermes.spark.broker_metadata import EMPTY
from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.options import ConnectionOptions, RetryOptions, Selection
from hermes.spark.planning import selected_partitions
from hermes.testing import RunningBroker, running_broker


@pytest.fixture
def start(connect: str, tmp_path: Path) -> Iterator[Callable[..., RunningBroker]]:
    """Starts a broker of the cluster; it can be stopped by its `stop`, and be started again."""
    with ExitStack() as stack:

        def begin(broker_id: int, **settings: Any) -> RunningBroker:
            own = stack.enter_context(ExitStack())
            log_dir = tmp_path / f"log-{broker_id}"
            base = {
                "broker_id": broker_id,
                "coordination": "zookeeper",
                "zookeeper_connect": connect,
                "kafka_listen": "tcp:0:interface=127.0.0.1",
            }
            given = {k: v for k, v in {**base, **settings}.items() if v is not None}
            broker = own.enter_context(running_broker(log_dir, given))
            stops[id(broker)] = own
            return broker

        stops: dict[int, ExitStack] = {}
        begin.stop = lambda broker: stops[id(broker)].close()  # type: ignore[attr-defined]
        yield begin


def admin(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


def create(broker: RunningBroker, name: str, partitions: int, **config: str) -> None:
    client = admin(broker)  # which must live until it has been answered
    client.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(60)


def topic(broker: RunningBroker, name: str) -> tuple[UUID, tuple[int, ...]] | None:
    """A topic's UUID, and which broker leads each partition, as a broker tells it."""
    told = ask_once(
        str(broker.bootstrap_servers),
        "Metadata",
        12,
        topics=None,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    for each in told.topics:
        if each.name == name:
            leaders = {part.partition_index: part.leader_id for part in each.partitions}
            return each.topic_id, tuple(leaders[number] for number in range(len(leaders)))
    return None


def led(broker: RunningBroker, name: str) -> tuple[UUID, tuple[int, ...]] | None:
    """The same, once the broker has seen a leader of every partition."""
    found = topic(broker, name)
    return found if found is not None and -1 not in found[1] else None


def partitions(client: SimpleConsumer, name: str) -> int:
    (described,) = client.metadata([name]).topics
    return described.partition_count


def run_program(*arguments: str) -> Result:
    return CliRunner().invoke(program, list(arguments))


def produce_to_each(bootstrap: str, name: str, partitions: int) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    errors: list[Any] = []
    for number in range(partitions):
        producer.produce(
            name,
            b"in %d" % number,
            partition=number,
            on_delivery=lambda error, _: errors.append(error),
        )
    assert producer.flush(60) == 0
    assert len(errors) == partitions
    assert not [str(each) for each in errors if each is not None]


def consume_from_each(bootstrap: str, name: str, partitions: int) -> dict[int, bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(name, n, OFFSET_BEGINNING) for n in range(partitions)])
    found = {}
    for _ in range(600):
        for message in consumer.consume(partitions, 0.1):
            assert message.error() is None, message.error()
            found[message.partition()] = message.value()
        if len(found) == partitions:
            break
    consumer.close()
    return found


def test_a_topic_lies_on_all_brokers_and_each_tells_the_same_of_it(
    start: Any, make_session: Any, connect: str, eventually: Any
) -> None:
    one, two = start(1), start(2)
    eventually(lambda: len(admin(one).list_topics(timeout=30).brokers) == 2)
    create(one, "clicks", 5)

    found = eventually(lambda: led(two, "clicks"))
    assert found == topic(one, "clicks")
    assert set(found[1]) == {1, 2}
    assert all(a != b for a, b in zip(found[1], found[1][1:], strict=False)), "in turns"
    produce_to_each(str(two.bootstrap_servers), "clicks", 5)
    values = consume_from_each(str(one.bootstrap_servers), "clicks", 5)
    assert values == {number: b"in %d" % number for number in range(5)}
    session = make_session(connect)
    assert session.children("/brokers/topics") == [], "0.7's clients must not see it"


def test_numbers_stay_when_brokers_come_and_a_topic_grows(start: Any, eventually: Any) -> None:
    one, two = start(1), start(2)
    eventually(lambda: len(admin(one).list_topics(timeout=30).brokers) == 2)
    create(one, "clicks", 3)
    before = topic(one, "clicks")
    assert before is not None
    three = start(3)
    eventually(lambda: len(admin(two).list_topics(timeout=30).brokers) == 3)

    client = admin(two)
    client.create_partitions([NewPartitions("clicks", 7)])["clicks"].result(60)

    after = eventually(lambda: (led(three, "clicks") or ((), ()))[1][6:] and led(three, "clicks"))
    assert after[0] == before[0]
    assert after[1][:3] == before[1]
    assert set(after[1]) == {1, 2, 3}
    # A producer that asks a broker which hasn't heard of them takes them for none at all.
    eventually(lambda: topic(one, "clicks") == after)
    produce_to_each(str(one.bootstrap_servers), "clicks", 7)
    start.stop(three)
    start.stop(two)
    start.stop(one)
    again = start(1), start(2), start(3)
    eventually(lambda: topic(again[0], "clicks") == after)
    eventually(lambda: len(admin(again[0]).list_topics(timeout=30).brokers) == 3)
    assert len(consume_from_each(str(again[0].bootstrap_servers), "clicks", 7)) == 7


def test_of_two_brokers_that_create_a_topic_at_once_one_does(start: Any, eventually: Any) -> None:
    brokers = start(1), start(2)
    barrier = threading.Barrier(2)

    def create_all(broker: RunningBroker) -> list[int]:
        client = admin(broker)
        client.list_topics(timeout=30)
        barrier.wait()
        made = client.create_topics([NewTopic(f"t{n}", 4, 1) for n in range(10)])
        return [
            0 if future.exception(60) is None else future.exception().args[0].code()
            for future in made.values()
        ]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(create_all, brokers)

    exists = KafkaError.TOPIC_ALREADY_EXISTS
    assert all({a, b} == {0, exists} for a, b in zip(first, second, strict=True)), (first, second)
    for number in range(10):
        name = f"t{number}"
        eventually(lambda name=name: topic(brokers[0], name) == topic(brokers[1], name))


def test_a_topic_of_0_7_has_numbers_too_and_keeps_them(start: Any, eventually: Any) -> None:
    one, two = start(1, num_partitions=2), start(2, num_partitions=2)

    def produce(broker: RunningBroker, partition: int) -> None:
        with SyncProducer(broker.host, broker.port) as producer:
            producer.send("old", partition, encode_message_set([b"x"]))

    produce(one, 0)
    first = eventually(lambda: led(two, "old"))
    assert first[1] == (1, 1)
    produce(two, 1)
    both = eventually(lambda: len((led(one, "old") or ((), ()))[1]) == 4 and led(one, "old"))

    assert both == (first[0], (1, 1, 2, 2))
    eventually(lambda: topic(two, "old") == both)
    client = admin(one)
    client.create_partitions([NewPartitions("old", 7)])["old"].result(60)
    grown = (first[0], (1, 1, 2, 2, 1, 2, 1))
    assert topic(one, "old") == grown
    eventually(lambda: topic(two, "old") == grown)
    for broker, count in ((one, 4), (two, 3)):
        with SimpleConsumer(broker.host, broker.port) as own:
            eventually(lambda own=own, count=count: partitions(own, "old") == count)
    produce_to_each(str(two.bootstrap_servers), "old", 7)
    start.stop(two)
    two = start(2, num_partitions=2)
    eventually(lambda: topic(two, "old") == grown)
    with SimpleConsumer(two.host, two.port) as own:
        assert partitions(own, "old") == 3


def test_settings_are_the_clusters(start: Any, eventually: Any) -> None:
    one, two = start(1), start(2)
    create(one, "clicks", 2, **{"retention.ms": "3600000"})
    where = ConfigResource(ResourceType.TOPIC, "clicks")

    def retention(broker: RunningBroker) -> str:
        client = admin(broker)
        (described,) = client.describe_configs([where]).values()
        return str(described.result(60)["retention.ms"].value)

    eventually(lambda: topic(two, "clicks"))
    eventually(lambda: retention(two) == "3600000")
    entry = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, "clicks", incremental_configs=[entry])
    client = admin(two)
    (altered,) = client.incremental_alter_configs([change]).values()
    altered.result(60)
    assert retention(two) == "-1"
    eventually(lambda: retention(one) == "-1")


def test_a_deleted_topic_goes_everywhere_also_where_no_broker_runs(
    start: Any, tmp_path: Path, eventually: Any
) -> None:
    one, two = start(1), start(2)
    eventually(lambda: len(admin(one).list_topics(timeout=30).brokers) == 2)
    directory = tmp_path / "log-2"
    for name in ("clicks", "views"):
        create(one, name, 4)
        eventually(lambda name=name: len(list(directory.glob(f"{name}-*/partition.metadata"))) == 2)
        produce_to_each(str(one.bootstrap_servers), name, 4)
    before = topic(one, "clicks")
    start.stop(two)
    hollow = [max(directory.glob("clicks-*")), *directory.glob("views-*")]
    assert len(hollow) == 3

    client = admin(one)
    for name in ("clicks", "views"):
        client.delete_topics([name])[name].result(60)
    for each in hollow:  # as if a broker had been killed while it deleted them
        for file in each.iterdir():
            file.unlink()
    create(one, "clicks", 4)

    two = start(2)
    after = eventually(lambda: led(two, "clicks"))
    assert before is not None
    assert after[0] != before[0]
    assert set(after[1]) == {1}, "made while the other was down"
    eventually(lambda: not [*directory.glob("clicks-*"), *directory.glob("views-*")])
    eventually(lambda: b"views" not in (directory / ".hermes_topics").read_bytes())
    assert topic(two, "views") is None
    assert consume_from_each(str(two.bootstrap_servers), "clicks", 0) == {}
    produce_to_each(str(two.bootstrap_servers), "clicks", 4)


def test_a_topic_that_is_deleted_without_kafka_listen_doesnt_come_back_with_it(
    start: Any, connect: str, make_session: Callable[..., Session], eventually: Any
) -> None:
    broker = start(0)
    for name in ("gone", "kept"):
        create(broker, name, 2)
    start.stop(broker)

    broker = start(0, kafka_listen=None)
    with SimpleConsumer(broker.host, broker.port) as client:
        client.delete_topic("gone")
    tree = TopicTree(make_session(connect))

    def is_gone() -> bool:
        contents = tree.read()
        return set(contents.topics) == {"kept"} and not contents.deleted

    eventually(is_gone)
    start.stop(broker)

    broker = start(0)
    assert topic(broker, "gone") is None
    assert eventually(lambda: led(broker, "kept"))[1] == (0, 0)


def test_producer_ids_are_unique_in_the_cluster_and_over_restarts(start: Any) -> None:
    def take(broker: RunningBroker, count: int) -> list[int]:
        return [
            ask_once(
                str(broker.bootstrap_servers),
                "InitProducerId",
                1,
                transactional_id=None,
                transaction_timeout=parts("InitProducerId", 1).timeout(0),
            ).producer_id
            for _ in range(count)
        ]

    one, two = start(1), start(2)
    taken = take(one, 3) + take(two, 3)
    start.stop(one)
    taken += take(start(1), 3)

    assert len(set(taken)) == 9
    assert min(taken) >= 0


def test_a_topic_that_is_written_to_is_created_once_by_all(start: Any, eventually: Any) -> None:
    one, two = start(1, num_partitions=3), start(2, num_partitions=3)
    eventually(lambda: len(admin(one).list_topics(timeout=30).brokers) == 2)

    with ThreadPoolExecutor(2) as pool:
        places = [str(each.bootstrap_servers) for each in (one, two)]
        list(pool.map(lambda place: produce_to_each(place, "new", 3), places))

    found = eventually(lambda: led(two, "new"))
    assert found == topic(one, "new")
    assert len(found[1]) == 3


def test_partitions_of_a_broker_that_is_down_have_no_leader(start: Any, eventually: Any) -> None:
    one, two = start(1), start(2)
    eventually(lambda: len(admin(one).list_topics(timeout=30).brokers) == 2)
    create(one, "clicks", 2)
    start.stop(two)

    def leaders() -> set[int]:
        found = topic(one, "clicks")
        assert found is not None
        return set(found[1])

    eventually(lambda: leaders() == {-1, 1})
    start(2)
    eventually(lambda: leaders() == {1, 2})


def test_what_hermes_own_clients_ask_of_such_a_topic_is_done_in_the_cluster(
    start: Any, connect: str, eventually: Any, tmp_path: Path
) -> None:
    declared = {"declared": {"format": "kafka", "partitions": 2}}
    one, two = start(1, topics=declared), start(2, topics=declared)
    eventually(lambda: len(admin(one).list_topics(timeout=30).brokers) == 2)
    first = eventually(lambda: led(two, "declared"))
    assert len(first[1]) == 2
    eventually(lambda: topic(one, "declared") == first)
    with SimpleConsumer(one.host, one.port) as client:
        client.create_topic("clicks", {"format": "kafka", "partitions": "4"})
        assert len(topic(one, "clicks")[1]) == 4
        own = [n for n, leader in enumerate(topic(one, "clicks")[1]) if leader == 1]
        assert len(own) == 2
        # A broker has two of the numbers, and keys choose among these.
        with HermesProducer(
            ProducerConfig(broker_list=one.broker_list, acks="flushed")
        ) as producer:
            for number in range(8):
                producer.send("clicks", b"by its client", key=f"k{number}")
        lines = tmp_path / "lines"
        lines.write_text("".join(f"k{number}|by its command\n" for number in range(8)))
        place = f"{one.host}:{one.port}"
        arguments = ["produce", "-b", place, "-t", "clicks", "-K", "|", str(lines)]
        published = CliRunner().invoke(program, arguments)
        assert (published.exit_code, published.stderr) == (0, "")
        (described,) = client.metadata(["clicks"]).topics
        assert [each.partition for each in described.partitions] == own
        assert sum(each.high_watermark for each in described.partitions) == 16
        assert sum(each.size_bytes for each in described.partitions) > 16 * 13
        described = run_program("topics", "describe", "--json", "-b", place, "clicks")
        assert [each["partition"] for each in json.loads(described.stdout)["partitions"]] == own
        assert "one of 2 brokers: of topics with the format kafka only its own" in described.stderr
        listed = run_program("topics", "list", "--json", "-b", place).stdout.splitlines()
        counts = {each["topic"]: each["partitions"] for each in map(json.loads, listed)}
        # Whoever starts first has all of what both declare, if the other isn't there yet.
        assert counts.pop("declared", 0) == list(first[1]).count(1)
        assert counts == {"clicks": 2}
        shown = run_program("top", "-Z", connect, "--once").stdout.splitlines()
        rows = {words[0]: words[1:] for words in map(str.split, shown) if words}
        assert (rows["clicks"][0], rows["declared"][0]) == ("4", "2")
        with ExitStack() as looked:
            cluster = ClusterClient(None, connect)
            looked.callback(cluster.close)
            view = TopicReader(cluster, ReadCache()).topic("clicks")
            assert sorted(row.number for row in view.partitions) == [0, 1, 2, 3]
            assert {row.number for row in view.partitions if row.broker_id == 1} == set(own)
            assert ClusterSampler(cluster, ReadCache()).view().topics["clicks"].partitions == 4
            ends, _ = GroupReader(cluster, ReadCache()).ends(["clicks"])
            assert len(ends) == 4
            console = Console(cluster, Access(None), lambda: False)
            looked.callback(console.close)
            body = console.answer(PageRequest("GET", ("topics", "clicks"))).body
            page = (body if isinstance(body, bytes) else b"".join(body)).decode()
            assert "Offsets count messages" in page
            assert "positions in bytes" not in page
        places = tuple((each.host, each.port) for each in (one, two))
        with ClusterReader(ConnectionOptions(places), RetryOptions(0, 0.1)) as listed_brokers:
            (read,) = listed_brokers.partitions(["clicks"]).values()
            assert sorted(each.partition for each in read) == [0, 1, 2, 3]
            assert [each.partition for each in read if each.broker_id == 1] == own
            assert None not in listed_brokers.bounds(read).values()
            # One that is another broker's is none of this one's, not an empty one.
            wrong = [each._replace(broker_id=3 - each.broker_id) for each in read]
            assert set(listed_brokers.bounds(wrong).values()) == {None}
            with (
                ClusterReader(ConnectionOptions(places[:1]), RetryOptions(0, 0.1)) as half,
                pytest.raises(RoutingError, match=r"4 partitions.* have 2: name the other brokers"),
            ):
                selected_partitions(half, Selection(topics=("clicks",)))
            client.create_topic("single", {"format": "kafka", "partitions": "1"})
            # Whoever leads it may not have made its log yet.
            eventually(lambda: listed_brokers.partitions(["single"])["single"])
            (read,) = listed_brokers.partitions(["single"]).values()
            assert [each.partition for each in read] == [0]
            (wrong,) = [each._replace(broker_id=3 - each.broker_id) for each in read]
            bounds = listed_brokers.bounds([*read, wrong])
            assert bounds[read[0]] in (EMPTY, EMPTY._replace(counts_messages=True))
            assert bounds[wrong] is None
        other = ({0, 1, 2, 3} - set(own)).pop()
        refused = run_program("consume", "-b", place, "-t", "clicks", "-p", str(other), "-e")
        assert f"this broker of the cluster has {own[0]}, {own[1]}" in refused.stderr
        # Where a topic begins depends on its name: one whose numbers here are the others.
        for copy in (f"copy-{number}" for number in range(64)):
            client.create_topic(copy, {"format": "kafka", "partitions": "4"})
            here = [n for n, leader in enumerate(topic(one, copy)[1]) if leader == 1]
            if here != own:
                break
        replay = "replay", "-b", place, "-t", "clicks", "--to", copy
        refused = run_program(*replay)
        assert f"has no partition {own[0]}, {own[1]}: give --to-partition" in refused.stderr
        assert run_program(*replay, "--to-partition", str(here[0])).exit_code == 0
        (described,) = client.metadata([copy]).topics
        assert sum(each.high_watermark for each in described.partitions) == 16
        client.alter_topic("clicks", {"partitions": "5", "retention_time": "1h"})
        assert len(topic(one, "clicks")[1]) == 5
        eventually(lambda: len((topic(two, "clicks") or ((), ()))[1]) == 5)
        with pytest.raises(SettingRefusedError, match="has 5, and never loses one"):
            client.alter_topic("clicks", {"partitions": "3"})
        with pytest.raises(SettingRefusedError, match="is kafka, and keeps its format"):
            client.alter_topic("clicks", {"format": "0.7", "retention_time": "2h"})
        client.alter_topic("clicks", {"format": "kafka"})
        (shown,) = [e for e in client.describe_settings("clicks") if e.name == "retention_time"]
        assert shown.value == "1h"
        with (
            SimpleConsumer(two.host, two.port) as other,
            pytest.raises(TopicExistsError, match=r"5 partitions in the cluster.*on any of"),
        ):
            other.create_topic("clicks", {"format": "kafka", "partitions": "4"})
        asked = run_program("topics", "delete", "-b", place, "clicks")
        assert "Delete topic 'clicks' on all 2 brokers of the cluster, for good?" in asked.stderr
        client.delete_topic("clicks")
    assert topic(one, "clicks") is None
    eventually(lambda: topic(two, "clicks") is None)
