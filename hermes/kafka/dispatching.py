"""One request of a Kafka client, from its frame to its response.

    serve       the header names an `Api`; ApiVersions is a constant, and done
    _carry_out  a large request waits for its turn
                the schema and the handler are there, or a thread loads them
                a small body is decoded here, a large one in a thread, one at a time
    _handle     the handler makes the response
    _finish     a small one is encoded here, a large one in a thread

`_carry_out` is a coroutine, and made only where it has something to wait for; so is `_finish`.

What can't be read, and what isn't in the table, closes the connection, as Kafka does. A handler
works with a `Call`, and through it with the broker as Kafka's requests see it: `KafkaServer`.
"""

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from itertools import compress
from typing import Any, Final

from twisted.internet.defer import Deferred

from hermes.cluster.cluster import Cluster
from hermes.cluster.shared import Shared
from hermes.errors import CoordinationError, RemoteProtocolError
from hermes.groups.coordinator import GroupCoordinator
from hermes.kafka import versions
from hermes.kafka.admission import Admission
from hermes.kafka.apis import API_VERSIONS, APIS, Api
from hermes.kafka.fetch_sessions import FetchSessions
from hermes.kafka.frames import (
    Frame,
    PlainFetch,
    ProduceFrame,
    ReadFrame,
    ReplicaFrame,
)
from hermes.kafka.matched_topics import MatchedTopics
from hermes.kafka.schemas import Schema, load_schema
from hermes.partition.awaited_batches import AwaitedBatches
from hermes.partition.log_reader import CONCURRENT_LOOKUPS
from hermes.protocol.decoding import other_protocol_hint
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.protocol.kafka_primitives import after_tags
from hermes.security import CLUSTER, Operation, Resource
from hermes.server.clients import Client
from hermes.server.fairness import QUANTUM_ENTRIES, cooperatively
from hermes.server.metrics import RequestKind
from hermes.server.outcomes import (
    CloseConnection,
    DeferredResponse,
    Outcome,
    Response,
    carry_out,
    then,
)
from hermes.server.sends import FileSend
from hermes.server.turns import Turns

#: A larger body is decoded in a thread: some ms of work.
LARGE_BYTES: Final = 16 * 1024

#: A response with more entries than this is encoded in a thread: see `Call.is_large`.
LARGE_ENTRIES: Final = 256

#: How Kafka writes that it was not asked what a client may do.
NOT_ASKED: Final = -(2**31)

#: So many entries of a request are carried out before it is looked whether others have a turn.
ENTRIES_AT_A_TIME: Final = 16

#: What a request of no more bytes holds while it waits is not counted: a connection holds more.
_COUNTED_BYTES: Final = 1024

#: What a handler may raise to have the connection closed.
_REFUSALS: Final = (RemoteProtocolError, CoordinationError, KafkaError)


class KafkaServer:
    """What handlers of requests work with. Lives in the reactor's thread.

    Attributes:
        matched_topics: finds topics by regular expressions.
        awaited: the batches that producers were told to send again.
        admission: the large requests that are carried out.
        large_produces: those of Produce, until they are answered.
        fetch_sessions: the sessions of consumers.
        told_brokers: by version of Metadata the brokers, and what is told of them.
        produces, fetches: carry plain requests out; set before there are any.
        replicas: carries out those of brokers that copy partitions; None without a cluster.
        transactions: coordinates them; set before there are any.
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
        self.requested = cluster.requested
        self.users = cluster.users
        self.producer_ids = cluster.producer_ids
        self.replica_changes = cluster.replica_changes
        self.groups = groups
        self.authorization = shared.refusals.authorization
        self.matched_topics = MatchedTopics(
            self.topics, shared.refusals, shared.scheduler, self.look_up
        )
        self.awaited = AwaitedBatches(shared.clock.seconds)
        self.admission = Admission()
        self.large_produces = Admission()
        self.fetch_sessions = FetchSessions(shared, self.topics)
        self.told_brokers: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self.produces: Any = None  # made of this
        self.fetches: Any = None
        self.replicas: Any = None
        self.transactions: Any = None
        self.in_thread: Callable[..., Deferred[Any]] = shared.in_thread
        self._looking_up = Turns(CONCURRENT_LOOKUPS)
        self._expanding = Turns(1)

    def look_up(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        """Call a function that reads from a disk in a worker thread, a few at a time."""
        return self._looking_up.run(self.in_thread, function, *args)

    def expand(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        """Call a function that expands what is compressed in a worker thread, one at a time.

        Each may take as much memory as `max_expanded_bytes` says.
        """
        return self._expanding.run(self.in_thread, function, *args)

    def visible(self, client: Client) -> "list[str] | Deferred[list[str]]":
        """The names of all topics that a client may see; a Deferred where that takes turns."""
        names, shared = self.topics.names(), self.shared
        if not shared.refusals.is_on:
            return names
        shown = cooperatively(shared.scheduler, names, partial(self.shows, client))
        found: list[str] | Deferred[list[str]] = then(shown, lambda each: [*compress(names, each)])
        return found

    def shows(self, client: Client, topic: str) -> bool:
        """Whether a client that didn't name a topic may see it; refusals aren't told."""
        refusals = self.shared.refusals
        return not refusals.is_on or refusals.permits_topic(client, Operation.DESCRIBE, topic)


class Call:
    """One request under way.

    Attributes:
        client_id: empty where the client gives none.
        make: makes the parts of the response: `call.make.MetadataResponse(...)`; a `Schema`, set
            before the handler is called.
        is_large: a handler sets it if its response has more than `LARGE_ENTRIES` entries.
        has_passed: whether requests after it may be taken.
        awaited: the response, once something is waited for.
        admitted_bytes: what it holds of the server's `admission`; 0 for most.
        entries: how many of its entries are carried out, where there may be many.
        turn_ends: until when it may go on after some of them.
    """

    __slots__ = (
        "admitted_bytes",
        "api",
        "awaited",
        "client",
        "client_id",
        "correlation_id",
        "entries",
        "frame",
        "has_passed",
        "is_large",
        "make",
        "server",
        "turn_ends",
        "version",
    )

    def __init__(self, api: Api, frame: Frame, client: Client, server: KafkaServer) -> None:
        self.api = api
        self.frame = frame
        self.version = frame.version
        self.correlation_id = frame.correlation_id
        self.client_id = frame.client_id
        self.client = client
        self.server = server
        self.make: Any = None
        self.is_large = False
        self.has_passed = False
        self.awaited: DeferredResponse | None = None
        self.admitted_bytes = self.entries = 0
        self.turn_ends = 0.0

    def permits(self, operation: Operation, resource: Resource) -> bool:
        """Whether the client may do something; a refusal is counted, and logged within limits."""
        refusals = self.server.shared.refusals
        return not refusals.is_on or refusals.of(self.client, operation, resource, "kafka") is None

    def may(self, operation: Operation, resource: Resource) -> bool:
        """The same, where nobody is told of a refusal: the client didn't name the resource."""
        refusals = self.server.shared.refusals
        return not refusals.is_on or refusals.permits(self.client, operation, resource)

    def check_admin(self) -> None:
        """Raise KafkaError unless the client may administer the cluster."""
        if not self.permits(Operation.ADMIN, CLUSTER):
            raise KafkaError(Code.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")

    def permits_topic(self, operation: Operation, name: str) -> bool:
        """`permits`, of something that is done to a topic."""
        return not self.server.authorization.is_on or self.permits(operation, Resource.topic(name))

    def permits_group(self, operation: Operation, name: str) -> bool:
        return not self.server.authorization.is_on or self.permits(operation, Resource.group(name))

    async def after_entry(self, count: int = 1) -> None:
        """Let others have their turn, now and then between entries: there may be very many."""
        before, after = self.entries, self.entries + count
        self.entries = after
        if before // ENTRIES_AT_A_TIME == after // ENTRIES_AT_A_TIME:
            return
        scheduler, is_long = self.server.shared.scheduler, after % QUANTUM_ENTRIES < count
        if scheduler.now() >= self.turn_ends or is_long:
            turn: Deferred[None] = Deferred()
            scheduler.resume_later(lambda: turn.callback(None))
            await turn
            self.turn_ends = scheduler.now() + scheduler.quantum_seconds

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
            if self.awaited is not None:
                self.awaited.let_pass()

    def release(self) -> None:
        """The request's bytes are of no more use."""
        self.frame.data = b""
        if self.awaited is not None:
            self.awaited.release()


Handler = Callable[[Any, Call], Any]
Around = Callable[[Callable[[], Any], Callable[[], Any], Call], Any]


class Dispatcher:
    """Carries out the requests of Kafka's clients. Lives in the reactor's thread.

    Args:
        around: wraps each handler, for a broker in a test: called with what calls the handler, what
            gives the decoded request, and the `Call`, it returns what the handler would, or raises
            what it may.

    Attributes:
        kinds: counts requests, by their name.
    """

    #: There are no runs of requests here; see `Broker.append_run`.
    append_run = None

    def __init__(self, server: KafkaServer, around: Around | None = None) -> None:
        self._server = server
        self._around = around
        self.kinds = {api.name: RequestKind() for api in APIS.values()}
        self._kinds = {api.key: self.kinds[api.name] for api in APIS.values()}
        self._unknown = RequestKind()
        self._loaded: dict[tuple[int, int], tuple[Schema, Handler]] = {}

    def kind_of(self, frame: "Frame | PlainFetch") -> RequestKind:
        return self._kinds.get(frame.key, self._unknown)

    def serve(self, frame: "Frame | PlainFetch", client: Client) -> Outcome:
        """Carry out a request.

        Returns:
            The response, None where there is none, or a `DeferredResponse`.

        Raises:
            CloseConnection: close the connection without a response; nothing more was done.
            RemoteProtocolError: the same: it has no valid header.
        """
        if self._around is None:
            outcome: Outcome = NotImplemented
            if type(frame) is PlainFetch:
                outcome = self._server.fetches.carry_out(frame, client)
            elif isinstance(frame, ProduceFrame) and frame.plain is not None:
                outcome = self._server.produces.carry_out(frame.plain, frame.data, client)
            if outcome is not NotImplemented:
                return outcome
        if type(frame) is ReplicaFrame and self._server.replicas is not None:
            outcome = self._server.replicas.serve(frame, client)
            if outcome is not NotImplemented:
                return outcome
        if isinstance(frame, PlainFetch):
            frame = Frame(frame.data)
        if type(frame) is not ReadFrame:
            try:
                frame.read_header()
            except RemoteProtocolError as error:
                raise RemoteProtocolError(f"{error}{other_protocol_hint(frame.data)}") from None
        if frame.key == API_VERSIONS:
            return api_versions(frame)
        api = APIS.get(frame.key)
        if api is None or not api.lowest <= frame.version <= api.highest:
            name = f"type {frame.key}" if api is None else api.name
            text = (
                f"request {name} in version {frame.version} is not one that ApiVersions names"
                f"{other_protocol_hint(frame.data)}"
            )
            raise CloseConnection(text, "kafka", "unknown_request")
        call = Call(api, frame, client, self._server)
        outcome = self._begin(call)
        if isinstance(outcome, DeferredResponse):
            call.awaited = outcome
            outcome.ordered = not call.has_passed
            outcome.cancellable = api.is_cancelled
            if len(frame.data) > _COUNTED_BYTES:
                outcome.request_bytes = len(frame.data)
        return outcome

    def _begin(self, call: Call) -> Outcome:
        """Carry a request out, to where it first waits."""
        api, server = call.api, self._server
        found = self._loaded.get((api.key, call.version))
        is_large = len(call.frame.data) > LARGE_BYTES and not api.is_raw
        if found is None or is_large or server.topic_changes.known() is not None:
            return carry_out(self._carry_out(call))
        schema, handler = found
        call.make = schema
        request = None if api.is_raw else _decode(api, call.frame, schema)
        answer = self._handle(handler, request, call)
        if isinstance(answer, DeferredResponse) and answer.is_known:
            return answer.response
        if answer is None or isinstance(answer, bytes | FileSend | DeferredResponse):
            return answer
        if call.is_large or hasattr(answer, "__await__"):
            return carry_out(self._finish(call, answer))
        return schema.response_to(call.correlation_id, answer)

    async def _carry_out(self, call: Call) -> Response:
        size_bytes = len(call.frame.data)
        if size_bytes <= LARGE_BYTES or call.api.is_raw:
            return await self._done(call)
        call.admitted_bytes = await self._server.admission.enter(size_bytes)
        try:
            return await self._done(call)
        finally:
            call.step_aside()

    async def _done(self, call: Call) -> Response:
        api, version = call.api, call.version
        found = self._loaded.get((api.key, version))
        if found is None:
            # A test that looks at requests, or changes their answers, knows them as Kafka does.
            is_exact = self._around is not None
            found = await self._server.in_thread(_load, api, version, is_exact)
            self._loaded[api.key, version] = found
        schema, handler = found
        call.make = schema
        request = await self._decoded(call, schema)
        try:
            known = self._server.topic_changes.known()
            if known is not None:
                await known
        except _REFUSALS as error:
            raise _closing(api, error) from None
        answer = self._handle(handler, request, call)
        del request  # what waits for long keeps no more of it than it needs
        return await self._finish(call, answer)

    def _handle(self, handler: Handler, request: Any, call: Call) -> Any:
        try:
            if self._around is None:
                return handler(request, call)
            decoded = partial(_decoded_now, request, call)
            return self._around(partial(handler, request, call), decoded, call)
        except _REFUSALS as error:
            raise _closing(call.api, error) from None

    async def _finish(self, call: Call, answer: Any) -> Response:
        if hasattr(answer, "__await__"):
            try:
                answer = await answer
            except _REFUSALS as error:
                raise _closing(call.api, error) from None
        elif isinstance(answer, DeferredResponse):
            answer = await answer.to_deferred()
        if answer is None or isinstance(answer, bytes | FileSend):
            return answer
        response_to = call.make.response_to
        if call.is_large:
            large: bytes = await self._compute(response_to, call.correlation_id, answer)
            return large
        response: bytes = response_to(call.correlation_id, answer)
        return response

    async def _decoded(self, call: Call, schema: Schema) -> Any:
        if call.api.is_raw:
            return None
        if len(call.frame.data) <= LARGE_BYTES:
            return _decode(call.api, call.frame, schema)
        decoded = await self._compute(_decode, call.api, call.frame, schema)
        call.release()
        return decoded

    def _compute(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        """Call what decodes or encodes something large, in its turn and in a thread."""
        large = self._server.shared.large_responses
        return large.make(large.compute, self._server.in_thread, function, *args)


def api_versions(frame: Frame) -> bytes:
    position = frame.body
    if versions.is_flexible(frame.version):
        try:
            position = after_tags(frame.data, position)
        except RemoteProtocolError as error:
            raise CloseConnection(f"ApiVersions: {error}", "kafka", "unreadable") from None
    body = frame.data[position:]
    answer = versions.answer(frame.version, bytes(body))
    correlation_id = frame.correlation_id.to_bytes(4, signed=True)
    return (len(answer) + 4).to_bytes(4) + correlation_id + answer


def _load(api: Api, version: int, is_exact: bool) -> tuple[Schema, Handler]:
    """In a thread: load what carries a request out."""
    module, _, function = api.handler.partition(":")
    schema = load_schema(api, version, is_exact=is_exact)
    return schema, getattr(import_module(module), function)


def _decoded_now(request: Any, call: Call) -> Any:
    if request is not None:
        return request
    whole = Frame(bytes(call.frame.data))  # the records, too, want what can't change
    whole.read_header()
    return _decode(call.api, whole, call.make)


def _closing(api: Api, error: Exception) -> CloseConnection:
    """What closes the connection of a request that was refused."""
    reason = "unreadable"
    if isinstance(error, CoordinationError):
        reason = "coordination"
    elif isinstance(error, KafkaError):
        reason = error.code.name.lower()
    return CloseConnection(f"{api.name}: {error}", "kafka", reason)


def _decode(api: Api, frame: Frame, schema: Schema) -> Any:
    try:
        data, position = frame.data, frame.body
        if schema.is_flexible:
            has_tags = data[position : position + 1] != b"\0"
            position = after_tags(data, position) if has_tags else position + 1
        return schema.read(data, position)
    except Exception as error:  # kio has many
        reason = str(error) or type(error).__name__
        text = f"{api.name} in version {frame.version} can't be read: {reason}"
        raise CloseConnection(text, "kafka", "unreadable") from None


def operation_bits(
    numbers: Iterable[tuple[Operation, Iterable[int]]], may: Callable[[Operation], bool]
) -> int:
    """What a client may do, as the bits of Kafka's numbers of operations."""
    return sum(1 << number for operation, each in numbers if may(operation) for number in each)
