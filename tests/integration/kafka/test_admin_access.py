"""What administrators may do, by the broker's access rules: each request, permitted and not."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from kafka_raw import ANY_ACL, KafkaConversation, parts, topics_of

from hermes.testing import running_kafka

TOPIC_REFUSED = 29
CLUSTER_REFUSED = 31

RULES = [
    {"principal": "anonymous", "operations": ["create", "describe", "produce"], "topic": "seen-*"},
    {"principal": "anonymous", "operations": ["all"], "topic": "own-*"},
]


@pytest.fixture(scope="module")
def connection() -> Iterator[KafkaConversation]:
    """Of a client that has proved nothing, to a broker that allows it some things."""
    settings = {"access": RULES, "auto_create_topics": False}
    with (
        running_kafka(settings=settings) as kafka,
        KafkaConversation(str(kafka.bootstrap_servers)) as conversation,
    ):
        for name in ("seen-1", "own-1"):
            assert create(conversation.ask, name) == 0
        yield conversation


@pytest.fixture
def ask(connection: KafkaConversation) -> Callable[..., Any]:
    return connection.ask


def create(ask: Callable[..., Any], name: str) -> int:
    make = parts("CreateTopics", 7)
    topic = make.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    response = ask(
        "CreateTopics", 7, topics=(topic,), timeout=make.timeout(1000), validate_only=False
    )
    return int(response.topics[0].error_code)


def test_topics_are_created_where_that_is_allowed(ask: Any) -> None:
    assert create(ask, "seen-2") == 0
    assert create(ask, "hidden") == TOPIC_REFUSED


def test_topics_are_deleted_where_that_is_allowed(ask: Any, connection: KafkaConversation) -> None:
    create(ask, "own-2")
    (seen,) = topics_of(connection, "seen-1")
    make = parts("DeleteTopics", 6)
    asked = (
        make.DeleteTopicState(name="seen-1", topic_id=None),
        make.DeleteTopicState(name=None, topic_id=seen.topic_id),
        make.DeleteTopicState(name="hidden", topic_id=None),
        make.DeleteTopicState(name=None, topic_id=uuid4()),
        make.DeleteTopicState(name="own-2", topic_id=None),
    )

    response = ask("DeleteTopics", 6, topics=asked, timeout=make.timeout(1000))

    codes = [int(each.error_code) for each in response.responses]
    assert codes == [TOPIC_REFUSED, TOPIC_REFUSED, TOPIC_REFUSED, 100, 0]


def test_partitions_are_added_and_settings_altered_by_admins_of_a_topic(ask: Any) -> None:
    def grow(name: str) -> int:
        make = parts("CreatePartitions", 3)
        topic = make.CreatePartitionsTopic(name=name, count=9, assignments=None)
        response = ask(
            "CreatePartitions", 3, topics=(topic,), timeout=make.timeout(1000), validate_only=True
        )
        return int(response.results[0].error_code)

    def alter(kind: int, name: str) -> int:
        make = parts("IncrementalAlterConfigs", 1)
        change = make.AlterableConfig(name="retention.ms", config_operation=0, value="5")
        resource = make.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=(change,)
        )
        response = ask("IncrementalAlterConfigs", 1, resources=(resource,), validate_only=True)
        return int(response.responses[0].error_code)

    assert [grow(each) for each in ("own-1", "seen-1", "hidden")] == [0, 29, 29]
    assert [alter(2, each) for each in ("own-1", "seen-1", "hidden")] == [0, 29, 29]
    assert alter(4, "0") == CLUSTER_REFUSED


def test_records_are_deleted_where_that_is_allowed(ask: Any) -> None:
    make = parts("DeleteRecords", 2)
    place = make.DeleteRecordsPartition(partition_index=0, offset=0)
    topics = tuple(
        make.DeleteRecordsTopic(name=each, partitions=(place,)) for each in ("own-1", "seen-1")
    )

    response = ask("DeleteRecords", 2, topics=topics, timeout=make.timeout(1000))

    assert [int(each.partitions[0].error_code) for each in response.topics] == [0, TOPIC_REFUSED]


def test_settings_and_disks_are_shown_where_that_is_allowed(ask: Any) -> None:
    make = parts("DescribeConfigs", 4)
    asked = tuple(
        make.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        for kind, name in ((2, "seen-1"), (2, "hidden"), (4, "0"))
    )

    response = ask(
        "DescribeConfigs",
        4,
        resources=asked,
        include_synonyms=False,
        include_documentation=False,
    )
    disks = ask("DescribeLogDirs", 4, topics=None)

    assert [int(each.error_code) for each in response.results] == [0, 29, CLUSTER_REFUSED]
    assert [len(each.configs) > 0 for each in response.results] == [True, False, False]
    assert (int(disks.error_code), disks.results) == (CLUSTER_REFUSED, ())


def test_acls_are_shown_and_changed_by_whom_the_cluster_is(ask: Any) -> None:
    make = parts("CreateAcls", 3)
    own = make.AclCreation(
        resource_type=2,
        resource_name="hidden",
        resource_pattern_type=3,
        principal="User:ANONYMOUS",
        host="*",
        operation=2,
        permission_type=3,
    )

    described = ask("DescribeAcls", 3, **ANY_ACL)
    made = ask("CreateAcls", 3, creations=(own,))
    deleted = ask("DeleteAcls", 3, filters=(parts("DeleteAcls", 3).DeleteAclsFilter(**ANY_ACL),))

    assert (int(described.error_code), described.resources) == (CLUSTER_REFUSED, ())
    assert [int(each.error_code) for each in made.results] == [CLUSTER_REFUSED]
    (result,) = deleted.filter_results
    assert (int(result.error_code), result.matching_acls) == (CLUSTER_REFUSED, ())
    assert create(ask, "hidden") == TOPIC_REFUSED


def test_quotas_and_users_are_shown_and_changed_by_admins_of_the_cluster(ask: Any) -> None:
    make = parts("AlterClientQuotas", 1)
    own = make.EntityData(entity_type="user", entity_name="ANONYMOUS")
    op = make.OpData(key="producer_byte_rate", value=1e9, remove=False)
    entry = make.EntryData(entity=(own,), ops=(op,))
    make = parts("AlterUserScramCredentials", 0)
    root = make.ScramCredentialUpsertion(
        name="root", mechanism=1, iterations=4096, salt=bytes(16), salted_password=bytes(32)
    )

    altered = ask("AlterClientQuotas", 1, entries=(entry,), validate_only=False)
    users = ask("AlterUserScramCredentials", 0, deletions=(), upsertions=(root,))
    quotas = ask("DescribeClientQuotas", 1, components=(), strict=False)
    shown = ask("DescribeUserScramCredentials", 0, users=None)

    assert [int(each.error_code) for each in altered.entries] == [CLUSTER_REFUSED]
    assert [int(each.error_code) for each in users.results] == [CLUSTER_REFUSED]
    assert (int(quotas.error_code), quotas.entries) == (CLUSTER_REFUSED, None)
    assert (int(shown.error_code), shown.results) == (CLUSTER_REFUSED, ())


def test_copies_are_moved_and_leaders_elected_by_admins_of_the_cluster(ask: Any) -> None:
    make = parts("AlterPartitionReassignments", 1)
    move = make.ReassignablePartition(partition_index=0, replicas=(0,))
    topics = (make.ReassignableTopic(name="own-1", partitions=(move,)),)
    asked = (parts("ElectLeaders", 2).TopicPartitions(topic="own-1", partitions=(0,)),)

    moved = ask("AlterPartitionReassignments", 1, topics=topics)
    elected = ask("ElectLeaders", 2, election_type=0, topic_partitions=asked)
    all_of_them = ask("ElectLeaders", 2, election_type=0, topic_partitions=None)
    listed = ask("ListPartitionReassignments", 0, topics=None)

    assert [int(each.error_code) for each in (moved, elected, all_of_them, listed)] == (
        4 * [CLUSTER_REFUSED]
    )
    (part,) = moved.responses[0].partitions
    (result,) = elected.replica_election_results[0].partition_result
    assert (int(part.error_code), int(result.error_code)) == (CLUSTER_REFUSED, CLUSTER_REFUSED)
    assert all_of_them.replica_election_results == listed.topics == ()


def test_partitions_are_told_to_who_may_describe_and_topics_of_others_hidden(ask: Any) -> None:
    make = parts("DescribeTopicPartitions", 0)
    asked = tuple(make.TopicRequest(name=each) for each in ("hidden", "own-1", "seen-1"))

    named = ask("DescribeTopicPartitions", 0, topics=asked)
    listed = ask("DescribeTopicPartitions", 0, topics=())

    told = [(each.name, int(each.error_code), len(each.partitions)) for each in named.topics]
    assert told == [("own-1", 0, 1), ("seen-1", 0, 1), ("hidden", TOPIC_REFUSED, 0)]
    assert {each.name for each in listed.topics} >= {"own-1", "seen-1"}
    assert "hidden" not in {each.name for each in listed.topics}


def test_producers_are_shown_to_who_may_consume(ask: Any) -> None:
    make = parts("DescribeProducers", 0)
    topics = tuple(
        make.TopicRequest(name=each, partition_indexes=(0,)) for each in ("own-1", "seen-1")
    )
    response = ask("DescribeProducers", 0, topics=topics)
    assert [int(each.partitions[0].error_code) for each in response.topics] == [0, TOPIC_REFUSED]


def test_whoever_may_do_anything_gets_a_producer_id_and_others_get_none(ask: Any) -> None:
    def init(ask: Any) -> int:
        wanted = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
        timeout = parts("InitProducerId", 4).timeout(0)
        return int(ask("InitProducerId", 4, transaction_timeout=timeout, **wanted).error_code)

    assert init(ask) == 0
    rules = [{"principal": "root", "operations": ["all"]}]
    with (
        running_kafka(settings={"access": rules}) as kafka,
        KafkaConversation(str(kafka.bootstrap_servers)) as stranger,
    ):
        assert init(stranger.ask) == CLUSTER_REFUSED
