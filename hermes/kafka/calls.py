"""What handlers work with: the broker as Kafka's requests see it, and one request under way."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredSemaphore

from hermes.cluster.cluster import Cluster
from hermes.cluster.shared import Shared
from hermes.groups.coordinator import GroupCoordinator
from hermes.kafka.admission import Admission
from hermes.kafka.apis import Api
from hermes.kafka.frames import Frame
from hermes.kafka.matched_topics import MatchedTopics
from hermes.partition.awaited_batches import AwaitedBatches
from hermes.partition.log_reader import CONCURRENT_LOOKUPS
from hermes.security import Operation, Resource
from hermes.server.clients import Client
from hermes.server.sends import FileSend

#: So many entries of a request are carried out before others have a turn.
_ENTRIES_AT_A_TIME: Final = 16

#: How Kafka writes that it was not asked what a client may do.
NOT_ASKED: Final = -(2**31)

#: A response with more entries than this is encoded in a thread: see `Call.is_large`.
LARGE_ENTRIES: Final = 256


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


class KafkaSend(FileSend):
    """A response that is encoded already: bytes, and slices of segments."""

    __slots__ = ()


class Call:
    """One request under way.

    Attributes:
        make: makes the parts of the response: `call.make.MetadataResponse(...)`; a `Schema`, set
            before the handler is called.
        is_large: a handler sets it if its response has more than `LARGE_ENTRIES` entries.
        passed: fires when requests after it may be taken.
        has_passed: whether they may.
        released: fires when the request's bytes are of no more use.
        admitted_bytes: what it holds of the server's `admission`; 0 for most.
    """

    __slots__ = (
        "admitted_bytes",
        "api",
        "client",
        "frame",
        "has_passed",
        "is_large",
        "make",
        "passed",
        "released",
        "server",
    )

    def __init__(self, api: Api, frame: Frame, client: Client, server: KafkaServer) -> None:
        self.api = api
        self.frame = frame
        self.client = client
        self.server = server
        self.make: Any = None
        self.is_large = False
        self.passed: Deferred[None] = Deferred()
        self.has_passed = False
        self.released: Deferred[None] = Deferred()
        self.admitted_bytes = 0

    @property
    def version(self) -> int:
        return self.frame.version

    @property
    def correlation_id(self) -> int:
        return self.frame.correlation_id

    @property
    def client_id(self) -> str:
        """Empty where the client gives none."""
        return self.frame.client_id

    def permits(self, operation: Operation, resource: Resource) -> bool:
        """Whether the client may do something; a refusal is counted, and logged within limits."""
        return self.server.permits(self.client, operation, resource)

    def may(self, operation: Operation, resource: Resource) -> bool:
        """The same, where nobody is told of a refusal: the client didn't name the resource."""
        refusals = self.server.shared.refusals
        return not refusals.is_on or refusals.permits(self.client, operation, resource)

    def permits_topic(self, operation: Operation, name: str) -> bool:
        """`permits`, of something that is done to a topic."""
        return self.permits(operation, Resource.topic(name))

    async def after_entry(self, number: int) -> None:
        """Let others have their turn, now and then between entries: there may be very many."""
        if number % _ENTRIES_AT_A_TIME == _ENTRIES_AT_A_TIME - 1:
            turn: Deferred[None] = Deferred()
            self.server.shared.scheduler.resume_later(lambda: turn.callback(None))
            await turn

    @property
    def is_moot(self) -> bool:
        """Whether what is created now would be of no use: the client or the broker leaves."""
        return self.client.has_left or self.server.shared.topics.stopping

    def step_aside(self) -> None:
        """Let other large requests be admitted: this one is done, or waits for long."""
        size_bytes, self.admitted_bytes = self.admitted_bytes, 0
        if size_bytes:
            self.server.admission.leave(size_bytes)

    def let_pass(self) -> None:
        """All that changes something is done: Produce requests after this one may be taken."""
        if not self.has_passed:
            self.has_passed = True
            self.passed.callback(None)


def operation_bits(
    numbers: Iterable[tuple[Operation, Iterable[int]]], may: Callable[[Operation], bool]
) -> int:
    """What a client may do, as the bits of Kafka's numbers of operations."""
    return sum(1 << number for operation, each in numbers if may(operation) for number in each)
