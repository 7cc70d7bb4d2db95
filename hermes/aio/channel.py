"""Carries conversations to one broker, awaiting: the driver of the asynchronous clients.

Written for neither asyncio nor Twisted: it only awaits what its connection gives it, so that its
coroutines run under both.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar

from hermes.client.authenticating import advance, authenticate
from hermes.client.conversations import (
    PROBE_SECONDS,
    BrokerVersions,
    Conversation,
    Exchange,
    Pause,
    Question,
    Refused,
    Step,
)
from hermes.errors import (
    BrokerNotTrustedError,
    BrokerUnavailableError,
    HermesError,
    RemoteProtocolError,
)
from hermes.protocol import Buffer
from hermes.security import ClientSecurity

P = ParamSpec("P")
R = TypeVar("R")


class AsyncConnection(Protocol):
    """What a channel needs of a connection; calls made at the same time take turns."""

    timeout_seconds: float
    security: ClientSecurity

    @property
    def address(self) -> str: ...

    async def call(self, request: bytes, timeout_seconds: float) -> Buffer:
        """Send a request and wait for its answer's body; connect first if need be.

        The body is to be decoded before anything else is awaited: its memory is used again. Raises
        what `hermes.client.BrokerConnection.call` does; the connection is closed then.
        """

    async def sleep(self, seconds: float) -> None: ...

    def disconnect(self) -> None:
        """Drop the connection; the next call makes a new one."""

    async def close(self) -> None: ...


class OpenConnection(Protocol):
    """A connection that was just made, before anything is said over it."""

    def call(self, request: bytes) -> Awaitable[Buffer]:
        """Send a request; its answer's body.

        Raises:
            BrokerUnavailableError: the connection is lost, as it may have been since anything else
                was awaited.
        """


async def prove_identity(
    connection: OpenConnection,
    security: ClientSecurity,
    address: str,
    in_thread: Callable[..., Awaitable[Any]],
) -> None:
    """Say who this is, over a connection that was just made; raises as `authenticate` does.

    `in_thread` calls a function off the event loop: one of the steps computes for milliseconds.
    """
    talk = authenticate(security, address)
    step = next(talk, None)
    while step is not None:
        outcome: Buffer | HermesError
        try:
            outcome = await connection.call(step.request)
        except BrokerUnavailableError as error:
            outcome = error
        step = await in_thread(advance, talk, step, outcome)


class AsyncChannel:
    """A connection, what the broker at its other end supports, and conversations over it.

    See `hermes.client.Channel`; the connection is the channel's own from now on.
    """

    def __init__(
        self, connection: AsyncConnection, *, supports_hermes_requests: bool | None = None
    ) -> None:
        self.connection = connection
        self.refused = Refused(connection.address, connection.security)
        self.broker_versions = BrokerVersions(supports_hermes_requests)

    async def versions(self) -> Mapping[int, int]:
        return await self.run(self.broker_versions.learn())

    async def require(self, request_type: int, purpose: str) -> None:
        await self.run(self.broker_versions.require(request_type, purpose))

    async def ask(self, question: Question[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        await self.require(question.request_type, question.purpose)
        return await self.run(question(*args, **kwargs))

    async def run(self, conversation: Conversation[R]) -> R:
        step: Step | None = None
        try:
            step = next(conversation)
            while True:
                try:
                    answer = await self._perform(step)
                except HermesError as error:
                    step = conversation.throw(error)
                else:
                    step = conversation.send(answer)
        except StopIteration as end:
            result: R = end.value
            return result
        except HermesError as error:
            explained = await self._stranger(step, error) or self.refused.explain(error)
            if explained is error:
                raise
            raise explained from None
        finally:
            conversation.close()

    async def _perform(self, step: Step) -> Any:
        if isinstance(step, Pause):
            await self.connection.sleep(step.seconds)
            return None
        try:
            return await self._exchange(step)
        except BrokerUnavailableError as error:
            if not step.repeatable or isinstance(error, BrokerNotTrustedError):
                raise
            return await self._exchange(step)

    async def _exchange(self, step: Exchange[Any]) -> Any:
        timeout = self.connection.timeout_seconds + step.extra_seconds
        body = await self.connection.call(step.request, timeout)
        self.broker_versions.has_answered = True
        try:
            return step.decode(body)
        except RemoteProtocolError:
            # Whatever comes next on this connection can't be trusted either.
            self.connection.disconnect()
            raise

    async def _stranger(self, step: Step | None, error: HermesError) -> HermesError | None:
        probes = self.broker_versions.who_is_it(self.connection.address, step, error)
        timeout = min(self.connection.timeout_seconds, PROBE_SECONDS)
        found = None
        for probe in probes:
            try:
                probe.decode(await self.connection.call(probe.request, timeout))
            except RemoteProtocolError as whose:
                found = whose
                break
            except HermesError:
                continue
        if probes:
            self.connection.disconnect()
        return found
