"""Groups so large that their targets are made in threads: seldom, and in nobody's way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated_members import REBALANCE_MS, MemberWorld, SimulatedMember, Topics, settle
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from hermes.groups.consumer_values import (
    ConsumerHeartbeat,
    ConsumerSettings,
    HeartbeatResponse,
)
from hermes.groups.coordinator import GroupCoordinator
from hermes.groups.local_groups import CoordinatorSettings, LocalGroups
from hermes.groups.offset_file import OffsetFile
from hermes.groups.values import State
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.storage import FileLayer

LARGE = ConsumerSettings(session_ms=45_000, large=8)


@pytest.fixture
def world() -> MemberWorld:
    return MemberWorld(Topics({"clicks": 40, "views": 8}), LARGE)


def members_of(world: MemberWorld, count: int) -> list[SimulatedMember]:
    return [SimulatedMember(world, f"m{each}", ("clicks",)) for each in range(count)]


def join(member: SimulatedMember) -> None:
    member.start()
    member.beat()


def test_many_who_join_share_few_assignments(world: MemberWorld) -> None:
    members = members_of(world, 20)
    for member in members:
        join(member)
        world.pass_time(0.09)
    assert world.group.epoch == 20
    assert world.assignments == 2, "at once for the first, and after a second for those until then"
    assert len(members[0].owned) == 40, "the first one has all, until it is told otherwise"
    world.pass_time(1)
    assert world.assignments == 3
    settle(world, members)
    assert world.assignments == 3
    assert [len(each.owned) for each in members] == [2] * 20
    assert world.group.state is State.STABLE


def test_a_small_group_is_assigned_with_each_heartbeat(world: MemberWorld) -> None:
    world.settings = LARGE._replace(large=1_000)
    for member in members_of(world, 5):
        join(member)
        assert world.group.assignment_epoch == world.group.epoch
    assert world.assignments == 5


def test_who_joins_too_early_is_at_the_epoch_of_the_target_that_there_is(
    world: MemberWorld,
) -> None:
    first, second = members_of(world, 2)
    join(first)
    join(second)
    assert (second.epoch, second.owned) == (1, frozenset())
    assert world.group.state is State.ASSIGNING
    world.pass_time(0.9)
    second.beat()
    assert second.epoch == 1
    world.pass_time(0.1)
    assert world.group.state is State.RECONCILING
    second.beat()
    assert second.epoch == 2


def test_who_leaves_while_it_is_made_has_no_share(world: MemberWorld) -> None:
    first, second, third = members = members_of(world, 3)
    join(first)
    join(second)
    world.meanwhile = [first.leave, lambda: join(third)]
    world.pass_time(1)
    assert {len(each.target) for each in world.group.describe().members} == {20, 0}
    settle(world, members)
    assert [len(each.owned) for each in members] == [0, 20, 20]


def test_a_static_member_that_is_back_while_it_is_made_gets_its_share(world: MemberWorld) -> None:
    first, second = members_of(world, 2)
    first.instance_id = "one"
    join(first)
    join(second)

    def return_() -> None:
        first.leave(for_a_while=True)
        join(first)

    world.meanwhile = [return_]
    world.pass_time(1)
    (target,) = (each.target for each in world.group.describe().members if each.instance_id)
    assert len(target) == 20
    assert world.assignments == 2


def test_nobody_gets_what_it_does_not_want_any_more(world: MemberWorld) -> None:
    first, second = members = members_of(world, 2)
    for each in members:
        each.topics = ("clicks", "views")
        join(each)
    assert first.owned == world.topics.places("clicks") | world.topics.places("views")
    first.subscribe("views")
    first.beat()
    assert world.assignments == 1
    assert first.assigned == world.topics.places("views")
    first.give_up()
    first.beat()
    second.subscribe("clicks")
    second.beat()
    world.pass_time(1)
    settle(world, members)
    assert first.owned == world.topics.places("views")
    assert second.owned == world.topics.places("clicks")


def test_a_crash_does_not_make_them_wait(world: MemberWorld) -> None:
    first, second = members_of(world, 2)
    join(first)
    join(second)
    world.crash()
    world.pass_time(0)
    assert world.group.assignment_epoch == 2


# -- in threads ---------------------------------------------------------------------------------


class Threads:
    """A broker's groups, whose targets are made when a test says so."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.made: list[Callable[[], Any]] = []
        settings = CoordinatorSettings(consumer=LARGE)
        self.groups = GroupCoordinator(
            LocalGroups(
                OffsetFile(str(path), FileLayer(), pytest.fail),
                0,
                lambda: (0,),
                lambda: settings,
                Topics({"clicks": 40, "views": 2}),
                self.clock,
                lambda: 0,
                self._call,
            )
        )
        self.groups.begin()

    def _call(self, function: Callable[..., Any], *given: Any) -> "Deferred[Any]":
        if function.__name__ != "make":
            return maybeDeferred(function, *given)
        done: Deferred[Any] = Deferred()
        self.made.append(lambda: maybeDeferred(function).chainDeferred(done))
        return done

    def beat(self, member: str, epoch: int = 0, group: str = "g", topic: str = "clicks") -> Any:
        """Send a heartbeat; a list that gets the answer."""
        beat = ConsumerHeartbeat(member, epoch)
        if epoch == 0:
            beat = beat._replace(rebalance_timeout_ms=REBALANCE_MS, topics=(topic,))
            beat = beat._replace(owned=frozenset())
        answers: list[Any] = []
        asked = self.groups.consumer_heartbeat(group, beat, _nothing)
        Deferred.fromCoroutine(asked).addBoth(answers.append)
        return answers


async def _nothing(_: str) -> tuple[str, ...]:
    return ()


@pytest.fixture
def threads(tmp_path: Path) -> Threads:
    return Threads(tmp_path / "groups")


def test_who_comes_while_it_is_made_waits_and_other_groups_do_not(threads: Threads) -> None:
    first, second = threads.beat("a"), threads.beat("b")
    assert (first, second, len(threads.made)) == ([], [], 1)
    (other,) = threads.beat("c", group="other", topic="views")
    assert len(other.assignment) == 2
    (left,) = threads.beat("b", -1)
    assert left == HeartbeatResponse("b", -1)
    threads.made.pop()()
    assert len(first[0].assignment) == 40
    assert second[0].value.code is Code.UNKNOWN_MEMBER_ID
    assert threads.made == []


def test_the_next_one_is_made_when_it_is_time_though_nobody_asks(threads: Threads) -> None:
    threads.beat("a")
    threads.made.pop()()
    (second,) = threads.beat("b")
    assert second.assignment == frozenset()
    threads.clock.advance(0.9)
    assert threads.made == []
    threads.clock.advance(0.1)
    waiting = threads.beat("b", second.member_epoch)
    assert waiting == []
    threads.made.pop()()
    assert waiting[0].member_epoch == second.member_epoch + 1
    assert threads.groups.local.counts.rebalances == 2


def test_a_thread_that_fails_is_tried_again(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError

    logged: list[str] = []
    log = "hermes.groups.group_entry.Assigner._log.failure"
    monkeypatch.setattr(log, lambda text, failure, **_: logged.append(text))
    answers = threads.beat("a")
    with monkeypatch.context() as patch:
        patch.setattr("hermes.groups.targets.ASSIGNORS", {"uniform": fail})
        threads.made.pop()()
    assert answers[0].assignment == frozenset()
    assert logged == ["group {name} got no target assignment"]
    threads.clock.advance(1)
    threads.made.pop()()
    (again,) = threads.beat("a", 1)
    assert len(again.assignment) == 40


def test_a_group_that_is_given_up_meanwhile_takes_no_target(threads: Threads) -> None:
    answers = threads.beat("a")
    threads.groups.stop()
    threads.made.pop()()
    assert isinstance(answers[0].value, KafkaError)
    assert threads.groups.local.counts.rebalances == 0
