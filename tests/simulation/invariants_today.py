"""What a cluster has told its clients, and what must hold of it ever after.

Each message's value is used once and names its topic's id, so that a value that is read says where
it belongs. Accounts are kept by the topics' ids: another topic of a deleted one's name is another.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias
from uuid import UUID

from world import World

from hermes.protocol.records import Record

__all__ = ["Books", "Partition", "TopicBooks", "value_of"]

#: Keys and values, by offset.
_Messages: TypeAlias = Mapping[int, tuple[bytes | None, bytes]]


def value_of(topic_id: UUID, number: int, producer: str, sequence: int) -> bytes:
    """The value of the message with this number of a producer's in a partition."""
    return f"{topic_id.hex[:12]}/{number}/{producer}/{sequence}".encode()


class Partition(NamedTuple):
    topic_id: UUID
    number: int


@dataclass
class _Account:
    """Attributes:
    known: what is known to be at an offset, by an answer or by reading: key and value.
    offsets: where each value is.
    kept: the offsets that were acknowledged as flushed, or shown.
    end: the largest high watermark that anybody was told.
    start: the largest first offset that anybody was told.
    may_start: up to where somebody has asked to delete.
    deleted: up to where somebody was told that it is deleted.
    """

    known: dict[int, tuple[bytes | None, bytes]] = field(default_factory=dict)
    offsets: dict[bytes, int] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    end: int = 0
    start: int = 0
    may_start: int = 0
    deleted: int = 0


@dataclass
class TopicBooks:
    """Attributes:
    is_compacted, is_retained: whether it ever was: then old messages may be gone.
    partitions: the most that anybody was told.
    is_doomed: whether somebody wants to delete it; is_gone: whether that was said to be done.
    """

    name: str
    is_compacted: bool = False
    is_retained: bool = False
    is_doomed: bool = False
    is_gone: bool = False
    partitions: int = 0


class Books:
    """All that was told. What doesn't hold breaks the run.

    Attributes:
        shown: up to where each partition was ever acknowledged or read.
        on_shown: called when that has grown.
        counts: whether the message with a value replaces others, and is replaced, in compaction;
            None where nobody knows.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.topics: dict[UUID, TopicBooks] = {}
        self.acknowledged = 0
        self.shown: dict[Partition, int] = {}
        self.on_shown: Callable[[Partition], None] = lambda partition: None
        self.counts: Callable[[bytes], bool | None] = lambda value: True
        self._accounts: dict[Partition, _Account] = {}
        self._order: dict[tuple[Partition, str], tuple[int, int]] = {}

    def see(self, topic_id: UUID, name: str, partitions: int = 0) -> TopicBooks:
        """A broker tells somebody of a topic; what it is its name says."""
        found = self.topics.get(topic_id)
        if found is None:
            is_compacted = name.startswith("compacted")
            found = TopicBooks(name, is_compacted, name.startswith("retained"))
            self.topics[topic_id] = found
        found.partitions = max(found.partitions, partitions)
        return found

    def _account(self, partition: Partition) -> _Account:
        return self._accounts.setdefault(partition, _Account())

    def end_of(self, partition: Partition) -> int:
        """The largest end that anybody has been told: who asks from now on is told no less."""
        return self._account(partition).end

    def known(self, partition: Partition) -> dict[int, bytes]:
        """What is known to be in a partition, by offset."""
        return {offset: value for offset, (_, value) in self._account(partition).known.items()}

    # -- what is told ---------------------------------------------------------------------------

    def acknowledge(
        self, partition: Partition, base: int, messages: Iterable[tuple[bytes | None, bytes]]
    ) -> None:
        """Messages were said to be flushed at these offsets."""
        account = self._account(partition)
        for offset, (key, value) in enumerate(messages, base):
            self.note(partition, offset, key, value)
            account.kept.add(offset)
            self.acknowledged += 1
            self._show(partition, offset + 1)

    def wants_deleted(self, partition: Partition, offset: int) -> None:
        account = self._account(partition)
        account.may_start = max(account.may_start, offset)

    def deleted(self, partition: Partition, offset: int) -> None:
        account = self._account(partition)
        account.deleted = max(account.deleted, offset)

    def start_of(self, partition: Partition) -> int:
        """Before which offset nobody who asks from now on is shown anything."""
        return self._account(partition).deleted

    def read(
        self,
        partition: Partition,
        begin: int,
        start: int,
        end: int,
        records: Iterable[Record],
        known_end: int,
        known_start: int,
    ) -> None:
        """Somebody was told where a log starts and ends, and has read from `begin`.

        `known_end`, `known_start`: what `end_of` and `start_of` said when that was asked.
        """
        account, world = self._account(partition), self.world
        topic = self.topics.get(partition.topic_id)
        if topic is None:
            world.fail(f"{partition} is of a topic that nobody has created")
        what = f"{topic.name}-{partition.number}"
        if end < known_end:
            world.fail(f"{what} ends at {end}, and has ended at {known_end}")
        if start < known_start:
            world.fail(f"{what} starts at {start}; all before {known_start} was said to be deleted")
        if start > account.may_start and not topic.is_retained:
            world.fail(f"{what} starts at {start}; nobody has deleted so much")
        account.end, account.start = max(account.end, end), max(account.start, start)
        last = begin - 1
        for each in records:
            if each.value is None or not last < each.offset < end:
                world.fail(f"{what}: {each} was read after {last}, before {end}")
            last = each.offset
            self.note(partition, each.offset, each.key, each.value)
            account.kept.add(each.offset)  # what was shown stays, whoever was told
        self._show(partition, end)

    def _show(self, partition: Partition, end: int) -> None:
        if end > self.shown.get(partition, 0):
            self.shown[partition] = end
            self.on_shown(partition)

    def note(self, partition: Partition, offset: int, key: bytes | None, value: bytes) -> None:
        account, world = self._account(partition), self.world
        found = account.known.setdefault(offset, (key, value))
        if found != (key, value):
            world.fail(f"{partition} has both {found} and {(key, value)} at {offset}")
        place = account.offsets.setdefault(value, offset)
        if place != offset:
            world.fail(f"{partition} has {value!r} at {place} and at {offset}")
        topic_id, number, _, _ = value.decode().split("/")
        if partition.topic_id.hex[:12] != topic_id or str(partition.number) != number:
            world.fail(f"{partition} has {value!r} at {offset}, which is another's")

    # -- at the end -----------------------------------------------------------------------------

    def check_whole(self, partition: Partition, start: int, records: list[Record]) -> None:
        """Hold all that a partition has against what was told of it."""
        account, world = self._account(partition), self.world
        topic = self.topics[partition.topic_id]
        there = {each.offset: (each.key, each.value) for each in records}
        counting = {
            offset: message
            for offset, message in sorted(account.known.items())
            if self.counts(message[1]) is not False
        }
        last_of = {key: offset for offset, (key, _) in counting.items()}
        for offset in sorted(account.kept):
            message = account.known[offset]
            is_replaced = topic.is_compacted and (
                last_of.get(message[0], -1) > offset or not self.counts(message[1])
            )
            if offset >= start and not is_replaced and there.get(offset) != message:
                found = there.get(offset)
                world.fail(
                    f"{topic.name}-{partition.number} has {found} at {offset}; acknowledged was "
                    f"{message}"
                )
        if topic.is_compacted:
            self._check_last(account, start, counting, there)
        self._check_order(partition, account)

    def _check_last(
        self, account: _Account, start: int, counting: _Messages, there: Container[int]
    ) -> None:
        """Compaction keeps the last message of each key that counts, or a later one."""
        last_of = {key: offset for offset, (key, value) in counting.items() if self.counts(value)}
        for key, last in last_of.items():
            may_be = (at for at, (other, _) in counting.items() if other == key and at >= last)
            if start <= last < account.end and not any(at in there for at in may_be):
                self.world.fail(f"the last message of {key!r} is gone, at {last}")

    def _check_order(self, partition: Partition, account: _Account) -> None:
        """What one producer has sent stands in its order."""
        last: dict[str, int] = {}
        for offset, (_, value) in sorted(account.known.items()):
            producer, sequence = value.decode().split("/")[2:]
            if int(sequence) <= last.get(producer, -1):
                self.world.fail(f"{partition}: {value!r} at {offset} is out of order")
            last[producer] = int(sequence)
