"""Moves and elections that an administrator asks for: what they change, and what is refused."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from broker_bench import log_lines
from kafka_bench import KafkaBench
from kafka_raw import parts
from replicated_bench import ReplicatedBench

from hermes.coordination.throttles import KAFKA_THROTTLE
from hermes.protocol import NOBODY
from hermes.protocol.kafka_errors import Code
from hermes.replication.electing import Refusals
from hermes.replication.leading import LeaderSettings
from hermes.replication.messages import LogEnds
from hermes.replication.replica import Change, LogFacts, Replica
from hermes.replication.state import NO_LIFE, PartitionState, first_state, unclean

LIVES = {0: 10, 1: 11, 2: 12}

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ReplicatedBench]:
    bench = ReplicatedBench(tmp_path)
    yield bench
    bench.close()


def of(*replicas: int, leader: int = 0, isr: Sequence[int] = (), epoch: int = 5) -> PartitionState:
    life = LIVES.get(leader, NO_LIFE)
    return PartitionState(replicas, leader, life, epoch, frozenset(isr or replicas))


def move(
    bench: KafkaBench,
    topic: str,
    moves: dict[int, Sequence[int] | None],
    version: int = 1,
    **more: Any,
) -> dict[int, Code]:
    make = parts("AlterPartitionReassignments", version)
    asked = tuple(
        make.ReassignablePartition(
            partition_index=number, replicas=None if target is None else tuple(target)
        )
        for number, target in moves.items()
    )
    topics = (make.ReassignableTopic(name=topic, partitions=asked),)
    answer = bench.ask("AlterPartitionReassignments", version, topics=topics, **more)
    assert answer.error_code.value == 0
    ((name, found),) = [(each.name, each.partitions) for each in answer.responses]
    assert name == topic
    assert all((each.error_message is None) == (each.error_code.value == 0) for each in found)
    return {each.partition_index: Code(each.error_code.value) for each in found}


def listed(bench: KafkaBench, topics: Any = None) -> dict[str, list[tuple[Any, ...]]]:
    answer = bench.ask("ListPartitionReassignments", 0, topics=topics)
    assert (answer.error_code.value, answer.error_message) == (0, None)
    return {
        each.name: [
            (one.partition_index, one.replicas, one.adding_replicas, one.removing_replicas)
            for one in each.partitions
        ]
        for each in answer.topics
    }


def elect(
    bench: KafkaBench, kind: int, topics: dict[str, Sequence[int]] | None
) -> dict[str, dict[int, Code]]:
    make = parts("ElectLeaders", 2)
    asked = None
    if topics is not None:
        asked = tuple(
            make.TopicPartitions(topic=name, partitions=tuple(numbers))
            for name, numbers in topics.items()
        )
    answer = bench.ask("ElectLeaders", 2, election_type=kind, topic_partitions=asked)
    assert answer.error_code.value == 0
    return {
        each.topic: {one.partition_id: Code(one.error_code.value) for one in each.partition_result}
        for each in answer.replica_election_results
    }


# -- moves --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_a_move_is_begun_listed_and_cancelled(bench: ReplicatedBench, version: int) -> None:
    bench.topic("moved", of(0, 1), of(1, 2, leader=1))
    reads = bench.reads

    assert move(bench, "moved", {0: (1, 2), 1: (1, 0)}, version) == {0: Code.NONE, 1: Code.NONE}

    assert bench.reads == reads + 1, "the partitions of a topic are moved in one step"
    state = bench.state("moved", 0)
    assert state is not None
    assert (state.replicas, state.adding, state.removing) == ((1, 2, 0), {2}, {0})
    assert listed(bench) == {
        "moved": [(0, (1, 2, 0), (2,), (0,)), (1, (1, 0, 2), (0,), (2,))],
    }
    asked = parts("ListPartitionReassignments", 0).ListPartitionReassignmentsTopics
    one = (asked(name="moved", partition_indexes=(1, 7, -1)), asked(name="x"), asked(name="moved"))
    assert listed(bench, one[:2]) == {"moved": [(1, (1, 0, 2), (0,), (2,))]}
    assert listed(bench, one[2:]) == {}

    assert move(bench, "moved", {0: None}, version) == {0: Code.NONE}
    state = bench.state("moved", 0)
    assert state is not None
    assert (state.replicas, state.adding, state.removing) == ((1, 0), set(), set())
    assert [each[0] for each in listed(bench)["moved"]] == [1]
    assert move(bench, "moved", {0: None}, version) == {0: Code.NO_REASSIGNMENT_IN_PROGRESS}


def test_a_partition_with_one_copy_gets_others_in_an_epoch_of_its_own(
    bench: ReplicatedBench,
) -> None:
    bench.topic("single", 1, 0)

    assert move(bench, "single", {0: (1, 0)}) == {0: Code.NONE}

    state = bench.state("single", 0)
    assert state is not None
    assert (state.leader, state.life, state.isr, state.adding) == (1, 11, {1}, {0})
    assert state.epoch == 2, "one after the one that is told of it"
    assert bench.state("single", 1) is None
    assert move(bench, "single", {1: (0, 2)}) == {1: Code.NONE}, "into the same node"
    assert bench.state("single", 0) == state


def test_the_first_epoch_of_this_brokers_own_is_after_all_that_its_log_has_seen(
    bench: ReplicatedBench,
) -> None:
    bench.topic("led", 0)
    log = bench.cluster.topics.log("led", 0)
    log.sidecar.epochs.begin(8, 0)

    assert move(bench, "led", {0: (0, 1)}) == {0: Code.NONE}

    state = bench.state("led")
    assert state is not None
    assert state.epoch == 10


def test_where_all_is_as_it_is_to_be_nothing_is_written(bench: ReplicatedBench) -> None:
    bench.topic("still", 1, of(0, 1))
    before = bench.tree.read().version

    assert move(bench, "still", {0: (1,), 1: (0, 1)}) == {0: Code.NONE, 1: Code.NONE}

    assert bench.state("still", 0) is None
    assert bench.tree.read().version == before


def test_another_order_is_a_move_that_is_done_at_once(bench: ReplicatedBench) -> None:
    bench.topic("ordered", of(0, 1, 2))
    assert move(bench, "ordered", {0: (2, 1, 0)}) == {0: Code.NONE}
    assert bench.state("ordered") == replace(of(2, 1, 0), epoch=5)
    assert listed(bench) == {}


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), Code.INVALID_REPLICA_ASSIGNMENT),
        ((0, 7), Code.INVALID_REPLICA_ASSIGNMENT),
        ((0, 1, 0), Code.INVALID_REPLICA_ASSIGNMENT),
        ((-1,), Code.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_no_partition_can_be_there(
    bench: ReplicatedBench, target: tuple[int, ...], code: Code
) -> None:
    bench.topic("refused", of(0, 1), of(0, 1))
    assert move(bench, "refused", {0: target, 1: (0, 2)}) == {0: code, 1: Code.NONE}
    assert bench.state("refused", 0) == of(0, 1)


def test_what_is_not_there_is_not_moved(bench: ReplicatedBench) -> None:
    bench.topic("there", of(0, 1))
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert move(bench, "nowhere", {0: (0, 1), 1: None}) == {0: unknown, 1: unknown}
    assert move(bench, "there", {1: (0, 1), -1: (0, 1)}) == {1: unknown, -1: unknown}


def test_a_topic_of_0_7_keeps_one_copy(bench: ReplicatedBench) -> None:
    bench.topic("old", 0, form="0.7")
    make = parts("AlterPartitionReassignments", 1)
    asked = (make.ReassignablePartition(partition_index=0, replicas=(0, 1)),)
    topics = (make.ReassignableTopic(name="old", partitions=asked),)
    answer = bench.ask("AlterPartitionReassignments", 1, topics=topics)
    (refused,) = answer.responses[0].partitions
    assert refused.error_code.value == Code.INVALID_REPLICA_ASSIGNMENT
    assert "mirror it" in refused.error_message


def test_nobody_gets_copies_while_a_broker_of_an_earlier_release_is_there(
    bench: ReplicatedBench,
) -> None:
    bench.topic("early", of(0, 1), 2)
    bench.earlier = {2}
    bench.refresh()
    assert move(bench, "early", {0: (0, 1)}) == {0: Code.INVALID_REPLICATION_FACTOR}
    assert move(bench, "early", {0: (1,)}) == {0: Code.NONE}, "but one copy, to go back"


def test_a_client_can_have_the_factor_kept(bench: ReplicatedBench) -> None:
    bench.topic("kept", of(0, 1), 2)
    keep = {"allow_replication_factor_change": False}
    assert move(bench, "kept", {0: (0, 1, 2)}, **keep) == {0: Code.INVALID_REPLICATION_FACTOR}
    assert move(bench, "kept", {1: (2, 1)}, **keep) == {1: Code.INVALID_REPLICATION_FACTOR}
    assert move(bench, "kept", {0: (0, 2)}, **keep) == {0: Code.NONE}
    assert move(bench, "kept", {0: (1, 2)}, **keep) == {0: Code.NONE}, "of its target, not of all"


def test_a_move_that_only_the_new_copies_could_serve_is_not_cancelled(
    bench: ReplicatedBench,
) -> None:
    moving = replace(of(1, 0, leader=1, isr=(1,)), adding=frozenset({1}), removing=frozenset({0}))
    bench.topic("past", moving)
    assert move(bench, "past", {0: None}) == {0: Code.INVALID_REPLICA_ASSIGNMENT}
    assert bench.state("past") == moving


def test_a_topic_made_anew_meanwhile_is_not_moved(bench: ReplicatedBench) -> None:
    bench.topic("anew", of(0, 1))
    known = bench.cluster.topics.get("anew")
    assert known is not None
    bench.tree.delete("anew", lambda node: True)
    bench.topic("anew", of(0, 1))
    bench.cluster.topics._topics["anew"] = known
    assert move(bench, "anew", {0: (0, 2)}) == {0: Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert bench.state("anew") == of(0, 1)


# -- elections ----------------------------------------------------------------------------------


def test_the_preferred_replica_leads_in_an_epoch_of_its_own(bench: ReplicatedBench) -> None:
    bench.topic("led", of(1, 0), of(0, 1), of(2, 0, isr=(0,)), 1)

    found = elect(bench, PREFERRED, {"led": (0, 1, 2, 3, 4), "nowhere": (0,)})

    assert found == {
        "led": {
            0: Code.NONE,
            1: Code.ELECTION_NOT_NEEDED,
            2: Code.PREFERRED_LEADER_NOT_AVAILABLE,
            3: Code.ELECTION_NOT_NEEDED,
            4: Code.UNKNOWN_TOPIC_OR_PARTITION,
        },
        "nowhere": {0: Code.UNKNOWN_TOPIC_OR_PARTITION},
    }
    assert bench.state("led", 0) == of(1, 0, leader=1, epoch=6)
    assert bench.state("led", 3) is None


def test_of_all_partitions_those_are_told_of_that_needed_an_election(
    bench: ReplicatedBench,
) -> None:
    bench.topic("a", of(1, 0), of(0, 1))
    bench.topic("b", of(0, 1))
    assert elect(bench, PREFERRED, None) == {"a": {0: Code.NONE}, "b": {}}


def test_a_preferred_replica_that_is_not_registered_does_not_lead(bench: ReplicatedBench) -> None:
    del bench.lives[1]
    bench.topic("led", of(1, 0), of(1, 0, leader=1), 1)
    bench.refresh()
    away = Code.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(bench, PREFERRED, {"led": (0, 1, 2)}) == {"led": {0: away, 1: away, 2: away}}


def test_an_unclean_election_takes_whoever_is_there(bench: ReplicatedBench) -> None:
    del bench.lives[1], bench.lives[2]
    lost = of(1, 0, leader=1, isr=(1,))
    bench.topic("lost", lost, of(0, 1), of(1, 2, leader=NOBODY), of(1, 0, leader=1))
    bench.refresh()

    with log_lines() as lines:
        found = elect(bench, UNCLEAN, {"lost": (0, 1, 2, 3)})

    assert found["lost"] == {
        0: Code.NONE,
        1: Code.ELECTION_NOT_NEEDED,
        2: Code.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        3: Code.NONE,
    }
    assert bench.state("lost", 0) == unclean(lost, 0, LIVES[0])
    assert bench.state("lost", 3) == of(1, 0, leader=0, epoch=6), "clean, as one was in sync"
    (told,) = [each for each in lines if "wasn't in sync" in each]
    assert "lost-0" in told
    assert "brokers [1]" in told


def test_there_is_no_third_kind_of_election(bench: ReplicatedBench) -> None:
    bench.topic("led", of(1, 0))
    make = parts("ElectLeaders", 1)
    asked = (make.TopicPartitions(topic="led", partitions=(0,)),)
    answer = bench.ask("ElectLeaders", 1, election_type=2, topic_partitions=asked)
    assert answer.error_code.value == Code.INVALID_REQUEST
    (one,) = answer.replica_election_results[0].partition_result
    assert one.error_code.value == Code.INVALID_REQUEST


def test_before_there_were_kinds_it_is_the_preferred_one(bench: ReplicatedBench) -> None:
    bench.topic("led", of(1, 0))
    asked = (parts("ElectLeaders", 0).TopicPartitions(topic="led", partitions=(0,)),)
    answer = bench.ask("ElectLeaders", 0, topic_partitions=asked)
    assert answer.replica_election_results[0].partition_result[0].error_code.value == 0
    assert bench.state("led") == of(1, 0, leader=1, epoch=6)


# -- throttles ----------------------------------------------------------------------------------

LEADER, FOLLOWER = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
OF_DISKS = "replica.alter.log.dirs.io.max.bytes.per.second"
REPLICAS = "leader.replication.throttled.replicas"


def configure(
    bench: KafkaBench, kind: int, name: str, changes: dict[str, str | None], *, check: bool = False
) -> Code:
    """Set what has a value, and delete the rest."""
    make = parts("IncrementalAlterConfigs", 1)
    configs = tuple(
        make.AlterableConfig(name=key, config_operation=int(value is None), value=value)
        for key, value in changes.items()
    )
    asked = make.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    answer = bench.ask("IncrementalAlterConfigs", 1, resources=(asked,), validate_only=check)
    return Code(answer.responses[0].error_code.value)


def shown(bench: KafkaBench, kind: int, name: str, *keys: str) -> dict[str, tuple[str, int, bool]]:
    make = parts("DescribeConfigs", 4)
    asked = make.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    (found,) = bench.ask(
        "DescribeConfigs",
        4,
        resources=(asked,),
        include_synonyms=False,
        include_documentation=False,
    ).results
    return {each.name: (each.value, each.config_source, each.read_only) for each in found.configs}


def test_rates_are_set_for_any_broker_by_any_and_taken_away(bench: ReplicatedBench) -> None:
    topics = bench.cluster.topics

    assert configure(bench, 4, "2", {LEADER: "1000", FOLLOWER: "2000"}) == Code.NONE
    assert configure(bench, 4, "0", {FOLLOWER: "0"}) == Code.NONE
    assert configure(bench, 4, "7", {LEADER: "5"}, check=True) == Code.NONE

    assert topics.throttle_of(2) == (1000, 2000)
    assert topics.throttle_of(0) == (math.inf, 0)
    assert topics.throttle_of(7) == (math.inf, math.inf)
    assert shown(bench, 4, "0", LEADER, FOLLOWER) == {FOLLOWER: ("0", 2, False)}
    gone = {LEADER: None, FOLLOWER: None, OF_DISKS: None}
    assert configure(bench, 4, "2", gone) == Code.NONE
    assert configure(bench, 4, "9", gone) == Code.NONE
    assert topics.throttle_of(2) == (math.inf, math.inf)
    assert topics.throttle_of(0) == (math.inf, 0)


@pytest.mark.parametrize(
    ("name", "changes", "code"),
    [
        ("", {LEADER: "5"}, Code.INVALID_REQUEST),
        ("one", {LEADER: "5"}, Code.INVALID_REQUEST),
        ("0", {LEADER: "-5"}, Code.INVALID_CONFIG),
        ("0", {LEADER: "fast"}, Code.INVALID_CONFIG),
        ("0", {LEADER: "5", OF_DISKS: "5"}, Code.INVALID_REQUEST),
        ("0", {LEADER: "5", "log.retention.ms": "5"}, Code.INVALID_REQUEST),
    ],
)
def test_no_other_setting_of_a_broker_is_changed(
    bench: ReplicatedBench, name: str, changes: dict[str, str | None], code: Code
) -> None:
    assert configure(bench, 4, name, changes) == code
    assert bench.cluster.topics.throttles == {}


def test_a_node_that_cannot_be_read_bounds_nothing_and_is_not_written_over(
    bench: ReplicatedBench,
) -> None:
    bench.tree._session.ensure_path(KAFKA_THROTTLE)
    for odd in (b"{", b"[]", b'{"a": {}}', b'{"1": 5}', b'{"1": {"leader": "5"}}'):
        bench.tree._session.set(KAFKA_THROTTLE, odd)
        bench.refresh()
        assert bench.cluster.topics.throttle_of(1) == (math.inf, math.inf)
        assert configure(bench, 4, "0", {LEADER: "5"}) == Code.REQUEST_TIMED_OUT
        found = bench.tree._session.get(KAFKA_THROTTLE)
        assert found is not None
        assert found.value == odd


def test_lists_of_what_is_throttled_are_taken_and_not_kept(tmp_path: Path) -> None:
    bench = KafkaBench(tmp_path, topics={"own": {"format": "kafka"}})
    bench.shared.topics.create_declared("own")
    for text in ("*", "", "0:1", "0:1,1:2, 2:3"):
        assert configure(bench, 2, "own", {REPLICAS: text}) == Code.NONE
    for text in ("0", "0:1;1:2", "a:b"):
        assert configure(bench, 2, "own", {REPLICAS: text}) == Code.INVALID_CONFIG
    assert configure(bench, 2, "own", {REPLICAS: None}) == Code.NONE
    assert shown(bench, 2, "own", REPLICAS) == {REPLICAS: ("", 5, False)}
    bench.close()


# -- without a cluster --------------------------------------------------------------------------


def test_a_broker_by_itself_has_the_only_copy_and_leads(tmp_path: Path) -> None:
    bench = KafkaBench(tmp_path, topics={"own": {"format": "kafka"}})
    bench.shared.topics.create_declared("own")
    assert move(bench, "own", {0: (0,)}) == {0: Code.NONE}
    assert move(bench, "own", {0: (0, 1)}) == {0: Code.INVALID_REPLICA_ASSIGNMENT}
    assert move(bench, "own", {0: None}) == {0: Code.NO_REASSIGNMENT_IN_PROGRESS}
    assert listed(bench) == {}
    for kind in (PREFERRED, UNCLEAN):
        assert elect(bench, kind, {"own": (0,)}) == {"own": {0: Code.ELECTION_NOT_NEEDED}}
    bench.close()


def test_the_first_state_is_what_stands_for_a_single_copy() -> None:
    assert first_state((1,), LIVES, 2) == of(1, leader=1, epoch=2)


def test_an_unclean_election_finds_somebody_where_the_last_one_in_sync_has_lost_its_disk(
    bench: ReplicatedBench,
) -> None:
    """Broker 1 is there again, with an empty disk: it can't leave, being the last one."""
    bench.topic("lost", replace(of(1, 0, 2, leader=1, isr=(1,)), life=99))
    replica = Replica(1, LeaderSettings(), count(1), Refusals())
    replica.registered(LIVES[1])
    replica.opened(is_whole=False)
    found = []
    for version in range(1, 5):
        state = bench.state("lost")
        assert state is not None
        replica.learned(state, version, bench.lives)
        for each in replica.due(LogFacts(LogEnds(0, 0, 0), -1, 0), 100):
            assert isinstance(each, Change)
            bench.tree.replicas.change("lost", 0, each.make)
        bench.refresh()
        found.append(elect(bench, UNCLEAN, {"lost": (0,)})["lost"][0])
    state = bench.state("lost")
    assert state is not None
    assert state.leader != 1, (state, found)


def test_a_broker_that_is_down_keeps_its_copy_while_others_are_moved(
    bench: ReplicatedBench,
) -> None:
    bench.topic("led", of(0, 1, 2, isr=(0, 1)))
    bench.lives = {0: 10, 1: 11, 3: 13}
    bench.refresh()
    assert move(bench, "led", {0: (0, 3, 2)}) == {0: Code.NONE}
