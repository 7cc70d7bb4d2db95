"""A consumer group's target assignment, and who has what on the way to it.

The target is made anew whenever the group's epoch has grown: other subscriptions, other topics,
fewer members. In a large group that takes a while, so it is done outside (`Assignment`), while the
group goes on with the target that it has, and once in an interval for all changes until then. Each
member comes to its target step by step (`reconciling`). No I/O and no clock; `consumer_group` has
the requests.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from hermes.groups.assignors import ASSIGNORS, Subscriptions, Target
from hermes.groups.consumer_values import (
    ConsumerMembership,
    ConsumerSettings,
    Place,
    Reconciliation,
    TopicSize,
    TopicView,
)
from hermes.groups.reconciling import Consumer, next_step
from hermes.groups.values import State

#: The share of who has none.
NO_PLACES: frozenset[Place] = frozenset()


@dataclass(slots=True, eq=False)
class Assignment:
    """A target assignment that is being made, with all that it takes.

    Attributes:
        epoch: of the group, which it is for.
        is_large: whether it takes so long that nobody else should wait for it.
        assignor: by its name.
        wanted: what there is to share.
        before: the target so far.
        renamed: members that have got another id since, by the one that they had.
    """

    epoch: int
    is_large: bool
    assignor: str
    wanted: Subscriptions
    before: Target
    renamed: dict[str, str] = field(default_factory=dict)

    def make(self) -> Target:
        """Find out what each member is to have; in any thread."""
        return ASSIGNORS[self.assignor](self.wanted, self.before)


class Targets:
    """The members of one consumer group, and what each is to have.

    Args:
        name: what clients call it.
        settings: tells what bounds it now.
        topics: the topics that there are.
        epoch: the one that it had before; see `restore`.

    Attributes:
        name: as given.
        epoch: grows whenever the target assignment has to be made anew.
        assignment_epoch: of which epoch the target is.
        members: its members by id, in the order in which they came.
        revision: another number whenever what is to be kept has changed.
        is_dead: whether it isn't here any more.
    """

    def __init__(
        self,
        name: str,
        settings: Callable[[], ConsumerSettings],
        topics: TopicView,
        *,
        epoch: int = 0,
    ) -> None:
        self.name = name
        self.epoch = epoch
        self.assignment_epoch = epoch
        self.members: dict[str, Consumer] = {}
        self.revision = 0
        self.is_dead = False
        self._settings = settings
        self._view = topics
        self._seen_revision: int | None = None  # of the topics, when they were looked at last
        self._topics: dict[str, TopicSize] = {}
        self._target: Target = {}
        self._owners: dict[Place, str] = {}
        self._static: dict[str, str] = {}
        self._wanted: Counter[str] = Counter()  # how many members want a topic, by name
        self._making: Assignment | None = None
        self._next_assignment = 0.0
        self._look_again: float | None = None  # no deadline of a member is earlier
        self._is_large = False
        self._size = 0
        self._shared: Counter[int] = Counter()  # how many have what their expression found, by id
        self._shared_topics = 0

    # -- targets ----------------------------------------------------------------------------------

    def _have_topics_changed(self) -> bool:
        if self._seen_revision == self._view.revision:
            return False
        return self._look_at_topics() != self._topics

    def _look_at_topics(self) -> dict[str, TopicSize]:
        self._seen_revision = self._view.revision
        found = ((name, self._view.size_of(name)) for name in sorted(self._wanted))
        return {name: size for name, size in found if size is not None}

    def _new_epoch(self) -> None:
        self.epoch += 1
        self.revision += 1
        self._weigh()

    # -- making a target --------------------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        """Whether its target is of an earlier epoch than the group."""
        return self.epoch > self.assignment_epoch and bool(self.members)

    @property
    def is_assigning(self) -> bool:
        """Whether a target is being made."""
        return self._making is not None

    def begin_assignment(self, now: float) -> Assignment | None:
        """Have a new target made, if there is to be one and it is time for it.

        Returns:
            What is to be made, and then given to `end_assignment`; one at a time.
        """
        if not self.is_behind or self._making is not None:
            return None
        is_large = self._is_large
        if is_large and now < self._next_assignment:
            return None
        self._topics = self._look_at_topics()
        members = sorted(self.members.values(), key=_assignment_order)
        # Members share what their expressions find, which may be thousands of topics.
        alike = {(id(each.topics), id(each.matched)): each for each in members}
        topics = {each.subscribed for each in alike.values()}
        ids = {each: self._ids_of(each) for each in topics}
        found = {key: ids[each.subscribed] for key, each in alike.items()}
        wanted = Subscriptions(
            {each.member_id: found[id(each.topics), id(each.matched)] for each in members},
            {size.topic_id: size.partitions for size in self._topics.values()},
        )
        assignor = self._preferred_assignor()
        self._making = Assignment(self.epoch, is_large, assignor, wanted, dict(self._target))
        return self._making

    def end_assignment(self, made: Assignment, target: Target | None, now: float) -> bool:
        """Take the target that was made; None where that has failed.

        Members that are gone by now lose theirs; who has come meanwhile gets its own from the next.

        Returns:
            Whether the group has it now.
        """
        self._making = None
        if made.is_large:
            self._next_assignment = now + self._settings().assignment_interval_ms / 1000
        if target is None or self.is_dead:
            return False
        for before, after in made.renamed.items():
            target[after] = target.pop(before, NO_PLACES)
        self._target = {each: target[each] for each in self.members if each in target}
        self.assignment_epoch = made.epoch
        self.revision += 1
        return True

    @property
    def assignment_due(self) -> float | None:
        """When a large group may have its next target made; None where nobody waits for one."""
        if not self.is_behind or self._making is not None or not self._is_large:
            return None
        return self._next_assignment

    def is_assignment_due(self, now: float) -> bool:
        """Whether it is time for the target for which some wait."""
        due = self.assignment_due
        return due is not None and due <= now

    def _want(self, gained: frozenset[str], lost: frozenset[str]) -> None:
        self._wanted.update(gained)
        self._wanted.subtract(lost)
        for name in lost:
            if not self._wanted[name]:
                del self._wanted[name]

    def _share(self, matched: tuple[str, ...], change: int) -> None:
        """Have one member more, or fewer, with what an expression has found."""
        if not matched:
            return
        key = id(matched)
        if not self._shared[key]:
            self._shared_topics += len(matched)
        self._shared[key] += change
        if not self._shared[key]:
            del self._shared[key]
            self._shared_topics -= len(matched)

    def _weigh(self) -> None:
        """Find out whether it is large."""
        size = sum(each.partitions for each in self._topics.values())
        size += self._wanted.total()
        self._is_large = size >= self._settings().large

    def _ids_of(self, topics: frozenset[str]) -> frozenset[UUID]:
        return frozenset(self._topics[name].topic_id for name in topics if name in self._topics)

    def _preferred_assignor(self) -> str:
        """The assignor that most members ask for."""
        names = self._settings().assignors
        asked = Counter(e.assignor for e in self.members.values() if e.assignor in names)
        return next((name or names[0] for name, _ in asked.most_common(1)), names[0])

    def _advance(self, member: Consumer, owned: frozenset[Place] | None, now: float) -> bool:
        """Let a member take a step; returns whether other partitions are assigned to it."""
        target = self._target.get(member.member_id, NO_PLACES)
        if self.is_behind:  # then it may have what the member doesn't want any more
            wanted = self._ids_of(member.subscribed)
            target = frozenset(each for each in target if each.topic_id in wanted)
        step = next_step(
            member, self.assignment_epoch, target, owned, lambda each: each not in self._owners
        )
        if step is None:
            return False
        has_new = step.assigned.keys() != member.assigned.keys()
        is_same = (step.state, step.epoch) == (member.state, member.epoch)
        if not is_same or has_new or step.revoking.keys() != member.revoking.keys():
            self.revision += 1
            member.previous_epoch = member.epoch
        is_told_to_revoke = step.state is Reconciliation.UNREVOKED
        self._release(member)
        member.state, member.epoch = step.state, step.epoch
        member.assigned, member.revoking = dict(step.assigned), dict(step.revoking)
        self._own(member)
        self._count(member)
        seconds = member.rebalance_timeout_ms / 1000
        member.revoke_end = now + seconds if is_told_to_revoke else None
        if member.revoke_end is not None:
            self._look_again_at(member.revoke_end)
        return has_new

    def _look_again_at(self, at: float) -> None:
        """Have deadlines looked at then; who puts one off needs no other time."""
        self._look_again = at if self._look_again is None else min(self._look_again, at)

    def _count(self, member: Consumer) -> None:
        size = member.size
        self._size += size - member.counted
        member.counted = size

    def _own(self, member: Consumer) -> None:
        for place in (*member.assigned, *member.revoking):
            self._owners[place] = member.member_id

    def _release(self, member: Consumer) -> None:
        for place in (*member.assigned, *member.revoking):
            del self._owners[place]

    # -- what is kept -----------------------------------------------------------------------------

    @property
    def membership(self) -> ConsumerMembership:
        """What is to be kept of it."""
        members = tuple(
            each.as_kept(self._target.get(each.member_id, NO_PLACES))
            for each in self.members.values()
        )
        return ConsumerMembership(self.assignment_epoch, dict(self._topics), members)

    def restore(self, membership: ConsumerMembership, now: float) -> None:
        """Be what was kept; each member has a session's time to be heard of."""
        self.assignment_epoch = membership.assignment_epoch
        self._topics = dict(membership.topics)
        end = now + self._settings().session_ms / 1000
        self._look_again_at(end)
        for kept in membership.members:
            member = self.members[kept.member_id] = Consumer.of_kept(kept, end)
            self._target[kept.member_id] = kept.target
            if kept.instance_id is not None:
                self._static[kept.instance_id] = kept.member_id
            if kept.state is Reconciliation.UNREVOKED and kept.epoch >= 0:
                member.revoke_end = now + kept.rebalance_timeout_ms / 1000
                self._look_again_at(member.revoke_end)
            self._own(member)
            self._count(member)
            self._share(member.matched, 1)
            self._want(member.subscribed, frozenset())
        self._weigh()

    @property
    def state(self) -> State:
        """Where it is in its life."""
        if self.is_dead:
            return State.DEAD
        if not self.members:
            return State.EMPTY
        if self.epoch > self.assignment_epoch:
            return State.ASSIGNING
        if all(each.is_at(self.assignment_epoch) for each in self.members.values()):
            return State.STABLE
        return State.RECONCILING


def _assignment_order(member: Consumer) -> Any:
    return member.instance_id is None, member.instance_id or "", member.member_id
