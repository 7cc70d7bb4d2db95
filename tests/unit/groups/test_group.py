"""What a group answers in each of its states; the errors are Kafka 4's."""

import struct

import pytest
from simulated_consumers import SESSION_MS, SimulatedGroup, a_join, protocols

from hermes.groups.values import GroupSettings, Leaving, State, Sync
from hermes.protocol.kafka_errors import Code

NOW = GroupSettings(initial_delay_seconds=0)


def stable(settings: GroupSettings = NOW) -> tuple[SimulatedGroup, list[str]]:
    """A group of two; the share of the first is `0`, of the other `1`."""
    world = SimulatedGroup(settings)
    members = [world.join(a_join())[0].member_id for _ in range(2)]
    answers = [world.join(a_join(each)) for each in members]
    world.pass_time(0)
    leader = answers[0][0].leader
    shares = {each: b"%d" % number for number, each in enumerate(members)}
    for each in members:
        world.sync(Sync(each, None, 1, shares if each == leader else {}))
    assert world.group.state is State.STABLE
    return world, members


def test_a_new_member_first_gets_an_id_for_a_session() -> None:
    world = SimulatedGroup(NOW)
    (answer,) = world.join(a_join())
    assert answer.code is Code.MEMBER_ID_REQUIRED
    world.pass_time(SESSION_MS / 1000)
    assert not world.group.pending
    assert world.join(a_join(answer.member_id))[0].code is Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"session_timeout_ms": 5_999}, Code.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, Code.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "nobody"}, Code.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody", "instance_id": "one"}, Code.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_an_empty_group_refuses(changes: dict[str, object], code: Code) -> None:
    world = SimulatedGroup(NOW)
    assert world.join(a_join(**changes))[0].code is code  # type: ignore[arg-type]
    assert not world.group.members


def test_protocols_that_nobody_else_has() -> None:
    world, _ = stable()
    for join in (a_join(protocols=protocols("sticky")), a_join(protocol_type="connect")):
        assert world.join(join)[0].code is Code.INCONSISTENT_GROUP_PROTOCOL


def test_the_first_rebalance_waits_for_more_and_is_extended_by_them() -> None:
    world = SimulatedGroup(GroupSettings(initial_delay_seconds=3))
    first = world.join(a_join(needs_id=False))
    world.pass_time(2)
    second = world.join(a_join(needs_id=False))
    world.pass_time(1)
    assert (first, second) == ([], [])
    world.pass_time(3)
    assert first[0].generation == second[0].generation == 1


def test_bounds() -> None:
    world, members = stable(NOW._replace(max_members=2))
    assert world.join(a_join())[0].code is Code.GROUP_MAX_SIZE_REACHED
    assert world.join(a_join(members[1]))[0].code is Code.NONE
    world = SimulatedGroup(NOW._replace(max_members=3))
    codes = [world.join(a_join())[0].code for _ in range(5)]
    assert codes == [Code.MEMBER_ID_REQUIRED] * 3 + [Code.GROUP_MAX_SIZE_REACHED] * 2
    world = SimulatedGroup(NOW._replace(max_member_bytes=10))
    assert world.join(a_join())[0].code is Code.INVALID_REQUEST


def test_heartbeats() -> None:
    world, (one, two) = stable()
    group, now = world.group, world.now
    assert group.heartbeat(one, None, 1, now) is Code.NONE
    assert group.heartbeat("nobody", None, 1, now) is Code.UNKNOWN_MEMBER_ID
    assert group.heartbeat(one, "static", 1, now) is Code.UNKNOWN_MEMBER_ID
    assert group.heartbeat(one, None, 0, now) is Code.ILLEGAL_GENERATION
    world.join(a_join(needs_id=False))
    assert group.heartbeat(two, None, 1, now) is Code.REBALANCE_IN_PROGRESS
    group.end(Code.NOT_COORDINATOR)
    assert group.heartbeat(one, None, 1, now) is Code.COORDINATOR_NOT_AVAILABLE


def test_commits() -> None:
    world, (one, two) = stable()
    group, now = world.group, world.now
    assert group.commit(one, None, 1, now) is Code.NONE
    assert group.commit(one, None, 0, now) is Code.ILLEGAL_GENERATION
    assert group.commit("nobody", None, 1, now) is Code.UNKNOWN_MEMBER_ID
    assert group.commit("", None, -1, now) is Code.UNKNOWN_MEMBER_ID  # a tool
    for each in (one, two):
        assert group.commit(each, None, 1, now) is Code.NONE  # before it joins again
        world.join(a_join(each, protocols=protocols("range", "sticky")))
    assert group.state is State.COMPLETING
    assert group.commit(one, None, 2, now) is Code.REBALANCE_IN_PROGRESS
    assert SimulatedGroup(NOW).group.commit("", None, -1, now) is Code.NONE


def test_syncs() -> None:
    world, (one, two) = stable()
    (answer,) = world.sync(Sync(two, None, 1, {}, "consumer", "range"))
    assert (answer.code, answer.assignment) == (Code.NONE, b"1")
    assert world.sync(Sync(one, None, 2, {}))[0].code is Code.ILLEGAL_GENERATION
    assert world.sync(Sync("nobody", None, 1, {}))[0].code is Code.UNKNOWN_MEMBER_ID
    wrong = world.sync(Sync(one, None, 1, {}, "connect", "range"))
    assert wrong[0].code is Code.INCONSISTENT_GROUP_PROTOCOL
    world.join(a_join(needs_id=False))
    assert world.sync(Sync(one, None, 1, {}))[0].code is Code.REBALANCE_IN_PROGRESS


def test_a_static_member_that_comes_back_keeps_its_place() -> None:
    world = SimulatedGroup(NOW)
    world.join(a_join("", "one"))
    world.pass_time(0)
    first = world.group.members.static["one"]
    world.sync(Sync(first, "one", 1, {first: b"all"}))
    (again,) = world.join(a_join("", "one"))
    assert (again.code, again.generation, again.skip_assignment) == (Code.NONE, 1, True)
    assert again.leader == again.member_id != first
    assert world.sync(Sync(again.member_id, "one", 1, {}))[0].assignment == b"all"
    # Whoever still uses the old id is another process of that name.
    group, now, fenced = world.group, world.now, Code.FENCED_INSTANCE_ID
    assert group.heartbeat(first, "one", 1, now) is fenced
    assert group.commit(first, "one", 1, now) is fenced
    assert world.sync(Sync(first, "one", 1, {}))[0].code is fenced
    assert world.join(a_join(first, "one"))[0].code is fenced
    assert group.leave([Leaving(first, "one")], now) == [fenced]
    # An old client would share anew if it knew that it leads.
    (old,) = world.join(a_join("", "one", can_skip=False))
    assert (old.leader, old.skip_assignment, old.members) == (again.member_id, False, ())


def test_a_static_member_is_told_its_new_id_when_that_is_on_the_disk() -> None:
    world = SimulatedGroup(NOW)
    world.join(a_join("", "one"))
    world.pass_time(0)
    first = world.group.members.static["one"]
    world.sync(Sync(first, "one", 1, {first: b"all"}))
    world.stores_at_once = False
    waiting = world.join(a_join("", "one"))
    another = world.join(a_join("", "one"))
    assert waiting[0].code is Code.FENCED_INSTANCE_ID
    world.finish_storing()
    assert another == []  # that was the other one's
    world.finish_storing()
    assert (another[0].code, another[0].generation) == (Code.NONE, 1)
    # If that can't be written, all join again, and that is written.
    third = world.join(a_join("", "one"))
    world.finish_storing(Code.COORDINATOR_NOT_AVAILABLE)
    assert (third[0].code, third[0].generation) == (Code.NONE, 2)


def test_members_go_on_after_a_crash() -> None:
    world, (one, two) = stable()
    before = world.group.membership
    world.crash()
    group = world.group
    assert (group.state, group.generation, group.topics) == (State.STABLE, 1, {"clicks"})
    for number, each in enumerate((one, two)):
        assert group.heartbeat(each, None, 1, world.now) is Code.NONE
        assert group.commit(each, None, 1, world.now) is Code.NONE
        assert world.sync(Sync(each, None, 1, {}))[0].assignment == b"%d" % number
    assert group.membership == before is not None
    # One that isn't heard of is dead after its session.
    world.pass_time(SESSION_MS / 1000 - 1)
    group.heartbeat(two, None, 1, world.now)
    world.pass_time(1)
    assert list(group.members.by_id) == [two]
    assert group.state is State.PREPARING


def test_who_asks_again_for_what_it_has_is_heard_of() -> None:
    world, (one, two) = stable()
    world.pass_time(SESSION_MS / 1000 - 1)
    assert world.sync(Sync(two, None, 1, {}))[0].code is Code.NONE
    world.pass_time(2)
    assert one not in world.group.members.by_id
    assert two in world.group.members.by_id


def test_after_a_crash_members_can_still_do_all_that_they_could() -> None:
    world = SimulatedGroup(NOW)
    both = protocols("range", "sticky")
    joined = world.join(a_join(needs_id=False, protocols=both))
    world.pass_time(0)
    member_id = joined[0].member_id
    world.sync(Sync(member_id, None, 1, {member_id: b"all"}))
    world.crash()
    newcomer = world.join(a_join(needs_id=False, protocols=protocols("sticky")))
    world.join(a_join(member_id, protocols=both))
    assert (newcomer[0].code, newcomer[0].protocol_name) == (Code.NONE, "sticky")


def test_a_group_without_members_is_empty_after_a_crash() -> None:
    world, members = stable()
    world.group.leave([Leaving(each, None) for each in members], world.now)
    world.crash()
    assert (world.group.state, world.group.generation) == (State.EMPTY, 2)
    assert world.group.topics == frozenset()


def test_a_static_member_of_a_generation_that_was_lost_is_not_fenced() -> None:
    world = SimulatedGroup(NOW)
    world.join(a_join("", "one"))
    world.pass_time(0)
    first = world.group.members.static["one"]
    world.sync(Sync(first, "one", 1, {first: b"all"}))
    # It comes back, with other protocols: generation 2, which nobody has stored.
    (lost,) = world.join(a_join("", "one", protocols=protocols("sticky", "range")))
    assert lost.generation == 2
    world.crash()
    group, now, unknown = world.group, world.now, Code.UNKNOWN_MEMBER_ID
    assert world.sync(Sync(lost.member_id, "one", 2, {}))[0].code is unknown
    assert group.heartbeat(lost.member_id, "one", 2, now) is unknown
    assert group.commit(lost.member_id, "one", 2, now) is unknown
    assert group.commit("", "one", -1, now) is unknown
    assert group.commit("", "one", 1, now) is unknown
    assert group.heartbeat("", "one", 1, now) is unknown
    assert world.join(a_join(lost.member_id, "one"))[0].code is unknown
    # So it joins as it did at first; then the ids that it had are another process's.
    (again,) = world.join(a_join("", "one"))
    assert again.code is Code.NONE
    fenced = Code.FENCED_INSTANCE_ID
    assert group.heartbeat(first, "one", 1, now) is fenced
    assert group.heartbeat("of another life", "one", 1, now) is fenced
    assert world.join(a_join(first, "one"))[0].code is fenced


def test_leaving() -> None:
    world, (one, two) = stable()
    pending = world.join(a_join())[0].member_id
    leaving = [("nobody", None), ("", "nobody"), ("", None), (pending, None), (one, None)]
    codes = world.group.leave([Leaving(*each) for each in leaving], world.now)
    assert codes == [Code.UNKNOWN_MEMBER_ID] * 3 + [Code.NONE] * 2
    assert list(world.group.members.by_id) == [two]


def test_the_last_that_leaves_or_dies_leaves_an_empty_group() -> None:
    world, members = stable()
    world.group.leave([Leaving(each, None) for each in members], world.now)
    assert (world.group.state, world.group.generation) == (State.EMPTY, 2)
    world, _ = stable()
    world.pass_time(SESSION_MS / 1000 + 60)
    assert world.group.state is State.EMPTY
    assert world.group.next_deadline() is None


def test_everybody_who_waits_is_answered_when_a_group_moves() -> None:
    world, (one, two) = stable()
    waiting, again = world.join(a_join(needs_id=False)), world.join(a_join(one))
    world.group.end(Code.NOT_COORDINATOR)
    assert waiting[0].code is again[0].code is Code.NOT_COORDINATOR
    assert world.join(a_join(two))[0].code is Code.COORDINATOR_NOT_AVAILABLE
    assert world.group.next_deadline() is None


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0\5abc"])
def test_members_that_say_no_topics_may_want_any(metadata: bytes) -> None:
    world = SimulatedGroup(NOW)
    kind = protocols("range")[0]._replace(metadata=metadata)
    world.join(a_join(needs_id=False, protocols=(kind,)))
    world.pass_time(0)
    assert world.group.topics is None
    assert world.group.subscribes_to("anything")


@pytest.mark.parametrize("members", [10, 1])
def test_what_members_want_is_looked_through_in_no_time(members: int) -> None:
    """What many of them say alike, once; and of what each says, only so much."""
    world, kind = SimulatedGroup(NOW), protocols("range")[0]
    topics = struct.pack(">hi", 0, 60_000 // members) + b"\0\1a" * (60_000 // members)
    for number in range(members):  # what one has beside them is its own
        own = kind._replace(metadata=topics + bytes([number]))
        world.join(a_join(needs_id=False, protocols=(own,)))
    world.pass_time(0)
    assert world.group.topics == (frozenset("a") if members > 1 else None)


def test_a_rebalance_without_patience_waits_for_static_members_in_peace() -> None:
    world = SimulatedGroup(NOW)
    joined = [world.join(a_join("", each, needs_id=False)) for each in ("one", None)]
    world.pass_time(0)
    for (each,), instance_id in zip(joined, ("one", None), strict=True):
        world.sync(Sync(each.member_id, instance_id, 1, {}))
    assert world.group.state is State.STABLE
    world.join(a_join("", "one", rebalance_timeout_ms=0))  # it has started anew
    world.group.leave([Leaving(joined[1][0].member_id, None)], world.now)
    for _ in range(3):
        world.group.advance(world.now)
    due = world.group.next_deadline()
    assert due is not None
    assert due > world.now
    world.pass_time(SESSION_MS / 1000)
    assert world.group.state is State.EMPTY
