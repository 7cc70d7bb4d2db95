"""What all requests of Kafka's clients have in common: one per broker."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, DeferredSemaphore

from hermes.cluster.cluster import Cluster
from hermes.cluster.shared import Shared
from hermes.groups.coordinator import GroupCoordinator
from hermes.kafka.admission import Admission
from hermes.kafka.matched_topics import MatchedTopics
from hermes.partition.awaited_batches import AwaitedBatches
from hermes.partition.reading import CONCURRENT_LOOKUPS
from hermes.security import Operation, Resource
from hermes.server.clients import Client


class KafkaServer:
    """What handlers of requests work with. Lives in the reactor's thread.

    Attributes:
        matched_topics: finds topics by regular expressions.
        awaited: the batches that producers were told to send again.
        admission: the large requests that are carried out.
        large_produces: those of Produce, until they are answered.
        in_thread: calls a function in a worker thread and returns its Deferred.
    """

    def __init__(
        self,
        shared: Shared,
        cluster: Cluster,
        groups: GroupCoordinator,
    ) -> None:
        self.shared = shared
        self.topics = cluster.topics
        self.topic_changes = cluster.topic_changes
        self.producer_ids = cluster.producer_ids
        self.groups = groups
        self.matched_topics = MatchedTopics(self.topics, shared.refusals, self.look_up)
        self.awaited = AwaitedBatches(shared.clock.seconds)
        self.admission = Admission()
        self.large_produces = Admission()
        self.in_thread: Callable[..., Deferred[Any]] = shared.in_thread
        self._looking_up = DeferredSemaphore(CONCURRENT_LOOKUPS)
        self._expanding = DeferredSemaphore(1)

    def look_up(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        """Call a function that reads from a disk in a worker thread, a few at a time."""
        return self._looking_up.run(self.in_thread, function, *args)

    def expand(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        """Call a function that expands what is compressed in a worker thread, one at a time.

        Each may take as much memory as `max_expanded_bytes` says.
        """
        return self._expanding.run(self.in_thread, function, *args)

    def permits(self, client: Client, operation: Operation, resource: Resource) -> bool:
        """Whether a client may do something; a refusal is counted, and logged within limits."""
        refusals = self.shared.refusals
        return not refusals.is_on or refusals.of(client, operation, resource, "kafka") is None

    def shows(self, client: Client, topic: str) -> bool:
        """Whether a client that didn't name a topic may see it; refusals aren't told."""
        refusals = self.shared.refusals
        return not refusals.is_on or refusals.permits_topic(client, Operation.DESCRIBE, topic)
