"""Changes of many partitions' states: in few transactions, each with an outcome that is certain."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from memory_coordination import MemoryCoordination, MemorySession
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from hermes.coordination.replicas import ReplicaTree, StateChange, replicas_path
from hermes.coordination.topic_tree import TopicTree
from hermes.errors import CoordinationUnavailableError, WrongStateError
from hermes.kafka.replicas.changing import Changes
from hermes.replication.replica import Change
from hermes.replication.state import PartitionState, TopicReplicas, left

STATE = PartitionState((1, 2), 1, 0x77, 7, frozenset({1, 2}))
TOPIC_ID = UUID(int=1)


class FakeCopy:
    """A copy whose state is changed; `outcomes`: what it was told."""

    def __init__(self, topic: str, number: int = 0, topic_id: UUID = TOPIC_ID) -> None:
        self.topic, self.number, self.topic_id = topic, number, topic_id
        self.outcomes: list[tuple[PartitionState | None, int, bool]] = []
        self.known: tuple[PartitionState | None, int] = STATE, 0

    def change_ended(self, state: PartitionState | None, version: int, *, is_done: bool) -> None:
        self.outcomes.append((state, version, is_done))


def leave(found: PartitionState) -> PartitionState:
    if found != STATE:
        raise WrongStateError("another was quicker")
    return left(found, 1)


LEFT = left(STATE, 1)


class Stage:
    """Coordination in memory, and threads whose work is done when the test says so.

    Attributes:
        transactions: how many operations each had.
        is_away: whether coordination is.
    """

    def __init__(self) -> None:
        self.session: MemorySession = MemoryCoordination().session()
        TopicTree(self.session).prepare()
        self.tree = ReplicaTree(self.session)
        self.clock = Clock()
        self.transactions: list[int] = []
        self.is_away = False
        self.work: list[Callable[[], None]] = []
        self.changes = Changes(self._tree, self._in_thread, self.clock)
        self._transact = self.session.transact
        self.session.transact = self._counted  # type: ignore[method-assign]

    def _tree(self) -> ReplicaTree:
        if self.is_away:
            raise CoordinationUnavailableError("nobody answers")
        return self.tree

    def _counted(self, fill: Callable[[Any], object]) -> list[Any]:
        results = self._transact(fill)
        self.transactions.append(len(results))
        return results

    def _in_thread(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        done: Deferred[Any] = Deferred()
        self.work.append(lambda: done.callback(function(*args)))
        return done

    def run(self) -> None:
        while self.work:
            self.work.pop(0)()

    def topics(self, count: int, partitions: int = 1) -> list[str]:
        names = [f"t{number:03}" for number in range(count)]
        for name in names:
            assert self.tree.create(name, TopicReplicas(TOPIC_ID, (STATE,) * partitions))
        self.transactions.clear()
        return names

    def state(self, topic: str, number: int = 0) -> PartitionState | None:
        node = self.tree.read_certainly(topic)
        return None if node is None else node.state_of(number)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_many_changes_go_in_few_transactions(stage: Stage) -> None:
    copies = [FakeCopy(each, number) for each in stage.topics(120, 3) for number in range(3)]
    for each in copies:
        stage.changes.change(each, Change("leave", leave))
    stage.run()
    assert all(each.outcomes == [(LEFT, each.outcomes[0][1], True)] for each in copies)
    assert {each.outcomes[0][1] for each in copies} <= {1, 2}
    assert all(stage.state(each.topic, each.number) == LEFT for each in copies)
    assert len(stage.transactions) <= 5
    assert max(stage.transactions) <= 100


def test_the_version_that_is_told_is_that_of_the_node_in_the_end(stage: Stage) -> None:
    (name,) = stage.topics(1, 3)
    changes = [StateChange(name, 0, lambda found: found)]
    changes += [StateChange(name, number, leave) for number in (1, 2)]
    assert stage.tree.change_some(changes) == [(STATE, 1), (LEFT, 1), (LEFT, 1)]
    node = stage.tree.read_certainly(name)
    assert node is not None
    assert (node.version, node.partitions) == (1, (STATE, LEFT, LEFT))


def test_a_transaction_holds_what_is_sent_at_once(stage: Stage) -> None:
    names = stage.topics(3, 1200)  # of 110 KB each
    changes = [StateChange(each, 0, leave) for each in names]
    assert len(stage.tree.change_some(changes)) == 2
    assert len(stage.tree.change_some(changes[2:])) == 1


def test_one_that_cannot_be_made_is_in_nobodys_way(stage: Stage) -> None:
    names = stage.topics(4)
    stage.tree.change(names[1], 0, leave)
    stage.session.delete(replicas_path(names[2]), -1)
    copies = [FakeCopy(each) for each in names] + [FakeCopy(names[3], topic_id=UUID(int=2))]
    for each in copies:
        stage.changes.change(each, Change("leave", leave))
    stage.run()
    assert [each.outcomes for each in copies] == [
        [(LEFT, 1, True)],
        [(LEFT, 1, False)],
        [(None, -1, False)],
        [(LEFT, 1, True)],
        [(None, -1, False)],
    ]


def test_a_node_that_cannot_be_understood_holds_up_nobody_else(stage: Stage) -> None:
    bad, good = (FakeCopy(each) for each in stage.topics(2))
    value = stage.session.get(replicas_path(bad.topic))
    assert value is not None
    stage.session.put(replicas_path(bad.topic), b"{}")
    for each in (bad, good):
        stage.changes.change(each, Change("leave", leave))
    stage.run()
    assert (bad.outcomes, good.outcomes) == ([], [(LEFT, 1, True)])
    stage.session.put(replicas_path(bad.topic), value.value)
    stage.clock.advance(1)
    stage.run()
    assert bad.outcomes == [(STATE, 2, False)]


def test_while_coordination_is_away_nobody_is_told_anything(stage: Stage) -> None:
    copies = [FakeCopy(each) for each in stage.topics(3)]
    stage.is_away = True
    for each in copies:
        stage.changes.change(each, Change("leave", leave))
    stage.run()
    stage.clock.advance(1)
    stage.run()
    assert [each.outcomes for each in copies] == [[], [], []]
    stage.is_away = False
    stage.clock.advance(1)
    stage.run()
    assert [each.outcomes for each in copies] == [[(STATE, 0, False)]] * 3


def test_an_answer_that_is_lost_is_found_out(stage: Stage) -> None:
    def lose(fill: Callable[[Any], object]) -> list[Any]:
        counted(fill)
        raise CoordinationUnavailableError("no answer came")

    copies = [FakeCopy(each) for each in stage.topics(3)]
    counted, stage.session.transact = stage.session.transact, lose  # type: ignore[method-assign]
    for each in copies:
        stage.changes.change(each, Change("leave", leave))
    stage.work.pop(0)()
    stage.session.transact = counted  # type: ignore[method-assign]
    stage.run()
    assert [each.outcomes for each in copies] == [[(LEFT, 1, False)], *[[(LEFT, 1, True)]] * 2]


def test_nothing_is_begun_after_a_stop(stage: Stage) -> None:
    copies = [FakeCopy(each) for each in stage.topics(2)]
    for each in copies:
        stage.changes.change(each, Change("leave", leave))
    stage.changes.stop()
    stage.run()
    assert stage.state(copies[1].topic) == STATE
    assert copies[1].outcomes == []


def test_what_was_decided_for_another_state_than_is_read_meanwhile_is_not_asked_for(
    stage: Stage,
) -> None:
    first, second, third = (FakeCopy(each) for each in stage.topics(3))
    for each in (first, second, third):
        stage.changes.change(each, Change("lead", leave, of=STATE))
    second.known = LEFT, 4
    stage.run()
    assert second.outcomes == [(LEFT, 4, False)]
    assert [first.outcomes, third.outcomes] == [[(LEFT, 1, True)]] * 2
    assert stage.state(second.topic) == STATE
