"""Fetch sessions of consumers: only news are told, whatever they cost, and memory is bounded."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker_bench import answers
from kafka_bench import KafkaBench, messages
from kafka_logs import append_values
from session_consumer import SessionConsumer
from transacted_logs import Writer
from twisted.internet.task import Clock

from hermes.config.loading import parse_broker_config
from hermes.kafka.fetch_sessions import MOST_PARTITIONS, FetchSession, Wanted, epoch_after
from hermes.kafka.fetching.fetch_messages import Fetched
from hermes.partition.waiting import WaitingFetches, key_of
from hermes.protocol.kafka_errors import Code
from hermes.server.clients import UNKNOWN_CLIENT
from hermes.server.fairness import QUANTUM_ENTRIES, FairScheduler
from hermes.storage import Log

PARTITIONS = 20
TOPICS = {"new": {"format": "kafka", "partitions": PARTITIONS}}
BOTH = {0: 0, 1: 0}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = made(tmp_path)
    yield bench
    bench.close()


def made(directory: Path, **settings: Any) -> KafkaBench:
    bench = KafkaBench(directory, topics=TOPICS, **settings)
    bench.shared.topics.create_declared("new")
    SessionConsumer(bench).ask({0: 0}, session_epoch=-1)  # the schema is loaded
    return bench


def log_of(bench: KafkaBench, partition: int = 0) -> Log:
    return bench.shared.topics.for_produce("new", partition)


def append(bench: KafkaBench, *values: bytes, partition: int = 0) -> None:
    """Append a batch and flush it, as a producer's would be."""
    log = log_of(bench, partition)
    append_values(log, *values)
    bench.flush(log)


def followed(bench: KafkaBench) -> int:
    """In how many places a change of a partition is listened for."""
    found = bench.shared.waiting._by_key.values()
    return sum(len(each) if isinstance(each, set) else 1 for each in found)


def begun(bench: KafkaBench, count: int = PARTITIONS, **more: Any) -> SessionConsumer:
    consumer = SessionConsumer(bench, **more)
    consumer.ask(dict.fromkeys(range(count), 0))
    assert (consumer.number > 0) is (consumer.epoch == 1)
    return consumer


def test_only_that_is_read_of_which_there_is_news(bench: KafkaBench) -> None:
    consumer = begun(bench)
    read_before = bench.shared.metrics.fetches
    append(bench, b"one", partition=7)
    assert consumer.told({})[0][:3] == (7, 0, 1)
    assert bench.shared.metrics.fetches - read_before == 1
    assert consumer.told({7: 1}) == []
    assert bench.shared.metrics.fetches - read_before == 2
    assert consumer.told({}) == []
    assert bench.shared.metrics.fetches - read_before == 2


def test_what_is_forgotten_while_very_many_are_told_of_it_stays_so() -> None:
    clock = Clock()
    waiting = WaitingFetches(clock, FairScheduler(clock))
    view = SimpleNamespace(high_watermark=0, earliest=0)
    log = SimpleNamespace(is_closed=False, view=view)
    source: Any = SimpleNamespace(key=key_of("new", 0), log=log)
    read = Fetched("new", 0, Code.NONE, 0, 0, None, source)
    sessions = []
    for number in range(QUANTUM_ENTRIES + 10):
        session = FetchSession(number, UNKNOWN_CLIENT, False, waiting, 0.0)
        session.take([Wanted("new", 0, 0, 100, -1)])
        (one,) = session.ready
        session.tell(one, read)
        assert not session.ready
        sessions.append(session)
    waiting.changed("new", 0)
    untold = [each for each in sessions if not each.ready]
    assert len(untold) == 10
    for session in untold:
        session.take((), [("new", 0)])
    clock.advance(0)
    assert not any(each.ready for each in untold)


def test_what_the_consumer_does_not_go_beyond_comes_again(bench: KafkaBench) -> None:
    consumer = begun(bench)
    append(bench, b"one", partition=7)
    first, again = consumer.told({}), consumer.told({})
    assert first == again != []


def test_a_request_without_news_waits_for_some(bench: KafkaBench) -> None:
    consumer = begun(bench)
    consumer.send({}, wait_ms=10_000)
    assert consumer.is_waiting
    append(bench, b"one", partition=3)
    bench.turns(consumer.transport)
    (topic,) = consumer.receive().responses
    assert [each.partition_index for each in topic.partitions] == [3]
    assert len(bench.shared.waiting) == 0


def test_it_waits_no_longer_than_it_asks_for(bench: KafkaBench) -> None:
    consumer = begun(bench)
    consumer.send({}, wait_ms=500)
    assert consumer.is_waiting
    bench.clock.advance(0.6)
    bench.turns(consumer.transport)
    assert not consumer.receive().responses


def test_it_waits_until_all_that_is_new_is_enough(bench: KafkaBench) -> None:
    consumer = begun(bench)
    append(bench, b"a", partition=1)
    consumer.send({}, wait_ms=10_000, min_bytes=250)
    append(bench, b"b", partition=2)
    append(bench, b"c", partition=2)
    assert consumer.is_waiting
    append(bench, b"d" * 100, partition=3)
    bench.turns(consumer.transport)
    (topic,) = consumer.receive().responses
    assert {each.partition_index for each in topic.partitions} == {1, 2, 3}
    assert followed(bench) <= PARTITIONS


def test_what_has_been_read_goes_behind_what_has_not(bench: KafkaBench) -> None:
    consumer = begun(bench, 3)
    for partition in range(3):
        append(bench, b"x" * 500, partition=partition)
    first = [consumer.told({}, max_bytes=1)[0][0] for _ in range(6)]
    assert first == [0, 1, 2, 0, 1, 2]


def test_a_high_watermark_is_told_though_nothing_is_read(bench: KafkaBench) -> None:
    consumer = begun(bench, 2)
    append_values(log_of(bench), b"one", b"two")
    assert consumer.told({0: 2}) == []  # where a producer was told that it wrote
    bench.flush(log_of(bench))
    assert consumer.told({}) == [(0, 0, 2, 0)]
    assert consumer.told({}) == []


def test_who_wants_what_was_committed_is_woken_by_the_marker(bench: KafkaBench) -> None:
    consumer, writer = begun(bench, 2), Writer(log_of(bench))
    writer.send(7)
    bench.flush(writer.log)
    assert [each[:3] for each in consumer.told({}, isolation_level=1)] == [(0, 0, 1)]
    read_before = bench.shared.metrics.fetches
    for _ in range(3):
        assert consumer.told({}, isolation_level=1) == []
    assert bench.shared.metrics.fetches == read_before, "nothing can be new of it"
    consumer.send({}, wait_ms=10_000, isolation_level=1)
    assert consumer.is_waiting
    writer.end(7, commit=True)
    bench.flush(writer.log)
    bench.turns(consumer.transport)
    ((found,),) = [topic.partitions for topic in consumer.receive().responses]
    assert (found.partition_index, found.last_stable_offset) == (0, 2)
    assert found.records


def test_records_that_are_deleted_are_told(bench: KafkaBench) -> None:
    consumer = begun(bench, 2)
    append(bench, b"one", b"two")
    consumer.told({0: 2})
    assert consumer.told({}) == []
    log_of(bench).delete_records(2)  # as retention does, which tells nobody
    assert consumer.told({}) == []
    bench.clock.advance(6)
    assert consumer.told({}) == [(0, 0, 2, 0)]
    assert consumer.known["new", 0] == (0, 2, 2)


def test_a_topic_that_is_deleted_is_told(bench: KafkaBench) -> None:
    consumer = begun(bench, 2)
    append(bench, b"one")
    consumer.told({0: 1})
    consumer.send({}, wait_ms=10_000)
    bench.shared.topics.begin_delete("new")
    bench.shared.directory.delete_topic("new")
    bench.shared.topics.end_delete("new")
    bench.shared.waiting.changed("new", 0)
    bench.turns(consumer.transport)
    (topic,) = consumer.receive().responses
    assert topic.partitions[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert [each[:2] for each in consumer.told({})] == [(0, 3), (1, 3)]


def test_rules_that_change_are_told(tmp_path: Path) -> None:
    everybody = {"principal": "*", "operations": ["all"]}
    bench = made(tmp_path, access=[everybody])
    consumer = begun(bench, 2)
    assert consumer.told({}) == []
    others = parse_broker_config(
        {"broker_id": 0, "log_dir": "/x", "access": [{**everybody, "principal": "nobody"}]}
    )
    bench.settings.use(replace(bench.settings.config, access=others.access))
    assert [each[:2] for each in consumer.told({})] == [(0, 29), (1, 29)]
    bench.close()


def test_a_request_of_an_old_epoch_is_refused_and_harms_nothing(bench: KafkaBench) -> None:
    consumer = begun(bench)
    refused = consumer.ask({0: 5}, session_epoch=7)
    assert (refused.error_code, refused.session_id) == (Code.INVALID_FETCH_SESSION_EPOCH, 0)
    assert consumer.told({}) == []


def test_a_request_that_comes_while_another_waits_takes_its_place(bench: KafkaBench) -> None:
    consumer, other = begun(bench), SessionConsumer(bench)
    consumer.send({}, wait_ms=10_000)
    other.number, other.epoch = consumer.number, 2
    other.send({}, wait_ms=10_000)
    bench.turns(consumer.transport)
    assert consumer.receive().error_code == Code.INVALID_FETCH_SESSION_EPOCH
    assert other.is_waiting
    append(bench, b"one")
    bench.turns(other.transport)
    assert other.receive().responses


def test_who_leaves_while_it_waits_is_told_nothing(bench: KafkaBench) -> None:
    consumer = begun(bench)
    consumer.send({}, wait_ms=10_000)
    consumer.connection.connectionLost()
    assert len(bench.shared.waiting) == 0
    append(bench, b"one")
    other = SessionConsumer(bench)
    other.number, other.epoch = consumer.number, 2
    assert other.told({})[0][:3] == (0, 0, 1)


def test_a_session_is_only_its_own_users(bench: KafkaBench) -> None:
    consumer, other = begun(bench), SessionConsumer(bench)
    other.connection._client.principal = "mallory"
    other.number, other.epoch = consumer.number, 1
    assert other.ask({}).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    other.ask(BOTH, session_epoch=-1)  # which would end it
    assert consumer.told({}) == []


@pytest.mark.parametrize("ends", ["forgotten", "closed", "begun anew"])
def test_nothing_is_left_of_a_session_that_ends(bench: KafkaBench, ends: str) -> None:
    consumer = begun(bench)
    assert followed(bench) == PARTITIONS
    if ends == "forgotten":
        assert not consumer.ask({}, range(PARTITIONS)).session_id
    elif ends == "closed":
        assert not consumer.ask({}, session_epoch=-1).session_id
    else:
        assert consumer.ask({0: 0}, session_epoch=0).session_id == 0
    assert len(bench.server.fetch_sessions) == bench.server.fetch_sessions.used_bytes == 0
    assert followed(bench) == 0


def test_what_is_forgotten_takes_no_memory(bench: KafkaBench) -> None:
    consumer = begun(bench, 2)
    before = bench.server.fetch_sessions.used_bytes
    for number in range(50):
        consumer.told({5: 0}, topic=f"topic-{number}" * 20)
        consumer.told({}, [5], topic=f"topic-{number}" * 20)
    assert bench.server.fetch_sessions.used_bytes == before
    (session,) = bench.server.fetch_sessions
    assert list(session._topics) == ["new"]


def test_names_count(bench: KafkaBench) -> None:
    consumer = begun(bench, 2)
    before = bench.server.fetch_sessions.used_bytes
    consumer.told({0: 0}, topic="x" * 30_000)
    assert bench.server.fetch_sessions.used_bytes - before > 30_000


# -- room -----------------------------------------------------------------------------------------


def small(tmp_path: Path, memory: str = "17KiB") -> KafkaBench:
    """One with room for two sessions of 20 partitions, and not for three."""
    return made(tmp_path, fetch_session_memory=memory)


def test_without_memory_none_is_offered(tmp_path: Path) -> None:
    bench = small(tmp_path, "0")
    consumer = begun(bench)
    assert consumer.number == 0
    assert len(consumer.told(BOTH)) == 2
    bench.close()


def test_without_room_all_partitions_are_told_each_time(tmp_path: Path) -> None:
    bench = small(tmp_path)
    first, second, third = [begun(bench) for _ in range(3)]
    assert [each.number > 0 for each in (first, second, third)] == [True, True, False]
    for _ in range(2):
        assert len(third.told(BOTH)) == 2
    assert first.told({}) == second.told({}) == []
    bench.close()


def test_who_has_left_makes_room(tmp_path: Path) -> None:
    bench = small(tmp_path)
    first, second = begun(bench), begun(bench)
    first.connection.connectionLost()
    assert begun(bench).number
    assert second.told({}) == []
    assert (bench.server.fetch_sessions.evicted, len(bench.server.fetch_sessions)) == (1, 2)
    bench.close()


def test_who_asks_no_more_makes_room_in_the_end(tmp_path: Path) -> None:
    bench = small(tmp_path)
    first, second = begun(bench), begun(bench)
    bench.clock.advance(119)
    second.told({})
    assert not begun(bench).number
    bench.clock.advance(2)
    assert begun(bench).number
    assert first.ask({}).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    bench.close()


def test_a_smaller_one_makes_room_once_it_has_had_its_time(tmp_path: Path) -> None:
    bench = small(tmp_path)
    small_one, large = begun(bench, 5), begun(bench)
    for _ in range(3):
        assert not begun(bench).number
        bench.clock.advance(50)
        large.told({})
        small_one.told({})
    small_one.send({}, wait_ms=10_000)
    assert begun(bench).number
    bench.turns(small_one.transport)
    assert not small_one.is_waiting  # it needn't wait for something that isn't there any more
    small_one.receive()
    assert small_one.ask({}).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert not begun(bench, 2).number
    bench.close()


def test_one_that_outgrows_the_memory_ends(tmp_path: Path) -> None:
    bench = small(tmp_path, "5KiB")
    consumer = begun(bench, 2)
    refused = consumer.ask(dict.fromkeys(range(20), 0))
    assert refused.error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert bench.server.fetch_sessions.used_bytes == followed(bench) == 0
    bench.close()


def test_one_that_is_too_wide_ends(bench: KafkaBench) -> None:
    consumer = begun(bench, 2)
    refused = consumer.ask(dict.fromkeys(range(MOST_PARTITIONS + 1), 0))
    assert refused.error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert not begun(bench, MOST_PARTITIONS + 1).number


def test_epochs_begin_again_at_one() -> None:
    assert [epoch_after(each) for each in (0, 1, 2**31 - 1)] == [1, 2, 1]


def test_what_comes_while_a_disk_is_read_is_not_missed(bench: KafkaBench) -> None:
    begun(bench, 2)
    (session,) = bench.server.fetch_sessions
    followed_one = next(iter(session._topics["new"].values()))
    read = Fetched("new", 0, Code.NONE, 0, 0, None, bench.server.topics.partition("new", 0))
    assert session.watch(followed_one, read)
    assert not session.ready
    append(bench, b"one")
    assert not session.watch(followed_one, read)
    assert list(session.ready) == [followed_one]


# -- clients that know of none ---------------------------------------------------------------------

MANY = 80


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = KafkaBench(tmp_path, topics={"new": {"format": "kafka", "partitions": MANY}})
    bench.shared.topics.create_declared("new")
    yield bench
    bench.close()


def wanted(*, but: int = -1, **moved: int) -> dict[int, int]:
    offsets = dict.fromkeys(range(MANY), 0) | {int(key[1:]): at for key, at in moved.items()}
    return {number: at for number, at in offsets.items() if number != but}


def asked(consumer: SessionConsumer, offsets: dict[int, int], **more: Any) -> dict[int, int]:
    """Of each partition that was answered, in that order, how many bytes came."""
    found = consumer.told(offsets, session_epoch=-1, **more)
    assert consumer.number == 0
    return {number: size for number, _, _, size in found}


def test_what_has_not_changed_is_answered_without_being_read(wide: KafkaBench) -> None:
    consumer = SessionConsumer(wide)
    assert list(asked(consumer, wanted())) == list(range(MANY))
    read_before = wide.shared.metrics.fetches
    append(wide, b"one", partition=7)
    found = asked(consumer, dict(reversed(wanted().items())))
    assert list(found) == list(reversed(range(MANY)))
    assert [number for number, size in found.items() if size] == [7]
    assert wide.shared.metrics.fetches - read_before == 1
    assert not any(asked(consumer, wanted(p7=1)).values())
    assert not any(asked(consumer, wanted(p7=1)).values())
    assert wide.shared.metrics.fetches - read_before == 2


def test_one_that_waits_hears_of_what_is_new(wide: KafkaBench) -> None:
    consumer = SessionConsumer(wide)
    for offset in range(3):
        consumer.send(wanted(p70=offset), wait_ms=10_000, session_epoch=-1)
        assert consumer.is_waiting
        read_before = wide.shared.metrics.fetches
        append(wide, b"more", partition=70)
        wide.turns(consumer.transport)
        ((topic),) = consumer.receive().responses
        found = {part.partition_index: len(part.records or b"") for part in topic.partitions}
        assert [number for number, size in found.items() if size] == [70]
        assert len(found) == MANY
        assert wide.shared.metrics.fetches - read_before == 1


def test_partitions_that_are_named_no_more_are_followed_no_more(wide: KafkaBench) -> None:
    consumer = SessionConsumer(wide)
    asked(consumer, wanted())
    assert followed(wide) == MANY
    assert 5 not in asked(consumer, wanted(but=5))
    assert followed(wide) == MANY - 1
    assert len(asked(consumer, {0: 0, 1: 0})) == 2


def test_another_request_before_the_answer_has_its_own(wide: KafkaBench) -> None:
    consumer = SessionConsumer(wide)
    asked(consumer, wanted())
    for _ in range(2):
        consumer.send(wanted(), wait_ms=10_000, session_epoch=-1)
    assert consumer.is_waiting
    append(wide, b"one")
    wide.turns(consumer.transport)
    both = answers(consumer.transport)
    assert both[0] == both[1]


def test_nothing_is_left_of_who_leaves_while_it_waits(wide: KafkaBench) -> None:
    consumer = SessionConsumer(wide)
    consumer.send(wanted(), wait_ms=10_000, session_epoch=-1)
    assert followed(wide) == MANY
    consumer.connection.connectionLost()
    assert followed(wide) == len(wide.shared.waiting) == len(wide.server.fetch_sessions) == 0


def test_one_that_makes_room_while_it_waits_is_answered_in_full(wide: KafkaBench) -> None:
    consumer = SessionConsumer(wide)
    asked(consumer, wanted())
    append(wide, b"one", partition=9)
    consumer.send(wanted(p9=1), wait_ms=10_000, session_epoch=-1)
    (session,) = wide.server.fetch_sessions
    wide.server.fetch_sessions.leave(session)
    wide.turns(consumer.transport)
    assert [len(each.partitions) for each in consumer.receive().responses] == [MANY]
    assert asked(consumer, wanted(p9=0))[9] > 0
    assert len(wide.server.fetch_sessions) == 1


def test_nobody_can_take_part_in_one(wide: KafkaBench) -> None:
    consumer, other = SessionConsumer(wide), SessionConsumer(wide)
    asked(consumer, wanted())
    (session,) = wide.server.fetch_sessions
    other.number, other.epoch = session.number, 1
    assert other.ask({}).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    other.ask({}, session_epoch=0)
    assert list(wide.server.fetch_sessions) == [session]


def test_one_that_names_a_partition_twice_has_none(wide: KafkaBench) -> None:
    consumer = SessionConsumer(wide)
    make = messages("Fetch", 12, "request")
    parts = [
        make.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1)
        for number in (*range(MANY), 0)
    ]
    twice = (make.FetchTopic(topic="new", partitions=tuple(parts)),)
    found = consumer.ask({}, topics=twice, session_epoch=-1)
    assert [len(each.partitions) for each in found.responses] == [MANY]
    assert len(wide.server.fetch_sessions) == followed(wide) == 0


def test_without_memory_all_is_read_each_time(tmp_path: Path) -> None:
    topics = {"new": {"format": "kafka", "partitions": MANY}}
    bench = KafkaBench(tmp_path, topics=topics, fetch_session_memory="0")
    bench.shared.topics.create_declared("new")
    consumer = SessionConsumer(bench)
    for _ in range(2):
        assert len(asked(consumer, wanted())) == MANY
    assert bench.shared.metrics.fetches == 2 * MANY
    bench.close()
