"""Readers that follow the topics' changes know what a fresh read says, whoever wrote and when.

Several trees change topics, also of an earlier version, whose brokers note only the last change.
Between any two calls of a change or a read, others may change and read.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch
from uuid import uuid4

from hypothesis import example, given, settings
from hypothesis import strategies as st
from memory_coordination import MemoryCoordination, MemorySession

from hermes.coordination import recent_changes
from hermes.coordination.kafka_topics import (
    KAFKA_CHANGES,
    KAFKA_TOPICS,
    TopicNode,
    format_topic,
    parse_topic,
    topic_node_path,
)
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.nodes import Node
from hermes.coordination.topic_tree import TopicTree, TreeContents

TOPICS = "abcd"
READERS = 3


class Step(NamedTuple):
    """What is done.

    Attributes:
        act: of one of the readers, or of a tree of its own.
        between: what happens before its first call, its second and so on; None: nothing.
    """

    act: str
    topic: str
    reader: int
    between: Sequence["Step | None"] = ()


def step_of(*acts: str, between: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
    readers = st.integers(0, READERS - 1)
    others = st.lists(st.none() | between, max_size=4)
    return st.builds(Step, st.sampled_from(acts), st.sampled_from(TOPICS), readers, others)


writes = "change", "change", "earlier change", "delete"
short = step_of(*writes, between=st.nothing())
nested = step_of(*writes, "read", "earlier read", between=short)
steps = step_of(*writes, *writes, "read", "earlier read", "check", between=nested)


class InterruptedSession(MemorySession):
    """Lets something else happen before each of its calls, as long as there is something."""

    def __init__(self, coordination: MemoryCoordination) -> None:
        super().__init__(coordination, lambda: None)
        self.between: list[Callable[[], None]] = []

    def _reached(self) -> MemoryCoordination:
        if self.between:
            self.between.pop(0)()
        return super()._reached()


class EarlierReader:
    """Reads as brokers did before there was a list."""

    def __init__(self, session: MemorySession) -> None:
        self._session = session
        self._known: tuple[int, dict[str, TopicNode]] | None = None

    def read(self) -> dict[str, TopicNode]:
        last = self._session.get(KAFKA_CHANGES, watch=True)
        assert last is not None
        if self._known is not None and last.version == self._known[0]:
            return self._known[1]
        changed = last.value.decode(errors="replace")
        if self._known is not None and last.version == self._known[0] + 1:
            topics = dict(self._known[1])
            topics.pop(changed, None)
            topics |= self._topics([changed])
        else:
            topics = self._topics(self._session.children(KAFKA_TOPICS))
        self._known = last.version, topics
        return topics

    def _topics(self, names: list[str]) -> dict[str, TopicNode]:
        nodes = self._session.get_all([topic_node_path(each) for each in names])
        return {
            name: parse_topic(name, node.value)
            for name, node in zip(names, nodes, strict=True)
            if node is not None
        }


class Cluster:
    """Writers and readers that share one coordination."""

    def __init__(self) -> None:
        self.coordination = MemoryCoordination()
        self.fresh = TopicTree(self.coordination.session())
        self.fresh.prepare()
        self.known: list[TreeContents | None] = [None] * READERS
        self.earlier = [EarlierReader(self.coordination.session()) for _ in range(READERS)]
        self._count = 0

    def take(self, step: Step | None) -> None:
        if step is None:
            return
        session = InterruptedSession(self.coordination)
        session.between = [partial(self.take, each) for each in step.between]
        tree = TopicTree(session)
        match step.act:
            case "change":
                tree.change(step.topic, self._grown)
            case "delete":
                tree.delete(step.topic, lambda node: True)
            case "read":
                self.known[step.reader] = tree.read(self.known[step.reader])
            case "earlier change":
                self._change_as_before(session, step.topic)
            case "check":
                self.check(step.reader)
            case "earlier read":
                reader = self.earlier[step.reader]
                reader._session, before = session, reader._session
                reader.read()
                reader._session = before
        for left in session.between:
            left()

    def _grown(self, node: TopicNode | None) -> TopicNode:
        before = TopicNode(uuid4(), "kafka", ()) if node is None else node
        self._count += 1
        places = (*before.partitions, BrokerPartition(1, self._count))
        return TopicNode(before.id, before.format, places)

    def _change_as_before(self, session: MemorySession, name: str) -> None:
        """Change a topic as brokers did before there was a list."""
        path = topic_node_path(name)
        results: Sequence[Any] = [Exception()]
        while any(isinstance(each, Exception) for each in results):
            found: Node | None = session.get(path)
            node = self._grown(None if found is None else parse_topic(path, found.value))

            def fill(transaction: Any, found: Node | None = found, node: Any = node) -> None:
                if found is None:
                    transaction.create(path, format_topic(node))
                else:
                    transaction.set_data(path, format_topic(node), found.version)
                transaction.set_data(KAFKA_CHANGES, name.encode())

            results = session.transact(fill)

    def check(self, reader: int) -> None:
        """Once nothing else happens, a reader knows what there is."""
        fresh = self.fresh.read()
        self.known[reader] = self.fresh.read(self.known[reader])
        assert self.known[reader] == fresh
        assert self.earlier[reader].read() == fresh.topics


def made_anew(act: str, at: int) -> list[Step]:
    """A topic is deleted and made anew while it is changed: the node has the same version."""
    remade = Step("change", "b", 0, (Step("delete", "b", 0),))
    return [
        Step("change", "b", 0),
        Step(act, "b", 0, (*[None] * at, remade)),
        Step("delete", "b", 0),
    ]


@settings(max_examples=400)
@example(200, made_anew("change", 1))
@example(200, made_anew("change", 2))
@example(200, made_anew("change", 3))
@example(200, made_anew("earlier change", 1))
@given(st.sampled_from([2, 5, 200]), st.lists(steps, min_size=5, max_size=40))
def test_who_follows_changes_knows_what_a_fresh_read_says(most: int, taken: list[Step]) -> None:
    with patch.object(recent_changes, "MOST_CHANGES", most):
        cluster = Cluster()
        for step in taken:
            cluster.take(step)
        for reader in range(READERS):
            cluster.check(reader)
