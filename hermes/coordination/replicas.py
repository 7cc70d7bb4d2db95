"""Reads and changes what coordination has about topics' replicas, and brokers' directories.

    /hermes/kafka/replicas/<topic>       persistent   JSON, as `hermes.replication.state` has it
    /hermes/kafka/directories/<broker>   persistent   the id of the broker's data directory, a UUID

A change asks for what it needs of its own partition, not for the version of the topic's node: so
the leaders of one topic's partitions don't get in each other's way. Each is noted where changes of
topics are (noted_changes.py), so that one watch tells of both.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, NoReturn, TypeAlias
from uuid import UUID

from hermes.coordination.nodes import Node, TreeSession
from hermes.coordination.noted_changes import NotedChanges, Operation
from hermes.errors import HermesError, InvalidNodeError, WrongStateError
from hermes.quoting import quoted
from hermes.replication.state import (
    PartitionState,
    TopicReplicas,
    format_replicas,
    parse_replicas,
)

KAFKA_REPLICAS: Final = "/hermes/kafka/replicas"
KAFKA_DIRECTORIES: Final = "/hermes/kafka/directories"


def replicas_path(topic: str) -> str:
    return f"{KAFKA_REPLICAS}/{topic}"


def as_life(session_id: int) -> int:
    """A session as a broker's life: ZooKeeper's ids may be negative."""
    return session_id & ((1 << 64) - 1)


def directory_path(broker_id: int) -> str:
    return f"{KAFKA_DIRECTORIES}/{broker_id}"


#: A transaction has at most a hundred operations: of each topic's node, and of each change that is
#: noted, and of the list of them.
_MOST_TOPICS: Final = 49
_MOST_BYTES: Final = 256 * 1024


class StateChange(NamedTuple):
    """A change of a partition's state; `make` as for `ReplicaTree.change`."""

    topic: str
    number: int
    make: Callable[[PartitionState], PartitionState]


#: A state as it stands there, and the version of the node that has it; or why it isn't changed.
Changed: TypeAlias = tuple[PartitionState, int] | WrongStateError | InvalidNodeError


class _Batch:
    """Changes for one transaction.

    Attributes:
        outcomes: of the first ones, as many as fit.
    """

    def __init__(self, changes: Sequence[StateChange]) -> None:
        self._changes = changes
        self.topics = list(dict.fromkeys(each.topic for each in changes))[:_MOST_TOPICS]
        self.outcomes: list[Changed] = []

    def decide(self, found: Sequence[Node | None]) -> tuple[list[Operation], list[str]]:
        there = dict(zip(self.topics, found, strict=True))
        nodes: dict[str, TopicReplicas] = {}
        written: dict[str, bytes] = {}
        done: list[tuple[str, PartitionState | WrongStateError | InvalidNodeError]] = []
        for topic, number, make in self._changes:
            if topic not in there:
                break
            try:
                node = nodes.get(topic) or _node_of(topic, there[topic])
                before = _state_of(topic, node, number)
                after = make(before)
            except (WrongStateError, InvalidNodeError) as error:
                done.append((topic, error))
                continue
            if after != before:
                node = node.with_state(number, after)
                value = format_replicas(node)
                others = (each for name, each in written.items() if name != topic)
                if written and sum(map(len, others)) + len(value) > _MOST_BYTES:
                    break
                written[topic] = value
            nodes[topic] = node
            done.append((topic, after))
        self.outcomes = [
            (each, nodes[name].version + (name in written))
            if isinstance(each, PartitionState)
            else each
            for name, each in done
        ]
        operations: list[Operation] = [
            ("set_data", replicas_path(name), value, nodes[name].version)
            for name, value in written.items()
        ]
        return operations, list(written)


def _node_of(topic: str, found: Node | None) -> TopicReplicas:
    if found is None:
        raise WrongStateError(f"{replicas_path(topic)} isn't there")
    return _parsed(replicas_path(topic), found)


def _state_of(topic: str, node: TopicReplicas, number: int) -> PartitionState:
    state = node.state_of(number)
    if state is None:
        raise WrongStateError(f"{replicas_path(topic)}: partition {number} isn't there")
    return state


class ReplicaTree:
    """Reads and changes the tree. Blocks; any thread.

    All methods raise `CoordinationUnavailableError` when coordination doesn't answer: nobody knows
    then whether it was done, until a `read_certainly` succeeds.
    """

    def __init__(self, session: TreeSession) -> None:
        self._session = session
        self._changes = NotedChanges(session)

    def prepare(self) -> None:
        """Make the parents; comes first."""
        for path in (KAFKA_REPLICAS, KAFKA_DIRECTORIES):
            self._session.ensure_path(path)

    # -- topics ---------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        return self._session.children(KAFKA_REPLICAS)

    def read(
        self,
        topics: Sequence[str],
        on_fault: Callable[[str, InvalidNodeError], object] = lambda topic, fault: None,
    ) -> dict[str, TopicReplicas]:
        """Read topics' nodes; left out is who has none, or one that can't be understood.

        `on_fault`: called with each of the latter, and what is wrong with it.
        """
        return dict(self._parsed(topics, on_fault))

    def _parsed(
        self, topics: Sequence[str], on_fault: Callable[[str, InvalidNodeError], object]
    ) -> Iterator[tuple[str, TopicReplicas]]:
        paths = [replicas_path(each) for each in topics]
        for topic, path, found in zip(topics, paths, self._session.get_all(paths), strict=True):
            try:
                if found is not None:
                    yield topic, _parsed(path, found)
            except InvalidNodeError as fault:
                on_fault(topic, fault)

    def read_certainly(self, topic: str) -> TopicReplicas | None:
        """Read a topic's node as it is after all that this session has asked for."""
        found = self.read_all_certainly([topic])[topic]
        if isinstance(found, InvalidNodeError):
            raise found
        return found

    def read_all_certainly(
        self, topics: Sequence[str]
    ) -> dict[str, TopicReplicas | InvalidNodeError | None]:
        """The same for some topics: what it returns or raises."""
        paths = [replicas_path(each) for each in topics]
        self._session.sync(paths[0])
        found: dict[str, TopicReplicas | InvalidNodeError | None] = {}
        for topic, path, node in zip(topics, paths, self._session.get_all(paths), strict=True):
            try:
                found[topic] = None if node is None else _parsed(path, node)
            except InvalidNodeError as error:
                found[topic] = error
        return found

    def create(self, topic: str, node: TopicReplicas) -> bool:
        """Make a topic's node; False if there is another one."""
        path = replicas_path(topic)
        is_there = False

        def decide(found: Node | None) -> Sequence[Operation]:
            nonlocal is_there
            is_there = found is not None and parse_replicas(path, found.value).id != node.id
            return () if found is not None else (("create", path, format_replicas(node)),)

        self._changes.carry_out(path, decide, topic)
        return not is_there

    def change(
        self, topic: str, number: int, change: Callable[[PartitionState], PartitionState]
    ) -> tuple[PartitionState, int]:
        """Change a partition's state in one step, however many do so at once.

        Returns the new one, and the version of the node that has it.

        `change`: makes the new state of the current one; called again when others were quicker.
        What it raises ends the change. The same state: nothing is written.

        Raises:
            WrongStateError: nothing was changed; also where the partition isn't there.
            InvalidNodeError: the node can't be understood.
        """
        (after,) = self.change_some([StateChange(topic, number, change)])
        if isinstance(after, HermesError):
            raise after
        return after

    def change_some(self, changes: Sequence[StateChange]) -> list[Changed]:
        """Make the first ones of some changes, as many as fit into one transaction; at least one.

        Returns for each of these what `change` returns or raises.
        """
        batch = _Batch(changes)
        paths = list(map(replicas_path, batch.topics))
        self._changes.carry_out_together(paths, batch.decide)
        return batch.outcomes

    # -- brokers --------------------------------------------------------------------------------

    def copies_of(self, broker_id: int) -> dict[tuple[str, int], tuple[UUID, PartitionState]]:
        """The partitions that a broker has copies of, or is to get, as of now: that is certain.

        Each with its topic's id, and its state.

        Raises InvalidNodeError: a node can't be understood, which may name the broker, too.
        """
        self._session.sync(KAFKA_REPLICAS)
        return {
            (topic, number): (node.id, state)
            for topic, node in self.read(self.topics(), _raised).items()
            for number, state in enumerate(node.partitions)
            if state is not None and broker_id in state.replicas
        }

    def directory(self, broker_id: int) -> UUID | None:
        """The data directory that a broker has said is its; None for none yet, and that is certain.

        A server that lags behind would have a broker with an empty disk take it for its first one.
        """
        path = directory_path(broker_id)
        self._session.sync(path)
        found = self._session.get(path)
        if found is None:
            return None
        try:
            return UUID(found.value.decode())
        except ValueError:
            raise InvalidNodeError(f"{path}: expected a UUID, got {quoted(found.value)}") from None

    def keep_directory(self, broker_id: int, directory: UUID) -> None:
        """Say which data directory is a broker's: once it says which of its copies it lacks."""
        path, value = directory_path(broker_id), str(directory).encode()

        def decide(found: Node | None) -> Sequence[Operation]:
            if found is None:
                return (("create", path, value),)
            return () if found.value == value else (("set_data", path, value, found.version),)

        self._changes.carry_out(path, decide)


def _raised(topic: str, fault: InvalidNodeError) -> NoReturn:
    raise fault


def _parsed(path: str, found: Node) -> TopicReplicas:
    return replace(parse_replicas(path, found.value), version=found.version)
