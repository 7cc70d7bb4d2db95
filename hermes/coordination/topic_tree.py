"""Reads and changes what coordination has about topics for Kafka clients (kafka_topics.py).

Every change of a topic's node rewrites `changes` in the same transaction, so that one watch fires
for all of them, and its version counts them; and `recent_changes`, so that a reader knows what it
missed. All writes depend on the version that was read: of two at once one is first, and the other
looks again. A partition's number is its place in a topic's list, which only ever grows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from hermes.coordination.kafka_topics import (
    KAFKA_CHANGES,
    KAFKA_DELETED,
    KAFKA_REQUESTED,
    KAFKA_TOPICS,
    PRODUCER_IDS,
    RECENT_CHANGES,
    DeletedTopic,
    TopicNode,
    deleted_path,
    format_deleted,
    format_topic,
    parse_deleted,
    parse_topic,
    topic_node_path,
)
from hermes.coordination.layout import parse_number
from hermes.coordination.nodes import Node, TreeSession
from hermes.coordination.noted_changes import NotedChanges, Operation, changes_of
from hermes.errors import CoordinationUnavailableError, InvalidNodeError

#: Producer ids have 63 bits.
_PRODUCER_IDS_END: Final = 1 << 63

#: How many nodes are asked for at once.
_AT_ONCE: Final = 500

_Parsed = TypeVar("_Parsed")


class TreeContents(NamedTuple):
    """What is stored at one time; the version counts the changes of topics."""

    version: int
    topics: Mapping[str, TopicNode]
    deleted: Mapping[UUID, DeletedTopic]


class TopicTree:
    """Reads and changes the tree. Blocks; any thread.

    All methods raise `CoordinationUnavailableError` when coordination doesn't answer, or others
    keep changing what is to be changed; nobody knows then whether it was done. They raise
    `InvalidNodeError` when what is to be changed can't be understood.

    `on_fault`: called with each node that can't be understood and is left out.
    """

    def __init__(
        self,
        session: TreeSession,
        on_fault: Callable[[InvalidNodeError], None] = lambda fault: None,
    ) -> None:
        self._session = session
        self._changes = NotedChanges(session)
        self._on_fault = on_fault

    # -- reading --------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the parents; comes first."""
        for path in (KAFKA_TOPICS, KAFKA_DELETED, KAFKA_CHANGES, KAFKA_REQUESTED):
            self._session.ensure_path(path)

    def read(self, known: TreeContents | None = None) -> TreeContents:
        """Read everything, and watch topics; with `known`, only what has changed is read again."""
        last = self._session.get(KAFKA_CHANGES, watch=True)
        if last is None:
            raise CoordinationUnavailableError(f"{KAFKA_CHANGES} is gone")
        if known is not None and last.version == known.version:
            # That a broker has deleted its part is no change of a topic. Who took it to be still to
            # be deleted would delete the next topic with its name.
            return known._replace(deleted=self._deleted()) if known.deleted else known
        changed = None if known is None else self._changed_since(known.version, last)
        if known is None or changed is None:
            topics = self._topics(self._session.children(KAFKA_TOPICS))
        else:
            topics = {name: node for name, node in known.topics.items() if name not in changed}
            topics |= self._topics(sorted(changed))
        return TreeContents(last.version, topics, self._deleted())

    def _changed_since(self, version: int, last: Node) -> Set[str] | None:
        """The topics that have changed since a version; None where that isn't known."""
        noted = None
        if last.version > version + 1:
            noted = self._session.get(RECENT_CHANGES)
        return changes_of(last, noted).since(version)

    def _topics(self, names: Sequence[str]) -> dict[str, TopicNode]:
        return {
            path.rpartition("/")[2]: node
            for path, node in self._parsed(KAFKA_TOPICS, names, parse_topic)
        }

    def _deleted(self) -> dict[UUID, DeletedTopic]:
        names = self._session.children(KAFKA_DELETED)
        return dict(each for _, each in self._parsed(KAFKA_DELETED, names, _deleted_with_id))

    def _parsed(
        self, parent: str, names: Sequence[str], parse: Callable[[str, bytes], _Parsed]
    ) -> Iterator[tuple[str, _Parsed]]:
        for first in range(0, len(names), _AT_ONCE):
            paths = [f"{parent}/{name}" for name in names[first : first + _AT_ONCE]]
            for path, node in zip(paths, self._session.get_all(paths), strict=True):
                try:
                    if node is not None:
                        yield path, parse(path, node.value)
                except InvalidNodeError as fault:
                    self._on_fault(fault)

    # -- changes --------------------------------------------------------------------------------

    def create(self, name: str, node: TopicNode) -> bool:
        """Make a topic's node; False if there is one already."""
        now = self.change(name, lambda before: node if before is None else before)
        return now is not None and now.id == node.id

    def change(
        self, name: str, change: Callable[[TopicNode | None], TopicNode | None]
    ) -> TopicNode | None:
        """Change a topic's node in one step, however many do so at once; returns the new node.

        `change`: makes the new node of the current one (None if there is none); called again when
        others were quicker. What it raises ends the change. The same object, or None: all is well.
        """
        path = topic_node_path(name)
        after: TopicNode | None = None

        def decide(found: Node | None) -> Sequence[Operation]:
            nonlocal after
            before = None if found is None else parse_topic(path, found.value)
            after = change(before)
            if after is before or after is None:
                return ()
            value = format_topic(after)
            if found is None:
                return (("create", path, value),)
            return (("set_data", path, value, found.version),)

        self._changes.carry_out(path, decide, name)
        return after

    def delete(self, name: str, wanted: Callable[[TopicNode], bool]) -> TopicNode | None:
        """Delete a topic if the node is `wanted`; its brokers delete its files as soon as they can.

        Returns the node; None if there was none, or none that was wanted.
        """
        path = topic_node_path(name)
        deleted: list[TopicNode] = []

        def decide(found: Node | None) -> Sequence[Operation]:
            deleted.clear()
            node = None if found is None else parse_topic(path, found.value)
            if found is None or node is None or not wanted(node):
                return ()
            deleted.append(node)
            operations: list[Operation] = [("delete", path, found.version)]
            left = node.brokers - node.gone
            if left:
                operations.append(self._deletion(node.id, DeletedTopic(name, node.format, left)))
            return operations

        self._changes.carry_out(path, decide, name)
        return deleted[0] if deleted else None

    def _deletion(self, topic_id: UUID, deleted: DeletedTopic) -> Operation:
        """Note what is to be deleted, beside what is still to be of the same topic."""
        # A broker of an earlier version may have put a node that it read before the topic was
        # deleted in the place of the next one of that name.
        path = deleted_path(topic_id)
        found = self._session.get(path)
        if found is None:
            return "create", path, format_deleted(deleted)
        brokers = deleted.brokers | parse_deleted(path, found.value).brokers
        return "set_data", path, format_deleted(deleted._replace(brokers=brokers)), found.version

    def has_deleted(self, topic_id: UUID, broker_id: int) -> None:
        """A broker has no more files of a topic that was deleted."""
        path = deleted_path(topic_id)

        def decide(found: Node | None) -> Sequence[Operation]:
            deleted = None if found is None else parse_deleted(path, found.value)
            if found is None or deleted is None or broker_id not in deleted.brokers:
                return ()
            left = deleted._replace(brokers=deleted.brokers - {broker_id})
            if left.brokers:
                return (("set_data", path, format_deleted(left), found.version),)
            return (("delete", path, found.version),)

        self._changes.carry_out(path, decide)

    def requested(self) -> bytes:
        """What was set by request for the cluster; it is watched. b"" where nothing was."""
        found = self._session.get(KAFKA_REQUESTED, watch=True)
        return b"" if found is None else found.value

    def change_requested(self, change: Callable[[bytes], bytes]) -> None:
        """Change that in one step, however many do so at once; what `change` raises ends it."""

        def decide(found: Node | None) -> Sequence[Operation]:
            before = b"" if found is None else found.value
            after = change(before)
            if after == before:
                return ()
            if found is None:
                return (("create", KAFKA_REQUESTED, after),)
            return (("set_data", KAFKA_REQUESTED, after, found.version),)

        self._changes.carry_out(KAFKA_REQUESTED, decide)

    def claim_producer_ids(self, count: int, at_least: int = 0) -> int:
        """Take `count` ids that nobody had before, from `at_least` on; returns the first one."""
        first: list[int] = []

        def decide(found: Node | None) -> Sequence[Operation]:
            kept = 0 if found is None else parse_number(PRODUCER_IDS, found.value)
            first[:] = [max(kept, at_least)]
            following = first[0] + count
            if following >= _PRODUCER_IDS_END:
                raise InvalidNodeError(f"{PRODUCER_IDS}: no producer id is left after {first[0]}")
            value = b"%d" % following
            if found is None:
                return (("create", PRODUCER_IDS, value),)
            return (("set_data", PRODUCER_IDS, value, found.version),)

        self._changes.carry_out(PRODUCER_IDS, decide)
        return first[0]


def _deleted_with_id(path: str, value: bytes) -> tuple[UUID, DeletedTopic]:
    try:
        return UUID(path.rpartition("/")[2]), parse_deleted(path, value)
    except ValueError:
        raise InvalidNodeError(f"{path}: expected a UUID") from None
