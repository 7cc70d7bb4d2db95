"""The response that says nothing but an error: every request in every version is answered."""

import pkgutil
from dataclasses import fields, is_dataclass
from datetime import timedelta
from importlib import import_module
from io import BytesIO
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from hermes.testing.error_responses import error_response

ERROR = ErrorCode.not_leader_or_follower
# All that Kafka's clients send to a broker that isn't about shares or quorums.
NAMES = [
    "Produce",
    "Fetch",
    "ListOffsets",
    "OffsetForLeaderEpoch",
    "CreateTopics",
    "DeleteTopics",
    "CreatePartitions",
    "DeleteRecords",
    "DescribeConfigs",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "DescribeCluster",
    "DescribeLogDirs",
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetDelete",
    "ListGroups",
    "DescribeGroups",
    "DeleteGroups",
    "InitProducerId",
    "SaslHandshake",
    "SaslAuthenticate",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "DescribeTopicPartitions",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
    "ListTransactions",
    "DescribeTransactions",
    "DescribeProducers",
    "WriteTxnMarkers",
]


def package(name: str) -> str:
    snake = "".join(f"_{each.lower()}" if each.isupper() else each for each in name)
    return f"kio.schema{snake.replace('_', '.', 1)}"


def versions(name: str) -> list[int]:
    found = pkgutil.iter_modules(import_module(package(name)).__path__)
    return sorted(int(each.name[1:]) for each in found if each.name.startswith("v"))


def sample(kind: Any) -> Any:
    """A request with one element in each array."""
    hints = get_type_hints(kind)
    return kind(**{each.name: sample_value(hints[each.name]) for each in fields(kind)})


def sample_value(hint: Any) -> Any:
    union = get_origin(hint) in (Union, UnionType)
    kind = next(each for each in get_args(hint) if each is not NoneType) if union else hint
    if get_origin(kind) is tuple:
        return (sample_value(get_args(kind)[0]),)
    if is_dataclass(kind):
        return sample(kind)
    if kind is UUID:
        return UUID(int=7)
    for base, value in ((bool, True), (str, "named"), (bytes, b""), (timedelta, timedelta())):
        if issubclass(kind, base):
            return value
    return 3


def errors_in(part: Any) -> list[int]:
    if isinstance(part, tuple):
        return [code for each in part for code in errors_in(each)]
    if not is_dataclass(part):
        return []
    own = [getattr(part, each.name) for each in fields(part) if each.name.endswith("error_code")]
    return own + [code for each in fields(part) for code in errors_in(getattr(part, each.name))]


@pytest.mark.parametrize("name", NAMES)
def test_every_request_gets_its_error(name: str) -> None:
    for version in versions(name):
        request = sample(
            getattr(import_module(f"{package(name)}.v{version}.request"), name + "Request")
        )
        response = error_response(name, request, ERROR)
        written = BytesIO()
        entity_writer(type(response))(written, response)
        read, _ = entity_reader(type(response))(written.getvalue(), 0)
        assert read == response
        assert ERROR in errors_in(response), version
        assert set(errors_in(response)) <= {ERROR, ErrorCode.none}, version


def answer(name: str, version: int, **given: Any) -> Any:
    module = import_module(f"{package(name)}.v{version}.request")
    parts = {key: value(module) if callable(value) else value for key, value in given.items()}
    known = {each.name for each in fields(getattr(module, name + "Request"))}
    request = sample(getattr(module, name + "Request"))
    values = {key: getattr(request, key) for key in known} | parts
    return error_response(name, getattr(module, name + "Request")(**values), ERROR)


def test_a_fetch_says_it_of_each_partition() -> None:
    response = answer("Fetch", 17)
    assert (response.error_code, response.session_id) == (ErrorCode.none, 0)
    (topic,) = response.responses
    (partition,) = topic.partitions
    assert (topic.topic_id, partition.partition_index) == (UUID(int=7), 3)
    assert (partition.error_code, partition.records) == (ERROR, None)


def test_a_fetch_of_a_session_that_names_none_says_it_once() -> None:
    response = answer("Fetch", 17, topics=())
    assert (response.error_code, response.responses) == (ERROR, ())


@pytest.mark.parametrize(("name", "version"), [("AddPartitionsToTxn", 3), ("DescribeProducers", 0)])
def test_partitions_that_are_mere_numbers_are_named_again(name: str, version: int) -> None:
    response = answer(name, version)
    topics = next(value for value in vars_of(response) if isinstance(value, tuple))
    partitions = next(value for value in vars_of(topics[0]) if isinstance(value, tuple))
    assert [each.partition_index for each in partitions] == [3]


def vars_of(part: Any) -> list[Any]:
    return [getattr(part, each.name) for each in fields(part)]


def test_what_is_named_by_a_string_is_named_again() -> None:
    (coordinator,) = answer("FindCoordinator", 4).coordinators
    assert (coordinator.key, coordinator.error_code) == ("named", ERROR)
    (group,) = answer("DescribeGroups", 6).groups
    assert (group.group_id, group.error_message, group.error_code) == ("named", None, ERROR)


def test_the_error_of_a_group_stands_beside_its_name() -> None:
    (group,) = answer("OffsetFetch", 9).groups
    assert (group.group_id, group.error_code, group.topics) == ("named", ERROR, ())


def test_a_member_keeps_its_name() -> None:
    response = answer("JoinGroup", 9)
    assert (response.member_id, response.error_code) == ("named", ERROR)
