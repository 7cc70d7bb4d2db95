"""What a consumer group shares: the topics that its members want, and the target assignment.

Making a target takes a while in a large group, so it is done outside (`Assignment`), while the
group goes on with the target that it has, and once in an interval for all changes until then.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from hermes.groups.assignors import ASSIGNORS, Subscriptions, Target
from hermes.groups.consumer_values import TopicIdPartition, TopicLookup, TopicSize

#: The share of a member that has none.
NO_PARTITIONS: frozenset[TopicIdPartition] = frozenset()


class SubscribedTopics:
    """The topics that the members of a group want, and what the group knows of them.

    Attributes:
        sizes: the topics that there were at the last refresh, by name.
        shared_matches: how many topics regular expressions have found: those of members that
            share what theirs found count once.
    """

    def __init__(self, topics: TopicLookup) -> None:
        self.sizes: dict[str, TopicSize] = {}
        self.shared_matches = 0
        self._topics = topics
        self._revision: int | None = None  # of the topics, at the last refresh
        self._wanted: Counter[str] = Counter()  # how many members want a topic, by name
        self._sharers: Counter[int] = Counter()  # how many members have a tuple of matches, by id

    def __contains__(self, name: str) -> bool:
        return name in self._wanted

    @property
    def weight(self) -> int:
        return sum(each.partitions for each in self.sizes.values()) + self._wanted.total()

    def refresh(self) -> bool:
        self._revision = self._topics.revision
        found = ((name, self._topics.size_of(name)) for name in sorted(self._wanted))
        before, self.sizes = self.sizes, {name: size for name, size in found if size is not None}
        return self.sizes != before

    def refresh_if_changed(self) -> bool:
        """The same, unless no topic can have changed: there may be thousands."""
        return self._revision != self._topics.revision and self.refresh()

    def count(self, gained: Iterable[str], lost: Iterable[str]) -> None:
        self._wanted.update(gained)
        for name in lost:
            self._wanted[name] -= 1
            if not self._wanted[name]:
                del self._wanted[name]

    def count_matches(self, matched: tuple[str, ...], change: int) -> None:
        if not matched:
            return
        key = id(matched)
        if not self._sharers[key]:
            self.shared_matches += len(matched)
        self._sharers[key] += change
        if not self._sharers[key]:
            del self._sharers[key]
            self.shared_matches -= len(matched)

    def clear(self) -> None:
        self._wanted.clear()

    def ids_of(self, names: Iterable[str]) -> frozenset[UUID]:
        return frozenset(self.sizes[name].topic_id for name in names if name in self.sizes)


@dataclass(slots=True, eq=False)
class Assignment:
    """A target assignment that is being made, with all that it takes.

    Attributes:
        is_large: whether it takes so long that nobody else should wait for it.
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
        """In any thread."""
        return ASSIGNORS[self.assignor](self.wanted, self.before)


class TargetAssignment:
    """What each member of a group is to have, by member id.

    Attributes:
        epoch: of the group, for which it was made.
        is_large: of the next one, as `Assignment` has it.
        making: the next one while it is being made.
        next_at: when a large group may have its next one made.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.shares: Target = {}
        self.is_large = False
        self.making: Assignment | None = None
        self.next_at = 0.0

    def share_of(self, member_id: str) -> frozenset[TopicIdPartition]:
        return self.shares.get(member_id, NO_PARTITIONS)

    def remove(self, member_id: str) -> None:
        self.shares.pop(member_id, None)

    def rename(self, before: str, after: str) -> None:
        """Move the share of a member to its other id, in the next target, too."""
        self.shares[after] = self.shares.pop(before, NO_PARTITIONS)
        if self.making is not None:
            self.making.renamed[before] = after

    def begin(self, epoch: int, assignor: str, wanted: Subscriptions) -> Assignment:
        self.making = Assignment(epoch, self.is_large, assignor, wanted, dict(self.shares))
        return self.making

    def end(self, made: Assignment, target: Target, members: Iterable[str]) -> None:
        """Take a target that was made; of members that are gone by now nothing stays."""
        for before, after in made.renamed.items():
            target[after] = target.pop(before, NO_PARTITIONS)
        self.shares = {each: target[each] for each in members if each in target}
        self.epoch = made.epoch
