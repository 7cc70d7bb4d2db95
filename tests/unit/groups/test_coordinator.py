"""A coordinator over its lives, with a clock and a file: what goes on, and what is forgotten."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from memory_coordination import MemoryCoordination
from simulated_consumers import a_join
from simulated_members import Topics
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from hermes.errors import CoordinationError
from hermes.groups import local_groups
from hermes.groups.consumer_values import ConsumerHeartbeat, HeartbeatResponse
from hermes.groups.coordinator import GroupCoordinator
from hermes.groups.local_groups import CoordinatorSettings, LocalGroups
from hermes.groups.offset_file import OffsetFile
from hermes.groups.offset_tree import OffsetTree
from hermes.groups.offsets import Change, Committed, GroupStore, TopicPartition
from hermes.groups.values import DescribedGroup, GroupSettings, Leaving, State, Sync
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.storage import FileLayer

CLICKS, VIEWS = TopicPartition("clicks", 0), TopicPartition("views", 3)
DAY = 24 * 3600
SETTINGS = CoordinatorSettings(GroupSettings(initial_delay_seconds=0), retention_ms=7 * DAY * 1000)


class World:
    """One broker's groups, from start to start."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self._path = str(path)
        self.settings = SETTINGS
        self.brokers = frozenset({0})
        self.held: list[Deferred[None]] | None = None
        self.has_threads = True
        self.topics = Topics({"clicks": 4})
        self.start()

    def start(self) -> None:
        """Be the next life; nobody stops the one before."""
        self.clock.calls.clear()
        self.store = OffsetFile(self._path, FileLayer(), pytest.fail)
        self.groups = GroupCoordinator(
            LocalGroups(
                self.opened(),
                0,
                lambda: self.brokers,
                lambda: self.settings,
                self.topics,
                self.clock,
                self.now_ms,
                self.in_thread,
            )
        )
        self.groups.begin()

    def opened(self) -> GroupStore:
        """The store that is used."""
        return self.store

    def in_thread(self, function: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """Call a function at once; or when those that are `held` are let go."""
        if not self.has_threads:
            raise RuntimeError("can't start new thread")
        if self.held is None:
            return maybeDeferred(function, *args)
        turn: Deferred[None] = Deferred()
        self.held.append(turn)
        return turn.addCallback(lambda _: function(*args))

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self.clock.seconds() * 1000)

    def done(self, asked: Coroutine[Any, Any, Any]) -> Any:
        """Let a request be answered, which needs no time."""
        answers: list[Any] = []
        Deferred.fromCoroutine(asked).addBoth(answers.append)
        self.clock.advance(0)
        (answer,) = answers
        return answer

    def commit(self, offset: int, *places: TopicPartition, **changes: Any) -> None:
        committed = Committed(offset, -1, "", self.now_ms())._replace(**changes)
        asked = self.groups.commit("g", "", None, -1, dict.fromkeys(places, committed))
        assert self.done(asked) is Code.NONE

    def offsets(self) -> dict[TopicPartition, int]:
        code, found = self.done(self.groups.fetch("g", None))
        assert code is Code.NONE
        return {place: each.offset for place, each in found.items()}

    def share(self, instance_id: str | None = None, **changes: Any) -> str:
        """Let a member have the group to itself; its id."""
        join = a_join("", instance_id, needs_id=False, **changes)
        joined = self.done(self.groups.join("g", join))
        assert joined.code is Code.NONE
        sync = Sync(joined.member_id, instance_id, joined.generation, {joined.member_id: b"all"})
        assert self.done(self.groups.sync("g", sync)).assignment == b"all"
        return str(joined.member_id)

    def expire(self) -> None:
        """Look for what has expired, as is done every ten minutes."""
        assert self.done(self.groups.expiry.expire()) is None


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "groups")


def heartbeat(world: World, member_id: str, instance_id: str | None = None) -> Code:
    code: Code = world.done(world.groups.heartbeat("g", member_id, instance_id, 1))
    return code


@pytest.mark.parametrize("instance_id", [None, "one"])
def test_a_member_need_not_join_again_after_a_restart(
    world: World, instance_id: str | None
) -> None:
    member_id = world.share(instance_id)
    asks: list[Callable[[], Any]] = [
        lambda: heartbeat(world, member_id, instance_id),
        lambda: world.done(world.groups.sync("g", Sync(member_id, instance_id, 1, {}))).code,
        lambda: world.done(world.groups.join("g", a_join(member_id, instance_id))).code,
        lambda: world.done(world.groups.commit("g", member_id, instance_id, 1, {})),
        lambda: world.done(world.groups.leave("g", [Leaving(member_id, instance_id)]))[1][0],
    ]
    for first in asks:  # whichever is the first that the new life hears
        world.start()
        assert first() is Code.NONE


def test_a_member_that_does_not_come_back_after_a_restart_is_dead(world: World) -> None:
    world.share()
    world.start()
    described = world.done(world.groups.describe("g"))
    assert isinstance(described, DescribedGroup)
    assert (described.state, len(described.members)) == (State.STABLE, 1)
    world.clock.advance(10)
    assert world.done(world.groups.describe("g")).state is State.EMPTY
    world.start()
    assert world.done(world.groups.describe("g")).state is State.EMPTY


def test_a_restart_has_no_member_twice(world: World) -> None:
    old = world.share("one")
    joined = world.done(world.groups.join("g", a_join("", "one")))
    assert (joined.code, joined.generation) == (Code.NONE, 1)
    world.start()
    assert heartbeat(world, joined.member_id, "one") is Code.NONE
    assert heartbeat(world, old, "one") is Code.FENCED_INSTANCE_ID


def test_a_client_that_leaves_while_its_group_is_read_leaves_nothing_behind(world: World) -> None:
    world.held = []
    for number in range(3):
        asked = world.groups.join(f"group {number}", a_join(""))
        Deferred.fromCoroutine(asked).addErrback(lambda _: None).cancel()
    while world.held:
        world.held.pop(0).callback(None)
    assert not world.groups.local.entries
    assert not world.store._loaded
    world.held = None
    world.share()  # and others go on
    assert world.store._loaded == {"g"}


def test_all_who_wait_for_a_group_that_cannot_be_read_hear_of_it_at_once(world: World) -> None:
    calls = world.held = []
    answers: list[Any] = []
    for _ in range(3):
        Deferred.fromCoroutine(world.groups.fetch("g", None)).addBoth(answers.append)
    calls.pop(0).errback(CoordinationError("out of reach"))
    assert answers == [(Code.COORDINATOR_LOAD_IN_PROGRESS, {})] * 3
    assert not calls
    world.held = None
    assert world.offsets() == {}


def test_offsets_of_a_group_without_members_expire(world: World) -> None:
    member_id = world.share()
    world.clock.advance(1)
    heartbeat(world, member_id)
    committed = Committed(5, -1, "", world.now_ms())
    asked = world.groups.commit("g", member_id, None, 1, {CLICKS: committed})
    assert world.done(asked) is Code.NONE
    world.done(world.groups.leave("g", [Leaving(member_id, None)]))
    world.clock.pump([DAY] * 6)
    world.expire()
    assert world.offsets() == {CLICKS: 5}
    world.start()  # since when it is empty outlasts a restart
    world.clock.advance(DAY - 1)
    world.expire()
    assert world.offsets() == {CLICKS: 5}
    world.clock.advance(1)
    world.expire()
    assert world.offsets() == {}
    assert world.done(world.groups.describe("g")) is Code.GROUP_ID_NOT_FOUND
    assert world.groups.local.counts.expired == 1
    world.start()
    assert world.done(world.groups.list_groups()) == []


def test_offsets_expire_of_a_group_that_nobody_asks_for(world: World) -> None:
    world.commit(5, CLICKS)
    world.start()
    world.clock.advance(8 * DAY)
    world.start()
    assert world.offsets() == {}


def test_offsets_of_a_topic_that_was_deleted_meanwhile_are_not_another_ones(world: World) -> None:
    old, new = uuid4(), uuid4()
    topics = {"clicks": old, "views": old}
    world.commit(5, CLICKS, VIEWS, topic_id=old)
    world.start()
    world.topics.is_gone = lambda name, topic_id: topics.get(name) != topic_id
    assert world.offsets() == {CLICKS: 5, VIEWS: 5}
    world.start()
    topics["clicks"] = new
    world.topics.is_gone = lambda name, topic_id: topics.get(name) != topic_id
    assert world.offsets() == {VIEWS: 5}
    world.expire()
    world.start()
    assert world.offsets() == {VIEWS: 5}
    world.commit(1, CLICKS, topic_id=new)
    del topics["views"]
    world.topics.is_gone = lambda name, topic_id: topics.get(name) != topic_id
    world.expire()
    assert world.offsets() == {CLICKS: 1}


def test_what_was_committed_of_deleted_topics_goes_together(world: World) -> None:
    places = [TopicPartition(f"topic {each}", 0) for each in range(100)]
    world.commit(5, CLICKS, *places)
    written: list[Change] = []
    write = world.store.write

    def noting(changes: Sequence[Change]) -> Any:
        written.extend(each for each in changes if not each.is_empty)
        return write(changes)

    world.store.write = noting  # type: ignore[method-assign]
    for place in places:
        world.groups.expiry.topic_gone(place.topic)
        world.clock.advance(0.005)
    world.commit(1, places[-1])  # of another topic with the name
    world.clock.advance(1)
    assert world.offsets() == {CLICKS: 5, places[-1]: 1}
    assert len(written) == 2
    world.groups.expiry.topic_gone("clicks")  # and so it goes on
    world.clock.advance(1)
    assert world.offsets() == {places[-1]: 1}
    world.start()
    assert world.offsets() == {places[-1]: 1}


def test_a_coordinator_that_stops_forgets_nothing_more(world: World) -> None:
    world.commit(5, CLICKS)
    world.groups.expiry.topic_gone("clicks")
    world.groups.stop()
    world.groups.expiry.topic_gone("views")
    assert not world.clock.getDelayedCalls()


def test_offsets_of_a_topic_that_members_want_stay_and_others_expire(world: World) -> None:
    world.commit(5, CLICKS, VIEWS)
    member_id = world.share(session_timeout_ms=1_800_000)
    for _ in range(8 * 144):
        world.clock.advance(600)
        assert heartbeat(world, member_id) is Code.NONE
    assert world.offsets() == {CLICKS: 5}
    assert world.groups.local.counts.expired == 1


def test_offsets_without_a_group_expire_from_their_commit(world: World) -> None:
    world.commit(5, CLICKS)
    world.clock.advance(4 * DAY)
    world.commit(6, VIEWS)
    world.clock.advance(3 * DAY)
    world.expire()
    assert world.offsets() == {VIEWS: 6}
    # One that says itself how long it is to be kept.
    world.commit(7, CLICKS, expire_ms=world.now_ms() + 1000)
    world.clock.advance(1)
    world.expire()
    assert world.offsets() == {VIEWS: 6}


def test_what_is_kept_for_longer_than_others_is_kept(world: World) -> None:
    world.commit(7, CLICKS, expire_ms=world.now_ms() + 30 * DAY * 1000)
    world.clock.pump([DAY] * 29)
    world.expire()
    assert world.offsets() == {CLICKS: 7}


def begin_expiry(world: World) -> None:
    Deferred.fromCoroutine(world.groups.expiry.expire())


def have_topics_gone(world: World) -> None:
    """Let topics be deleted, and others of their names be there before that is looked into."""
    for topic in ("clicks", "views"):
        world.groups.expiry.topic_gone(topic)
    world.clock.advance(1)


@pytest.mark.parametrize("forget", [begin_expiry, have_topics_gone])
def test_what_is_committed_while_offsets_are_forgotten_stays(
    world: World, forget: Callable[[World], None]
) -> None:
    world.commit(5, CLICKS, VIEWS)
    world.settings = SETTINGS._replace(retention_ms=1000)
    world.clock.advance(2)
    calls = world.held = []
    forget(world)
    answers: list[Any] = []
    committed = Committed(6, -1, "", world.now_ms())
    asked = world.groups.commit("g", "", None, -1, {CLICKS: committed})
    Deferred.fromCoroutine(asked).addBoth(answers.append)
    while calls:
        calls.pop(0).callback(None)
    assert answers == [Code.NONE]
    world.held = None
    assert world.offsets() == {CLICKS: 6}


class CoordinatedWorld(World):
    """The same with the groups in coordination."""

    coordination = MemoryCoordination()

    def opened(self) -> GroupStore:
        """The store that is used."""
        return OffsetTree(self.coordination.session)


def test_a_group_that_cannot_be_read_leaves_the_others_alone(tmp_path: Path) -> None:
    world = CoordinatedWorld(tmp_path / "unused")
    world.commit(5, CLICKS)
    session = world.coordination.session()
    session.put("/hermes/kafka/groups/damaged", b"none of ours")
    (listed,) = world.done(world.groups.list_groups())
    assert listed.name == "g"
    world.clock.advance(8 * DAY)
    assert world.offsets() == {}
    record = b'{"generation": -1, "protocol_type": "", "empty_ms": -1}'
    session.put("/hermes/kafka/groups/damaged", record)
    (listed,) = world.done(world.groups.list_groups())
    assert listed.name == "damaged"


def test_whose_a_group_is_is_worked_out_once_for_the_same_brokers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    find = local_groups.coordinator_for

    def noting(group: str, brokers: Iterable[int]) -> int | None:
        asked.append(group)
        return find(group, brokers)

    monkeypatch.setattr(local_groups, "coordinator_for", noting)
    world.commit(5, CLICKS)
    world.clock.advance(1)
    asked.clear()
    world.clock.pump([1] * 5)
    assert asked == []
    for brokers, is_known in ((frozenset(), True), ({0, 1}, find("g", (0, 1)) == 0), ({1}, False)):
        world.brokers = frozenset(brokers)
        world.clock.advance(1)
        assert ("g" in world.groups.local.entries) is is_known
    assert len(asked) <= 3


def test_others_have_turns_while_expired_offsets_are_looked_for(world: World) -> None:
    committed = Committed(5, -1, "", world.now_ms(), topic_id=uuid4())
    places = [TopicPartition("clicks", number) for number in range(1000)]
    for name in ("g", "h", "i"):
        asked = world.groups.commit(name, "", None, -1, dict.fromkeys(places, committed))
        assert world.done(asked) is Code.NONE
    looked_at: list[str] = []
    world.topics.is_gone = lambda name, topic_id: bool(looked_at.append(name))
    begin_expiry(world)
    assert len(looked_at) == 1000
    world.clock.pump([0] * 3)
    assert len(looked_at) == 3000


def test_expiry_goes_on_by_itself(world: World) -> None:
    world.commit(5, CLICKS)
    world.clock.pump([600] * (7 * 144 + 1))
    assert world.groups.local.entries == {}
    assert world.offsets() == {}


# -- consumer groups ----------------------------------------------------------------------------


async def nothing_matches(_: str) -> tuple[str, ...]:
    return ()


def beat(world: World, member: str, epoch: int, matches: tuple[str, ...] = (), **more: Any) -> Any:
    """Send a heartbeat of a member of a consumer group; the answer, or the error's code."""
    given = {"rebalance_timeout_ms": 60_000, "topics": ("clicks",), "owned": frozenset()}
    heartbeat = ConsumerHeartbeat(member, epoch, **(given if epoch == 0 else {}) | more)

    async def resolve(_: str) -> tuple[str, ...]:
        return matches

    answer = world.done(world.groups.consumer_heartbeat("g", heartbeat, resolve))
    if isinstance(answer, Failure):
        answer.trap(KafkaError)
        return answer.value.code
    return answer


def test_members_of_a_consumer_group_go_on_after_a_crash(world: World) -> None:
    assert len(beat(world, "a", 0).assignment) == 4
    assert beat(world, "b", 0).member_epoch == 3
    world.start()
    assert beat(world, "b", 3).assignment is None
    told = beat(world, "a", 2)
    assert (told.member_epoch, len(told.assignment)) == (2, 2)
    assert beat(world, "a", 2, owned=told.assignment).member_epoch == 3
    assert len(beat(world, "b", 3).assignment) == 2
    world.start()
    world.done(world.groups.fetch("g", None))
    world.clock.advance(45)
    assert beat(world, "a", 3) is Code.UNKNOWN_MEMBER_ID
    world.start()
    assert beat(world, "a", 3) is Code.UNKNOWN_MEMBER_ID
    assert beat(world, "a", 0).member_epoch == 5


def test_what_regular_expressions_find_alike_is_held_once(world: World) -> None:
    matches = tuple(f"a-topic-of-some-team-{number:04}" for number in range(5000))
    for number in range(100):
        told = beat(world, f"member {number}", 0, matches, regex=".*")
        assert isinstance(told, HeartbeatResponse)
    assert world.groups.local.held_bytes < 1 << 20
    group = world.groups.local.entries["g"].group
    assert group.subscribes_to("a-topic-of-some-team-0777")
    world.start()
    assert isinstance(beat(world, "member 99", told.member_epoch, matches), HeartbeatResponse)
    assert world.groups.local.held_bytes < 1 << 20
    for number in range(100):
        beat(world, f"member {number}", -1)
    assert world.groups.local.held_bytes < 10_000


def test_a_member_leaves_whatever_its_regular_expression_finds(world: World) -> None:
    assert beat(world, "a", 0, ("clicks",), regex="c.*").member_epoch == 2

    async def too_costly(_: str) -> tuple[str, ...]:
        raise KafkaError(Code.INVALID_REGULAR_EXPRESSION)

    asked = world.groups.consumer_heartbeat("g", ConsumerHeartbeat("a", -1), too_costly)
    assert world.done(asked).member_epoch == -1


def test_members_of_a_consumer_group_go_on_where_no_memory_is_left(world: World) -> None:
    matches = tuple(f"topic {number}" for number in range(50))
    assert beat(world, "a", 0, matches, regex="t.*").member_epoch == 2
    assert beat(world, "s", 0, instance_id="one").member_epoch == 3
    world.settings = SETTINGS._replace(max_bytes=1)
    assert beat(world, "a", 2, matches).member_epoch == 2
    again = {"rebalance_timeout_ms": 60_000, "topics": ("clicks",), "regex": "t.*"}
    assert beat(world, "a", 2, matches, **again).member_epoch == 2
    assert beat(world, "a", 0, matches, regex="t.*").member_epoch == 3
    assert beat(world, "s", -2, instance_id="one").member_epoch == -2
    assert beat(world, "s2", 0, instance_id="one").member_epoch == 3
    assert beat(world, "a", 3, (*matches, "z" * 100)) is Code.GROUP_MAX_SIZE_REACHED
    assert beat(world, "a", 3, matches, topics=("clicks", "v")) is Code.GROUP_MAX_SIZE_REACHED
    assert beat(world, "b", 0, matches) is Code.GROUP_MAX_SIZE_REACHED
    assert beat(world, "a", -1).member_epoch == -1


def test_members_of_a_classic_group_go_on_where_no_memory_is_left(world: World) -> None:
    static, dynamic = world.share("one"), a_join("", needs_id=False)
    world.settings = SETTINGS._replace(max_bytes=1)
    assert world.done(world.groups.join("g", dynamic)).code is Code.GROUP_MAX_SIZE_REACHED
    joined = world.done(world.groups.join("g", a_join("", "one")))
    assert joined.code is Code.NONE
    assert joined.member_id != static
    other = a_join(joined.member_id, "one", session_timeout_ms=7_000)
    joined = world.done(world.groups.join("g", other))
    assert joined.code is Code.NONE
    sync = Sync(joined.member_id, "one", joined.generation, {joined.member_id: b"all"})
    assert world.done(world.groups.sync("g", sync)).code is Code.NONE
    more = sync._replace(assignments={joined.member_id: bytes(100)})
    assert world.done(world.groups.sync("g", more)).code is Code.GROUP_MAX_SIZE_REACHED


def test_nobody_is_answered_before_it_is_on_disk(world: World) -> None:
    assert beat(world, "a", 0).member_epoch == 2
    calls = world.held = []
    answers: list[Any] = []
    for member in ("b", "c", "d"):
        heartbeat = ConsumerHeartbeat(
            member, 0, rebalance_timeout_ms=1, topics=("clicks",), owned=frozenset()
        )
        asked = world.groups.consumer_heartbeat("g", heartbeat, nothing_matches)
        Deferred.fromCoroutine(asked).addBoth(answers.append)
    assert len(calls) == 1
    assert answers == []
    calls[0].callback(None)
    assert len(calls) == 2, "one write for the two that came meanwhile"
    calls[1].errback(CoordinationError("out of reach"))
    assert [type(each) for each in answers] == [HeartbeatResponse, Failure, Failure]
    assert answers[1].value.code is Code.COORDINATOR_NOT_AVAILABLE
    world.held = None
    world.start()
    assert beat(world, "b", 3).member_epoch == 3
    assert beat(world, "c", 4) is Code.UNKNOWN_MEMBER_ID


def test_a_store_that_could_not_be_asked_once_is_asked_again(world: World) -> None:
    """No more threads may be made, for as long as others take them all."""
    world.has_threads = False
    committed = {CLICKS: Committed(5, -1, "", 1)}
    for _ in range(2):
        asked = world.groups.commit("g", "", None, -1, committed)
        assert world.done(asked) is Code.COORDINATOR_NOT_AVAILABLE
    world.has_threads = True
    world.commit(5, CLICKS)
    world.has_threads = False
    asked = world.groups.commit("g", "", None, -1, {CLICKS: Committed(7, -1, "", 1)})
    assert world.done(asked) is Code.COORDINATOR_NOT_AVAILABLE
    world.has_threads = True
    assert world.offsets() == {CLICKS: 5}


@pytest.mark.parametrize("fails", ["reading", "writing"])
def test_offsets_of_a_deleted_topic_are_forgotten_once_the_store_can_be_asked(
    world: World, fails: str
) -> None:
    """Else the next topic of that name would be read from there: they don't name its UUID."""
    world.commit(5, CLICKS)
    if fails == "reading":
        world.start()
    world.clock.advance(1)
    world.groups.expiry.topic_gone("clicks")
    if fails == "writing":
        calls = world.held = []
        world.clock.advance(1)
        calls.pop(0).callback(None)  # the names
        calls.pop(0).errback(CoordinationError("out of reach"))
        world.held = None
    else:
        world.has_threads = False
        world.clock.advance(1)
        world.has_threads = True
    world.clock.advance(60)
    assert world.offsets() == {}


def test_a_fault_of_the_store_keeps_no_consumer_group_from_being_written(world: World) -> None:
    assert beat(world, "a", 0).member_epoch == 2
    calls = world.held = []
    answers: list[Any] = []
    joins = ConsumerHeartbeat("b", 0, "", "", rebalance_timeout_ms=1, topics=("clicks",))
    asked = world.groups.consumer_heartbeat("g", joins, nothing_matches)
    Deferred.fromCoroutine(asked).addBoth(answers.append)
    calls.pop().errback(ZeroDivisionError("a bug"))
    assert [each.value.code for each in answers] == [Code.COORDINATOR_NOT_AVAILABLE]
    world.held = None
    assert beat(world, "c", 0).member_epoch == 4


def test_a_fault_of_the_store_keeps_no_member_waiting(world: World) -> None:
    joined = world.done(world.groups.join("g", a_join("", needs_id=False)))
    calls = world.held = []
    answers: list[Any] = []
    sync = Sync(joined.member_id, None, joined.generation, {joined.member_id: b"all"})
    Deferred.fromCoroutine(world.groups.sync("g", sync)).addBoth(answers.append)
    calls.pop().errback(ZeroDivisionError("a bug"))
    assert [each.code for each in answers] == [Code.COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize("is_classic", [False, True])
def test_who_comes_while_a_group_is_deleted_tries_again(world: World, is_classic: bool) -> None:
    if is_classic:
        world.commit(5, CLICKS)
    else:
        beat(world, "a", 0)
        beat(world, "a", -1)
    calls = world.held = []
    deleted: list[Any] = []
    joined: list[Any] = []
    Deferred.fromCoroutine(world.groups.delete("g")).addBoth(deleted.append)
    calls.pop(0).callback(None)  # it is still this broker's
    Deferred.fromCoroutine(world.groups.join("g", a_join("", "one"))).addBoth(joined.append)
    Deferred.fromCoroutine(world.groups.delete("g")).addBoth(deleted.append)
    assert beat(world, "b", 0) is Code.COORDINATOR_NOT_AVAILABLE
    while calls:
        calls.pop(0).callback(None)
    assert [each.code for each in joined] == [Code.COORDINATOR_NOT_AVAILABLE]
    assert deleted == [Code.COORDINATOR_NOT_AVAILABLE, Code.NONE]
    world.held = None
    assert beat(world, "b", 0).member_epoch == 2


def test_nobody_is_answered_by_what_is_stored_of_the_group_before(world: World) -> None:
    for epoch, member in ((2, "a"), (3, "b")):
        assert beat(world, member, 0).member_epoch == epoch
    calls = world.held = []
    answers: list[Any] = []

    def ask(member: str, epoch: int) -> None:
        heartbeat = ConsumerHeartbeat(
            member, epoch, rebalance_timeout_ms=1, topics=("clicks",), owned=frozenset()
        )
        asked = world.groups.consumer_heartbeat("g", heartbeat, nothing_matches)
        Deferred.fromCoroutine(asked).addBoth(answers.append)

    ask("a", -1)
    ask("b", -1)
    joined = world.done(world.groups.join("g", a_join()))
    assert joined.code is Code.MEMBER_ID_REQUIRED
    ask("c", 0)
    calls.pop(0).callback(None)
    told = [each for each in answers if isinstance(each, HeartbeatResponse)]
    assert [each.member_id for each in told] == ["a"]
    for _ in range(3):
        if calls:
            calls.pop(0).callback(None)
    assert not calls
    assert (answers[-1].member_id, answers[-1].member_epoch) == ("c", 2)
    world.held = None
    world.start()
    assert beat(world, "c", 2).member_epoch == 2


def test_a_group_of_one_kind_becomes_one_of_the_other_once_it_is_empty(world: World) -> None:
    classic = world.share()
    assert beat(world, "a", 0) is Code.GROUP_ID_NOT_FOUND
    assert beat(world, "a", 1) is Code.GROUP_ID_NOT_FOUND
    world.done(world.groups.leave("g", [Leaving(classic, None)]))
    world.commit(7, CLICKS)
    assert beat(world, "a", 0).member_epoch == 2
    assert world.offsets() == {CLICKS: 7}
    joined = world.done(world.groups.join("g", a_join()))
    assert joined.code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert heartbeat(world, classic) is Code.UNKNOWN_MEMBER_ID
    assert world.done(world.groups.describe("g")) is Code.GROUP_ID_NOT_FOUND
    assert beat(world, "a", -1).member_epoch == -1
    world.start()
    (listed,) = world.done(world.groups.list_groups())
    assert (listed.kind, listed.state) == ("consumer", State.EMPTY)
    assert world.share()
    world.start()
    (listed,) = world.done(world.groups.list_groups())
    assert (listed.kind, listed.state) == ("classic", State.STABLE)
    assert world.offsets() == {CLICKS: 7}


def test_offsets_of_a_consumer_group_expire_after_their_commit(world: World) -> None:
    beat(world, "a", 0)
    committed = Committed(1, -1, "", world.now_ms())
    offsets = {CLICKS: committed, VIEWS: committed}
    assert world.done(world.groups.commit("g", "a", None, 2, offsets)) is Code.NONE
    for _ in range(7 * DAY // 40 + 1):
        world.clock.advance(40)
        beat(world, "a", 2)
    world.expire()
    assert world.offsets() == {CLICKS: 1}
    assert beat(world, "a", -1).member_epoch == -1
    world.expire()
    assert world.done(world.groups.list_groups()) == []


def test_a_consumer_group_that_is_deleted_is_gone(world: World) -> None:
    beat(world, "a", 0)
    assert world.done(world.groups.delete("g")) is Code.NON_EMPTY_GROUP
    beat(world, "a", -1)
    assert world.done(world.groups.delete("g")) is Code.NONE
    assert beat(world, "a", 2) is Code.GROUP_ID_NOT_FOUND
    assert beat(world, "a", 0).member_epoch == 2


def test_more_members_than_can_be_kept_join_again(world: World) -> None:
    for number in range(50):
        beat(world, f"m{number}", 0, client_id="x" * 5000)
    epoch = beat(world, "m0", 0).member_epoch
    world.start()
    assert beat(world, "m1", epoch) is Code.UNKNOWN_MEMBER_ID
    assert beat(world, "m1", 0).member_epoch > epoch


def committed(offset: int) -> dict:
    return {CLICKS: Committed(offset, -1, "", 1000)}


def test_a_member_that_is_dismissed_while_the_group_joins_commits_nothing(world: World) -> None:
    member_id = world.share()
    joined: Deferred[Code] = Deferred()

    async def join() -> Code:
        return await joined

    answers: list = []
    asked = world.groups.commit_in_transaction("g", member_id, None, 1, 5, committed(20), join)
    Deferred.fromCoroutine(asked).addBoth(answers.append)
    assert not answers
    world.clock.advance(3600)  # its session ends: another one has the partition by now
    world.share()
    assert world.offsets() == {}
    assert world.groups.unstable("g") == ()
    joined.callback(Code.NONE)
    world.clock.advance(0)
    assert answers == [Code.UNKNOWN_MEMBER_ID]
    world.done(world.groups.end_transaction("g", 5, commits=True))
    assert world.offsets() == {}


def test_a_commit_in_a_transaction_while_a_generation_is_shared(world: World) -> None:
    joined = world.done(world.groups.join("g", a_join("", None, needs_id=False)))

    async def join() -> Code:
        return Code.NONE

    asked = world.groups.commit_in_transaction(
        "g", joined.member_id, None, joined.generation, 5, committed(20), join
    )
    assert world.done(asked) is Code.NONE


def test_a_stale_member_epoch_in_a_transaction(world: World) -> None:
    beat = ConsumerHeartbeat(
        "m", 0, rebalance_timeout_ms=10_000, topics=("clicks",), owned=frozenset()
    )

    async def resolve(_: str) -> tuple[str, ...]:
        return ()

    async def join() -> Code:
        return Code.NONE

    made = world.done(world.groups.consumer_heartbeat("g", beat, resolve))
    asked = world.groups.commit_in_transaction(
        "g", "m", None, made.member_epoch - 1, 5, committed(20), join
    )
    assert world.done(asked) is Code.ILLEGAL_GENERATION
