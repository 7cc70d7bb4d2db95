"""Mirrors between brokers in this process: what arrives, where, how often, after which trouble."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka_07_proxy import Kafka07Proxy
from mirrored_pair import MirroredPair, eventually, payloads, totals
from server_process import free_port

from hermes.client import FetchRequest, SimpleConsumer, SyncProducer
from hermes.coordination.layout import broker_path, format_broker, format_number, topic_path
from hermes.mirror import links
from hermes.protocol import Acks, Codec, ProduceRequest, encode_message, encode_message_set
from hermes.testing import RunningBroker, running_broker


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def pair(stack: ExitStack) -> MirroredPair:
    return MirroredPair(stack)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def append(broker: RunningBroker, topic: str, partition: int, message_set: bytes) -> int:
    """Append a set to a partition; where."""
    with SyncProducer(broker.host, broker.port) as producer:
        produce = ProduceRequest(topic, partition, message_set)
        (result,) = producer.send_acknowledged([produce], Acks.FLUSHED)
    assert not isinstance(result, Exception), result
    assert result.offset is not None
    return result.offset


def segment(broker: RunningBroker, topic: str, partition: int = 0) -> Path:
    return min((broker.log_dir / f"{topic}-{partition}").glob("*.kafka"))


def log_bytes(broker: RunningBroker, topic: str, partition: int) -> bytes:
    with SimpleConsumer(broker.host, broker.port) as consumer:
        return consumer.fetch(FetchRequest(topic, partition, 0, 1 << 20)).data


def test_topics_arrive_in_order_and_by_partition(pair: MirroredPair) -> None:
    pair.send("clicks", numbered(5_000))
    pair.mirror()
    arrived = pair.arrived("clicks", 5_000)
    assert arrived == payloads(pair.source, "clicks", 3)
    pair.send("clicks", numbered(1_000, 5_000))
    pair.send("views", numbered(100))
    assert pair.arrived("clicks", 6_000) == payloads(pair.source, "clicks", 3)
    assert pair.arrived("views", 100) == payloads(pair.source, "views", 3)


def test_offsets_are_committed_for_what_the_target_has(pair: MirroredPair) -> None:
    pair.send("clicks", numbered(3_000))
    mirror = pair.mirror()
    pair.arrived("clicks", 3_000)
    ends = {f"clicks 0-{n}": len(log_bytes(pair.source, "clicks", n)) for n in range(3)}
    eventually(lambda: pair.committed() == ends, "the offsets were never committed")
    mirror.stop()
    again = pair.mirror()
    pair.send("clicks", numbered(10, 3_000))
    assert sum(map(len, pair.arrived("clicks", 3_010))) == 3_010
    again.stop()  # what it sent is counted then, too
    assert totals([again], "messages") == 10


def test_a_mirror_without_its_offsets_repeats_nothing(pair: MirroredPair) -> None:
    pair.send("clicks", numbered(3_000))
    pair.mirror().stop()
    for _ in range(3):
        mirror = pair.mirror()
        pair.arrived("clicks", 3_000)
        mirror.stop()
        session = pair.session(pair.source)
        session.delete_tree("/consumers/hermes-mirror-m")
    mirror = pair.mirror()
    pair.send("clicks", numbered(30, 3_000))
    assert pair.arrived("clicks", 3_030) == payloads(pair.source, "clicks", 3)
    mirror.stop()  # what it sent is counted then, too
    assert totals([mirror], "messages") == 30


def test_topics_are_chosen_and_renamed(pair: MirroredPair) -> None:
    for topic in ("clicks", "views", "secret"):
        pair.send(topic, numbered(30))
    pair.mirror(
        blacklist="secret,hermes-.*",
        topics={"prefix": "east.", "map": {"views": "all-views"}},
    )
    pair.arrived("east.clicks", 30)
    pair.arrived("all-views", 30)
    with SimpleConsumer(pair.target.host, pair.target.port) as consumer:
        topics = {each.topic for each in consumer.metadata().topics}
    assert topics == {"east.clicks", "all-views"}


@pytest.mark.parametrize("by", ["zookeeper", "brokers"])
def test_topics_of_kafkas_format_are_left_alone_and_said(stack: ExitStack, by: str) -> None:
    pair = MirroredPair(stack, {} if by == "zookeeper" else {"coordination": "none"})
    with SimpleConsumer(pair.source.host, pair.source.port) as admin:
        admin.create_topic("records", {"format": "kafka", "partitions": 1})
    pair.send("records", numbered(10))
    pair.send("clicks", numbered(30))
    known = (
        pair.source.zookeeper_connect
        if by == "zookeeper"
        else f"{pair.source.host}:{pair.source.port}"
    )
    mirror = pair.mirror(sources=[{"name": "east", by: known}])
    pair.arrived("clicks", 30)
    told = eventually(lambda: [text for name, text in mirror.errors.items() if "records" in name])
    assert told == [
        "its topic has Kafka's format: it is mirrored from a source that is given by its `kafka`"
    ]
    with SimpleConsumer(pair.target.host, pair.target.port) as consumer:
        assert "records" not in {each.topic for each in consumer.metadata().topics}


def test_compressed_sets_pass_unopened(pair: MirroredPair) -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.NONE):
        append(pair.source, "packed", 0, encode_message_set(numbered(50), codec))
    pair.mirror()
    pair.arrived("packed", 150)
    assert log_bytes(pair.target, "packed", 0) == log_bytes(pair.source, "packed", 0)


def test_damaged_messages_are_skipped_and_counted(pair: MirroredPair) -> None:
    append(pair.source, "torn", 0, encode_message_set(numbered(100)))
    whole = log_bytes(pair.source, "torn", 0)
    with segment(pair.source, "torn").open("r+b") as file:
        file.seek(whole.index(b"50") - 3)
        file.write(b"\xff")
    mirror = pair.mirror()
    pair.send("torn", numbered(10, 100), partitioner="java-hash")
    arrived = pair.arrived("torn", 109)
    assert sorted(int(each) for one in arrived for each in one) == [
        number for number in range(110) if number != 50
    ]
    eventually(lambda: totals([mirror], "damaged") == 1)  # the target has what follows before
    eventually(pair.committed, "nothing was committed")


def test_a_mirror_may_stop_at_damage(pair: MirroredPair) -> None:
    append(pair.source, "torn", 0, encode_message_set(numbered(100)))
    whole = log_bytes(pair.source, "torn", 0)
    with segment(pair.source, "torn").open("r+b") as file:
        file.seek(whole.index(b"50") - 3)
        file.write(b"\xff")
    mirror = pair.mirror(damaged="stop")
    assert pair.arrived("torn", 50)[0] == numbered(50)
    reason = eventually(lambda: next((f.error for f in mirror.figures() if f.error), ""))
    assert "damaged" in reason
    append(pair.source, "torn", 1, encode_message_set(numbered(7)))
    assert sum(map(len, pair.arrived("torn", 57))) == 57


def test_what_the_target_refuses_is_found_and_skipped(pair: MirroredPair) -> None:
    """A compressed message whose outside is intact and whose inside is not."""
    append(pair.source, "odd", 0, encode_message_set(numbered(10)))
    bad = encode_message_set([b"abc" * 50], Codec.GZIP)
    append(pair.source, "odd", 0, bad)
    append(pair.source, "odd", 0, encode_message_set(numbered(10, 10)))
    path = segment(pair.source, "odd")
    content = path.read_bytes()
    start = content.index(bad)
    spoilt = encode_message(b"x" * (len(bad) - 10), attributes=1)
    assert len(spoilt) == len(bad)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(spoilt)
    mirror = pair.mirror()
    arrived = pair.arrived("odd", 20)
    assert arrived[0] == numbered(20)
    eventually(lambda: totals([mirror], "damaged") == 1)


def test_a_message_that_is_too_large_for_the_target_waits_there(stack: ExitStack) -> None:
    pair = MirroredPair(stack, target={"max_message_bytes": "1kB"})
    append(pair.source, "big", 0, encode_message_set(numbered(10)))
    append(pair.source, "big", 0, encode_message_set([b"x" * 2_000, b"behind"]))
    append(pair.source, "big", 1, encode_message_set(numbered(10)))
    mirror = pair.mirror()
    assert sum(map(len, pair.arrived("big", 20))) == 20
    reason = eventually(lambda: next((f.error for f in mirror.figures() if f.error), ""))
    assert "max_message_bytes" in reason
    assert totals([mirror], "damaged") == 0


def test_what_retention_took_is_told_with_its_range(
    stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    small = {
        "segment_bytes": "4KiB",
        "retention_bytes": "8KiB",
        "retention_policy": "size",
        "retention_check_interval": "50ms",
        "num_partitions": 1,
    }
    pair = MirroredPair(stack, source=small, target={"num_partitions": 1})
    append(pair.source, "brief", 0, encode_message_set(numbered(10)))
    mirror = pair.mirror()
    pair.arrived("brief", 10, 1)
    position = eventually(lambda: totals([mirror], "position"))
    mirror.stop()
    for first in range(10, 5_000, 100):
        append(pair.source, "brief", 0, encode_message_set(numbered(100, first)))

    def earliest() -> int:
        with SimpleConsumer(pair.source.host, pair.source.port) as consumer:
            return consumer.get_offsets_before("brief", 0, -2)[0]

    eventually(lambda: earliest() > 10_000)
    again = pair.mirror()
    lost = eventually(lambda: totals([again], "lost_bytes"))
    end = eventually(lambda: pair.arrived("brief", 20, 1))[0][-1]
    assert position + lost >= 10_000
    eventually(lambda: payloads(pair.target, "brief", 1)[0][-1] == b"5009" or end)
    assert any(
        f"lost {lost} bytes, from {position} to {position + lost}" in each.message
        and "topic 'brief' partition 0-0" in each.message
        for each in caplog.records
    )


def test_a_topic_that_was_created_anew_is_mirrored_from_its_start(pair: MirroredPair) -> None:
    append(pair.source, "again", 0, encode_message_set(numbered(100)))
    pair.mirror()
    pair.arrived("again", 100)
    eventually(lambda: pair.committed().get("again 0-0", 0) > 0)
    with SimpleConsumer(pair.source.host, pair.source.port) as consumer:
        consumer.delete_topic("again")
    append(pair.source, "again", 0, encode_message_set(numbered(5)))
    assert pair.arrived("again", 105)[0] == numbered(100) + numbered(5)
    append(pair.source, "again", 0, encode_message_set(numbered(5, 5)))
    assert pair.arrived("again", 110)[0] == numbered(100) + numbered(10)


@pytest.mark.parametrize("rule", ["random", {"key": {"json": "user.id"}}])
def test_other_partitionings_repeat_nothing_either(pair: MirroredPair, rule: object) -> None:
    messages = [
        json.dumps({"user": {"id": f"u{number % 7}"}, "n": number}).encode()
        for number in range(2_000)
    ]
    pair.send("users", messages[:1_000])
    pair.mirror(partitioning=rule).stop()
    mirror = pair.mirror(partitioning=rule)
    pair.arrived("users", 1_000)
    mirror.stop()
    session = pair.session(pair.source)
    session.delete_tree("/consumers/hermes-mirror-m")
    pair.mirror(partitioning=rule)
    pair.send("users", messages[1_000:])
    arrived = pair.arrived("users", 2_000)
    assert sorted(each for one in arrived for each in one) == sorted(messages)
    if rule != "random":
        places: dict[str, set[int]] = {}
        for number, one in enumerate(arrived):
            for each in one:
                places.setdefault(json.loads(each)["user"]["id"], set()).add(number)
        assert all(len(each) == 1 for each in places.values())
        assert len(set.union(*places.values())) > 1


@pytest.mark.parametrize("rule", ["index", {"key": {"bytes": "0:9"}}])
def test_partitions_may_become_more_in_the_target(stack: ExitStack, rule: object) -> None:
    pair = MirroredPair(stack, target={"num_partitions": 1})
    pair.send("clicks", numbered(900))
    mirror = pair.mirror(partitioning=rule)
    assert len(pair.arrived("clicks", 900, 1)[0]) == 900
    with SimpleConsumer(pair.target.host, pair.target.port) as consumer:
        consumer.alter_topic("clicks", {"partitions": 3})
    number = 900

    def is_spread() -> bool:
        nonlocal number
        pair.send("clicks", numbered(150, number))
        number += 150
        return all(pair.arrived("clicks", number))

    eventually(is_spread, "nothing went to the new partitions")
    arrived = payloads(pair.target, "clicks", 3)
    assert sorted(int(each) for one in arrived for each in one) == list(range(number))
    assert totals([mirror], "duplicates") == 0


def test_mirrors_of_one_name_share_the_partitions(pair: MirroredPair) -> None:
    mirrors = [pair.mirror(), pair.mirror()]

    def held() -> list[int]:
        return [sum(each.is_held for each in one.figures()) for one in mirrors]

    pair.send("clicks", numbered(3_000))
    eventually(lambda: sorted(held()) == [1, 2], "they never shared")
    pair.send("clicks", numbered(3_000, 3_000))
    assert pair.arrived("clicks", 6_000) == payloads(pair.source, "clicks", 3)
    mirrors[0].stop()
    pair.send("clicks", numbered(3_000, 6_000))
    assert pair.arrived("clicks", 9_000) == payloads(pair.source, "clicks", 3)
    assert totals(mirrors, "duplicates") == 0


def test_sources_can_be_several(stack: ExitStack, pair: MirroredPair) -> None:
    west = stack.enter_context(running_broker(settings={"coordination": "embedded"}))
    append(west, "clicks", 0, encode_message_set(numbered(10, 100)))
    append(pair.source, "clicks", 1, encode_message_set(numbered(10)))
    pair.mirror(
        sources=[
            {"name": "east", "zookeeper": pair.source.zookeeper_connect},
            {"name": "west", "brokers": f"{west.host}:{west.port}"},
        ]
    )
    assert pair.arrived("clicks", 20) == [numbered(10, 100), numbered(10), []]


def test_clusters_may_be_without_coordination(stack: ExitStack) -> None:
    alone = {"coordination": "none"}
    pair = MirroredPair(stack, source=alone, target=alone)
    places = {
        "sources": [{"name": "east", "brokers": f"{pair.source.host}:{pair.source.port}"}],
        "target": {"brokers": f"{pair.target.host}:{pair.target.port}"},
    }
    pair.send("clicks", numbered(3_000))
    mirror = pair.mirror(**places)
    assert pair.arrived("clicks", 3_000) == payloads(pair.source, "clicks", 3)
    mirror.stop()
    pair.send("clicks", numbered(100, 3_000))
    again = pair.mirror(**places)
    assert pair.arrived("clicks", 3_100) == payloads(pair.source, "clicks", 3)
    again.stop()  # what it sent is counted then, too
    assert totals([again], "messages") == 100


def test_a_mirror_waits_for_a_target_and_a_source_that_are_not_there(
    stack: ExitStack, tmp_path: Path
) -> None:
    pair = MirroredPair(stack)
    pair.send("clicks", numbered(100))
    port = free_port()
    mirror = pair.mirror(
        sources=[
            {"name": "east", "zookeeper": pair.source.zookeeper_connect},
            {"name": "west", "brokers": f"127.0.0.1:{port}"},
        ],
        target={"zookeeper": f"127.0.0.1:{free_port()}"},
    )
    eventually(lambda: {"target", "source west"} <= mirror.errors.keys())
    mirror.stop()


def test_a_topic_that_is_deleted_in_the_target_goes_on_there(pair: MirroredPair) -> None:
    pair.send("clicks", numbered(1_000))
    pair.mirror()
    pair.arrived("clicks", 1_000)
    with SimpleConsumer(pair.target.host, pair.target.port) as consumer:
        consumer.delete_topic("clicks")
    pair.send("clicks", numbered(100, 1_000))
    pair.arrived("clicks", 100)


def test_a_refused_topic_is_not_mirrored(pair: MirroredPair) -> None:
    refused = threading.Event()
    refused.set()

    class Guard:
        def admit(self, topic: str, target_topic: str) -> str:
            return "it goes round" if refused.is_set() and topic == "round" else ""

    ids = []

    def make_guard(*of_source: object) -> Guard:
        ids.append(of_source[:2])
        return Guard()

    pair.send("round", numbered(10))
    pair.send("clicks", numbered(10))
    mirror = pair.mirror(guard=make_guard)
    pair.arrived("clicks", 10)
    eventually(lambda: mirror.refused == {"east: round": "it goes round"})
    assert ids[0][0] == "east"
    assert len({str(ids[0][1]), mirror.target_id}) == 2
    refused.clear()
    pair.arrived("round", 10)
    assert mirror.refused == {}


def test_a_throttle_holds_it_back(pair: MirroredPair) -> None:
    pair.send("clicks", [b"x" * 1_000] * 300)
    mirror = pair.mirror(throttle="100kB")
    pair.arrived("clicks", 20)
    assert totals([mirror], "bytes") < 300_000
    pair.arrived("clicks", 300)


# -- Kafka 0.7 ----------------------------------------------------------------------------------


def register(pair: MirroredPair, broker: RunningBroker, proxy: Kafka07Proxy, topic: str) -> str:
    """Register a proxy as the only broker of a cluster; what leads there."""
    session = pair.session(broker)
    root = f"/old-{topic}"
    session.put(root + broker_path(0), format_broker(*proxy.address, 1))
    session.put(root + topic_path(topic, 0), format_number(3))
    return f"{broker.zookeeper_connect}{root}"


@pytest.fixture
def old_source(stack: ExitStack, pair: MirroredPair) -> Kafka07Proxy:
    proxy = Kafka07Proxy(pair.source.host, pair.source.port)
    stack.callback(proxy.stop)
    return proxy


def test_a_source_may_be_a_kafka_07(pair: MirroredPair, old_source: Kafka07Proxy) -> None:
    pair.send("clicks", numbered(3_000))
    connect = register(pair, pair.source, old_source, "clicks")
    pair.mirror(sources=[{"name": "old", "zookeeper": connect}])
    assert pair.arrived("clicks", 3_000) == payloads(pair.source, "clicks", 3)
    pair.send("clicks", numbered(100, 3_000))
    assert pair.arrived("clicks", 3_100) == payloads(pair.source, "clicks", 3)
    assert old_source.refused


def test_a_target_may_be_a_kafka_07(stack: ExitStack, pair: MirroredPair) -> None:
    proxy = Kafka07Proxy(pair.target.host, pair.target.port)
    stack.callback(proxy.stop)
    pair.send("clicks", numbered(3_000))
    connect = register(pair, pair.target, proxy, "clicks")
    mirror = pair.mirror(target={"zookeeper": connect})
    assert pair.arrived("clicks", 3_000) == payloads(pair.source, "clicks", 3)
    proxy.cut()
    pair.send("clicks", numbered(100, 3_000))
    arrived = pair.arrived("clicks", 3_100)
    assert {each for one in arrived for each in one} == set(numbered(3_100))
    mirror.stop()
    assert proxy.refused


def test_a_kafka_07_that_drops_what_is_too_large_is_waited_for(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "_FLUSH_SECONDS", 0.5)
    pair = MirroredPair(stack, target={"max_message_bytes": "1kB"})
    proxy = Kafka07Proxy(pair.target.host, pair.target.port)
    stack.callback(proxy.stop)
    append(pair.source, "big", 0, encode_message_set(numbered(10)))
    append(pair.source, "big", 0, encode_message_set([b"x" * 2_000, b"behind"]))
    append(pair.source, "big", 1, encode_message_set(numbered(10)))
    connect = register(pair, pair.target, proxy, "big")
    mirror = pair.mirror(target={"zookeeper": connect})
    reason = eventually(lambda: next((f.error for f in mirror.figures() if f.error), ""))
    assert "max.message.size" in reason
    arrived = pair.arrived("big", 20)
    assert set(arrived[0]) - {b"behind"} == set(numbered(10))
    assert set(arrived[1]) == set(numbered(10))
    with SimpleConsumer(pair.source.host, pair.source.port) as consumer:
        (end,) = consumer.get_offsets_before("big", 0, -1)
    assert totals([mirror], "position") < end + len(log_bytes(pair.source, "big", 1))
