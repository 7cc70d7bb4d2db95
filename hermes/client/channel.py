"""Carries conversations to one broker, blocking: the driver of the synchronous clients."""

import threading
from collections.abc import Mapping
from typing import Any, Self, TypeVar

from hermes.client.connection import BrokerConnection
from hermes.client.conversations import (
    PROBE_SECONDS,
    BrokerVersions,
    Conversation,
    Exchange,
    Pause,
    Step,
    strangers,
)
from hermes.client.refusals import Refused
from hermes.errors import (
    BrokerNotTrustedError,
    BrokerUnavailableError,
    ClientError,
    HermesError,
    RemoteProtocolError,
)

R = TypeVar("R")


class Channel:
    """A connection, what the broker at its other end supports, and conversations over it.

    Threads may share it; their conversations then alternate step by step.

    Args:
        connection: the channel's own from now on; closed with it.
        supports_hermes_requests: whether the broker answers Hermes' own requests; None to find
            out when that first matters.

    Attributes:
        refused: explains what the broker refuses.
        broker_versions: which requests the broker answers.
    """

    def __init__(
        self, connection: BrokerConnection, *, supports_hermes_requests: bool | None = None
    ) -> None:
        self.connection = connection
        self.refused = Refused(connection.address, connection.security)
        self._closed = threading.Event()
        self._is_known = False  # whether it has ever answered, or was asked who it is
        self.broker_versions = BrokerVersions(supports_hermes_requests)

    def versions(self) -> Mapping[int, int]:
        """The request types that the broker supports; requested once.

        Raises:
            ClientError: the broker can't be reached or understood.
        """
        return self.run(self.broker_versions.learn())

    def require(self, request_type: int, purpose: str) -> None:
        """See `BrokerVersions.require`."""
        self.run(self.broker_versions.require(request_type, purpose))

    def run(self, conversation: Conversation[R], *, timeout_seconds: float | None = None) -> R:
        """Hold a conversation and return what it returns, or raise what it raises.

        Args:
            conversation: the operation.
            timeout_seconds: the longest that each of its requests may take, above 0; None for the
                connection's own.
        """
        step: Step | None = None
        try:
            step = next(conversation)
            while True:
                try:
                    answer = self._perform(step, timeout_seconds)
                except HermesError as error:
                    step = conversation.throw(error)
                else:
                    step = conversation.send(answer)
        except StopIteration as end:
            result: R = end.value
            return result
        except HermesError as error:
            explained = self._stranger(step, error) or self.refused.explain(error)
            if explained is error:
                raise
            raise explained from None
        finally:
            conversation.close()

    def close(self) -> None:
        """Close the connection for good and end pauses. Idempotent."""
        self._closed.set()
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _perform(self, step: Step, timeout: float | None) -> Any:
        if isinstance(step, Pause):
            if self._closed.wait(step.seconds):
                raise ClientError(f"the connection to {self.connection.address} was closed")
            return None
        try:
            return self._exchange(step, timeout)
        except BrokerUnavailableError as error:
            if not step.repeatable or isinstance(error, BrokerNotTrustedError):
                raise
            return self._exchange(step, timeout)

    def _exchange(self, step: Exchange[Any], timeout: float | None) -> Any:
        timeout = (timeout or self.connection.timeout_seconds) + step.extra_seconds
        answer = self.connection.call(
            step.request, step.decode, timeout_seconds=timeout, changes=step.changes
        )
        self._is_known = True
        return answer

    def _stranger(self, step: Step | None, error: HermesError) -> HermesError | None:
        """Who it is that hangs up and has never answered; asked once, and after no change."""
        if self._is_known or type(error) is not BrokerUnavailableError:
            return None
        if not (error.closes_upon_all or (isinstance(step, Exchange) and step.repeatable)):
            return None
        self._is_known = True
        timeout = min(self.connection.timeout_seconds, PROBE_SECONDS)
        for probe in strangers(self.connection.address):
            try:
                self.connection.call(probe.request, probe.decode, timeout_seconds=timeout)
            except RemoteProtocolError as found:
                return found
            except HermesError:
                continue
        self.connection.disconnect()
        return None
