"""Every request by one who may not: refused, nothing stored, nothing told; and by one who may."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import pytest
from broker_bench import BrokerBench, answers, log_lines

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.config.loading import parse_broker_config
from hermes.coordination.layout import BrokerPartition
from hermes.protocol import (
    AcknowledgedProduceRequest,
    AlterTopicRequest,
    AppendTimesRequest,
    BoundaryRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    DescribePartitionsRequest,
    DescribeSettingsRequest,
    ErrorCode,
    FetchRequest,
    MetadataRequest,
    MirroredProduceRequest,
    MirroredSet,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    RecentLogLinesRequest,
    RecordFetchRequest,
    RecordProduceRequest,
    ReloadConfigRequest,
    Request,
    SourceFlags,
    SourcePositionsRequest,
    WaitingFetchRequest,
    decode_acknowledged_produce_response,
    decode_metadata_response,
    decode_mirrored_produce_response,
    decode_multifetch_response,
    decode_offsets_response,
    decode_waiting_fetch_response,
    encode_message_set,
)
from hermes.protocol.records import Record, encode_batch
from hermes.security import Operation, Resource
from hermes.server.authorization import _Judge

RULES = [
    {"principal": "alice", "operations": ["all"], "topic": "hers"},
    {"principal": "alice", "operations": ["produce", "consume"], "topic": "shared"},
    {"principal": "writer", "operations": ["produce"], "topic": "*"},
    {"principal": "ops", "operations": ["all"]},
    {"principal": "group:ops", "operations": ["all"]},
    {"principal": "*", "operations": ["all"], "topic": "secret", "allow": False},
]
SET = encode_message_set([b"m"])
NOT_AUTHORIZED = ErrorCode.NOT_AUTHORIZED

#: Beyond this many entries a request is decoded in a thread.
MANY = 70


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[BrokerBench]:
    bench = BrokerBench(tmp_path / "logs", access=RULES)
    for topic in ("hers", "his", "shared", "secret"):
        bench.broker.topics.for_produce(topic, 0).append((SET,), len(SET), 1, 0)
    for log in bench.directory.logs.values():
        log.flush()
    yield bench
    bench.close()


def connect(
    bench: BrokerBench, principal: str, *, scram: bool = False, groups: tuple[str, ...] = ()
) -> tuple[Any, Any]:
    connection, transport = bench.connect()
    client = connection._client
    client.principal, client.knows_own_codes = principal, scram
    client.groups = frozenset(groups)
    return connection, transport


def ask(bench: BrokerBench, principal: str, request: Any, **who: Any) -> list[bytes] | None:
    """The answers to a request; None if its connection is closed instead."""
    connection, transport = connect(bench, principal, **who)
    connection.dataReceived(request.encode())
    for _ in range(50):
        bench.turns(transport)
    if transport.disconnecting or transport.disconnected:
        assert transport.value() == b""
        return None
    return answers(transport)


def code_of(answer: bytes) -> int:
    return int(struct.unpack_from(">h", answer)[0])


def stored(bench: BrokerBench) -> dict[tuple[str, int], int]:
    return {key: log.end_offset for key, log in bench.directory.logs.items()}


def mirrored(*topics: str) -> MirroredProduceRequest:
    sets = [
        MirroredSet(topic, 0, "u/t/0-0", 0, len(SET), SourceFlags.VERBATIM, SET) for topic in topics
    ]
    return MirroredProduceRequest(1, 0, tuple(sets))


def acknowledged(*topics: str) -> AcknowledgedProduceRequest:
    return AcknowledgedProduceRequest(
        1, 0, tuple(ProduceRequest(topic, 0, SET) for topic in topics)
    )


def multiproduce(*topics: str) -> MultiProduceRequest:
    return MultiProduceRequest(tuple(ProduceRequest(topic, 0, SET) for topic in topics))


def multifetch(*topics: str) -> MultiFetchRequest:
    return MultiFetchRequest(tuple(FetchRequest(topic, 0, 0, 100) for topic in topics))


def waiting(*topics: str, max_wait_ms: int = 0) -> WaitingFetchRequest:
    fetches = tuple(FetchRequest(topic, 0, 0, 100) for topic in topics)
    return WaitingFetchRequest(max_wait_ms, 1, fetches)


#: Of each request that needs permission one about a topic, or about the broker.
ANSWERED_WITH_A_CODE = [
    BoundaryRequest("his", 0, 0),
    DeleteTopicRequest("his"),
    AppendTimesRequest("his", 0, 0, 10, 1000),
    DescribeSettingsRequest("his"),
    DescribeSettingsRequest(""),
    CreateTopicRequest("new", ()),
    AlterTopicRequest("his", (), ()),
    ReloadConfigRequest(),
    DescribePartitionsRequest("his", 0),
    RecentLogLinesRequest(0, 10),
    SourcePositionsRequest("his", -1, False, 0),
]
BY_ENTRY = {
    FetchRequest,
    MultiFetchRequest,
    WaitingFetchRequest,
    RecordFetchRequest,
    RecordProduceRequest,
    ProduceRequest,
    MultiProduceRequest,
    AcknowledgedProduceRequest,
    MirroredProduceRequest,
    MetadataRequest,
    OffsetsRequest,
}
#: Whoever is connected may send them.
FREE = {"CoordinationRequest", "ClusterIdRequest", "UnsupportedRequest", "AuthenticateRequest"}
FREE |= {"ClusterBrokersRequest"}


def test_every_request_is_in_one_of_the_tables() -> None:
    judged = {type(each) for each in ANSWERED_WITH_A_CODE} | BY_ENTRY
    assert {each for each in get_args(Request) if each.__name__ not in FREE} == judged


@pytest.mark.parametrize("request_", ANSWERED_WITH_A_CODE, ids=lambda each: type(each).__name__)
class TestAnsweredWithACode:
    def test_it_is_refused(self, bench: BrokerBench, request_: Any) -> None:
        before, config = stored(bench), bench.settings.config
        with log_lines() as lines:
            found = ask(bench, "alice", request_)
        assert found is not None
        (answer,) = found
        assert code_of(answer) == NOT_AUTHORIZED
        assert b"his" not in answer or b"may not" in answer
        assert [line for line in lines if "may not" in line]
        assert stored(bench) == before
        assert bench.settings.config is config
        assert bench.broker.metrics.refusals == {("other", "not_authorized"): 1}

    def test_others_may(self, bench: BrokerBench, request_: Any) -> None:
        (answer,) = ask(bench, "ops", request_) or [b""]
        assert code_of(answer) != NOT_AUTHORIZED


@pytest.mark.parametrize(
    "request_",
    [each for each in ANSWERED_WITH_A_CODE if getattr(each, "topic", "") == "his"],
    ids=lambda each: type(each).__name__,
)
def test_the_answer_is_the_same_for_what_does_not_exist(bench: BrokerBench, request_: Any) -> None:
    (there,) = ask(bench, "alice", request_) or [b""]
    (not_there,) = ask(bench, "alice", replace(request_, topic="hix")) or [b""]
    assert there.replace(b"his", b"hix") == not_there


def test_an_operator_by_a_group_may_too(bench: BrokerBench) -> None:
    (answer,) = ask(bench, "bob", RecentLogLinesRequest(0, 10), groups=("ops",)) or [b""]
    assert code_of(answer) == 0


@pytest.mark.parametrize("topic", ["his", "none", "secret"])
class TestProduces:
    def test_unanswered_ones_are_closed(self, bench: BrokerBench, topic: str) -> None:
        before = stored(bench)
        with log_lines() as lines:
            assert ask(bench, "alice", ProduceRequest(topic, 0, SET)) is None
        assert f"'alice' may not produce to topic '{topic}'" in "".join(lines)
        assert bench.broker.metrics.refusals == {("produce", "not_authorized"): 1}
        compressed_or_old = b"\0" + SET[1:]  # what goes no short way
        assert ask(bench, "alice", ProduceRequest(topic, 0, compressed_or_old)) is None
        assert stored(bench) == before

    @pytest.mark.parametrize("count", [1, MANY])
    def test_a_multiproduce_stores_nothing(
        self, bench: BrokerBench, topic: str, count: int
    ) -> None:
        before = stored(bench)
        assert ask(bench, "alice", multiproduce(*["hers"] * count, topic)) is None
        assert stored(bench) == before

    @pytest.mark.parametrize("count", [1, MANY])
    def test_acknowledged_ones_are_answered_by_entry(
        self, bench: BrokerBench, topic: str, count: int
    ) -> None:
        before = stored(bench)
        found = ask(bench, "alice", acknowledged(topic, *["hers"] * count, topic))
        assert found is not None
        entries = decode_acknowledged_produce_response(found[0])
        codes = [entry.error for entry in entries]
        assert codes == [NOT_AUTHORIZED, *[0] * count, NOT_AUTHORIZED]
        assert {entry.offset for entry in entries if entry.error} == {-1}
        grown = {**before, ("hers", 0): before["hers", 0] + count * len(SET)}
        assert stored(bench) == grown
        assert bench.broker.metrics.refusals == {("acknowledged_produce", "not_authorized"): 2}

    def test_mirrored_ones_too(self, bench: BrokerBench, topic: str) -> None:
        before = stored(bench)
        found = ask(bench, "alice", mirrored(topic, "hers"))
        assert found is not None
        refused, done = decode_mirrored_produce_response(found[0])
        assert (refused.error, refused.offset, refused.position) == (NOT_AUTHORIZED, -1, -1)
        assert done.error == 0
        assert stored(bench).keys() == before.keys()
        assert stored(bench)[topic, 0] == before[topic, 0] if topic != "none" else True


def test_who_may_produce_but_not_create_writes_to_what_exists(bench: BrokerBench) -> None:
    assert ask(bench, "writer", ProduceRequest("his", 0, SET)) == []
    before = stored(bench)
    assert ask(bench, "writer", ProduceRequest("new", 0, SET)) is None
    assert ask(bench, "writer", multiproduce("his", "new")) is None
    for request in (acknowledged("new"), acknowledged(*["new"] * MANY)):
        (answer,) = ask(bench, "writer", request) or [b""]
        assert {each.error for each in decode_acknowledged_produce_response(answer)} == {
            NOT_AUTHORIZED
        }
    (answer,) = ask(bench, "writer", mirrored("new")) or [b""]
    assert decode_mirrored_produce_response(answer)[0].error == NOT_AUTHORIZED
    assert stored(bench) == before
    assert ask(bench, "ops", ProduceRequest("new", 0, SET)) == []
    assert ("new", 0) in stored(bench)


@pytest.mark.parametrize("topic", ["his", "none", "secret"])
@pytest.mark.parametrize(("scram", "code"), [(False, 3), (True, 80)])
class TestFetches:
    def test_one_is_answered_with_a_code(
        self, bench: BrokerBench, topic: str, scram: bool, code: int
    ) -> None:
        found = ask(bench, "alice", FetchRequest(topic, 0, 0, 100), scram=scram)
        assert found == [struct.pack(">h", code)]
        assert bench.broker.metrics.refusals == {("fetch", "not_authorized"): 1}

    @pytest.mark.parametrize("count", [1, MANY])
    def test_many_by_entry(
        self, bench: BrokerBench, topic: str, scram: bool, code: int, count: int
    ) -> None:
        request = multifetch(topic, *["shared"] * count)
        (answer,) = ask(bench, "alice", request, scram=scram) or [b""]
        refused, *others = decode_multifetch_response(answer)
        assert (refused.error, bytes(refused.messages)) == (code, b"")
        assert [(each.error, bytes(each.messages)) for each in others] == [(0, SET)] * count

    @pytest.mark.parametrize("count", [1, MANY])
    def test_waiting_ones_do_not_wait(
        self, bench: BrokerBench, topic: str, scram: bool, code: int, count: int
    ) -> None:
        request = waiting(*["shared"] * count, topic, max_wait_ms=100_000)
        request = replace(request, min_bytes=1 << 20)
        (answer,) = ask(bench, "alice", request, scram=scram) or [b""]
        *others, refused = decode_waiting_fetch_response(answer)
        assert (refused.error, refused.high_watermark) == (NOT_AUTHORIZED, -1)
        assert {each.error for each in others} == {0}

    def test_offsets(self, bench: BrokerBench, topic: str, scram: bool, code: int) -> None:
        found = ask(bench, "alice", OffsetsRequest(topic, 0, -1, 10), scram=scram)
        assert found == [struct.pack(">hi", code, 0)], "which 0.7 reads as no offsets"


def test_who_may_fetch_is_answered_as_before(bench: BrokerBench) -> None:
    assert ask(bench, "alice", FetchRequest("shared", 0, 0, 100)) == [b"\0\0" + SET]
    (answer,) = ask(bench, "alice", OffsetsRequest("shared", 0, -1, 10)) or [b""]
    assert decode_offsets_response(answer) == [len(SET), 0]


class TestMetadata:
    def test_a_list_shows_only_what_may_be_described(self, bench: BrokerBench) -> None:
        (answer,) = ask(bench, "alice", MetadataRequest(None)) or [b""]
        assert [each.topic for each in decode_metadata_response(answer).topics] == [
            "hers",
            "shared",
        ]
        assert b"his" not in answer
        (answer,) = ask(bench, "mallory", MetadataRequest(None)) or [b""]
        assert decode_metadata_response(answer).topics == ()

    @pytest.mark.parametrize("count", [1, MANY])
    def test_what_is_named_is_refused_whether_or_not_it_exists(
        self, bench: BrokerBench, count: int
    ) -> None:
        names = ("his", "none", "hers", *(f"x{n}" for n in range(count)))
        (answer,) = ask(bench, "alice", MetadataRequest(names)) or [b""]
        codes = {each.topic: each.error for each in decode_metadata_response(answer).topics}
        assert codes.pop("hers") == 0
        assert set(codes.values()) == {NOT_AUTHORIZED}

    def test_ten_thousand_topics_and_a_hundred_rules_take_turns(self, tmp_path: Path) -> None:
        rules = [
            {"principal": "alice", "operations": ["produce"], "topic": f"/none{n}-[a-z]+/"}
            for n in range(100)
        ]
        bench = BrokerBench(tmp_path / "many", access=rules)
        names = [f"topic-{n}" for n in range(10_000)]
        bench.broker.topics._counts.update(dict.fromkeys(names, 1))
        scheduler, longest = bench.broker.scheduler, 0.0
        permits = bench.broker._shared.refusals.permits_topic
        judged = 0

        def slow(*about: Any) -> bool:
            nonlocal judged
            judged += 1
            bench.clock.rightNow += 0.0001
            return permits(*about)

        bench.broker._shared.refusals.permits_topic = slow
        connection, transport = connect(bench, "alice")
        began = bench.clock.seconds()
        connection.dataReceived(MetadataRequest(None).encode())
        while transport.value() == b"":
            longest = max(longest, bench.clock.seconds() - began)
            began = bench.clock.seconds()
            bench.turns(transport)
        assert judged == len(names)
        assert longest <= 0.011, "what all that have more to do may take in a round"
        assert scheduler.quantum_seconds <= 0.005
        assert decode_metadata_response(answers(transport)[0]).topics == ()
        bench.close()


class TestChanges:
    def change(self, bench: BrokerBench, access: Any) -> None:
        values = {"broker_id": 0, "log_dir": str(bench.settings.config.log_dir)}
        bench.settings.use(
            parse_broker_config({**values, **({} if access is None else {"access": access})})
        )

    def test_rules_change_for_connections_that_are_open(self, bench: BrokerBench) -> None:
        connection, transport = connect(bench, "alice")
        fetch = FetchRequest("shared", 0, 0, 100).encode()
        connection.dataReceived(fetch)
        assert answers(transport) == [b"\0\0" + SET]
        self.change(bench, [])
        connection.dataReceived(fetch)
        assert answers(transport) == [b"\0\3"]
        self.change(bench, None)
        connection.dataReceived(fetch)
        assert answers(transport) == [b"\0\0" + SET]
        connection.dataReceived(ProduceRequest("his", 0, SET).encode())
        self.change(bench, [])
        before = stored(bench)
        connection.dataReceived(ProduceRequest("his", 0, SET).encode())
        bench.turns()
        assert transport.disconnecting
        assert stored(bench) == before

    def test_a_fetch_that_waits_is_judged_once_more(self, bench: BrokerBench) -> None:
        connection, transport = connect(bench, "alice")
        request = replace(waiting("shared", max_wait_ms=100_000), min_bytes=len(SET) + 1)
        connection.dataReceived(request.encode())
        assert transport.value() == b""
        self.change(bench, [])
        bench.clock.advance(100)
        (entry,) = decode_waiting_fetch_response(answers(transport)[0])
        assert (entry.error, entry.high_watermark) == (NOT_AUTHORIZED, -1)


class TestRemembering:
    def test_answers_are_remembered_within_bounds(
        self, bench: BrokerBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("hermes.server.authorization._MOST_KNOWN", 10)
        judge = bench.broker._shared.authorization._judge
        assert judge is not None
        for n in range(25):
            ask(bench, "ops", FetchRequest(f"t{n}", 0, 0, 10))
            assert len(judge.known) <= 10
        ask(bench, "ops", FetchRequest("x" * 300, 0, 0, 10))
        assert "x" * 300 not in str(judge.known)

    def test_an_authorizer_that_fails_allows_nothing(self, bench: BrokerBench) -> None:
        class Broken:
            def is_allowed(self, *about: object) -> bool:
                raise OSError("no answer")

            def revision(self) -> object:
                return None

        bench.broker._shared.authorization._judge = _Judge(Broken())  # type: ignore[arg-type]
        with log_lines() as lines:
            assert ask(bench, "alice", FetchRequest("hers", 0, 0, 10)) == [b"\0\3"]
        assert [line for line in lines if "failed, so that alice is refused" in line]

    def test_an_authorizer_that_does_not_know_its_revision_allows_nothing(
        self, bench: BrokerBench
    ) -> None:
        class Broken:
            def is_allowed(self, *about: object) -> bool:
                return True

            def revision(self) -> object:
                raise OSError("no answer")

        bench.broker._shared.authorization._judge = _Judge(Broken())  # type: ignore[arg-type]
        with log_lines() as lines:
            assert ask(bench, "alice", FetchRequest("hers", 0, 0, 10)) == [b"\0\3"]
        assert [line for line in lines if "failed, so that alice is refused" in line]

    def test_what_former_rules_have_said_is_not_remembered_by_those_after(
        self, bench: BrokerBench
    ) -> None:
        """A thread may have asked while they were changed."""
        authorization = bench.broker._shared.authorization

        def change(principal: str) -> frozenset[str]:
            TestChanges().change(bench, [])
            return frozenset()

        authorization.groups_of = change
        authorization.may("alice", Operation.CONSUME, Resource.topic("hers"))
        assert ask(bench, "alice", FetchRequest("hers", 0, 0, 10)) == [b"\0\3"]

    def test_a_stamp_is_another_one_when_answers_may_be(self, bench: BrokerBench) -> None:
        authorization = bench.broker._shared.authorization
        groups = {"alice": frozenset({"one"})}
        authorization.groups_of = lambda principal: groups[principal]
        first = authorization.stamp("alice")
        assert authorization.stamp("alice") == first
        groups["alice"] = frozenset({"two"})
        second = authorization.stamp("alice")
        TestChanges().change(bench, RULES[:1])
        third = authorization.stamp("alice")
        TestChanges().change(bench, None)
        fourth = authorization.stamp("alice")
        stamps = [first, second, third, fourth]
        assert all(stamps.count(each) == 1 for each in stamps)

    def test_another_revision_forgets(self, bench: BrokerBench) -> None:
        class Changing:
            now = 1
            allows: object = True

            def is_allowed(self, *about: object) -> object:
                return self.allows

            def revision(self) -> object:
                return self.now

        changing = Changing()
        bench.broker._shared.authorization._judge = _Judge(changing)  # type: ignore[arg-type]
        request = FetchRequest("hers", 0, 0, 100)
        assert ask(bench, "alice", request) == [b"\0\0" + SET]
        changing.allows = 1  # which is no True
        assert ask(bench, "alice", request) == [b"\0\0" + SET]
        changing.now = 2
        assert ask(bench, "alice", request) == [b"\0\3"]


def test_a_topic_that_other_brokers_have_need_not_be_created(bench: BrokerBench) -> None:
    """As when all copies that a producer knew of have moved: it asks then who has them."""
    topics, place = bench.cluster.topics, BrokerPartition(7, 0)
    topics.has_cluster = True
    topics._topics["moved"] = ClusterTopic("moved", uuid4(), "kafka", (place,))
    batch = encode_batch([Record(0, 0, None, b"m")])
    produce = (ProduceRequest("moved", 0, batch),)
    (answer,) = ask(bench, "writer", RecordProduceRequest(1, 0, produce)) or [b""]
    (entry,) = decode_acknowledged_produce_response(answer)
    assert entry.error == ErrorCode.NOT_LEADER
    flags = SourceFlags.VERBATIM | SourceFlags.RECORDS
    mirrored_set = MirroredSet("moved", 0, "u/t/0-0", 0, 1, flags, batch)
    (answer,) = ask(bench, "writer", MirroredProduceRequest(1, 0, (mirrored_set,))) or [b""]
    (mirrored_entry,) = decode_mirrored_produce_response(answer)
    assert mirrored_entry.error == ErrorCode.NOT_LEADER
    (answer,) = ask(bench, "writer", acknowledged("moved")) or [b""]
    (entry,) = decode_acknowledged_produce_response(answer)
    assert entry.error == ErrorCode.WRONG_FORMAT
    assert ask(bench, "writer", multiproduce("moved")) is None
