"""Members of a consumer group without a network: they do what real ones do, one step at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from uuid import UUID

from hermes.groups.consumer_group import ConsumerGroup
from hermes.groups.consumer_values import (
    ConsumerHeartbeat,
    ConsumerMembership,
    ConsumerSettings,
    HeartbeatResponse,
    TopicIdPartition,
    TopicSize,
)
from hermes.groups.membership import decode_membership, encode_membership
from hermes.protocol.kafka_errors import Code, KafkaError

SESSION_MS, REBALANCE_MS = 10_000, 30_000
FENCED = (Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.FENCED_INSTANCE_ID)


class Topics:
    """What topics there are; a test changes them."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._ids = count(1)
        self._sizes: dict[str, TopicSize] = {}
        self.is_gone: Callable[[str, UUID], bool] = lambda name, topic_id: False
        self.revision = 0
        for name, partitions in sizes.items():
            self.grow(name, partitions)

    def size_of(self, name: str) -> TopicSize | None:
        return self._sizes.get(name)

    def grow(self, name: str, partitions: int) -> None:
        """Let a topic have so many partitions; create it if it isn't there."""
        size = self._sizes.get(name) or TopicSize(UUID(int=next(self._ids)), 0)
        self._sizes[name] = size._replace(partitions=partitions)
        self.revision += 1

    def delete(self, name: str) -> None:
        self._sizes.pop(name, None)
        self.revision += 1

    def places(self, name: str) -> frozenset[TopicIdPartition]:
        """All partitions of a topic."""
        size = self._sizes.get(name) or TopicSize(UUID(int=0), 0)
        return frozenset(TopicIdPartition(size.topic_id, each) for each in range(size.partitions))


class MemberWorld:
    """A consumer group, its clock, and its disk: nobody is answered before what is said is on it.

    Attributes:
        group: the group.
        topics: the topics that there are.
        now: the time in seconds.
        meanwhile: what happens while the next target assignment is being made.
        assignments: how many were made.
        answered_epoch: the highest epoch that anybody was told.
    """

    def __init__(self, topics: Topics, settings: ConsumerSettings | None = None) -> None:
        self.topics = topics
        self.settings = settings or ConsumerSettings(session_ms=SESSION_MS)
        self.now = 0.0
        self.answered_epoch = 0
        self.meanwhile: list[Callable[[], None]] = []
        self.assignments = 0
        self.group = self._new_group(0)
        self._disk: tuple[int, bytes] | None = None

    def _new_group(self, epoch: int) -> ConsumerGroup:
        return ConsumerGroup("g", lambda: self.settings, self.topics, epoch=epoch)

    def ask(
        self, beat: ConsumerHeartbeat, matched: tuple[str, ...] | None = None
    ) -> HeartbeatResponse:
        """Take a heartbeat, and have on disk what is answered."""
        self.group.on_heartbeat(beat, matched, self.now)
        self.assign()
        beaten = self.group.answer(beat, self.now)
        self.save()
        self.answered_epoch = max(self.answered_epoch, beaten.member_epoch)
        return beaten

    def assign(self) -> None:
        """Make a new target, if it is time for one."""
        group = self.group
        made = group.begin_assignment(self.now)
        if made is None:
            return
        target = made.make()
        happens, self.meanwhile = self.meanwhile, []
        for each in happens:
            each()
        group.end_assignment(made, target, self.now)
        self.assignments += 1

    def save(self) -> None:
        self._disk = (self.group.epoch, encode_membership(self.group.epoch, self.group.membership))

    def crash(self) -> None:
        """Begin again with what is on disk."""
        epoch, data = self._disk or (0, b"")
        self.group = self._new_group(epoch)
        membership = decode_membership(data, epoch)
        if membership is not None:
            assert isinstance(membership, ConsumerMembership)
            self.group.restore(membership, self.now)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with all that is due meanwhile."""
        end = self.now + seconds
        while (at := self.group.next_deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self.group.advance(self.now)
            if self.group.is_assignment_due(self.now):
                self.assign()
        self.now = end


@dataclass
class SimulatedMember:
    """A consumer: it reads what it owns, and gives partitions up in its own time.

    Attributes:
        world, name, topics, instance_id, assignor: who it is and what it wants.
        epoch: its member epoch.
        owned: what it reads.
        assigned: what it was told to have.
        is_alive: whether it is there.
        is_asking: whether it waits for an answer.
    """

    world: MemberWorld
    name: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: frozenset[TopicIdPartition] = frozenset()
    assigned: frozenset[TopicIdPartition] = frozenset()
    is_alive: bool = False
    is_asking: bool = False
    _lives: "count[int]" = field(default_factory=count)
    _says_all: bool = True
    _told: frozenset[TopicIdPartition] | None = None
    member_id: str = ""

    def start(self) -> None:
        """Be there, as somebody new."""
        if not self.is_alive:
            self.member_id = f"{self.name}.{next(self._lives)}"
            self.is_alive = True
            self._abandon()

    def die(self) -> None:
        """Be gone, without a word."""
        self.is_alive = False
        self.owned = frozenset()

    def leave(self, *, for_a_while: bool = False) -> None:
        """Go and say so; a static member may say that it comes back."""
        epoch = -2 if for_a_while and self.instance_id is not None else -1
        beat = ConsumerHeartbeat(self.member_id, epoch, instance_id=self.instance_id)
        self.die()
        try:
            self.world.ask(beat)
        except KafkaError as error:
            if error.code not in FENCED:
                raise

    def _abandon(self) -> None:
        self.epoch, self.owned, self.assigned = 0, frozenset(), frozenset()
        self._says_all, self._told = True, None

    def beat(self, *, loses: str = "") -> None:
        """Send a heartbeat.

        Args:
            loses: `request` or `answer`: what is lost on the way; the next one says all again.
        """
        if not self.is_alive:
            return
        beat = self._next_beat()
        self._says_all = True  # unless an answer comes
        if loses == "request":
            return
        self.is_asking = True
        try:
            beaten = self.world.ask(beat)
        except KafkaError as error:
            if error.code in FENCED:
                self._abandon()
            elif error.code is not Code.UNRELEASED_INSTANCE_ID:
                raise
            return
        finally:
            self.is_asking = False
        if loses == "answer":
            return
        assert beaten.member_epoch >= self.epoch, "an epoch has gone back"
        self._says_all, self._told = False, beat.owned if beat.owned is not None else self._told
        self.epoch = beaten.member_epoch
        if beaten.assignment is not None:
            self.assigned = beaten.assignment
            self.owned |= self.assigned

    def _next_beat(self) -> ConsumerHeartbeat:
        beat = ConsumerHeartbeat(self.member_id, self.epoch, instance_id=self.instance_id)
        if self._says_all or self.epoch == 0:
            return beat._replace(
                rebalance_timeout_ms=REBALANCE_MS,
                topics=self.topics,
                assignor=self.assignor,
                owned=self.owned,
            )
        return beat._replace(owned=self.owned) if self.owned != self._told else beat

    def subscribe(self, *topics: str) -> None:
        """Want other topics from now on."""
        self.topics = topics
        self._says_all = True

    def give_up(self) -> None:
        """Stop reading what it is not to have any more."""
        self.owned &= self.assigned


def settle(world: MemberWorld, members: list[SimulatedMember]) -> None:
    """Let all that live beat until everybody has what is to be had.

    Raises:
        AssertionError: that never comes.
    """
    for _ in range(40):
        for each in members:
            each.give_up()
            each.beat()
        alive, group = [each for each in members if each.is_alive], world.group
        targets = {each.member_id: each.target for each in group.describe().members}
        is_known = targets.keys() == {each.member_id for each in alive} and not group.is_behind
        if is_known and all(each.owned == targets[each.member_id] for each in alive):
            return
        # Those who died are missed in the end; those who live are heard in between.
        for _ in range(4):
            world.pass_time(SESSION_MS / 4000)
            for each in alive:
                each.beat()
    raise AssertionError("they never come to their target")
