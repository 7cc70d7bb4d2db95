"""A consumer group under whatever its members do: nothing is read twice, and it always settles."""

from example_counts import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hermes.groups.assignors import ASSIGNORS
from hermes.groups.consumer_member import ConsumerMember
from hermes.groups.consumer_values import ConsumerSettings, TopicIdPartition
from tests.support.simulated_members import (
    SESSION_MS,
    MemberWorld,
    SimulatedMember,
    Topics,
    settle,
)

WHICH = st.integers(0, 4)
SUBSCRIPTIONS = [("clicks",), ("clicks", "views"), ("views",), ("later",), ()]


class ConsumerGroups(RuleBasedStateMachine):
    """Five members, two of them static, in any order."""

    @initialize(
        assignor=st.sampled_from(sorted(ASSIGNORS)),
        settles_often=st.booleans(),
        large=st.sampled_from([0, 1000]),
    )
    def begin(self, assignor: str, settles_often: bool, large: int) -> None:
        self.settles_often = settles_often
        bounds = ConsumerSettings(SESSION_MS, assignors=(assignor,), large=large)
        self.world = MemberWorld(Topics({"clicks": 6, "views": 2}), bounds)
        self.members = [
            SimulatedMember(self.world, f"m{each}", ("clicks",), f"i{each}" if each < 2 else None)
            for each in range(5)
        ]
        for each in self.members[1:4]:
            each.start()
        settle(self.world, self.members)

    @rule(which=WHICH)
    def start(self, which: int) -> None:
        self.members[which].start()
        self.members[which].beat()

    @rule(times=st.integers(1, 3))
    def beat_all(self, times: int) -> None:
        for _ in range(times):
            for each in self.members:
                each.beat()

    @rule(
        which=WHICH, times=st.integers(1, 3), loses=st.sampled_from(["", "", "answer", "request"])
    )
    def beat(self, which: int, times: int, loses: str) -> None:
        for _ in range(times):
            self.members[which].beat(loses=loses)

    @rule(which=WHICH)
    def give_up(self, which: int) -> None:
        self.members[which].give_up()

    @rule(which=WHICH)
    def die(self, which: int) -> None:
        self.members[which].die()

    @rule(which=WHICH, for_a_while=st.booleans())
    def leave(self, which: int, for_a_while: bool) -> None:
        if self.members[which].is_alive:
            self.members[which].leave(for_a_while=for_a_while)

    @rule(which=WHICH, topics=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, which: int, topics: tuple[str, ...]) -> None:
        self.members[which].subscribe(*topics)

    @rule(which=WHICH, what=st.sampled_from(["start", "leave", "return", "subscribe", "time"]))
    def meanwhile(self, which: int, what: str) -> None:
        """Have something happen while the next target is made, which a thread may take long for."""
        member = self.members[which]

        def happen() -> None:
            if member.is_asking:
                return
            if what == "time":
                self.world.pass_time(9.0)
            if what in ("leave", "return") and member.is_alive:
                member.leave(for_a_while=what == "return")
            if what in ("start", "return"):
                member.start()
            if what == "subscribe":
                member.subscribe("views")
            member.beat()

        self.world.meanwhile.append(happen)

    @rule(name=st.sampled_from(["clicks", "views", "later"]), more=st.integers(0, 3))
    def change_topics(self, name: str, more: int) -> None:
        if more:
            self.world.topics.grow(name, len(self.world.topics.places(name)) + more)
        else:
            self.world.topics.delete(name)
        if self.settles_often:
            self.settle()

    @rule(seconds=st.sampled_from([0.1, 3.0, 9.0, 11.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule()
    def crash(self) -> None:
        self.world.crash()

    @invariant()
    def nothing_is_read_twice(self) -> None:
        """Of those that the group still counts on: whoever was silent too long doesn't know."""
        group = self.world.group
        known = [each for each in self.members if _is_counted_on(each, group.members)]
        read = [place for each in known for place in each.owned]
        assert len(read) == len(set(read))

    @invariant()
    def what_is_read_is_known(self) -> None:
        """The coordinator gives away nothing that somebody may still read."""
        group = self.world.group
        for each in self.members:
            if _is_counted_on(each, group.members):
                counted = group.members[each.member_id]
                assert each.owned <= counted.assigned.keys() | counted.revoking.keys()

    @invariant()
    def no_epoch_goes_back(self) -> None:
        group = self.world.group
        assert group.epoch >= self.world.answered_epoch
        assert group.assignment_epoch <= group.epoch

    @invariant()
    def what_is_counted_is_right(self) -> None:
        """Its members' sizes, what they want, and the time up to which nothing is due."""
        group = self.world.group
        members = group.members.values()
        assert group.size == sum(each.size for each in members)
        for topic in ("clicks", "views", "later"):
            wants = any(topic in each.subscribed for each in members)
            assert group.subscribes_to(topic) == wants
        times = [each.session_end for each in members]
        times += [each.revoke_end for each in members if each.revoke_end is not None]
        assert not times or (group.next_deadline() or 0.0) <= min(times)

    @rule()
    def settle(self) -> None:
        settle(self.world, self.members)
        alive = [each for each in self.members if each.is_alive]
        wanted = {name for each in alive for name in each.topics}
        every = frozenset[TopicIdPartition]().union(
            *(self.world.topics.places(each) for each in wanted)
        )
        owned = [place for each in alive for place in each.owned]
        assert sorted(owned) == sorted(every)
        for each in alive:
            able = frozenset[TopicIdPartition]().union(
                *(self.world.topics.places(e) for e in each.topics)
            )
            assert each.owned <= able


def _is_counted_on(member: SimulatedMember, known: dict[str, ConsumerMember]) -> bool:
    found = known.get(member.member_id)
    if found is None or not member.is_alive or found.epoch < 0:
        return False
    return member.epoch in (found.epoch, found.previous_epoch) and member.epoch > 0


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(
    max_examples=examples(80), stateful_step_count=30, deadline=None
)
