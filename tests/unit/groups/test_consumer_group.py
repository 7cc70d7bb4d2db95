"""What a consumer group answers: step by step, with the errors of Kafka 4."""

from typing import Any

import pytest
from simulated_members import REBALANCE_MS, SESSION_MS, MemberWorld, Topics

from hermes.groups.consumer_values import (
    ConsumerHeartbeat,
    ConsumerMembership,
    ConsumerSettings,
    HeartbeatResponse,
    Reconciliation,
    TopicIdPartition,
)
from hermes.groups.offsets import TopicPartition
from hermes.groups.values import Leaving, State
from hermes.protocol.kafka_errors import Code, KafkaError

CLICKS = Topics({"clicks": 2}).places("clicks")


@pytest.fixture
def world() -> MemberWorld:
    return MemberWorld(Topics({"clicks": 2}))


def beat(member: str, epoch: int, owned: Any = None, **more: Any) -> ConsumerHeartbeat:
    numbers = None if owned is None else {place for place in CLICKS if place.partition in owned}
    return ConsumerHeartbeat(
        member, epoch, owned=None if numbers is None else frozenset(numbers), **more
    )


def joining(member: str, **more: Any) -> ConsumerHeartbeat:
    given = {"rebalance_timeout_ms": REBALANCE_MS, "topics": ("clicks",)}
    return beat(member, 0, (), **given | more)


def refused(world: MemberWorld, heartbeat: ConsumerHeartbeat) -> Code:
    with pytest.raises(KafkaError) as caught:
        world.ask(heartbeat)
    return caught.value.code


def numbers(beaten: HeartbeatResponse) -> list[int] | None:
    if beaten.assignment is None:
        return None
    return sorted(place.partition for place in beaten.assignment)


def two_of(world: MemberWorld) -> int:
    """Members `a`, which has to give something up, and `b`, which waits for it; b's epoch."""
    world.ask(joining("a"))
    return world.ask(joining("b")).member_epoch


def test_a_partition_is_given_on_once_it_was_given_up(world: MemberWorld) -> None:
    assert numbers(world.ask(joining("a"))) == [0, 1]
    second = world.ask(joining("b"))
    assert (second.member_epoch, numbers(second)) == (2, [])
    told = world.ask(beat("a", 1))
    assert (told.member_epoch, numbers(told)) == (1, [0])
    assert numbers(world.ask(beat("a", 1, {0, 1}))) is None
    assert numbers(world.ask(beat("b", 2))) is None
    assert world.group.state is State.RECONCILING
    assert world.ask(beat("a", 1, {0})).member_epoch == 2
    assert numbers(world.ask(beat("b", 2))) == [1]
    assert world.group.state is State.STABLE


def test_epochs_are_fenced_but_for_an_answer_that_was_lost(world: MemberWorld) -> None:
    two_of(world)
    world.ask(beat("a", 1))
    world.ask(beat("a", 1, {0}))
    assert world.group.members["a"].epoch == 2
    assert refused(world, beat("a", 1)) is Code.FENCED_MEMBER_EPOCH
    assert refused(world, beat("a", 1, {0, 1})) is Code.FENCED_MEMBER_EPOCH
    assert refused(world, beat("a", 3)) is Code.FENCED_MEMBER_EPOCH
    again = beat("a", 1, {0}, rebalance_timeout_ms=1, topics=("clicks",))
    assert numbers(world.ask(again)) == [0]
    assert numbers(world.ask(joining("a"))) == [0]
    assert refused(world, beat("nobody", 1)) is Code.UNKNOWN_MEMBER_ID


def test_who_is_not_heard_of_is_dead(world: MemberWorld) -> None:
    two_of(world)
    world.pass_time(SESSION_MS / 1000 - 1)
    world.ask(beat("b", 2))
    world.pass_time(1)
    assert list(world.group.members) == ["b"]
    assert world.group.epoch == 3
    assert numbers(world.ask(beat("b", 2))) == [0, 1]
    assert refused(world, beat("a", 1)) is Code.UNKNOWN_MEMBER_ID
    world.pass_time(SESSION_MS / 1000)
    assert world.group.state is State.EMPTY
    assert world.group.next_deadline() is None


def test_who_does_not_give_up_in_time_is_dead(world: MemberWorld) -> None:
    two_of(world)
    world.ask(beat("a", 1))
    for _ in range(REBALANCE_MS // SESSION_MS + 1):
        assert "a" in world.group.members
        world.ask(beat("a", 1, {0, 1}))
        world.ask(beat("b", 2))
        world.pass_time(SESSION_MS / 1000 - 1)
    assert list(world.group.members) == ["b"]


def test_topics_that_come_grow_and_go(world: MemberWorld) -> None:
    world.ask(joining("a", topics=("clicks", "later")))
    world.topics.grow("other", 3)
    assert world.ask(beat("a", 1)).member_epoch == 1
    world.topics.grow("clicks", 3)
    assert numbers(world.ask(beat("a", 1))) == [0, 1, 2]
    world.topics.grow("later", 1)
    assert len(world.ask(beat("a", 2)).assignment or ()) == 4
    world.topics.delete("clicks")
    assert world.ask(beat("a", 3)).assignment == world.topics.places("later")
    assert world.group.epoch == 4


def test_static_members(world: MemberWorld) -> None:
    world.ask(joining("a", instance_id="i"))
    assert refused(world, joining("b", instance_id="i")) is Code.UNRELEASED_INSTANCE_ID
    assert refused(world, beat("b", 1, instance_id="i")) is Code.FENCED_INSTANCE_ID
    assert refused(world, beat("a", 1, instance_id="j")) is Code.UNKNOWN_MEMBER_ID
    assert refused(world, beat("b", -1, instance_id="i")) is Code.FENCED_INSTANCE_ID
    assert world.ask(beat("a", -2, instance_id="i")).member_epoch == -2
    epoch = world.group.epoch
    world.ask(joining("c"))
    assert refused(world, joining("c", instance_id="i")) is Code.FENCED_INSTANCE_ID
    back = world.ask(joining("b", instance_id="i"))
    assert numbers(back) == [0]
    assert world.group.epoch == epoch + 1
    assert refused(world, beat("a", 1, instance_id="i")) is Code.FENCED_INSTANCE_ID
    world.ask(beat("b", -2, instance_id="i"))
    world.pass_time(SESSION_MS / 1000)
    assert not world.group.members


def test_a_static_member_goes_away_while_it_has_to_give_up(world: MemberWorld) -> None:
    world.ask(joining("a", instance_id="i"))
    world.ask(joining("b"))
    world.ask(beat("a", 1, {0, 1}))
    world.ask(beat("a", -2, instance_id="i"))
    assert numbers(world.ask(beat("b", 2))) == [1]
    assert numbers(world.ask(joining("c", instance_id="i"))) == [0]


def test_no_more_members_than_may_be() -> None:
    world = MemberWorld(Topics({"clicks": 2}), ConsumerSettings(max_members=1))
    world.ask(joining("a"))
    assert refused(world, joining("b")) is Code.GROUP_MAX_SIZE_REACHED
    world.ask(joining("a"))


def test_tools_take_members_out(world: MemberWorld) -> None:
    world.ask(joining("a", instance_id="i"))
    world.ask(joining("b"))
    codes = world.group.leave(
        [Leaving("b", "i"), Leaving("", "i"), Leaving("b", None), Leaving("b", None)]
    )
    assert codes == [Code.FENCED_INSTANCE_ID, Code.NONE, Code.NONE, Code.UNKNOWN_MEMBER_ID]
    assert world.group.state is State.EMPTY


def test_who_may_commit(world: MemberWorld) -> None:
    kept, lost = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
    group = world.group
    assert group.commit("", -1, [kept]) is Code.NONE
    two_of(world)
    world.ask(beat("a", 1))
    world.ask(beat("a", 1, {0}))
    world.ask(beat("b", 2))
    assert group.commit("a", 2, [kept, lost]) is Code.NONE
    assert group.commit("a", 1, [kept]) is Code.NONE
    assert group.commit("a", 1, [lost]) is Code.STALE_MEMBER_EPOCH
    assert group.commit("a", 3, [kept]) is Code.STALE_MEMBER_EPOCH
    assert group.commit("b", 1, [lost]) is Code.STALE_MEMBER_EPOCH
    assert group.commit("", -1, [kept]) is Code.UNKNOWN_MEMBER_ID
    assert group.commit("a", 2, [kept], knows_epochs=False) is Code.UNSUPPORTED_VERSION
    assert group.may_fetch(None, -1) is Code.NONE
    assert group.may_fetch("a", 1) is Code.STALE_MEMBER_EPOCH
    assert group.may_fetch("nobody", 1) is Code.UNKNOWN_MEMBER_ID


def test_the_assignor_that_most_ask_for(world: MemberWorld) -> None:
    world.ask(joining("a", assignor="range"))
    assert world.group.describe().assignor == "range"
    world.ask(joining("b", assignor="uniform"))
    world.ask(joining("c", assignor="uniform"))
    assert world.group.describe().assignor == "uniform"


def test_it_goes_on_as_it_was_after_a_crash(world: MemberWorld) -> None:
    two_of(world)
    world.ask(beat("a", 1))
    before = world.group.membership
    world.crash()
    assert world.group.membership == before
    assert world.group.members["a"].state is Reconciliation.UNREVOKED
    assert numbers(world.ask(beat("b", 2))) is None
    assert world.ask(beat("a", 1, {0})).member_epoch == 2
    assert numbers(world.ask(beat("b", 2))) == [1]


def test_an_empty_group_keeps_its_epoch(world: MemberWorld) -> None:
    two_of(world)
    for member in "ab":
        world.ask(beat(member, -1))
    assert isinstance(world.group.membership, ConsumerMembership)
    world.crash()
    assert (world.group.state, world.group.epoch) == (State.EMPTY, 4)
    assert world.ask(joining("a")).member_epoch == 5


def test_a_regular_expression_finds_what_it_is_told_to(world: MemberWorld) -> None:
    given = joining("a", topics=None, regex="cl.*")
    assert world.group.regex_of(given) == "cl.*"
    found = world.ask(given, ("clicks",))
    assert numbers(found) == [0, 1]
    assert world.group.regex_of(beat("a", 1)) == "cl.*"
    assert world.group.subscribes_to("clicks")
    world.topics.grow("clock", 1)
    more = world.ask(beat("a", 1), ("clicks", "clock"))
    assert more.member_epoch == 2
    assert more.assignment == CLICKS | world.topics.places("clock")
    assert world.group.regex_of(beat("a", 2, regex="")) is None


def test_places_are_those_of_a_topic_that_keeps_its_identity(world: MemberWorld) -> None:
    world.ask(joining("a"))
    world.topics.delete("clicks")
    world.topics.grow("clicks", 1)
    assert numbers(world.ask(beat("a", 1))) == []
    (place,) = world.ask(beat("a", 1, ())).assignment or ()
    assert place not in CLICKS
    assert isinstance(place, TopicIdPartition)


def test_a_static_member_comes_back_where_no_room_is_left(world: MemberWorld) -> None:
    for member in ("a", "b", "c"):
        world.ask(joining(member, instance_id=member))
    world.ask(beat("a", -2, instance_id="a"))
    world.settings = world.settings._replace(max_members=1)
    assert numbers(world.ask(joining("again", instance_id="a"))) == [0]
    assert [*world.group.members] == ["b", "c", "again"]
