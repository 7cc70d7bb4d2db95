"""Reads and changes what coordination has about topics' replicas, and brokers' directories.

    /hermes/kafka/replicas/<topic>       persistent   JSON, as `hermes.replication.state` has it
    /hermes/kafka/directories/<broker>   persistent   the id of the broker's data directory, a UUID

A change asks for what it needs of its own partition, not for the version of the topic's node: so
the leaders of one topic's partitions don't get in each other's way. Each is noted where changes of
topics are (noted_changes.py), so that one watch tells of both.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from hermes.coordination.nodes import Node, TreeSession
from hermes.coordination.noted_changes import NotedChanges, Operation
from hermes.errors import InvalidNodeError, WrongStateError
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
        on_fault: Callable[[InvalidNodeError], object] = lambda fault: None,
    ) -> dict[str, TopicReplicas]:
        """Read topics' nodes; left out is who has none, or one that can't be understood."""
        return dict(self._parsed(topics, on_fault))

    def _parsed(
        self, topics: Sequence[str], on_fault: Callable[[InvalidNodeError], object]
    ) -> Iterator[tuple[str, TopicReplicas]]:
        paths = [replicas_path(each) for each in topics]
        for topic, path, found in zip(topics, paths, self._session.get_all(paths), strict=True):
            try:
                if found is not None:
                    yield topic, _parsed(path, found)
            except InvalidNodeError as fault:
                on_fault(fault)

    def read_certainly(self, topic: str) -> TopicReplicas | None:
        """Read a topic's node as it is after all that this session has asked for."""
        path = replicas_path(topic)
        self._session.sync(path)
        found = self._session.get(path)
        return None if found is None else _parsed(path, found)

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
        path = replicas_path(topic)
        after: PartitionState | None = None
        version = -1

        def decide(found: Node | None) -> Sequence[Operation]:
            nonlocal after, version
            node = None if found is None else parse_replicas(path, found.value)
            before = None if node is None else node.state_of(number)
            if found is None or node is None or before is None:
                raise WrongStateError(f"{path}: partition {number} isn't there")
            after, version = change(before), found.version
            if after == before:
                return ()
            version += 1
            return (
                ("set_data", path, format_replicas(node.with_state(number, after)), found.version),
            )

        self._changes.carry_out(path, decide, topic)
        assert after is not None
        return after, version

    # -- brokers --------------------------------------------------------------------------------

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
        """Say which data directory is a broker's: once no other copy of its is in sync."""
        path, value = directory_path(broker_id), str(directory).encode()

        def decide(found: Node | None) -> Sequence[Operation]:
            if found is None:
                return (("create", path, value),)
            return () if found.value == value else (("set_data", path, value, found.version),)

        self._changes.carry_out(path, decide)


def _parsed(path: str, found: Node) -> TopicReplicas:
    return replace(parse_replicas(path, found.value), version=found.version)
