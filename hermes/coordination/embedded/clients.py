"""The clients that are connected: who they are, who is served next, and what they hold.

Serving is a round robin: a little of one client's requests, then of the next one's, and the reactor
does something else every few milliseconds. So however much a thousand clients ask for, another one
is heard, and the broker in the same process keeps going.

Bytes that wait for a client itself (an incomplete frame, responses that it doesn't read) are
counted over all clients. When they are too many, the client that has made no progress for the
longest time is cut off: an honest one has finished with its bytes long before that.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from hermes.coordination.embedded.four_letter_words import ClientReport, ServerReport, Statistics
from hermes.coordination.embedded.guarded_processor import GuardedProcessor
from hermes.coordination.embedded.limits import LIGHT_BYTES, MAX_HELD_BYTES, SMALL_BYTES
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger

_ROUND_SECONDS: Final = 0.01

# A client is served for so long before the next one is...
_QUANTUM_SECONDS: Final = 0.0005
# ... or for its share of this, when very many wait: one that asks for little waits about twice it.
_ALL_SECONDS: Final = 0.1


class CoordinationClient(Protocol):
    @property
    def report(self) -> ClientReport: ...

    @property
    def received_bytes(self) -> int:
        """How much of what it has sent has not been served yet."""

    def serve_some(self) -> bool:
        """Serve a little of what was asked; whether there is more to do now."""

    def abort(self) -> None: ...

    def __hash__(self) -> int: ...


class RoundRobin:
    """Serves one client after the other, alternating between light and heavy ones.

    So a client that asks for one small thing at a time does not wait for a round of those that ask
    for a thousand, or for something large.
    """

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._light: dict[CoordinationClient, None] = {}
        self._heavy: dict[
            CoordinationClient, None
        ] = {}  # also those that were served and have more to do
        self._call: Any = None

    @property
    def quantum_seconds(self) -> float:
        return min(_QUANTUM_SECONDS, _ALL_SECONDS / (1 + len(self._light) + len(self._heavy)))

    def add(self, client: CoordinationClient) -> None:
        if client.received_bytes > LIGHT_BYTES:
            self._light.pop(client, None)
            self._heavy.setdefault(client)
        elif client not in self._heavy:
            self._light.setdefault(client)
        if self._call is None:
            self._call = self._clock.callLater(0, self._serve)

    def remove(self, client: CoordinationClient) -> None:
        self._light.pop(client, None)
        self._heavy.pop(client, None)
        if self._call is not None and not self._light and not self._heavy:
            self._call.cancel()
            self._call = None

    def _serve(self) -> None:
        self._call = None
        end = self._clock.seconds() + _ROUND_SECONDS
        while (self._light or self._heavy) and self._clock.seconds() < end:
            for waiting in (self._light, self._heavy):
                if waiting:
                    client = next(iter(waiting))
                    del waiting[client]
                    if client.serve_some():
                        self._light.pop(client, None)
                        self._heavy[client] = None
        if (self._light or self._heavy) and self._call is None:
            self._call = self._clock.callLater(0, self._serve)


class Holdings:
    """Counts the bytes that wait for all clients together, and cuts off who makes them too many."""

    def __init__(self, log: LimitedLog) -> None:
        self.total_bytes = 0
        self._log = log
        self._held: dict[CoordinationClient, int] = {}  # the one without progress for longest first

    def note(
        self, client: CoordinationClient, held_bytes: int, *, has_progressed: bool = False
    ) -> None:
        """Note how much waits for a client. `has_progressed`: it finished a frame, or has read."""
        before = self._held.get(client, 0)
        held_bytes = 0 if held_bytes <= SMALL_BYTES else held_bytes
        self.total_bytes += held_bytes - before
        if has_progressed or not held_bytes:
            self._held.pop(client, None)
        if held_bytes:
            self._held[client] = held_bytes
        while self.total_bytes > MAX_HELD_BYTES:
            stalled = next(iter(self._held))
            self._log.warn(
                "stalled",
                "cut off {client}: clients left {total} bytes unfinished or unread, and this one "
                "{held} of them for the longest time",
                client=stalled.report.address,
                total=self.total_bytes,
                held=self._held[stalled],
            )
            self.forget(stalled)
            stalled.abort()

    def forget(self, client: CoordinationClient) -> None:
        self.total_bytes -= self._held.pop(client, 0)


@dataclass(eq=False)
class Clients:
    """What the connections share; made by the service, handed to each of them.

    Attributes:
        processor: serves them; None while nothing can be served.
        connected: the open connections, oldest first.
        silent: those of them that have not asked for a session yet, or not authenticated.
        limited_log: for lines that clients can cause.
    """

    clock: Any
    max_count: int = 1000
    processor: GuardedProcessor | None = None
    settings: dict[str, object] = field(default_factory=dict)
    connected: dict[CoordinationClient, None] = field(default_factory=dict)
    silent: dict[CoordinationClient, None] = field(default_factory=dict)
    statistics: Statistics = field(default_factory=Statistics)
    limited_log: LimitedLog = field(init=False)
    holdings: Holdings = field(init=False)
    queue: RoundRobin = field(init=False)

    def __post_init__(self) -> None:
        self.limited_log = LimitedLog(ModuleLogger(), self.clock.seconds)
        self.holdings = Holdings(self.limited_log)
        self.queue = RoundRobin(self.clock)

    def make_room(self) -> bool:
        """Make room for one more connection; False when there is none: all have sessions.

        At the bound the oldest of those that have not asked for a session is cut off: connections
        alone keep nobody out.
        """
        if len(self.connected) < self.max_count:
            return True
        if not self.silent:
            self.limited_log.warn(
                "crowded", "turned a client away: {count} are connected", count=self.max_count
            )
            return False
        oldest = next(iter(self.silent))
        self.forget(oldest)
        oldest.abort()
        return True

    def add(self, client: CoordinationClient) -> None:
        self.connected[client] = None
        self.silent[client] = None

    def forget(self, client: CoordinationClient) -> None:
        self.connected.pop(client, None)
        self.silent.pop(client, None)
        self.queue.remove(client)
        self.holdings.forget(client)

    def abort_all(self) -> None:
        for client in tuple(self.connected):
            client.abort()

    def report(self) -> ServerReport | None:
        """The state of the server, for the four-letter words; None while nothing is served."""
        if self.processor is None:
            return None
        state = self.processor.state
        clients = tuple(client.report for client in self.connected)
        return ServerReport(
            statistics=self.statistics,
            clients=clients,
            outstanding=sum(client.queued for client in clients),
            zxid=state.tree.zxid,
            nodes=len(state.tree.nodes),
            ephemerals=state.tree.ephemeral_count,
            watches=len(state.watches),
            sessions=len(state.sessions),
            data_bytes=state.tree.weight_bytes,
            settings=self.settings,
        )
