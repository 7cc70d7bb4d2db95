"""A consumer group's target assignment, and who has what on the way to it.

The target is made anew whenever the group's epoch grows: other subscriptions, other topics, fewer
members. Each member comes to it step by step (`reconciling`). No I/O and no clock; `consumer_group`
has the requests.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from hermes.kafka.groups.assignors import ASSIGNORS, Subscriptions, Target
from hermes.kafka.groups.consumer_values import (
    ConsumerMembership,
    ConsumerSettings,
    Place,
    Reconciliation,
    TopicSize,
    TopicView,
)
from hermes.kafka.groups.reconciling import Consumer, next_step
from hermes.kafka.groups.values import State

#: The share of who has none.
NO_PLACES: frozenset[Place] = frozenset()


class Targets:
    """The members of one consumer group, and what each is to have.

    Args:
        name: what clients call it.
        settings: tells what bounds it now.
        topics: the topics that there are.
        epoch: the one that it had before; see `take_back`.

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

    # -- targets ----------------------------------------------------------------------------------

    def _have_topics_changed(self) -> bool:
        if self._seen_revision == self._view.revision:
            return False
        return self._look_at_topics() != self._topics

    def _look_at_topics(self) -> dict[str, TopicSize]:
        self._seen_revision = self._view.revision
        wanted = frozenset[str]().union(*(each.subscribed for each in self.members.values()))
        found = ((name, self._view.size_of(name)) for name in sorted(wanted))
        return {name: size for name, size in found if size is not None}

    def _new_epoch(self) -> None:
        self.epoch += 1
        self.revision += 1

    def _assign(self) -> None:
        self._topics = self._look_at_topics()
        wanted = Subscriptions(
            {
                each.member_id: frozenset(
                    self._topics[name].topic_id for name in each.subscribed if name in self._topics
                )
                for each in sorted(self.members.values(), key=_assignment_order)
            },
            {size.topic_id: size.partitions for size in self._topics.values()},
        )
        self._target = ASSIGNORS[self._preferred_assignor()](wanted, self._target)
        self.assignment_epoch = self.epoch
        self.revision += 1

    def _preferred_assignor(self) -> str:
        """The assignor that most members ask for."""
        names = self._settings().assignors
        asked = Counter(e.assignor for e in self.members.values() if e.assignor in names)
        return next((name or names[0] for name, _ in asked.most_common(1)), names[0])

    def _advance(self, member: Consumer, owned: frozenset[Place] | None, now: float) -> bool:
        """Let a member take a step; returns whether other partitions are assigned to it."""
        target = self._target.get(member.member_id, NO_PLACES)
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
        seconds = member.rebalance_timeout_ms / 1000
        member.revoke_end = now + seconds if is_told_to_revoke else None
        return has_new

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

    def take_back(self, membership: ConsumerMembership, now: float) -> None:
        """Be what was kept; each member has a session's time to be heard of."""
        self.assignment_epoch = membership.assignment_epoch
        self._topics = dict(membership.topics)
        end = now + self._settings().session_ms / 1000
        for kept in membership.members:
            member = self.members[kept.member_id] = Consumer.of_kept(kept, end)
            self._target[kept.member_id] = kept.target
            if kept.instance_id is not None:
                self._static[kept.instance_id] = kept.member_id
            if kept.state is Reconciliation.UNREVOKED and kept.epoch >= 0:
                member.revoke_end = now + kept.rebalance_timeout_ms / 1000
            self._own(member)

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
