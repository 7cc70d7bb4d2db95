"""The responses of one connection on their way out: in the order of the requests, one at a time.

Those after one that isn't known yet wait until it is. Small ones are collected, so that many leave
with one system call. What the socket can't take at once is the transport's producer until it has
left, and nothing else is sent meanwhile.

Knows nothing of requests and decides nothing; the connection that adds responses calls `send_ready`
and `send_small` when its quantum is over.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from hermes.server.carriers import Carrier
from hermes.server.fairness import FairScheduler
from hermes.server.large_responses import LargeResponses, ResponseReader
from hermes.server.outcomes import DeferredResponse
from hermes.server.pages import PageCache
from hermes.server.sends import FileSend

#: Small responses are collected up to this size before they are sent together.
_COLLECT_BYTES = 32 * 1024


class Responses:
    """The responses of a connection that have not left yet; call `open` first.

    Attributes:
        awaited: those that are unknown, or wait for an unknown one; in order.
        sending: what is the transport's producer now.
        small: those that `send_small` sends.
        moved_bytes: given to the kernel since the connection's quantum began; the connection
            resets it.
        started_bytes: how many bytes the responses have that have begun to leave.
    """

    def __init__(
        self,
        pages: PageCache,
        scheduler: FairScheduler,
        large_responses: LargeResponses,
    ) -> None:
        self.awaited: deque[DeferredResponse] = deque()
        self.sending: FileSend | None = None
        self.moved_bytes = 0
        self.started_bytes = 0
        self._pages = pages
        self._scheduler = scheduler
        self._large_responses = large_responses
        self._reader: ResponseReader | None = None
        self._sent: Callable[[Exception | None], None] = _unheard
        self._transport: Any = None
        self._carrier: Carrier | None = None
        self.small: list[bytes] = []
        self._small_bytes = 0

    def open(
        self,
        transport: Any,
        carrier: Carrier,
        reader: ResponseReader,
        sent: Callable[[Exception | None], None],
    ) -> None:
        """Say where responses go.

        `sent` is called when a response that didn't leave at once is through, with None, or with
        the exception that ended it, whenever that is; not after `close`.
        """
        self._transport, self._carrier = transport, carrier
        self._reader, self._sent = reader, sent

    def close(self) -> None:
        """The peer is gone: let go of all responses, later ones too, and of the reader."""
        self._carrier = None
        self.sending = None  # the transport calls its stopProducing
        self._let_go()
        # Else the connection and its responses would keep each other in memory.
        self._reader, self._sent = None, _unheard
        self.small, self._small_bytes = [], 0

    @property
    def is_empty(self) -> bool:
        return not self.awaited and self.sending is None and not self.small

    def add(self, response: bytes | FileSend, *, is_next: bool = False) -> None:
        """Send a response, a small one by `send_small`; it waits for others unless it is next."""
        if self.awaited and not is_next:
            self.awaited.append(DeferredResponse.known(response))
        elif isinstance(response, bytes):
            self.small.append(response)
            self._small_bytes += len(response)
            if self._small_bytes >= _COLLECT_BYTES:
                self.send_small()
        else:
            if self.small:
                response.prepend(b"".join(self.small))
                self.small, self._small_bytes = [], 0
            self._start(response)

    def send_ready(self) -> None:
        awaited = self.awaited
        while awaited and awaited[0].is_known and self.sending is None:
            response = awaited.popleft().response
            if type(response) is bytes:  # what `add` does, written out for most of them
                self.small.append(response)
                self._small_bytes += len(response)
                if self._small_bytes >= _COLLECT_BYTES:
                    self.send_small()
            elif response is not None:
                self.add(response, is_next=True)

    def send_known(self) -> None:
        """Send those that are known."""
        awaited = self.awaited
        only = awaited[0].response if len(awaited) == 1 else None
        if isinstance(only, bytes) and not self.small:  # nearly always
            awaited.popleft()
            self.small = [only]
        else:
            self.send_ready()
        self.send_small()

    def send_small(self) -> None:
        small, carrier = self.small, self._carrier
        if not small or self.sending is not None:
            return
        data = small[0] if len(small) == 1 else b"".join(small)
        self.small, self._small_bytes = [], 0
        if carrier is None or not data:
            return
        self.moved_bytes += len(data)
        self.started_bytes += len(data)
        try:
            sent = carrier.send_bytes(data, False)
        except OSError as error:
            self._sent(error)
            return
        if sent < len(data):
            self._begin(FileSend((data,), sent), carrier)

    def _start(self, send: FileSend) -> None:
        if self._carrier is None:
            send.release()
            return
        self.moved_bytes += send.size_bytes
        self.started_bytes += send.size_bytes
        self._begin(send, self._carrier)

    def _begin(self, send: FileSend, carrier: Carrier) -> None:
        try:
            if not send.start(
                self._transport, carrier, self._pages, self._scheduler, self._through
            ):
                self.sending = send
                if self._reader is not None:
                    self._large_responses.hold(self._reader, send.memory_bytes())
        except (OSError, EOFError) as error:
            self._sent(error)

    def _through(self, error: Exception | None) -> None:
        self.sending = None
        self._let_go()
        self._sent(error)

    def _let_go(self) -> None:
        if self._reader is not None:
            self._large_responses.release(self._reader)


def _unheard(error: Exception | None) -> None:
    """Nobody needs to be notified."""
