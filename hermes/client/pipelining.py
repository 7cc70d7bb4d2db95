"""A connection with several requests on their way: for those that nothing depends on in between."""

from collections.abc import Callable
from typing import Any, TypeVar

from hermes.client.connection import BrokerConnection
from hermes.errors import ClientError

_R = TypeVar("_R")


class PipelinedConnection(BrokerConnection):
    """A `BrokerConnection` that can send a request before the last one was answered.

    For requests that may be repeated, however late the first ones are carried out. Any failure
    costs the connection and whatever is on its way, of which nobody knows what has become.
    """

    in_flight = 0

    def begin(self, request: bytes) -> None:
        """Send a request, and don't wait; `finish` gets its answer."""
        with self._turn(None) as deadline:
            if self.in_flight:
                self._send_all(request, deadline)
            else:
                self._transmit(request, deadline)
            self.in_flight += 1

    def finish(self, decode: Callable[[memoryview], _R]) -> _R:
        """Wait for the answer to the oldest request in flight; ClientError if there is none."""
        if not self.in_flight:
            raise ClientError(f"no request to {self.address} waits for its answer")
        with self._turn(None) as deadline:
            answer, refused = self._receive(decode, deadline)
            self.in_flight -= 1
        if refused is not None:
            raise refused
        result: _R = answer
        return result

    def call(self, *args: Any, **options: Any) -> Any:
        """It takes no part in pipelining: ClientError if requests are in flight."""
        if self.in_flight:
            raise ClientError(f"{self.in_flight} requests to {self.address} wait for answers")
        return super().call(*args, **options)

    def _drop(self) -> None:
        self.in_flight = 0
        super()._drop()
