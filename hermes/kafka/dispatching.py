"""From a frame to its response: header, schema, handler, and back.

    serve       the header names an `Api`; ApiVersions is a constant, and done
    _carry_out  the schema and the handler are there, or a thread loads them
                a large request waits for its turn
                a small body is decoded here, a large one in a thread, one at a time
                the handler makes the response
                a small one is encoded here, a large one in a thread

What can't be read, and what isn't in the table, closes the connection, as Kafka does.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.errors import CoordinationError, RemoteProtocolError
from hermes.kafka import versions
from hermes.kafka.apis import API_VERSIONS, APIS, Api
from hermes.kafka.calls import Call, KafkaServer
from hermes.kafka.frames import Frame, after_tags
from hermes.kafka.schemas import Schema, load_schema
from hermes.protocol.decoding import other_protocol_hint
from hermes.protocol.kafka_errors import KafkaError
from hermes.server.clients import Client
from hermes.server.metrics import RequestKind
from hermes.server.outcomes import CloseConnection, DeferredResponse, Outcome, Response
from hermes.server.sends import FileSend

#: A larger body is decoded in a thread: some ms of work.
LARGE_BYTES: Final = 16 * 1024

Handler = Callable[[Any, Call], Any]
Around = Callable[[Callable[[], Any], Callable[[], Any], Call], Any]


class _UnreadableError(Exception):
    """A body isn't what its schema says."""


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
        self._unknown = RequestKind()
        self._loaded: dict[tuple[int, int], tuple[Schema, Handler]] = {}

    def kind_of(self, frame: Frame) -> RequestKind:
        api = APIS.get(frame.key)
        return self._unknown if api is None else self.kinds[api.name]

    def serve(self, frame: Frame, client: Client) -> Outcome:
        """Carry out a request.

        Returns:
            The response, None where there is none, or a `DeferredResponse`.

        Raises:
            CloseConnection: close the connection without a response; nothing more was done.
            RemoteProtocolError: the same: it has no valid header.
        """
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
        response: Deferred[Response] = Deferred.fromCoroutine(self._carry_out(call))
        if response.called:
            result: Any = response.result
            if isinstance(result, Failure):
                response.addErrback(lambda _: None)
                result.raiseException()
            done: Response = result
            return done
        return DeferredResponse(
            response,
            ordered=not call.has_passed,
            appended=call.passed,
            cancellable=api.is_cancelled,
            request_bytes=len(frame.data),
            released=call.released,
        )

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
            found = await self._server.in_thread(_load, api, version)
            self._loaded[api.key, version] = found
        schema, handler = found
        call.make = schema
        try:
            request = await self._decoded(call, schema)
            known = self._server.topic_changes.known()
            if known is not None:
                await known
            if self._around is None:
                answer = handler(request, call)
            else:
                decoded = partial(_decoded_now, request, call.frame, schema)
                answer = self._around(partial(handler, request, call), decoded, call)
            del request  # what waits for long keeps no more of it than it needs
            if isinstance(answer, Awaitable):
                answer = await answer
        except RemoteProtocolError as error:
            raise CloseConnection(f"{api.name}: {error}", "kafka", "unreadable") from None
        except CoordinationError as error:
            raise CloseConnection(f"{api.name}: {error}", "kafka", "coordination") from None
        except KafkaError as error:
            text, reason = f"{api.name}: {error}", error.code.name.lower()
            raise CloseConnection(text, "kafka", reason) from None
        if answer is None or isinstance(answer, bytes | FileSend):
            return answer
        if call.is_large:
            encode = self._server.shared.large_responses.make
            large: bytes = await encode(
                self._server.in_thread, schema.response_to, call.correlation_id, answer
            )
            return large
        return schema.response_to(call.correlation_id, answer)

    async def _decoded(self, call: Call, schema: Schema) -> Any:
        """Decode a request's body; None where the handler does that."""
        if call.api.is_raw:
            return None
        try:
            if len(call.frame.data) <= LARGE_BYTES:
                return _decode(call.frame, schema)
            make = self._server.shared.large_responses.make
            decoded = await make(self._server.in_thread, _decode, call.frame, schema)
        except _UnreadableError as error:
            text = f"{call.api.name} in version {call.version} can't be read: {error}"
            raise CloseConnection(text, "kafka", "unreadable") from None
        call.frame.data = b""
        call.released.callback(None)
        return decoded


def api_versions(frame: Frame) -> bytes:
    position = frame.body
    if versions.is_flexible(frame.version):
        try:
            position = after_tags(frame.data, position)
        except IndexError as error:
            raise CloseConnection(f"ApiVersions: {error}", "kafka", "unreadable") from None
    body = frame.data[position:]
    answer = versions.answer(frame.version, bytes(body))
    correlation_id = frame.correlation_id.to_bytes(4, signed=True)
    return (len(answer) + 4).to_bytes(4) + correlation_id + answer


def _load(api: Api, version: int) -> tuple[Schema, Handler]:
    """In a thread: load what carries a request out."""
    module, _, function = api.handler.partition(":")
    return load_schema(api, version), getattr(import_module(module), function)


def _decoded_now(request: Any, frame: Frame, schema: Schema) -> Any:
    """A request, also where its handler decodes it itself."""
    if request is not None:
        return request
    whole = Frame(bytes(frame.data))  # the records, too, want what can't change
    whole.read_header()
    return _decode(whole, schema)


def _decode(frame: Frame, schema: Schema) -> Any:
    try:
        position = frame.body
        if schema.is_flexible:
            position = after_tags(frame.data, position)
        return schema.read(frame.data, position)
    except Exception as error:  # kio has many
        raise _UnreadableError(str(error) or type(error).__name__) from None
