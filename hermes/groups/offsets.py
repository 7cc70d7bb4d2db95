"""What is stored of a group: its record and its committed offsets, and the interface of the stores.

`offset_tree` stores it in coordination, `offset_file` in the data directory. Both block, and are
called in one worker thread at a time.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from hermes.coordination.kafka_groups import parse_pending_name, pending_name
from hermes.errors import HermesError
from hermes.groups.membership import AnyMembership

#: Of a committed offset's metadata, in characters; Kafka's default.
MAX_METADATA_LENGTH: Final = 4096

#: What an offset weighs beside its names and metadata: about what Python needs for it.
_OFFSET_BYTES: Final = 300


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Committed(NamedTuple):
    """A committed offset.

    Attributes:
        offset: of the next message.
        leader_epoch: as it was given; -1 for none.
        commit_ms: when it was committed, in ms since 1970.
        expire_ms: when it ends, where the client said so; -1: by `offsets_retention`.
        topic_id: of which topic it is, since another one may get its name; None if nobody knows.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    topic_id: UUID | None = None


def pending_place(producer_id: int, place: TopicPartition) -> TopicPartition:
    """Where the offset is stored that a producer's transaction will commit, or not.

    Beside the committed ones, in a topic of a name of which no offsets are committed.
    """
    return TopicPartition(pending_name(producer_id, place.topic), place.partition)


def pending_at(place: TopicPartition) -> tuple[int, TopicPartition] | None:
    """Whose transaction an offset is part of, and of what; None for one that is committed."""
    found = parse_pending_name(place.topic)
    return None if found is None else (found[0], TopicPartition(found[1], place.partition))


class GroupRecord(NamedTuple):
    """What is stored of a group itself.

    Attributes:
        generation: the last one that had an assignment, or that was empty; of a consumer group its
            epoch.
        protocol_type: what it is for; empty for one that only has offsets.
        empty_ms: since when it has no members, in ms since 1970; -1 while it has some.
        membership: who they are; None while it has none, or too many to be stored. A consumer group
            always has one, which tells what it is.
    """

    generation: int
    protocol_type: str
    empty_ms: int
    membership: AnyMembership | None = None


class StoredGroup(NamedTuple):
    """A group as it was read: the record is None where only offsets were ever committed."""

    record: GroupRecord | None
    offsets: dict[TopicPartition, Committed]


class Change(NamedTuple):
    """What is to be stored of a group from now on.

    An empty one changes nothing, and is refused like any other where the group is another's by now.

    Attributes:
        record: replaces the record, unless None.
        offsets: replace the offsets of these partitions; None forgets one.
        forget: whether all that is stored of the group goes, whatever else the change says.
    """

    group: str
    record: GroupRecord | None = None
    offsets: Mapping[TopicPartition, Committed | None] = {}
    forget: bool = False

    @property
    def is_empty(self) -> bool:
        return self.record is None and not self.offsets and not self.forget


class GroupMovedError(HermesError):
    """Another broker coordinates the group by now: nothing was written. Ask for the coordinator."""


class GroupStore(Protocol):
    """Keeps what must outlive the coordinator. Threads: one call at a time, in any thread."""

    def names(self) -> list[str]:
        """Name the groups of which something is stored; raises HermesError where it can't now."""

    def load(self, group: str) -> StoredGroup | None:
        """Read a group, and be the one that writes it from now on, even if nothing is stored of it.

        Raises HermesError: that can't be read now.
        """

    def write(self, changes: Sequence[Change]) -> list[HermesError | None]:
        """Store changes, in order; they are on disk when this returns.

        Several changes may be of one group. Those of a group that was not loaded since it was
        released, or that another store has loaded since, are refused with `GroupMovedError`.

        Returns:
            Of each change, why it was not made, or None. One that was not made leaves no trace, or
            after a failure nobody knows: it may be there after all when the group is loaded again.
        """

    def release(self, group: str) -> None: ...

    def close(self) -> None: ...


def offset_bytes(partition: TopicPartition, committed: Committed) -> int:
    return _OFFSET_BYTES + len(partition.topic) + len(committed.metadata)
