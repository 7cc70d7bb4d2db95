"""Reads and changes what coordination has about topics for Kafka clients (kafka_topics.py).

Every change of a topic's node rewrites `changes` in the same transaction, so that one watch fires
for all of them, and its version counts them; and `recent_changes`, so that a reader knows what it
missed. All writes depend on the version that was read: of two at once one is first, and the other
looks again. A partition's number is its place in a topic's list, which only ever grows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
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
from hermes.coordination.replicas import ReplicaTree, replicas_path
from hermes.coordination.throttles import (
    KAFKA_THROTTLE,
    Throttle,
    format_throttles,
    parse_throttles,
)
from hermes.errors import CoordinationUnavailableError, InvalidNodeError, UnknownTopicError
from hermes.quoting import quoted
from hermes.replication.state import TopicReplicas, format_replicas, parse_replicas

#: Producer ids have 63 bits.
_PRODUCER_IDS_END: Final = 1 << 63

#: How many nodes are asked for at once.
_AT_ONCE: Final = 500

#: Of how many it is asked first which there are.
_MANY: Final = 64

_Parsed = TypeVar("_Parsed")


class TreeContents(NamedTuple):
    """What is stored at one time; the version counts the changes of topics.

    `replicas`: of the topics that have, or had, several copies. `unreadable`: the topics that are
    there, and of which nothing else is known: a node of theirs can't be understood.
    """

    version: int
    topics: Mapping[str, TopicNode]
    deleted: Mapping[UUID, DeletedTopic]
    replicas: Mapping[str, TopicReplicas] = MappingProxyType({})
    unreadable: Set[str] = frozenset()


#: So many topics are deleted in one step: as many as `recent_changes` can name, and with four
#: operations each within what the embedded server takes.
MOST_DELETED: Final = 200


class TopicTree:
    """Reads and changes the tree. Blocks; any thread.

    All methods raise `CoordinationUnavailableError` when coordination doesn't answer, or others
    keep changing what is to be changed; nobody knows then whether it was done. They raise
    `InvalidNodeError` when what is to be changed can't be understood.

    `on_fault`: called with each node that can't be understood and is left out.

    Attributes:
        replicas: what it has of copies.
    """

    def __init__(
        self,
        session: TreeSession,
        on_fault: Callable[[InvalidNodeError], None] = lambda fault: None,
    ) -> None:
        self._session = session
        self._changes = NotedChanges(session)
        self._on_fault = on_fault
        self.replicas = ReplicaTree(session)
        # Deleted topics of which a broker here has said that it has no more, and which.
        self._said: dict[UUID, int] = {}
        self._last_deleted: Mapping[UUID, DeletedTopic] = {}  # as they were read

    # -- reading --------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the parents; comes first."""
        for path in (KAFKA_TOPICS, KAFKA_DELETED, KAFKA_CHANGES, KAFKA_REQUESTED):
            self._session.ensure_path(path)
        self.replicas.prepare()

    def read(self, known: TreeContents | None = None) -> TreeContents:
        """Read everything, and watch topics; with `known`, only what has changed is read again.

        Or may have: people who mend a node don't note that.
        """
        last = self._session.get(KAFKA_CHANGES, watch=True)
        if last is None:
            raise CoordinationUnavailableError(f"{KAFKA_CHANGES} is gone")
        if known is not None and last.version == known.version and not known.unreadable:
            # That a broker has deleted its part is no change of a topic. Who took it to be still to
            # be deleted would delete the next topic with its name.
            return known._replace(deleted=self._deleted(set())) if known.deleted else known
        changed = None if known is None else self._changed_since(known, last)
        if known is None or changed is None:
            topics, unreadable = self._topics(self._session.children(KAFKA_TOPICS))
            replicas = self._read_replicas(self.replicas.topics(), topics, unreadable)
            return TreeContents(last.version, topics, self._deleted(None), replicas, unreadable)
        topics = {name: node for name, node in known.topics.items() if name not in changed}
        found, unreadable = self._topics(self._there_of(changed))
        # Mostly only who has copies has changed: the same topic stays the same object.
        there = {
            name: node if known.topics.get(name) != node else known.topics[name]
            for name, node in found.items()
        }
        replicas = {name: node for name, node in known.replicas.items() if name not in changed}
        replicas |= self._read_replicas(sorted(there), there, unreadable)
        deleted = self._deleted(changed)
        return TreeContents(last.version, topics | there, deleted, replicas, unreadable)

    def _changed_since(self, known: TreeContents, last: Node) -> Set[str] | None:
        """The topics that may have changed since then; None where that isn't known."""
        if last.version == known.version:
            return known.unreadable
        noted = None
        if last.version > known.version + 1:
            noted = self._session.get(RECENT_CHANGES)
        changed = changes_of(last, noted).since(known.version)
        return None if changed is None else changed | known.unreadable

    def _there_of(self, names: Set[str]) -> Sequence[str]:
        """Of topics those that may be there: of many, most may be deleted."""
        if len(names) > _MANY:
            names = names & set(self._session.children(KAFKA_TOPICS))
        return sorted(names)

    def _topics(self, names: Sequence[str]) -> tuple[dict[str, TopicNode], set[str]]:
        """Those that there are, and the names of those that can't be understood."""
        unreadable: set[str] = set()
        found = self._parsed(KAFKA_TOPICS, names, parse_topic, unreadable.add)
        return {path.rpartition("/")[2]: node for path, node in found}, unreadable

    def _deleted(self, changed: Set[str] | None) -> Mapping[UUID, DeletedTopic]:
        """Those that there are.

        Others' files are their own matter: what was read before is only read again where a broker
        here has said that it has no more, or the topic is `changed`; all of it where that is None.
        """
        said = dict(self._said)
        kept = {
            str(key): (key, each)
            for key, each in self._last_deleted.items()
            if changed is not None and each.name not in changed and key not in said
        }
        names = self._session.children(KAFKA_DELETED)
        unknown = [each for each in names if each not in kept]
        found = dict(each for _, each in self._parsed(KAFKA_DELETED, unknown, _deleted_with_id))
        for key, broker_id in said.items():
            if key not in found or broker_id not in found[key].brokers:
                self._said.pop(key, None)
        found |= dict(kept[each] for each in names if each in kept)
        self._last_deleted = found
        return found

    def _read_replicas(
        self, names: Sequence[str], topics: dict[str, TopicNode], unreadable: set[str]
    ) -> dict[str, TopicReplicas]:
        """Read who has copies of these; without that nobody knows who leads a topic's partitions.

        It is no topic of single copies, so it goes from `topics` to the `unreadable` ones.
        """

        def on_fault(name: str, fault: InvalidNodeError) -> None:
            self._told(replicas_path(name), fault)
            if topics.pop(name, None) is not None:
                unreadable.add(name)

        return self.replicas.read(names, on_fault)

    def _parsed(
        self,
        parent: str,
        names: Sequence[str],
        parse: Callable[[str, bytes], _Parsed],
        on_unreadable: Callable[[str], object] = lambda name: None,
    ) -> Iterator[tuple[str, _Parsed]]:
        for first in range(0, len(names), _AT_ONCE):
            some = names[first : first + _AT_ONCE]
            paths = [f"{parent}/{name}" for name in some]
            for name, path, node in zip(some, paths, self._session.get_all(paths), strict=True):
                try:
                    if node is not None:
                        yield path, parse(path, node.value)
                except InvalidNodeError as fault:
                    self._told(path, fault)
                    on_unreadable(name)

    def _told(self, path: str, fault: InvalidNodeError) -> None:
        self._session.get(path, watch=True)  # somebody may mend it
        self._on_fault(fault)

    # -- changes --------------------------------------------------------------------------------

    def create(self, name: str, node: TopicNode, replicas: TopicReplicas | None = None) -> bool:
        """Make a topic's node; False if there is one already.

        `replicas`: of one with several copies.
        """

        def change_replicas(before: TopicReplicas | None) -> TopicReplicas | None:
            return replicas

        now = self.change(
            name,
            lambda before: node if before is None else before,
            None if replicas is None else change_replicas,
        )
        return now is not None and now.id == node.id

    def change(
        self,
        name: str,
        change: Callable[[TopicNode | None], TopicNode | None],
        change_replicas: Callable[[TopicReplicas | None], TopicReplicas | None] | None = None,
    ) -> TopicNode | None:
        """Change a topic's node in one step, however many do so at once; returns the new node.

        Args:
            change: makes the new node of the current one (None if there is none); called again when
                others were quicker. What it raises ends the change. The same object, or None: all
                is well.
            change_replicas: the same for the node of its copies, where that is to change with it.
        """
        path = topic_node_path(name)
        after: TopicNode | None = None

        def decide(found: Node | None) -> Sequence[Operation]:
            nonlocal after
            before = None if found is None else parse_topic(path, found.value)
            after = change(before)
            if after is before or after is None:
                return ()
            operations = [_written(path, format_topic(after), found)]
            if change_replicas is not None:
                operations += self._change_of_replicas(name, change_replicas)
            return operations

        self._changes.carry_out(path, decide, name)
        return after

    def change_replicas(
        self, name: str, change: Callable[[TopicNode, TopicReplicas | None], TopicReplicas | None]
    ) -> None:
        """Change the node of a topic's copies, or make it, in one step: of a topic that stays.

        `change`: makes it of the topic's node and the present one, as in `change`; None, or the
        same: nothing is written. Raises UnknownTopicError: there is no such topic.
        """
        path = replicas_path(name)

        def decide(found: Node | None) -> Sequence[Operation]:
            topic = self._session.get(topic_node_path(name))
            if topic is None:
                raise UnknownTopicError(f"there is no topic {quoted(name)}")
            before = None if found is None else parse_replicas(path, found.value)
            after = change(parse_topic(topic_node_path(name), topic.value), before)
            if after is None or after == before:
                return ()
            # One that is deleted, or grows, meanwhile has other partitions than were looked at.
            check: Operation = ("check", topic_node_path(name), topic.version)
            return [check, _written(path, format_replicas(after), found)]

        self._changes.carry_out(path, decide, name)

    def _change_of_replicas(
        self, name: str, change: Callable[[TopicReplicas | None], TopicReplicas | None]
    ) -> Iterator[Operation]:
        path = replicas_path(name)
        found = self._session.get(path)
        before = None if found is None else parse_replicas(path, found.value)
        after = change(before)
        if after is not None and after != before:
            yield _written(path, format_replicas(after), found)

    def delete(self, name: str, wanted: Callable[[TopicNode], bool]) -> TopicNode | None:
        """Delete a topic if the node is `wanted`; its brokers delete its files as soon as they can.

        Returns the node; None if there was none, or none that was wanted.
        """
        deleted = self.delete_all({name: wanted}).get(name)
        if isinstance(deleted, InvalidNodeError):
            raise deleted
        return deleted

    def delete_all(
        self, wanted: Mapping[str, Callable[[TopicNode], bool]]
    ) -> dict[str, TopicNode | InvalidNodeError]:
        """The same for some topics in one step; at most `MOST_DELETED`.

        Returns the nodes that were deleted, and what can't be understood.
        """
        deleted: dict[str, TopicNode | InvalidNodeError] = {}
        is_again = False

        def decide(found: Sequence[Node | None]) -> tuple[list[Operation], list[str]]:
            nonlocal is_again
            deleted.clear()
            doomed = {}
            for (name, is_wanted), node in zip(wanted.items(), found, strict=True):
                try:
                    topic = None if node is None else parse_topic(topic_node_path(name), node.value)
                    if node is not None and topic is not None and is_wanted(topic):
                        doomed[name] = node, topic
                except InvalidNodeError as error:
                    deleted[name] = error
            operations: list[Operation] = []
            for name, some in self._deletions(doomed, is_again=is_again).items():
                if isinstance(some, InvalidNodeError):
                    deleted[name] = some
                else:
                    deleted[name] = doomed[name][1]
                    operations += some
            gone = [name for name, node in deleted.items() if isinstance(node, TopicNode)]
            is_again = True
            return operations, gone

        self._changes.carry_out_together([topic_node_path(name) for name in wanted], decide)
        return deleted

    def _deletions(
        self, doomed: Mapping[str, tuple[Node, TopicNode]], *, is_again: bool
    ) -> dict[str, list[Operation] | InvalidNodeError]:
        """How to delete topics, and note who has files of each; or what can't be understood.

        `is_again`: that failed, and so all is looked at that it might have failed for.
        """
        copied = sorted(doomed)
        if not is_again and len(doomed) > _MANY:
            copied = sorted(doomed.keys() & set(self.replicas.topics()))
        found = self._session.get_all([replicas_path(name) for name in copied])
        copies = dict(zip(copied, found, strict=True))
        noted: Sequence[Node | None] = [None] * len(doomed)
        if is_again:
            # A broker of an earlier version may have put a node that it read before the topic was
            # deleted in the place of the next one of that name: then more is still to be deleted.
            noted = self._session.get_all([deleted_path(topic.id) for _, topic in doomed.values()])
        operations: dict[str, list[Operation] | InvalidNodeError] = {}
        for (name, (node, topic)), left in zip(doomed.items(), noted, strict=True):
            try:
                operations[name] = _deletion(name, node, topic, copies.get(name), left)
            except InvalidNodeError as error:
                operations[name] = error
        return operations

    def has_deleted(self, topic_ids: Sequence[UUID], broker_id: int) -> None:
        """A broker has no more files of topics that were deleted; of `MOST_DELETED` at most."""
        paths = list(map(deleted_path, topic_ids))
        self._said |= dict.fromkeys(topic_ids, broker_id)
        known = [self._last_deleted.get(each) for each in topic_ids]
        if all(each is not None and each.brokers == {broker_id} for each in known):
            # Nobody else has a part in it: nearly always they are as they were read, and were made.
            gone = self._session.transact(lambda made: [made.delete(path, 0) for path in paths])
            if not any(isinstance(each, Exception) for each in gone):
                return

        def decide(found: Sequence[Node | None]) -> tuple[list[Operation], list[str]]:
            operations: list[Operation] = []
            for path, node in zip(paths, found, strict=True):
                deleted = None if node is None else parse_deleted(path, node.value)
                if node is None or deleted is None or broker_id not in deleted.brokers:
                    continue
                left = deleted._replace(brokers=deleted.brokers - {broker_id})
                if left.brokers:
                    operations.append(_written(path, format_deleted(left), node))
                else:
                    operations.append(("delete", path, node.version))
            return operations, []

        self._changes.carry_out_together(paths, decide)

    def value(self, path: str) -> bytes:
        """What the cluster has in one node; it is watched. b"" where there never was anything."""
        found = self._session.get(path, watch=True)
        return b"" if found is None else found.value

    def change_value(self, path: str, change: Callable[[bytes], bytes]) -> None:
        """Change that in one step, however many do so at once; what `change` raises ends it."""

        def decide(found: Node | None) -> Sequence[Operation]:
            before = b"" if found is None else found.value
            after = change(before)
            return () if after == before else (_written(path, after, found),)

        self._changes.carry_out(path, decide)

    def throttles(self) -> Mapping[int, Throttle]:
        """How fast brokers make copies; it is watched. What can't be understood bounds nothing."""
        found = self._session.get(KAFKA_THROTTLE, watch=True)
        try:
            return {} if found is None else parse_throttles(found.value)
        except InvalidNodeError as fault:
            self._on_fault(fault)
            return {}

    def change_throttle(self, broker_id: int, change: Callable[[Throttle], Throttle]) -> None:
        """Change how fast a broker makes copies."""

        def decide(found: Node | None) -> Sequence[Operation]:
            before = {} if found is None else parse_throttles(found.value)
            wanted = change(before.get(broker_id, Throttle()))
            value = format_throttles({**before, broker_id: wanted})
            if value == format_throttles(before):
                return ()
            return (_written(KAFKA_THROTTLE, value, found),)

        self._changes.carry_out(KAFKA_THROTTLE, decide)

    def claim_producer_ids(self, count: int, at_least: int = 0) -> int:
        """Take `count` ids that nobody had before, from `at_least` on; returns the first one."""
        first: list[int] = []

        def decide(found: Node | None) -> Sequence[Operation]:
            kept = 0 if found is None else parse_number(PRODUCER_IDS, found.value)
            first[:] = [max(kept, at_least)]
            following = first[0] + count
            if following >= _PRODUCER_IDS_END:
                raise InvalidNodeError(f"{PRODUCER_IDS}: no producer id is left after {first[0]}")
            return (_written(PRODUCER_IDS, b"%d" % following, found),)

        self._changes.carry_out(PRODUCER_IDS, decide)
        return first[0]


def _written(path: str, value: bytes, found: Node | None) -> Operation:
    if found is None:
        return "create", path, value
    return "set_data", path, value, found.version


def _deletion(
    name: str, node: Node, topic: TopicNode, copies: Node | None, noted: Node | None
) -> list[Operation]:
    operations: list[Operation] = [("delete", topic_node_path(name), node.version)]
    left = topic.brokers - topic.gone
    if copies is not None:
        operations.append(("delete", replicas_path(name), copies.version))
        left |= parse_replicas(replicas_path(name), copies.value).brokers
    if left:
        path = deleted_path(topic.id)
        brokers = left if noted is None else left | parse_deleted(path, noted.value).brokers
        value = format_deleted(DeletedTopic(name, topic.format, brokers))
        operations.append(_written(path, value, noted))
    return operations


def _deleted_with_id(path: str, value: bytes) -> tuple[UUID, DeletedTopic]:
    try:
        return UUID(path.rpartition("/")[2]), parse_deleted(path, value)
    except ValueError:
        raise InvalidNodeError(f"{path}: expected a UUID") from None
