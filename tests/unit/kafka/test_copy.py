"""A copy, as its broker drives it: on a real log, with what its surroundings are asked noted."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kafka_bench import KafkaBench
from kafka_logs import append_values
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from hermes.kafka.replicas.copy import Copy
from hermes.kafka.replicas.surroundings import CopyCounts
from hermes.replication.electing import Refusals
from hermes.replication.leading import LeaderSettings
from hermes.replication.messages import ReplicaFetch
from hermes.replication.moving import HAND_OVER_SECONDS
from hermes.replication.replica import Change
from hermes.replication.state import PartitionState, handed_over

#: Broker 1 leads, and 2 is to do so, once it has been in sync for long.
STATE = PartitionState((2, 1, 3), 1, 11, 7, frozenset({1, 2, 3}))
LIVES = {1: 11, 2: 22, 3: 33}


class Bench:
    """Broker 1 with its copy of a topic.

    Attributes:
        changes: of the partition's state, that it wants written.
        errors: the lines of errors.
        pressed: how often it wanted to be looked at again, soon.
    """

    def __init__(
        self, directory: Path, state: PartitionState = STATE, *, is_whole: bool = True
    ) -> None:
        self.clock = Clock()
        self.changes: list[Change] = []
        self.errors: list[str] = []
        self.pressed = 0
        self._broker = KafkaBench(directory, topics={"new": {"format": "kafka"}})
        self._broker.shared.topics.create_declared("new")
        self.log = self._broker.shared.topics.for_produce("new", 0)
        self.log.is_sole_copy = False
        around: Any = SimpleNamespace(
            broker_id=1,
            tokens=count(1),
            refusals=Refusals(),
            flusher=self._broker.flusher,
            lines=SimpleNamespace(
                info=lambda *_, **__: None,
                error=lambda _, text, **values: self.errors.append(text.format(**values)),
            ),
            counts=CopyCounts(),
            lease=None,
            now=self.clock.seconds,
            call_later=self.clock.callLater,
            in_thread=lambda *_: Deferred(),
            changed=lambda _: None,
            change=lambda _, change: self.changes.append(change),
            press=self._press,
        )
        self.copy = Copy(around, "new", UUID(int=1), 0, lambda *_: LeaderSettings())
        self.copy.opened(self._broker.shared.partitions.of(self.log), is_whole=is_whole)
        self.copy.learned(state, 1, LIVES, 11)

    def _press(self, _: Copy) -> None:
        self.pressed += 1

    def append(self) -> None:
        """Append a message, and flush it."""
        append_values(self.log, b"one")
        self.log.flush()

    def fetch(self, *followers: int) -> None:
        """Have followers say that they have all there is."""
        for each in followers:
            end = self.log.end_offset
            last_epoch = self.log.replica.epoch_before(end)
            fetch = ReplicaFetch(each, LIVES[each], 7, end, last_epoch, 0, 0)
            assert self.copy.leadership.judge(fetch, self.clock.seconds()) is None

    def let_2_be_preferred(self) -> None:
        """Have all been in sync for long; and then a message more."""
        self.append()
        self.fetch(2, 3)
        self.clock.advance(60)
        self.fetch(2, 3)
        self.append()

    def close(self) -> None:
        self._broker.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def test_leadership_is_handed_over_as_soon_as_all_have_what_was_appended(bench: Bench) -> None:
    """And not when the copy is looked at next: nothing is taken until then."""
    bench.let_2_be_preferred()
    bench.fetch(3)
    bench.copy.look()
    assert bench.copy.leadership.is_handing_over
    assert not bench.changes

    bench.fetch(2)

    (change,) = bench.changes
    assert change.make(STATE) == handed_over(STATE, 1, 2, 22)


def test_a_hand_over_that_comes_to_nothing_ends_soon(bench: Bench) -> None:
    bench.let_2_be_preferred()
    bench.copy.look()
    told: list[bool] = []
    bench.copy.leadership.when_handed_over().addCallback(told.append)
    for _ in range(2):
        assert bench.copy.leadership.is_handing_over
        assert bench.pressed
        bench.pressed = 0
        bench.clock.advance(HAND_OVER_SECONDS / 2)
        bench.copy.turn()
    assert not bench.copy.leadership.is_handing_over
    bench.fetch(3)
    assert told == [False]
    assert not bench.changes


def test_an_operator_is_told_where_the_last_copy_in_sync_lacks_something(tmp_path: Path) -> None:
    bench = Bench(tmp_path, replace(STATE, isr=frozenset({1})), is_whole=False)
    (change,) = bench.changes
    assert change.make(bench.copy.replica.state).is_lacking
    (line,) = bench.errors
    assert line.startswith("new-0 lacks what it had")
    bench.close()
