"""What one client can ask for costs no more than it should, however it asks."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker_bench import answers, flush_in
from kafka_bench import KafkaBench, decode_answer, encode_request, messages
from twisted.internet.defer import Deferred, ensureDeferred, succeed

from hermes.client.kafka_asking import encoded_request
from hermes.groups.coordinator import ListedGroup
from hermes.groups.values import State as GroupState
from hermes.kafka.admission import LIMIT_BYTES
from hermes.kafka.matched_topics import LONGEST_REGEX
from hermes.protocol.kafka_errors import Code
from hermes.protocol.records import Record, encode_batch
from hermes.regex import JavaPattern
from hermes.server.fairness import QUANTUM_ENTRIES
from hermes.transactions.state import State, Transaction

#: How a member of a consumer group joins that wants the topics that an expression matches.
BY_REGEX = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout": timedelta(seconds=10),
    "subscribed_topic_names": None,
    "subscribed_topic_regex": "name.*",
    "server_assignor": None,
    "topic_partitions": (),
}


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    topics = {"new": {"format": "kafka", "partitions": 3}}
    made = KafkaBench(tmp_path, topics=topics, group_memory="1MiB")
    made.shared.topics.create_declared("new")
    yield made
    made.close()


def ask(bench: KafkaBench, name: str, version: int, **values: Any) -> Any:
    """Ask, and leave at once."""
    connection, transport = bench.connect_kafka()
    connection.dataReceived(encoded_request(name, version, 7, values)[0])
    bench.turns(transport)
    answered = answers(transport)
    connection.connectionLost()
    return decode_answer(name, version, answered[0]) if answered else None


@pytest.mark.parametrize("first", range(1, 7))
def test_a_request_that_is_too_large_ends_its_connection_however_it_is_cut(
    bench: KafkaBench, first: int
) -> None:
    """Without a traceback in the log, as any other refusal."""
    connection, transport = bench.connect_kafka()
    frame = (3 << 20).to_bytes(4) + (3).to_bytes(2) + bytes(100)
    for part in (frame[:first], frame[first:], bytes(10)):
        connection.dataReceived(part)
    assert transport.disconnecting


def test_what_is_named_often_is_told_once_or_within_bounds(bench: KafkaBench) -> None:
    found = ask(bench, "Metadata", 8, topics=[{"name": "new"}] * 50)
    assert len(found.topics) == 1
    topics = [{"name": "new", "partition_indexes": [0, 1, 0]}] * 50
    (group,) = ask(
        bench, "OffsetFetch", 8, groups=[{"group_id": "g", "topics": topics}] * 50
    ).groups
    (topic,) = group.topics
    assert [each.partition_index for each in topic.partitions] == [0, 1]
    described = ask(bench, "DescribeGroups", 5, groups=["g"] * 20_000).groups
    assert 2 < len(described) < 20_000
    resource = {"resource_type": 2, "resource_name": "new", "configuration_keys": None}
    assert len(ask(bench, "DescribeConfigs", 3, resources=[resource] * 50).results) == 1
    parts = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": 100}
        for number, offset in ((0, 0), (1, 0), (0, 99))
    ]
    named = [{"topic": "new", "partitions": parts}] * 50
    (fetched,) = ask(bench, "Fetch", 11, max_wait=0, min_bytes=0, topics=named).responses
    told = [(each.partition_index, each.error_code.value) for each in fetched.partitions]
    assert told == [(0, Code.OFFSET_OUT_OF_RANGE), (1, Code.NONE)]  # the last one counts


def test_an_expression_is_as_long_as_it_may_be(bench: KafkaBench) -> None:
    wanted = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1}
    for length, code in ((LONGEST_REGEX, 0), (LONGEST_REGEX + 1, 128)):
        asked = {**wanted, "transactional_id_pattern": "a" * length}
        assert ask(bench, "ListTransactions", 2, **asked).error_code == code


def test_names_are_matched_with_an_expression_where_others_do_not_wait_for_that(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each may take tens of milliseconds, and there may be thousands.
    in_thread, within, matched = bench.server.in_thread, [False], list[bool]()
    matches = JavaPattern.matches

    def noted(function: Any, *arguments: Any) -> Any:
        within.append(True)
        try:
            return in_thread(function, *arguments)
        finally:
            within.pop()

    def match(self: JavaPattern, text: str) -> bool:
        matched.append(within[-1])
        return matches(self, text)

    async def every() -> list[tuple[str, Transaction]]:
        return [("t", Transaction(0, 0, 0, State.EMPTY))]

    monkeypatch.setattr(JavaPattern, "matches", match)
    bench.server.in_thread, bench.server.transactions.coordinator.all = noted, every
    wanted = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1}
    for regex, names in (("t|u", ["t"]), ("u", [])):
        answer = ask(bench, "ListTransactions", 2, transactional_id_pattern=regex, **wanted)
        assert [each.transactional_id for each in answer.transaction_states] == names
    assert matched == [True, True]


def test_what_is_wrong_with_a_very_long_name_is_told(bench: KafkaBench) -> None:
    """A name in an old version may have 32,767 bytes, and so may what is said of it."""
    name, change = "a" * 32_767, {"config_operation": 0, "value": "x"}
    resources = [
        {"resource_type": 2, "resource_name": "new", "configs": [{"name": name, **change}]},
        {"resource_type": 4, "resource_name": name, "configs": []},
    ]
    answer = ask(bench, "IncrementalAlterConfigs", 0, resources=resources)
    assert [each.error_code for each in answer.responses] == [
        Code.INVALID_CONFIG,
        Code.INVALID_REQUEST,
    ]
    partitions = [{"topic": name, "partitions": [0]}]
    elected = ask(bench, "ElectLeaders", 1, election_type=0, topic_partitions=partitions)
    ((result,),) = (each.partition_result for each in elected.replica_election_results)
    assert result.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert result.error_message.startswith("Unable to find a topic named aaa")


def test_a_member_with_a_very_long_client_id_gets_an_id(bench: KafkaBench) -> None:
    protocol = messages("JoinGroup", 4, "request").JoinGroupRequestProtocol
    protocols = (protocol(name="range", metadata=b""),)
    values = {"group_id": "g", "protocol_type": "consumer", "protocols": protocols}
    times = {"session_timeout": timedelta(seconds=10), "rebalance_timeout": timedelta(seconds=10)}
    connection, transport = bench.connect_kafka()
    frame = encode_request("JoinGroup", 4, client_id="c" * 32_767, member_id="", **values, **times)
    connection.dataReceived(frame)
    bench.turns(transport)
    (answer,) = answers(transport)
    told = decode_answer("JoinGroup", 4, answer)
    assert told.error_code == Code.MEMBER_ID_REQUIRED
    assert told.member_id.startswith("ccc")
    connection.connectionLost()


def test_requests_for_very_many_partitions_are_carried_out_in_turn(bench: KafkaBench) -> None:
    part = {"index": 0, "records": encode_batch([Record(0, 0, None, b"x")])}
    topics = [{"name": f"no-{number}", "partition_data": [part]} for number in range(1500)]
    values = {"acks": -1, "timeout": 1000, "topic_data": topics}
    frame = encoded_request("Produce", 9, 7, values)[0]
    size_bytes, taken = len(frame) - 4, bench.server.admission
    ensureDeferred(taken.enter(LIMIT_BYTES))
    connection, transport = bench.connect_kafka()
    connection.dataReceived(frame)
    bench.turns(transport)
    assert not answers(transport)
    taken.leave(LIMIT_BYTES)
    assert taken.used_bytes == size_bytes
    bench.turns(transport)
    (answered,) = answers(transport)
    assert not taken.used_bytes
    codes = {
        part.error_code.value
        for topic in decode_answer("Produce", 9, answered).responses
        for part in topic.partition_responses
    }
    assert codes == {Code.UNKNOWN_TOPIC_OR_PARTITION}
    connection.connectionLost()


def test_a_disk_that_stands_still_holds_up_no_large_request_that_needs_none(
    bench: KafkaBench,
) -> None:
    part = encode_batch([Record(0, 0, None, b"x")])
    topic = {"name": "new", "partition_data": [{"index": 0, "records": part}] * 1500}
    values = {"acks": -1, "timeout": 5000, "topic_data": [topic]}
    frame = encoded_request("Produce", 9, 7, values)[0]
    flush_in(bench.flusher, lambda function, *arguments: Deferred())
    producers = []
    for _ in range(LIMIT_BYTES // len(frame) + 1):  # one of them has to wait for its turn
        connection, transport = bench.connect_kafka()
        connection.dataReceived(frame)
        bench.turns(transport)
        producers.append(transport)
    size_bytes = len(frame) - 4
    assert bench.server.large_produces.used_bytes == (len(producers) - 1) * size_bytes
    assert not bench.server.admission.used_bytes
    names = [{"name": "new"}] * 20_000
    (found,) = ask(bench, "Metadata", 8, topics=names).topics  # a request of more than 100 KB
    assert found.name == "new"
    assert not any(map(answers, producers))
    for _ in range(2):
        bench.clock.advance(5)
        for transport in producers:
            bench.turns(transport)
    for transport in producers:
        (answered,) = answers(transport)
        (topic,) = decode_answer("Produce", 9, answered).responses
        codes = {each.error_code.value for each in topic.partition_responses}
        assert codes == {Code.REQUEST_TIMED_OUT}
    assert not bench.server.large_produces.used_bytes
    assert not bench.server.admission.used_bytes


_MANY = 300
_PARTS = [
    {"partition_index": number, "committed_offset": 0, "committed_leader_epoch": -1}
    for number in range(_MANY)
]
_NAMES = [f"no-{number}" for number in range(_MANY)]
_BATCH = encode_batch([Record(0, 0, None, b"x")])

#: Requests, by name, whose answers have so many entries that to encode them is a thread's work.
LARGE: dict[str, tuple[int, dict[str, Any]]] = {
    "Metadata": (8, {"topics": [{"name": each} for each in _NAMES]}),
    "Produce": (
        9,
        {
            "acks": 1,
            "timeout": 1000,
            "topic_data": [
                {"name": "new", "partition_data": [{"index": 0, "records": _BATCH}] * 1500}
            ],
        },
    ),
    "ListOffsets": (
        5,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [
                {
                    "name": "no",
                    "partitions": [
                        {"partition_index": number, "current_leader_epoch": -1, "timestamp": -1}
                        for number in range(_MANY)
                    ],
                }
            ],
        },
    ),
    "JoinGroup": (
        3,
        {
            "group_id": "g",
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": bytes(70_000)}],
        },
    ),
    "LeaveGroup": (
        3,
        {"group_id": "g", "members": [{"member_id": each} for each in _NAMES]},
    ),
    "OffsetCommit": (
        7,
        {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": "new", "partitions": _PARTS}],
        },
    ),
    "OffsetFetch": (
        7,
        {"group_id": "g", "topics": [{"name": "new", "partition_indexes": list(range(_MANY))}]},
    ),
    "FindCoordinator": (4, {"key_type": 0, "coordinator_keys": _NAMES}),
    "DescribeGroups": (5, {"groups": _NAMES}),
    "DeleteGroups": (1, {"groups_names": _NAMES}),
    "DescribeConfigs": (
        3,
        {
            "resources": [
                {"resource_type": 2, "resource_name": each, "configuration_keys": None}
                for each in _NAMES
            ]
        },
    ),
    "DeleteTopics": (5, {"topic_names": _NAMES, "timeout": 1000}),
    "AddPartitionsToTxn": (
        3,
        {
            "v3_and_below_transactional_id": "t",
            "v3_and_below_producer_id": 5,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": "new", "partitions": list(range(_MANY))}],
        },
    ),
    "TxnOffsetCommit": (
        2,
        {
            "transactional_id": "t",
            "group_id": "g",
            "producer_id": 5,
            "producer_epoch": 0,
            "topics": [{"name": "new", "partitions": _PARTS}],
        },
    ),
    "WriteTxnMarkers": (
        1,
        {
            "markers": [
                {
                    "producer_id": 5,
                    "producer_epoch": 0,
                    "transaction_result": True,
                    "coordinator_epoch": 0,
                    "topics": [{"name": "new", "partition_indexes": list(range(_MANY))}],
                }
            ]
        },
    ),
    "DescribeTransactions": (0, {"transactional_ids": _NAMES}),
    "ListTransactions": (0, {"state_filters": _NAMES, "producer_id_filters": ()}),
    "DescribeProducers": (
        0,
        {"topics": [{"name": "new", "partition_indexes": list(range(_MANY))}]},
    ),
}


@pytest.fixture
def wide(tmp_path: Path) -> Any:
    """A broker with few topics of many partitions."""
    topics = {f"wide-{n}": {"format": "kafka", "partitions": 200} for n in range(2)}
    made = KafkaBench(tmp_path, topics=topics)
    for each in topics:
        made.shared.topics.create_declared(each)
    yield made
    made.close()


def test_many_partitions_of_few_topics_are_encoded_in_a_thread(wide: KafkaBench) -> None:
    values = {"topics": (), "response_partition_limit": 2000, "cursor": None}
    assert_encoded_in_thread(wide, "DescribeTopicPartitions", 0, values)


def test_the_settings_of_new_topics_are_encoded_in_a_thread(bench: KafkaBench) -> None:
    """Each has about twenty of them."""
    kind = {"num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    topics = [{"name": f"new-{n}", **kind} for n in range(20)]
    values = {"topics": topics, "timeout": 1000, "validate_only": True}
    assert_encoded_in_thread(bench, "CreateTopics", 7, values)


@pytest.mark.parametrize("name", LARGE)
def test_a_large_answer_is_encoded_in_a_thread(bench: KafkaBench, name: str) -> None:
    assert_encoded_in_thread(bench, name, *LARGE[name])


def assert_encoded_in_thread(
    bench: KafkaBench, name: str, version: int, values: dict[str, Any]
) -> None:
    in_thread, called = bench.server.in_thread, []

    def noted(function: Any, *arguments: Any) -> Any:
        called.append(function.__name__)
        return in_thread(function, *arguments)

    bench.server.in_thread = noted
    connection, transport = bench.connect_kafka()
    connection.dataReceived(encoded_request(name, version, 7, values)[0])
    for _ in range(10):  # a group waits for its members
        bench.turns(transport)
        bench.clock.advance(1)
    (answer,) = answers(transport)
    assert decode_answer(name, version, answer)
    assert {"response_to", "encode_produced"} & set(called)
    connection.connectionLost()


def test_who_leaves_while_a_large_request_is_decoded_makes_room_for_nobody(
    bench: KafkaBench,
) -> None:
    threads: list[Deferred[Any]] = []

    def in_thread(*_: object) -> "Deferred[Any]":
        threads.append(Deferred())
        return threads[-1]

    part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    values: dict[str, Any] = {"replica_id": -1, "isolation_level": 0, "topics": []}
    assert ask(bench, "ListOffsets", 5, **values)  # from now on it is known how to read one
    bench.server.in_thread = in_thread
    values["topics"] = [{"name": "new", "partitions": [part] * 10_000}]
    frame = encoded_request("ListOffsets", 5, 7, values)[0]
    for _ in range(5):
        connection, _ = bench.connect_kafka()
        connection.dataReceived(frame)
        connection.connectionLost()
        bench.turns()
    assert len(threads) == 1


def refused_topics() -> dict[str, Any]:
    """A CreateTopics of many topics, none of which can be."""
    kind = {"num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    topics = [{"name": f"a b {number}", **kind} for number in range(10_000)]
    return {"topics": topics, "timeout": 1000, "validate_only": True}


def unknown_members() -> dict[str, Any]:
    """A LeaveGroup of many members, none of whom there is."""
    kind = {"group_instance_id": None, "reason": None}
    members = [{"member_id": str(number), **kind} for number in range(10_000)]
    return {"group_id": "g", "members": members}


def any_groups() -> dict[str, Any]:
    """A ListGroups of all groups."""
    return {"states_filter": [], "types_filter": []}


@pytest.mark.parametrize(
    ("name", "version", "made", "told"),
    [
        ("ListGroups", 5, any_groups, "groups"),
        ("CreateTopics", 7, refused_topics, "topics"),
        ("LeaveGroup", 5, unknown_members, "members"),
    ],
)
def test_a_request_of_very_many_entries_leaves_others_their_turns(
    bench: KafkaBench,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    version: int,
    made: Callable[[], dict[str, Any]],
    told: str,
) -> None:
    """Ten thousand answers, and another client that is answered in every turn meanwhile."""
    groups = [ListedGroup(str(number), GroupState.EMPTY, "", "classic") for number in range(10_000)]
    monkeypatch.setattr(bench.server.groups, "list_groups", lambda: succeed(groups))
    init = encoded_request(
        "InitProducerId", 4, 7, {"transactional_id": None, "transaction_timeout": 0}
    )[0]
    connection, transport = bench.connect_kafka()
    other, others = bench.connect_kafka()
    connection.dataReceived(encoded_request(name, version, 7, made())[0])
    turns = 0
    while not transport.value():
        other.dataReceived(init)
        (answer,) = answers(others)
        assert decode_answer("InitProducerId", 4, answer).error_code.value == Code.NONE
        call = bench.clock.getDelayedCalls()[0]
        assert call.getTime() <= bench.clock.seconds()
        bench.clock.calls.remove(call)
        call.func(*call.args, **call.kw)
        turns += 1
    bench.turns(transport)
    (answer,) = answers(transport)
    assert len(getattr(decode_answer(name, version, answer), told)) == 10_000
    assert turns >= 10_000 // QUANTUM_ENTRIES  # and more where that takes time


def test_nothing_is_created_for_who_has_left(bench: KafkaBench) -> None:
    ask(bench, "Metadata", 8, topics=[])
    connection, transport = bench.connect_kafka()
    names = [{"name": f"made-{n}"} for n in range(100)]
    frame = encoded_request("Metadata", 8, 7, {"topics": names, "allow_auto_topic_creation": True})[
        0
    ]
    connection.dataReceived(frame)
    connection.connectionLost()
    bench.turns(transport)
    made = [each for each in bench.server.topics.names() if each.startswith("made-")]
    assert len(made) < 100


@pytest.mark.parametrize("name", ["Metadata", "CreateTopics"])
def test_a_client_that_comes_before_a_declared_topic_makes_it_as_it_is_declared(
    tmp_path: Path, name: str
) -> None:
    """In a cluster the broker declares its topics once it has read which there are."""
    bench = KafkaBench(tmp_path, topics={"orders": {"format": "kafka", "partitions": 3}})
    if name == "Metadata":
        values: dict[str, Any] = {"topics": [{"name": "orders"}], "allow_auto_topic_creation": True}
        ask(bench, "Metadata", 8, **values)
    else:
        kind = {"num_partitions": -1, "replication_factor": -1, "assignments": (), "configs": ()}
        ask(bench, "CreateTopics", 7, topics=[{"name": "orders", **kind}], timeout=1000)
    made = bench.server.topics.get("orders")
    assert made is not None
    assert len(made.partitions) == 3
    bench.close()


def test_members_names_count_in_the_memory_of_groups(bench: KafkaBench) -> None:
    codes = []
    for number in range(1000):
        frame = encoded_request(
            "JoinGroup",
            4,
            7,
            {
                "group_id": f"g{number}",
                "session_timeout": 10_000,
                "rebalance_timeout": 10_000,
                "member_id": "",
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
            },
        )[0]
        client = b"c" * 30_000
        body = frame[4:12] + len(client).to_bytes(2) + client + frame[20:]
        connection, transport = bench.connect_kafka()
        connection.dataReceived(len(body).to_bytes(4) + body)
        bench.turns(transport)
        (answer,) = answers(transport)
        codes.append(decode_answer("JoinGroup", 4, answer).error_code)
        connection.connectionLost()
    assert codes[0] == 79
    assert codes[-1] == 81
    assert bench.server.groups.local.held_bytes < 1 << 20


@pytest.mark.parametrize(
    ("quota", "size"), [({"requests": 10}, 10), ({"bytes_in": 5000}, 900), ({"bytes_out": 600}, 10)]
)
def test_quotas_hold_kafkas_clients_back_and_lose_nothing(
    tmp_path: Path, quota: dict[str, int], size: int
) -> None:
    topics = {"new": {"format": "kafka"}}
    bench = KafkaBench(tmp_path, topics=topics, quotas={"anonymous": quota})
    bench.shared.topics.create_declared("new")
    batch = encode_batch([Record(0, 5, None, bytes(size))])
    data = {"name": "new", "partition_data": [{"index": 0, "records": batch}]}
    frame = encoded_request("Produce", 9, 7, {"acks": 1, "timeout": 1000, "topic_data": [data]})[0]
    connection, transport = bench.connect_kafka()
    left, answered, was_held = 60, 0, False
    deadline = bench.clock.seconds() + 600
    while answered < 60:
        assert bench.clock.seconds() < deadline
        if left and transport.producerState == "producing":
            connection.dataReceived(frame)
            left -= 1
        was_held = was_held or transport.producerState == "paused"
        bench.turns(transport)
        answered += len(answers(transport))
        transport.clear()
        bench.clock.advance(0.05)
    assert was_held
    (delays,) = bench.connections.quotas.delays.items()
    assert delays[0] == ("anonymous", next(iter(quota)))
    log = bench.directory.get("new", 0)
    assert log is not None
    assert log.end_offset == 60
    assert bench.clock.seconds() >= 1
    bench.close()


def test_who_asks_for_one_offset_of_a_group_has_the_others_left_alone(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"committed_offset": 5, "committed_metadata": "", "committed_leader_epoch": -1}
    places = [{"partition_index": each, **place} for each in range(3)]
    topics = [{"name": "new", "partitions": places}]
    group = {"group_id": "g", "member_id": "", "generation_id_or_member_epoch": -1}
    ask(bench, "OffsetCommit", 8, topics=topics, **group)
    looked_at: list[str] = []
    monkeypatch.setattr(
        bench.cluster.topics, "is_gone", lambda name, topic_id: bool(looked_at.append(name))
    )
    asked = [{"name": "new", "partition_indexes": [1, 1]}]
    (found,) = ask(bench, "OffsetFetch", 8, groups=[{"group_id": "g", "topics": asked}]).groups
    assert [each.committed_offset for each in found.topics[0].partitions] == [5]
    assert looked_at == ["new"]


@pytest.mark.parametrize(
    ("name", "version", "values"),
    [
        ("Metadata", 8, {"topics": None}),
        ("DescribeTopicPartitions", 0, {"topics": (), "response_partition_limit": 10}),
        ("ListGroups", 4, {"states_filter": ()}),
        ("ConsumerGroupHeartbeat", 1, BY_REGEX),
    ],
)
def test_what_a_client_may_see_is_found_out_in_turns(
    tmp_path: Path, name: str, version: int, values: dict[str, Any]
) -> None:
    """There may be ten thousand of them, and hundreds of rules."""
    rules = [
        {"principal": "anonymous", "operations": ["describe"], "topic": "none"},
        {"principal": "anonymous", "operations": ["group"], "group": "g"},
    ]
    bench = KafkaBench(tmp_path, access=rules)
    names = [f"name-{n}" for n in range(3000)]
    group = {"protocol_type": "consumer", "state": GroupState.STABLE, "kind": "classic"}
    refusals, judged = bench.server.shared.refusals, list[object]()
    permits, permits_topic = refusals.permits, refusals.permits_topic

    def slow(function: Any) -> Any:
        def judge(*about: Any) -> Any:
            judged.append(about)
            bench.clock.rightNow += 0.0001
            return function(*about)

        return judge

    async def groups() -> list[Any]:
        return [SimpleNamespace(name=each, **group) for each in names]

    refusals.permits, refusals.permits_topic = slow(permits), slow(permits_topic)
    bench.server.topics.names = lambda: names  # type: ignore[method-assign]
    bench.server.groups.list_groups = groups  # type: ignore[method-assign]
    connection, transport = bench.connect_kafka()
    connection.dataReceived(encoded_request(name, version, 7, values)[0])
    turns = bench.turns(transport)
    assert len(answers(transport)) == 1
    assert len(judged) >= len(names)
    assert turns >= 20, "one takes some milliseconds"
    connection.connectionLost()
    bench.close()
