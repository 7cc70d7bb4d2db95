"""One request under way, as its handler sees it."""

from typing import Any, Final

from twisted.internet.defer import Deferred

from hermes.kafka.apis import Api
from hermes.kafka.frames import Frame
from hermes.kafka.serving import KafkaServer
from hermes.security import Operation, Resource
from hermes.server.clients import Client
from hermes.server.sends import FileSend

#: So many entries of a request are carried out before others have a turn.
_ENTRIES_AT_A_TIME: Final = 16

#: A response with more entries than this is encoded in a thread: see `Call.is_large`.
LARGE_ENTRIES: Final = 256


class KafkaSend(FileSend):
    """A response that is encoded already: bytes, and slices of segments."""

    __slots__ = ()


class Call:
    """One request under way.

    Args:
        api: which request it is.
        frame: its frame.
        client: who asks.
        server: what it is served with.

    Attributes:
        api, frame, client, server: as given.
        make: makes the parts of the response: `call.make.MetadataResponse(...)`; a `Schema`, set
            before the handler is called.
        is_large: a handler sets it if its response has more than `LARGE_ENTRIES` entries.
        passed: fires when requests after it may be taken.
        has_passed: whether they may.
        released: fires when the request's bytes are of no more use.
        in_hand_bytes: what it holds of `RequestsInHand`; 0 for most.
    """

    __slots__ = (
        "api",
        "client",
        "frame",
        "has_passed",
        "in_hand_bytes",
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
        self.in_hand_bytes = 0

    @property
    def version(self) -> int:
        """The request's version."""
        return self.frame.version

    @property
    def correlation_id(self) -> int:
        """The client's number for the request."""
        return self.frame.correlation_id

    @property
    def client_id(self) -> str:
        """The client's name for itself; empty where it has none."""
        return self.frame.client_id

    def permits(self, operation: Operation, resource: Resource) -> bool:
        """Whether the client may do something; a refusal is counted, and logged within limits."""
        return self.server.permits(self.client, operation, resource)

    def permits_topic(self, operation: Operation, name: str) -> bool:
        """The same, of something that is done to a topic."""
        return self.permits(operation, Resource.topic(name))

    async def after_entry(self, number: int) -> None:
        """Let others have their turn, now and then between entries: there may be very many.

        Args:
            number: how many entries came before.
        """
        if number % _ENTRIES_AT_A_TIME == _ENTRIES_AT_A_TIME - 1:
            turn: Deferred[None] = Deferred()
            self.server.shared.scheduler.resume_later(lambda: turn.callback(None))
            await turn

    @property
    def is_moot(self) -> bool:
        """Whether nobody would make use of what is created now: the client or the broker leaves."""
        return self.client.has_left or self.server.shared.topics.stopping

    def step_aside(self) -> None:
        """Let other large requests be taken in hand: this one is done, or waits for long."""
        size_bytes, self.in_hand_bytes = self.in_hand_bytes, 0
        if size_bytes:
            self.server.in_hand.leave(size_bytes)

    def let_pass(self) -> None:
        """All that changes something is done: Produce requests after this one may be taken."""
        if not self.has_passed:
            self.has_passed = True
            self.passed.callback(None)
