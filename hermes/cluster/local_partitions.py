"""What a broker's own partitions change in the cluster's topics, decided from values alone.

A topic of this broker's whose partitions aren't in the topic's node is added to it. A topic of 0.7
that this broker no longer has is marked so, and goes once no broker has it; one of Kafka's format
is deleted in the cluster, never because a broker lacks it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID, uuid4

from hermes.coordination.kafka_topics import (
    DeletedTopic,
    TopicNode,
    fits_in_a_path,
    with_broker_partitions,
)
from hermes.coordination.topic_tree import TreeContents


class LocalPartitions(NamedTuple):
    """By this broker's own numbers, ascending. `id`: the UUID of a `kafka` topic; else None."""

    format: str
    id: UUID | None
    partitions: tuple[int, ...]

    def is_of(self, topic_id: UUID, topic: TopicNode | DeletedTopic) -> bool:
        """Whether they are of that topic: of 0.7's nothing but the name says so."""
        return self.format == topic.format and (self.id is None or self.id == topic_id)


class Addition(NamedTuple):
    """A topic's node is to have a broker's partitions."""

    topic: str
    broker_id: int
    local: LocalPartitions

    def apply(self, node: TopicNode | None) -> TopicNode | None:
        """The node with them; the same if it has them, or is another topic of that name."""
        if node is not None and not self.local.is_of(node.id, node):
            return node
        made = TopicNode(self.local.id or uuid4(), self.local.format, ())
        return with_broker_partitions(node, made, self.broker_id, self.local.partitions)


class Removal(NamedTuple):
    """A topic of 0.7's is to say that a broker has none of it any more."""

    topic: str
    broker_id: int

    def apply(self, node: TopicNode | None) -> TopicNode | None:
        if node is None or node.format != "0.7" or self.broker_id in node.gone:
            return node
        return replace(node, gone=node.gone | {self.broker_id})

    @staticmethod
    def is_gone_everywhere(node: TopicNode) -> bool:
        """Whether no broker has anything of a topic any more, so that its node can go."""
        return node.gone >= node.brokers


class LocalChanges:
    """Finds what is to be changed. Looks again only at what is new, here or in the cluster."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        # Which partitions are in which node: a change costs what it is about, not all topics.
        self._settled: dict[str, tuple[LocalPartitions, TopicNode | None]] = {}

    def find(
        self, published: Mapping[str, LocalPartitions], contents: TreeContents
    ) -> list[Addition | Removal]:
        """What is to be changed so that the cluster has this broker's partitions, and no others.

        `published`: this broker's partitions, by topic.
        """
        return [*self._additions(published, contents), *self._removals(published, contents)]

    def _additions(
        self, published: Mapping[str, LocalPartitions], contents: TreeContents
    ) -> Iterator[Addition]:
        settled, self._settled = self._settled, {}
        doomed = self._doomed(contents)
        for name, local in published.items():
            node = contents.topics.get(name)
            before = settled.get(name)
            if before is not None and before[0] is local and before[1] is node:
                self._settled[name] = before
                continue
            is_doomed = any(local.is_of(*each) for each in doomed.get(name, ()))
            if is_doomed or name in contents.unreadable or not fits_in_a_path(name):
                continue
            addition = Addition(name, self._broker_id, local)
            if addition.apply(node) is node:
                self._settled[name] = (local, node)
            else:
                yield addition

    def _doomed(self, contents: TreeContents) -> Mapping[str, list[tuple[UUID, DeletedTopic]]]:
        """By name the topics that this broker has yet to delete."""
        doomed: dict[str, list[tuple[UUID, DeletedTopic]]] = {}
        for topic_id, deleted in contents.deleted.items():
            if self._broker_id in deleted.brokers:
                doomed.setdefault(deleted.name, []).append((topic_id, deleted))
        return doomed

    def _removals(
        self, published: Mapping[str, LocalPartitions], contents: TreeContents
    ) -> Iterator[Removal]:
        for name, node in contents.topics.items():
            is_gone = node.format == "0.7" and name not in published
            if is_gone and self._broker_id in node.brokers - node.gone:
                yield Removal(name, self._broker_id)
