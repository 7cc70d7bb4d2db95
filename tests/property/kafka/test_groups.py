"""A group under whatever its members do: no partition is given twice, and it always settles."""

from itertools import permutations

import pytest
from example_counts import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from hermes.groups.values import GroupSettings, State
from hermes.protocol.kafka_errors import Code
from tests.support.simulated_consumers import (
    Consumer,
    SimulatedGroup,
    settle,
)

ALL = bytes(range(12))


def check_shared(consumers: list[Consumer]) -> None:
    """All partitions are shared among those that live, each once."""
    alive = [each for each in consumers if each.is_alive]
    assert len({each.generation for each in alive}) <= 1
    shared = b"".join(each.owned or b"" for each in alive)
    assert bytes(sorted(shared)) == (ALL if alive else b"")


class Groups(RuleBasedStateMachine):
    """Five consumers, two of them static, in any order."""

    @initialize(delay=st.sampled_from([0.0, 3.0]), at_once=st.booleans())
    def begin(self, delay: float, at_once: bool) -> None:
        self.world = SimulatedGroup(GroupSettings(initial_delay_seconds=delay))
        self.world.stores_at_once = at_once
        self.consumers = [
            Consumer(self.world, each, f"static{each}" if each < 2 else None) for each in range(5)
        ]
        self.generation = 0

    @rule(which=st.integers(0, 4), times=st.integers(1, 3))
    def go_on(self, which: int, times: int) -> None:
        for _ in range(times):
            self.consumers[which].step()

    @rule(which=st.integers(0, 4))
    def die(self, which: int) -> None:
        self.consumers[which].die()

    @rule(which=st.integers(0, 4))
    def leave(self, which: int) -> None:
        if self.consumers[which].is_alive:
            self.consumers[which].leave()

    @rule(which=st.integers(0, 4))
    def restart(self, which: int) -> None:
        self.consumers[which].restart()

    @rule(which=st.integers(0, 4), first=st.booleans())
    def change_assignors(self, which: int, first: bool) -> None:
        self.consumers[which].can = ("range", "roundrobin") if first else ("roundrobin",)

    @rule(seconds=st.sampled_from([0.1, 3.0, 9.0, 11.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @precondition(lambda self: self.world.unstored)
    @rule(fails=st.booleans())
    def disk(self, fails: bool) -> None:
        self.world.finish_storing(Code.COORDINATOR_NOT_AVAILABLE if fails else Code.NONE)

    @rule()
    def crash(self) -> None:
        self.world.crash()
        self.generation = self.world.group.generation
        for each in self.consumers:
            each.lose_connection()
            # What librdkafka says when it believes that its session has ended meanwhile.
            group = self.world.group
            code = group.heartbeat("", each.instance_id, each.generation, self.world.now)
            assert code is not Code.FENCED_INSTANCE_ID

    @rule()
    def settles(self) -> None:
        settle(self.world, self.consumers)
        check_shared(self.consumers)
        alive = sum(each.is_alive for each in self.consumers)
        assert len(self.world.group.members) == alive
        assert self.world.group.state is (State.STABLE if alive else State.EMPTY)

    @invariant()
    def generations_only_grow(self) -> None:
        assert self.world.group.generation >= self.generation
        self.generation = self.world.group.generation

    @invariant()
    def counts_are_right(self) -> None:
        members = self.world.group.members
        waiting = [each for each in members.by_id.values() if each.joining is not None]
        assert members.joining == len(waiting)
        assert sorted(members.static.values()) == sorted(
            each.member_id for each in members.by_id.values() if each.instance_id
        )
        for name, count in members.supported.items():
            can = [m for m in members.by_id.values() if name in {p.name for p in m.protocols}]
            assert count == len(can)

    @invariant()
    def nobody_of_this_generation_shares_a_partition(self) -> None:
        group = self.world.group
        current = [
            each
            for each in self.consumers
            if each.is_alive
            and each.generation == group.generation
            and group.members.check(each.member_id, each.instance_id) is Code.NONE
        ]
        owned = b"".join(each.owned or b"" for each in current)
        assert len(owned) == len(set(owned))


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("at_once", [True, False], ids=["quick disk", "slow disk"])
@pytest.mark.parametrize("event", ["die", "leave", "restart", "crash"])
def test_all_orders_of_three_consumers_and_an_event(event: str, at_once: bool) -> None:
    """Each step of two consumers' joining, with what a third does at every place between them."""
    for order in sorted(set(permutations("aaaabbb"))):
        for place in range(len(order) + 1):
            world = SimulatedGroup(GroupSettings(initial_delay_seconds=0))
            world.stores_at_once = at_once
            consumers = {name: Consumer(world, number) for number, name in enumerate("abc")}
            consumers["c"].instance_id = "static"
            settle(world, [consumers["c"]])
            for number, name in enumerate(order):
                if number == place and event == "crash":
                    world.crash()
                    for each in consumers.values():
                        each.lose_connection()
                elif number == place:
                    getattr(consumers["c"], event)()
                consumers[name].step()
                world.pass_time(0.01)
            settle(world, list(consumers.values()))
            check_shared(list(consumers.values()))
