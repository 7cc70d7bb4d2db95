"""Copies that may lack messages lead where settings allow it, and only when nobody else is left."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker_bench import log_lines
from replicated_bench import ReplicatedBench

from hermes.cluster.unclean_elections import UncleanElections
from hermes.config.topic import TopicConfig
from hermes.replication.state import PartitionState, forfeited, unclean

SETTINGS = {"format": "kafka", "unclean_leader_election": True}


class World:
    """Broker 0, whose elections see what the bench has read."""

    def __init__(self, directory: Path) -> None:
        self.bench = ReplicatedBench(directory, topics={"risky": SETTINGS}, replica_lag_time="10s")
        observers: list[Callable[[Any], None]] = []
        part: Any = SimpleNamespace(observe=observers.append)
        bench = self.bench
        self.elections = UncleanElections(
            bench.shared, bench.cluster.topics, bench.cluster.replica_changes, part
        )
        (self._observer,) = observers

    def live(self, *brokers: int) -> None:
        self.bench.lives = {each: 10 + each for each in brokers}
        self.bench.refresh()
        self._observer(SimpleNamespace(lives=self.bench.lives, contents=self.bench.tree.read()))

    def leader(self, topic: str) -> int:
        state = self.bench.state(topic)
        assert state is not None
        return state.leader


def led_by_1(*replicas: int) -> PartitionState:
    return PartitionState(replicas, 1, 11, 5, frozenset({1}))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.elections.stop()
    world.bench.close()


def test_the_first_copy_that_is_there_leads_once_nobody_in_sync_was_for_long(world: World) -> None:
    world.bench.topic("risky", led_by_1(1, 0, 2), led_by_1(1, 2, 0))
    world.bench.topic("safe", led_by_1(1, 0, 2))
    world.live(0, 2)

    with log_lines() as lines:
        world.bench.clock.advance(9.9)
        assert world.leader("risky") == 1
        world.bench.clock.advance(0.2)

    assert world.bench.state("risky") == unclean(led_by_1(1, 0, 2), 0, 10)
    assert world.bench.state("risky", 1) == led_by_1(1, 2, 0), "broker 2 is first there"
    assert world.leader("safe") == 1
    (line,) = lines
    assert "risky-0 is led here" in line
    assert "what only brokers [1] had of it is lost" in line


def test_who_only_restarts_is_waited_for(world: World) -> None:
    world.bench.topic("risky", led_by_1(1, 0, 2))
    world.live(0, 2)
    world.bench.clock.advance(6)
    world.live(0, 1, 2)
    world.bench.clock.advance(60)
    assert world.bench.state("risky") == led_by_1(1, 0, 2)

    world.live(0, 2)
    world.bench.clock.advance(6)
    assert world.leader("risky") == 1, "it is counted from anew"
    world.bench.clock.advance(6)
    assert world.leader("risky") == 0


def test_a_setting_that_is_made_afterwards_counts(world: World) -> None:
    world.bench.topic("safe", led_by_1(1, 0, 2))
    world.live(0, 2)
    world.bench.clock.advance(60)
    assert world.leader("safe") == 1

    config = world.bench.settings.config
    altered = {"safe": TopicConfig(unclean_leader_election=True)}
    world.bench.settings.config = replace(config, altered=altered)
    world.bench.settings.notify_topic("safe")
    world.bench.clock.advance(11)
    assert world.leader("safe") == 0


def test_who_leaves_to_one_that_is_gone_leaves_it_to_those_that_are_there(world: World) -> None:
    """Broker 1 is back with another disk, and says so; 2 isn't, and the sessions stay the same."""
    before = PartitionState((0, 1, 2), 1, 9, 5, frozenset({1, 2}))
    world.bench.topic("risky", before)
    world.live(0, 1)
    world.bench.clock.advance(1)
    world.bench.tree.replicas.change("risky", 0, lambda found: forfeited(found, 1))
    world.live(0, 1)
    world.bench.clock.advance(60)
    assert world.leader("risky") == 0
