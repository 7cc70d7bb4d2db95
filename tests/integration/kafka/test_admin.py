"""Admin requests of Kafka's clients: confluent-kafka's AdminClient, and single requests by version.

What is refused was tried on a Kafka 4.3.1, too: `REFUSED` has its codes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka_raw import KafkaConversation, parts, topics_of

from hermes.testing import RunningKafka, running_kafka

NO_ERROR = 0


@pytest.fixture(params=["none", "embedded"], scope="module")
def kafka(request: pytest.FixtureRequest) -> Iterator[RunningKafka]:
    """Without coordination, and with it: then topics are changed there."""
    settings = {"coordination": request.param, "segment_bytes": "1MiB"}
    with running_kafka(settings=settings) as running:
        yield running


@pytest.fixture
def client(kafka: RunningKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})


@pytest.fixture
def ask(kafka: RunningKafka) -> Iterator[Callable[..., Any]]:
    with KafkaConversation(str(kafka.bootstrap_servers)) as conversation:
        yield conversation.ask


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    return f"topic-{uuid4().hex[:8]}"


def only(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(60)


def refusal(futures: dict[Any, Any]) -> Any:
    with pytest.raises(KafkaException) as refused:
        only(futures)
    return refused.value.args[0].name()


def topic_resource(name: str, **changes: tuple[Any, str | None]) -> ConfigResource:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=how)
        for key, (how, value) in changes.items()
    ]
    return ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries or None)


# -- confluent-kafka ----------------------------------------------------------------------------


def test_a_topic_is_created_described_grown_and_deleted(client: AdminClient, name: str) -> None:
    config = {"retention.ms": "3600000", "segment.bytes": "1048576", "min.insync.replicas": "1"}
    assert only(client.create_topics([NewTopic(name, 3, 1, config=config)])) is None

    listed = client.list_topics(name, timeout=60).topics[name]
    assert sorted(listed.partitions) == [0, 1, 2]
    described = only(client.describe_configs([topic_resource(name)]))
    shown = {key: (each.value, each.source) for key, each in described.items()}
    set_here, default = ConfigSource.DYNAMIC_TOPIC_CONFIG.value, ConfigSource.DEFAULT_CONFIG.value
    assert shown["retention.ms"] == ("3600000", set_here)
    assert shown["segment.bytes"] == ("1048576", set_here)
    assert shown["cleanup.policy"] == ("delete", default)
    assert shown["min.insync.replicas"] == ("1", set_here)
    assert shown["retention.bytes"] == ("-1", default)
    assert only(client.create_partitions([NewPartitions(name, 5)])) is None
    assert len(client.list_topics(name, timeout=60).topics[name].partitions) == 5
    assert only(client.delete_topics([name])) is None
    assert name not in client.list_topics(timeout=60).topics


def test_settings_are_set_reset_and_checked(client: AdminClient, name: str) -> None:
    only(client.create_topics([NewTopic(name, 1, 1)]))
    put, reset = AlterConfigOpType.SET, AlterConfigOpType.DELETE

    def value() -> tuple[str, int]:
        entry = only(client.describe_configs([topic_resource(name)]))["retention.bytes"]
        return entry.value, entry.source

    change = topic_resource(name, retention_bytes=(put, "1000"))
    only(client.incremental_alter_configs([change], validate_only=True))
    assert value()[0] == "-1"
    only(client.incremental_alter_configs([change]))
    assert value() == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    only(client.incremental_alter_configs([topic_resource(name, retention_bytes=(reset, None))]))
    assert value()[0] == "-1"
    for key, wrong in (
        ("retention_ms", "soon"),
        ("min_insync_replicas", "2"),
        ("no_such_thing", "1"),
        ("segment_bytes", "0"),
    ):
        change = topic_resource(name, **{key: (put, wrong)})
        assert refusal(client.incremental_alter_configs([change])) == "INVALID_CONFIG", key
    change = topic_resource(name, retention_ms=(AlterConfigOpType.APPEND, "1"))
    assert refusal(client.incremental_alter_configs([change])) == "INVALID_CONFIG"


def test_a_topic_can_be_compacted(client: AdminClient, name: str) -> None:
    config = {"cleanup.policy": "compact", "delete.retention.ms": "1000"}
    only(client.create_topics([NewTopic(name, 1, 1, config=config)]))

    def shown() -> dict[str, str]:
        described = only(client.describe_configs([topic_resource(name)]))
        return {key: each.value for key, each in described.items() if key in config}

    assert shown() == config
    put = AlterConfigOpType.SET
    only(
        client.incremental_alter_configs(
            [topic_resource(name, cleanup_policy=(put, "delete, compact"))]
        )
    )
    assert shown()["cleanup.policy"] == "compact,delete"
    change = topic_resource(name, cleanup_policy=(put, "shrink"))
    assert refusal(client.incremental_alter_configs([change])) == "INVALID_CONFIG"


def test_a_brokers_settings_are_shown(client: AdminClient, kafka: RunningKafka) -> None:
    described = only(client.describe_configs([ConfigResource(ResourceType.BROKER, "0")]))

    assert described["log.segment.bytes"].value == str(1 << 20)
    assert described["log.segment.bytes"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert described["log.segment.bytes"].is_read_only
    assert described["num.partitions"].value == "1"
    reached = described["advertised.listeners"]
    assert reached.value == f"PLAINTEXT://{kafka.bootstrap_servers}"
    assert reached.source == ConfigSource.STATIC_BROKER_CONFIG.value


def test_records_are_deleted(kafka: RunningKafka, client: AdminClient, name: str) -> None:
    only(client.create_topics([NewTopic(name, 2, 1)]))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for number in range(10):
        producer.produce(name, b"%d" % number, partition=0)
    assert producer.flush(60) == 0

    deleted = client.delete_records([TopicPartition(name, 0, 4), TopicPartition(name, 1, -1)])

    lows = {each.partition: future.result(60).low_watermark for each, future in deleted.items()}
    assert lows == {0: 4, 1: 0}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"})
    assert consumer.get_watermark_offsets(TopicPartition(name, 0), 60) == (4, 10)
    consumer.close()
    beyond = client.delete_records([TopicPartition(name, 0, 11)])
    assert refusal(beyond) == "OFFSET_OUT_OF_RANGE"
    assert only(client.delete_records([TopicPartition(name, 0, -1)])).low_watermark == 10


def test_the_cluster_is_described(kafka: RunningKafka, client: AdminClient) -> None:
    described = client.describe_cluster(include_authorized_operations=True).result(60)

    (node,) = described.nodes
    assert f"{node.host}:{node.port}" == kafka.bootstrap_servers
    assert (node.id, described.controller.id) == (0, 0)
    assert UUID(described.cluster_id)
    assert {each.name for each in described.authorized_operations} >= {"CREATE", "ALTER"}


# -- single requests ----------------------------------------------------------------------------


def creatable(version: int, name: str, **fields: Any) -> Any:
    make = parts("CreateTopics", version)
    given = {"num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    return make.CreatableTopic(name=name, **(given | fields))


def create(ask: Any, version: int, *topics: Any, validate_only: bool = False) -> list[Any]:
    response = ask(
        "CreateTopics",
        version,
        topics=topics,
        timeout=parts("CreateTopics", version).timeout(30_000),
        validate_only=validate_only,
    )
    return list(response.topics)


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics_in_every_version(ask: Any, name: str, version: int) -> None:
    (checked,) = create(ask, version, creatable(version, name), validate_only=True)
    assert checked.error_code == NO_ERROR
    (made,) = create(
        ask, version, creatable(version, name, num_partitions=-1, replication_factor=-1)
    )
    assert made.error_code == NO_ERROR
    (again,) = create(ask, version, creatable(version, name))
    assert again.error_code == 36
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (1, 1)
        assert {each.name for each in made.configs} >= {"retention.ms", "cleanup.policy"}
    if version >= 7:
        assert made.topic_id is not None
    assert "already exists" in again.error_message


def assignment(number: int, *brokers: int) -> Any:
    return parts("CreateTopics", 7).CreatableReplicaAssignment(
        partition_index=number, broker_ids=brokers
    )


def config(key: str, value: str | None) -> Any:
    return parts("CreateTopics", 7).CreatableTopicConfig(name=key, value=value)


UNASSIGNED: dict[str, Any] = {"num_partitions": -1, "replication_factor": -1}

#: What CreateTopics refuses, with Kafka's code.
REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "no partitions": ({"num_partitions": 0}, 37),
    "fewer than none": ({"num_partitions": -2}, 37),
    "no replica": ({"replication_factor": 0}, 38),
    "more replicas than brokers": ({"replication_factor": 2}, 38),
    "an unknown setting": ({"configs": (config("no.such.thing", "1"),)}, 40),
    "a value of another type": ({"configs": (config("retention.ms", "soon"),)}, 40),
    "no value": ({"configs": (config("retention.ms", None),)}, 40),
    "both a number and places": ({"assignments": (assignment(0, 0),)}, 42),
    "places with a gap": (
        {**UNASSIGNED, "assignments": (assignment(0, 0), assignment(2, 0))},
        39,
    ),
    "a broker that isn't there": ({**UNASSIGNED, "assignments": (assignment(0, 99),)}, 39),
    "an empty name": ({"name": ""}, 17),
    "a dot": ({"name": "."}, 17),
    "a space": ({"name": "a b"}, 17),
    "250 characters": ({"name": "x" * 250}, 17),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_create_topics_refuses(ask: Any, name: str, case: str) -> None:
    fields, code = REFUSED[case]
    for is_check in (True, False):
        (result,) = create(
            ask, 7, creatable(7, **({"name": name} | fields)), validate_only=is_check
        )
        assert (result.error_code, result.topic_id) == (code, None), result.error_message
        assert result.error_message


def test_a_topic_named_twice_is_refused_and_the_others_are_created(ask: Any, name: str) -> None:
    twice, other = creatable(7, name), creatable(7, f"{name}-2")

    results = {each.name: each.error_code for each in create(ask, 7, twice, other, twice)}

    assert results == {name: 42, f"{name}-2": NO_ERROR}


def test_partitions_are_put_where_the_client_says(ask: Any, name: str) -> None:
    places = (assignment(1, 0), assignment(0, 0))

    (made,) = create(ask, 7, creatable(7, name, **UNASSIGNED, assignments=places))

    assert (made.error_code, made.num_partitions) == (NO_ERROR, 2)


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topics_in_every_version(
    ask: Any, kafka: RunningKafka, name: str, version: int
) -> None:
    (made,) = create(ask, 7, creatable(7, name))
    make = parts("DeleteTopics", version)
    asked: dict[str, Any] = {"topic_names": (name, "never-made")}
    if version >= 6:
        state = make.DeleteTopicState
        asked = {
            "topics": (
                state(name=None, topic_id=made.topic_id),
                state(name="never-made", topic_id=None),
                state(name=None, topic_id=uuid4()),
                state(name=None, topic_id=None),
                state(name=name, topic_id=made.topic_id),
            )
        }

    response = ask("DeleteTopics", version, timeout=make.timeout(30_000), **asked)

    codes = [each.error_code for each in response.responses]
    assert codes == ([0, 3, 100, 42, 42] if version >= 6 else [0, 3])
    assert response.responses[0].name == name
    with KafkaConversation(str(kafka.bootstrap_servers)) as other:
        (again,) = topics_of(other, name)
    assert again.topic_id != made.topic_id


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_in_every_version(ask: Any, name: str, version: int) -> None:
    create(ask, 7, creatable(7, name, num_partitions=3))
    make = parts("CreatePartitions", version)

    def grow(count: int, topic: str = name, places: Any = None, check: bool = False) -> Any:
        asked = make.CreatePartitionsTopic(name=topic, count=count, assignments=places)
        response = ask(
            "CreatePartitions",
            version,
            topics=(asked,),
            timeout=make.timeout(30_000),
            validate_only=check,
        )
        return response.results[0].error_code

    place = make.CreatePartitionsAssignment
    assert grow(3) == grow(2) == grow(0) == 37
    assert grow(4, "never-made") == 3
    assert grow(5, places=(place(broker_ids=(0,)),)) == 39
    assert grow(4, places=(place(broker_ids=(9,)),)) == 39
    assert grow(4, check=True) == NO_ERROR
    assert grow(4, places=(place(broker_ids=(0,)),)) == NO_ERROR
    assert grow(4) == 37


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_in_every_version(ask: Any, name: str, version: int) -> None:
    create(ask, 7, creatable(7, name, configs=(config("retention.ms", "7"),)))
    make = parts("DescribeConfigs", version)
    asked = tuple(
        make.DescribeConfigsResource(
            resource_type=kind, resource_name=each, configuration_keys=keys
        )
        for kind, each, keys in (
            (2, name, ("retention.ms", "no.such.thing")),
            (2, "never-made", None),
            (4, "0", None),
            (4, "", None),
            (4, "7", None),
            (99, "x", None),
        )
    )
    more = {"include_documentation": True} if version >= 3 else {}

    response = ask("DescribeConfigs", version, resources=asked, include_synonyms=True, **more)

    one, *others = response.results
    assert [each.error_code for each in others] == [3, 0, 0, 42, 42]
    (shown,) = one.configs
    assert (shown.name, shown.value, shown.config_source) == ("retention.ms", "7", 1)
    synonyms = [(each.name, each.value, each.source) for each in shown.synonyms]
    # Kafka's brokers have a default in hours only.
    assert synonyms == [("retention.ms", "7", 1)]
    if version >= 3:
        assert shown.documentation
        assert shown.config_type == 5


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_that_is_set(ask: Any, name: str, version: int) -> None:
    create(ask, 7, creatable(7, name, configs=(config("retention.ms", "7"),)))
    make = parts("AlterConfigs", version)

    def alter(kind: int, topic: str, **values: str) -> Any:
        configs = tuple(
            make.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in values.items()
        )
        resource = make.AlterConfigsResource(
            resource_type=kind, resource_name=topic, configs=configs
        )
        response = ask("AlterConfigs", version, resources=(resource,), validate_only=False)
        return response.responses[0].error_code

    assert alter(2, name, retention_bytes="9") == NO_ERROR
    assert alter(2, "never-made", retention_bytes="9") == 3
    assert alter(2, name, no_such_thing="9") == 40
    asked = parts("DescribeConfigs", 4).DescribeConfigsResource(
        resource_type=2, resource_name=name, configuration_keys=None
    )
    response = ask(
        "DescribeConfigs",
        4,
        resources=(asked,),
        include_synonyms=False,
        include_documentation=False,
    )
    values = {each.name: each.value for each in response.results[0].configs}
    assert values["retention.bytes"] == "9"
    assert values["retention.ms"] == str(7 * 86_400_000)


@pytest.mark.parametrize("version", range(2))
def test_incremental_alter_configs_is_checked_as_a_whole(ask: Any, name: str, version: int) -> None:
    create(ask, 7, creatable(7, name))
    make = parts("IncrementalAlterConfigs", version)

    def change(key: str, value: str | None, how: int = 0) -> Any:
        return make.AlterableConfig(name=key, config_operation=how, value=value)

    def alter(*resources: tuple[int, str, tuple[Any, ...]]) -> list[int]:
        asked = tuple(
            make.AlterConfigsResource(resource_type=kind, resource_name=each, configs=changes)
            for kind, each, changes in resources
        )
        response = ask("IncrementalAlterConfigs", version, resources=asked, validate_only=False)
        return [each.error_code for each in response.responses]

    good = change("retention.ms", "5")
    assert alter((2, name, (good, change("retention.ms", "6")))) == [42]
    assert alter((2, name, (good,)), (2, name, (good,))) == [42, 42]
    assert alter((2, name, (good, change("segment.ms", "never")))) == [40]
    assert alter((2, name, (change("retention.ms", "5", how=9),))) == [42]
    assert alter((2, name, (change("no.such.thing", None, how=1),))) == [NO_ERROR]
    assert alter((4, "0", (change("log.dirs", "/"),)), (4, "7", (good,))) == [42, 42]
    assert alter((2, "never-made", (good,)), (2, name, (good,))) == [3, NO_ERROR]


@pytest.mark.parametrize("version", range(3))
def test_delete_records_in_every_version(ask: Any, name: str, version: int) -> None:
    create(ask, 7, creatable(7, name))
    make = parts("DeleteRecords", version)
    topics = tuple(
        make.DeleteRecordsTopic(
            name=each,
            partitions=tuple(
                make.DeleteRecordsPartition(partition_index=number, offset=offset)
                for number, offset in places
            ),
        )
        for each, places in ((name, ((0, 0), (0, 5), (0, -2), (3, 0))), ("never-made", ((0, 0),)))
    )

    response = ask("DeleteRecords", version, topics=topics, timeout=make.timeout(30_000))

    found = [
        (part.low_watermark, part.error_code)
        for topic in response.topics
        for part in topic.partitions
    ]
    assert found == [(0, 0), (-1, 1), (-1, 1), (-1, 3), (-1, 3)]


@pytest.mark.parametrize("version", range(1, 6))
def test_describe_log_dirs_in_every_version(
    ask: Any, kafka: RunningKafka, name: str, version: int
) -> None:
    create(ask, 7, creatable(7, name, num_partitions=2))
    make = parts("DescribeLogDirs", version)
    wanted = make.DescribableLogDirTopic(topic=name, partitions=(1,))

    response = ask("DescribeLogDirs", version, topics=(wanted,))
    everything = ask("DescribeLogDirs", version, topics=None)

    (place,) = response.results
    assert Path(place.log_dir) == kafka.log_dir
    (topic,) = place.topics
    (part,) = topic.partitions
    assert (part.partition_index, part.partition_size, part.offset_lag) == (1, 0, 0)
    assert name in {each.name for each in everything.results[0].topics}
    if version >= 4:
        assert place.total_bytes >= place.usable_bytes > 0


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_in_every_version(ask: Any, kafka: RunningKafka, version: int) -> None:
    def describe(**fields: Any) -> Any:
        return ask(
            "DescribeCluster", version, include_cluster_authorized_operations=False, **fields
        )

    more: dict[str, Any] = {} if version < 2 else {"include_fenced_brokers": True}
    found = describe(**more) if version < 1 else describe(endpoint_type=1, **more)

    (broker,) = found.brokers
    assert f"{broker.host}:{broker.port}" == kafka.bootstrap_servers
    assert (found.error_code, found.controller_id) == (NO_ERROR, 0)
    if version >= 1:
        assert describe(endpoint_type=2, **more).error_code == 114
        assert describe(endpoint_type=7, **more).error_code == 115


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id_in_every_version(ask: Any, version: int) -> None:
    def init(transactional_id: str | None) -> Any:
        more = {} if version < 3 else {"producer_id": 5, "producer_epoch": 3}
        return ask(
            "InitProducerId",
            version,
            transactional_id=transactional_id,
            transaction_timeout=parts("InitProducerId", version).timeout(1000),
            **more,
        )

    first, second = init(None), init(None)
    assert (first.error_code, first.producer_epoch) == (NO_ERROR, 0)
    assert second.producer_id == first.producer_id + 1
    assert init("").error_code == 42
    if version < 3:  # else one that goes on
        assert init("mine").error_code == 16  # nobody has asked who coordinates it
