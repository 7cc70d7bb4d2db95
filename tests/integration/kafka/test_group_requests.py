"""Requests about groups as bytes: who may what, what is bounded, what outlives a topic."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from hermes.client.kafka_asking import KafkaAsker
from hermes.protocol.kafka_errors import Code
from hermes.testing import RunningKafka, running_kafka

SETTINGS: dict[str, Any] = {
    "coordination": "none",
    "max_groups": 3,
    "topics": {name: {"format": "kafka"} for name in ("mine", "secret", "gone")},
    "access": [
        {"principal": "anonymous", "operations": ["group"], "group": "web*"},
        {"principal": "anonymous", "operations": ["consume", "delete"], "topic": "mine"},
        {"principal": "anonymous", "operations": ["consume", "delete"], "topic": "gone"},
    ],
}


@pytest.fixture
def broker() -> Iterator[RunningKafka]:
    with running_kafka(settings=SETTINGS) as kafka:
        yield kafka


@pytest.fixture
def asker(broker: RunningKafka) -> Iterator[KafkaAsker]:
    host, _, port = str(broker.bootstrap_servers).rpartition(":")
    with KafkaAsker(host, int(port)) as asking:
        yield asking


def commit(asker: KafkaAsker, group: str, *topics: str) -> list[int]:
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"}
    answer = asker.ask(
        "OffsetCommit",
        9,
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[{"name": each, "partitions": [partition]} for each in topics],
    )
    return [each.partitions[0].error_code for each in answer.topics]


def committed(asker: KafkaAsker, group: str) -> dict[str, int]:
    (found,) = asker.ask("OffsetFetch", 8, groups=[{"group_id": group, "topics": None}]).groups
    assert found.error_code == Code.NONE
    return {each.name: each.partitions[0].committed_offset for each in found.topics}


def join(asker: KafkaAsker, group: str) -> int:
    protocols = [{"name": "range", "metadata": b""}]
    return int(
        asker.ask(
            "JoinGroup",
            9,
            group_id=group,
            session_timeout=10_000,
            protocol_type="consumer",
            protocols=protocols,
        ).error_code
    )


def test_rules_of_access(asker: KafkaAsker) -> None:
    denied = Code.GROUP_AUTHORIZATION_FAILED
    assert join(asker, "web") == Code.MEMBER_ID_REQUIRED
    assert join(asker, "other") == denied
    assert commit(asker, "other", "mine") == [denied]
    assert commit(asker, "web", "mine", "secret", "none") == [
        Code.NONE,
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.TOPIC_AUTHORIZATION_FAILED,
    ]
    assert committed(asker, "web") == {"mine": 7}
    (found,) = asker.ask("FindCoordinator", 4, coordinator_keys=["other"]).coordinators
    assert found.error_code == denied
    (described,) = asker.ask("DescribeGroups", 6, groups=["other"]).groups
    assert described.error_code == denied
    (deleted,) = asker.ask("DeleteGroups", 2, groups_names=["other"]).results
    assert deleted.error_code == denied
    (fetched,) = asker.ask("OffsetFetch", 8, groups=[{"group_id": "other"}]).groups
    assert fetched.error_code == denied
    assert asker.ask("Heartbeat", 4, group_id="other", generation_id=1).error_code == denied
    assert asker.ask("SyncGroup", 3, group_id="other", generation_id=1).error_code == denied
    assert asker.ask("LeaveGroup", 4, group_id="other").error_code == denied
    (described,) = asker.ask("ConsumerGroupDescribe", 1, **about("other")).groups
    assert described.error_code == denied
    assert beat(asker, "other", "mine").error_code == denied
    assert [each.group_id for each in asker.ask("ListGroups", 4).groups] == ["web"]


def beat(asker: KafkaAsker, group: str, *topics: str, **more: Any) -> Any:
    """Join a consumer group (KIP-848)."""
    given = {
        "group_id": group,
        "member_id": "one",
        "member_epoch": 0,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": topics,
        "subscribed_topic_regex": None,
        "topic_partitions": (),
    }
    return asker.ask("ConsumerGroupHeartbeat", 1, **given | more)


def about(group: str) -> dict[str, Any]:
    return {"group_ids": [group], "include_authorized_operations": True}


def test_rules_of_access_to_consumer_groups(asker: KafkaAsker) -> None:
    assert beat(asker, "web", "mine", "secret").error_code == Code.TOPIC_AUTHORIZATION_FAILED
    (described,) = asker.ask("ConsumerGroupDescribe", 1, **about("web")).groups
    assert described.error_code == Code.GROUP_ID_NOT_FOUND
    every = {"subscribed_topic_names": None, "subscribed_topic_regex": ".*"}
    joined = beat(asker, "web", **every)
    assert joined.error_code == Code.NONE
    assert len(joined.assignment.topic_partitions) == 2, "what it may see: mine and gone"
    (described,) = asker.ask("ConsumerGroupDescribe", 1, **about("web")).groups
    (member,) = described.members
    assert member.subscribed_topic_regex == ".*"
    shown = [each.topic_name for each in member.assignment.topic_partitions]
    assert sorted(shown) == ["gone", "mine"]
    assert described.authorized_operations > 0


@pytest.mark.parametrize(
    ("regex", "code"),
    [("(", Code.INVALID_REGULAR_EXPRESSION), ("(a|aa)*" * 40 + "b", Code.NONE)],
)
def test_expressions_that_are_none_or_cost_much(asker: KafkaAsker, regex: str, code: Code) -> None:
    given = {"subscribed_topic_names": None, "subscribed_topic_regex": regex}
    assert beat(asker, "web", **given).error_code == code


def test_what_no_member_has(asker: KafkaAsker) -> None:
    names = [f"t{each}" for each in range(10_001)]
    for more in ({"member_id": "x" * 250}, {"subscribed_topic_names": names}):
        assert beat(asker, "web", "mine", **more).error_code == Code.INVALID_REQUEST
    long = {"subscribed_topic_names": None, "subscribed_topic_regex": "x" * 4097}
    assert beat(asker, "web", **long).error_code == Code.INVALID_REQUEST


def test_groups_are_bounded_and_come_again(asker: KafkaAsker) -> None:
    for number in range(3):
        assert commit(asker, f"web{number}", "mine") == [Code.NONE]
    assert commit(asker, "web3", "mine") == [Code.INVALID_COMMIT_OFFSET_SIZE]
    assert join(asker, "web3") == Code.GROUP_MAX_SIZE_REACHED
    assert commit(asker, "web2", "mine") == [Code.NONE]
    asker.ask("DeleteGroups", 2, groups_names=["web0"])
    assert join(asker, "web3") == Code.MEMBER_ID_REQUIRED


def test_names_that_are_too_long(asker: KafkaAsker) -> None:
    assert join(asker, "web" + "x" * 1000) == Code.INVALID_GROUP_ID
    assert join(asker, "") == Code.GROUP_AUTHORIZATION_FAILED


def test_offsets_end_with_their_topic(broker: RunningKafka, asker: KafkaAsker) -> None:
    assert commit(asker, "web", "mine", "gone") == [Code.NONE, Code.NONE]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.delete_topics(["gone"])["gone"].result(60)
    end = time.monotonic() + 60
    while "gone" in committed(asker, "web") and time.monotonic() < end:
        time.sleep(0.01)
    assert committed(asker, "web") == {"mine": 7}


def test_only_groups_and_transactions_have_coordinators(asker: KafkaAsker) -> None:
    for kind, code in (
        (1, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),  # no rule allows one
        (2, Code.INVALID_REQUEST),
    ):
        (found,) = asker.ask(
            "FindCoordinator", 6, key_type=kind, coordinator_keys=["t"]
        ).coordinators
        assert found.error_code == code


@pytest.mark.parametrize(("kind", "named"), [(32, "32 (a consumer group)"), (5, "5")])
def test_a_setting_of_a_group_is_refused_by_name(asker: KafkaAsker, kind: int, named: str) -> None:
    resource = {"resource_type": kind, "resource_name": "web", "configuration_keys": None}
    (found,) = asker.ask("DescribeConfigs", 4, resources=[resource]).results
    assert found.error_code == Code.INVALID_REQUEST
    assert f"type: {named}; only topics" in found.error_message
