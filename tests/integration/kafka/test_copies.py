"""Topics with copies on several brokers, as Kafka's clients make, grow, show and delete them."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka_raw import KafkaConversation, parts

from hermes.cli.topic_source import TopicSource
from hermes.client import SimpleConsumer
from hermes.coordination.kafka_topics import KAFKA_DELETED
from hermes.coordination.replicas import replicas_path
from hermes.coordination.sessions import Session
from hermes.errors import SettingRefusedError
from hermes.protocol.kafka_errors import Code
from hermes.protocol.records import Record, encode_batch
from hermes.replication.state import TopicReplicas, parse_replicas
from hermes.testing import RunningKafka, running_kafka

PATIENCE_SECONDS = 120.0
_HERMES = str(Path(sys.executable).with_name("hermes"))


class Trio(NamedTuple):
    """Three brokers of a cluster."""

    brokers: list[RunningKafka]
    client: AdminClient
    session: Session

    def replicas(self, topic: str) -> TopicReplicas | None:
        found = self.session.get(replicas_path(topic))
        return None if found is None else parse_replicas("", found.value)


@pytest.fixture(scope="module")
def trio() -> Iterator[Trio]:
    embedded = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}
    with ExitStack() as stack:
        first = stack.enter_context(running_kafka(settings={**embedded, "rack": "a"}))
        connect = str(first.zookeeper_connect)
        more = {"coordination": "zookeeper", "zookeeper_connect": connect}
        brokers = [first]
        for number, rack in ((1, "a"), (2, "b")):
            settings = {"broker_id": number, "rack": rack, **more}
            brokers.append(stack.enter_context(running_kafka(settings=settings)))
        client = AdminClient({"bootstrap.servers": brokers[1].bootstrap_servers, "log_level": 0})
        for each in brokers:
            seen = AdminClient({"bootstrap.servers": each.bootstrap_servers, "log_level": 0})
            while len(seen.list_topics(timeout=60).brokers) < 3:
                pass  # a run that hangs is ended, and shows where
        session = Session(connect)
        session.start()
        stack.callback(session.stop)
        yield Trio(brokers, client, session)


@pytest.fixture
def name() -> str:
    return f"topic-{uuid4().hex[:8]}"


def only(futures: dict[Any, "Future[Any]"]) -> Any:
    ((_, future),) = futures.items()
    return future.result(PATIENCE_SECONDS)


def refusal(futures: dict[Any, "Future[Any]"]) -> tuple[str, str]:
    with pytest.raises(KafkaException) as raised:
        only(futures)
    error = raised.value.args[0]
    return error.name(), error.str()


def copies(trio: Trio, topic: str) -> dict[int, list[int]]:
    # Another broker than the one that is asked may have made the topic just now.
    while (found := trio.client.list_topics(topic, timeout=60).topics[topic]).error is not None:
        pass
    return {number: each.replicas for number, each in found.partitions.items()}


def test_a_topic_is_made_with_its_copies_in_different_racks(trio: Trio, name: str) -> None:
    only(trio.client.create_topics([NewTopic(name, 6, 2)]))

    node, placed = trio.replicas(name), copies(trio, name)
    assert node is not None
    assert {number: list(each.replicas) for number, each in enumerate(node.partitions) if each} == (
        placed
    )
    assert all(2 in each for each in placed.values()), "the one broker of the other rack"
    assert sorted(each[0] for each in placed.values()) == [0, 0, 1, 1, 2, 2]
    for state in node.partitions:
        assert state is not None
        assert (state.leader, state.epoch, state.isr) == (state.replicas[0], 0, {*state.replicas})
        assert state.life


def test_a_topic_with_one_copy_needs_no_state(trio: Trio, name: str) -> None:
    only(trio.client.create_topics([NewTopic(name, 3, 1)]))
    assert trio.replicas(name) is None
    assert sorted(copies(trio, name).values()) == [[0], [1], [2]]


def test_a_topic_is_made_grown_and_deleted_as_assigned(trio: Trio, name: str) -> None:
    assigned = [[2, 1], [0, 2]]
    only(trio.client.create_topics([NewTopic(name, 2, replica_assignment=assigned)]))
    assert copies(trio, name) == {0: [2, 1], 1: [0, 2]}

    wrong = NewPartitions(name, 3, replica_assignment=[[0, 1, 2]])
    assert refusal(trio.client.create_partitions([wrong]))[0] == "INVALID_REPLICA_ASSIGNMENT"
    only(trio.client.create_partitions([NewPartitions(name, 3, replica_assignment=[[1, 0]])]))
    only(trio.client.create_partitions([NewPartitions(name, 5)]))
    placed = copies(trio, name)
    assert placed[2] == [1, 0]
    assert [len(placed[number]) for number in range(5)] == [2] * 5
    node = trio.replicas(name)
    assert node is not None
    assert len(node.partitions) == 5

    only(trio.client.delete_topics([name]))
    assert trio.replicas(name) is None
    while trio.session.children(KAFKA_DELETED):
        pass


def test_copies_are_made_on_each_broker_shown_by_it_and_deleted(trio: Trio, name: str) -> None:
    only(trio.client.create_topics([NewTopic(name, 2, 3)]))
    only(trio.client.create_partitions([NewPartitions(name, 3)]))
    producer = Producer({"bootstrap.servers": trio.brokers[0].bootstrap_servers, "log_level": 0})
    for number in range(3):
        producer.produce(name, b"kept", partition=number)
    assert producer.flush(PATIENCE_SECONDS) == 0

    for broker in trio.brokers:
        with SimpleConsumer(broker.host, broker.port) as consumer:
            (told,) = consumer.metadata([name]).topics
            like_it = TopicSource(consumer, name, None).settings()
        assert like_it == {"format": "kafka", "partitions": "3", "replicas": "3"}
        assert (told.holds_records, told.copies, told.partition_count) == (True, 3, 3)
        led = {each.partition: each.leader for each in told.leaders}
        assert set(told.numbers) <= {n for n in led if led[n] == broker.broker_id}
        assert sorted(led) == [0, 1, 2]
        assert {each.name for each in directories(broker, name)} == {
            f"{name}-{n}" for n in range(3)
        }

    only(trio.client.delete_topics([name]))
    assert trio.replicas(name) is None
    while any(directories(each, name) for each in trio.brokers):
        pass
    while trio.session.children(KAFKA_DELETED):
        pass


def directories(broker: RunningKafka, topic: str) -> list[Path]:
    return list(broker.log_dir.glob(f"{topic}-*"))


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (4, "factor of 4 cannot be reached because only 3 broker(s) are registered."),
        (8, "There can be 7 copies of a partition at most"),
    ],
)
def test_more_copies_than_there_can_be_are_refused(
    trio: Trio, name: str, factor: int, said: str
) -> None:
    for is_check in (True, False):
        asked = trio.client.create_topics([NewTopic(name, 1, factor)], validate_only=is_check)
        code, text = refusal(asked)
        assert code == "INVALID_REPLICATION_FACTOR"
        assert said in text


def test_more_in_sync_than_there_are_copies_are_refused(trio: Trio, name: str) -> None:
    wrong = NewTopic(name, 1, 2, config={"min.insync.replicas": "3"})
    assert refusal(trio.client.create_topics([wrong]))[0] == "INVALID_CONFIG"
    only(trio.client.create_topics([NewTopic(name, 1, 3)]))
    wait_for_setting(trio, name, "min.insync.replicas", "2")  # of three

    for value, refused in (("4", True), ("3", False), ("1", False)):
        entry = ConfigEntry(
            "min.insync.replicas", value, incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        altered = trio.client.incremental_alter_configs([resource])
        if refused:
            code, text = refusal(altered)
            assert (code, "it has 3" in text) == ("INVALID_CONFIG", True)
        else:
            only(altered)
            wait_for_setting(trio, name, "min.insync.replicas", value)


@pytest.mark.parametrize("key", ["min.insync.replicas", "cleanup.policy"])
def test_any_broker_changes_settings_also_one_without_a_copy(
    trio: Trio, name: str, key: str
) -> None:
    only(trio.client.create_topics([NewTopic(name, 1, replica_assignment=[[0, 1]])]))
    make = parts("IncrementalAlterConfigs", 1)
    value, wrong = {"min.insync.replicas": ("2", "none"), "cleanup.policy": ("compact", "x")}[key]
    with KafkaConversation(trio.brokers[2].bootstrap_servers) as elsewhere:

        def alter(asked: str, *, is_check: bool) -> Code:
            config = make.AlterableConfig(name=key, config_operation=0, value=asked)
            resource = make.AlterConfigsResource(
                resource_type=2, resource_name=name, configs=(config,)
            )
            (answer,) = elsewhere.ask(
                "IncrementalAlterConfigs", 1, resources=(resource,), validate_only=is_check
            ).responses
            return Code(answer.error_code)

        while (code := alter(wrong, is_check=True)) == Code.UNKNOWN_TOPIC_OR_PARTITION:
            pass  # another broker has made the topic just now
        assert code == alter(wrong, is_check=False) == Code.INVALID_CONFIG
        assert alter(value, is_check=True) == alter(value, is_check=False) == Code.NONE
    wait_for_setting(trio, name, key, value)


def wait_for_setting(trio: Trio, topic: str, key: str, value: str) -> None:
    """Wait until it is so; one broker answers who changed it, and another one is asked here."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    while only(trio.client.describe_configs([resource]))[key].value != value:
        pass  # a run that hangs is ended, and shows where


def test_what_was_made_is_told_with_its_factor_and_settings(trio: Trio, name: str) -> None:
    make = parts("CreateTopics", 7)
    topic = make.CreatableTopic(
        name=name, num_partitions=2, replication_factor=3, assignments=(), configs=()
    )
    with KafkaConversation(str(trio.brokers[0].bootstrap_servers)) as conversation:
        for is_check in (True, False):
            (made,) = conversation.ask(
                "CreateTopics",
                7,
                topics=(topic,),
                timeout=make.timeout(60_000),
                validate_only=is_check,
            ).topics
            told = made.error_code.value, made.num_partitions, made.replication_factor
            assert told == (0, 2, 3)
            assert {each.name: each.value for each in made.configs}["min.insync.replicas"] == "2"


def test_hermes_own_clients_make_copies(trio: Trio, name: str) -> None:
    broker = trio.brokers[2]
    with SimpleConsumer(broker.host, broker.port) as consumer:
        consumer.create_topic(name, {"format": "kafka", "partitions": 3, "replicas": 2})
        assert [len(each) for each in copies(trio, name).values()] == [2, 2, 2]
        for settings, said in (
            ({"format": "kafka", "replicas": 4}, "replicas: Unable to replicate"),
            ({"format": "kafka", "replicas": 8}, "replicas: expected a whole number >= 1 and <= 7"),
            ({"format": "kafka", "replicas": "two"}, "replicas: expected a whole number"),
            ({"format": "0.7", "replicas": 2}, "copies need `format: kafka`"),
            ({"format": "kafka", "replicas": 2, "min_insync_replicas": 3}, "it has 2"),
        ):
            with pytest.raises(SettingRefusedError, match=said):
                consumer.create_topic(f"{name}-refused", settings)


def test_a_topic_gets_more_copies_and_fewer_while_it_is_served(trio: Trio, name: str) -> None:
    broker = trio.brokers[0]
    only(trio.client.create_topics([NewTopic(name, 1, replica_assignment=[[0]])]))
    produce(trio, name, b"first")

    def altered(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [_HERMES, "topics", "alter", "-b", broker.address, *arguments, name]
        return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_SECONDS)

    more = altered("--replicas", "3", "--set", "min_insync_replicas=3")
    assert (more.returncode, more.stderr) == (0, "")
    assert more.stdout.splitlines()[0].startswith(f"moves {name}:0 from 0 to 0,")
    while in_sync(trio, name) != {0, 1, 2}:
        produce(trio, name, b"while it gets them")
    produce(trio, name, b"on all three")

    assert altered("--replicas", "4").stderr == (
        "hermes: there can't be 4 copies on 3 brokers: add brokers first\n"
    )
    assert altered("--replicas", "1").returncode == 0
    while len(copies(trio, name)[0]) > 1:
        produce(trio, name, b"while it loses them")
    while sum(bool(directories(each, name)) for each in trio.brokers) > 1:
        pass
    produce(trio, name, b"alone again")


def produce(trio: Trio, topic: str, value: bytes) -> None:
    """Produce with all acknowledgements."""
    producer = Producer({"bootstrap.servers": trio.brokers[1].bootstrap_servers, "log_level": 0})
    failed: list[Any] = []
    producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert failed == [None]


def in_sync(trio: Trio, topic: str) -> set[int]:
    return set(trio.client.list_topics(topic, timeout=60).topics[topic].partitions[0].isrs)


def test_a_declared_topic_waits_for_as_many_brokers_as_it_has_copies() -> None:
    embedded = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}
    declared = {
        "default_replication_factor": 2,
        "topics": {"declared": {"format": "kafka", "partitions": 2}},
    }
    with running_kafka(settings={**embedded, **declared}) as first:
        client = AdminClient({"bootstrap.servers": first.bootstrap_servers, "log_level": 0})
        assert "declared" not in client.list_topics(timeout=60).topics
        connect = {"coordination": "zookeeper", "zookeeper_connect": str(first.zookeeper_connect)}
        with running_kafka(settings={"broker_id": 1, **connect}):
            while "declared" not in (topics := client.list_topics(timeout=60).topics):
                pass
    found = topics["declared"].partitions
    assert {tuple(sorted(each.replicas)) for each in found.values()} == {(0, 1)}
    assert len(found) == 2


def test_brokers_are_told_with_their_racks(trio: Trio) -> None:
    with KafkaConversation(str(trio.brokers[0].bootstrap_servers)) as conversation:
        named = conversation.ask("Metadata", 1, topics=()).brokers
        more = {"include_cluster_authorized_operations": False, "endpoint_type": 1}
        described = conversation.ask("DescribeCluster", 1, **more).brokers
    racks = {0: "a", 1: "a", 2: "b"}
    assert {each.node_id: each.rack for each in named} == racks
    assert {each.broker_id: each.rack for each in described} == racks


def test_a_producer_out_of_step_is_told_so_once_followers_have_said_who_leads(
    trio: Trio, name: str
) -> None:
    topic = NewTopic(name, 1, replica_assignment=[[0, 1, 2]])
    only(trio.client.create_topics([topic]))
    make = parts("Produce", 9)
    record = [Record(0, 5, None, b"one")]

    def produce(conversation: KafkaConversation, sequence: int) -> Any:
        batch = encode_batch(record, producer_id=77, producer_epoch=0, base_sequence=sequence)
        data = make.PartitionProduceData(index=0, records=batch)
        response = conversation.ask(
            "Produce",
            9,
            acks=-1,
            timeout=make.timeout(30_000),
            transactional_id=None,
            topic_data=(make.TopicProduceData(name=name, partition_data=(data,)),),
        )
        return response.responses[0].partition_responses[0]

    with KafkaConversation(str(trio.brokers[0].bootstrap_servers)) as conversation:
        not_yet = (Code.NOT_LEADER_OR_FOLLOWER, Code.UNKNOWN_TOPIC_OR_PARTITION)
        while produce(conversation, 0).error_code in not_yet:
            pass  # its copies are made; a run that hangs is ended, and shows where
        found = produce(conversation, 50)
        assert found.error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produce(conversation, 1).error_code == Code.NONE
