"""The answers of one connection on their way out: in the order of the requests, one at a time.

An answer that isn't known yet has a `Place`; those behind it wait until it is filled. Small ones
are collected, so that many leave with one call of the kernel. What the socket can't take at once is
the transport's producer until it has left, and nothing else is sent meanwhile.

Knows nothing of requests and decides nothing; whoever adds an answer calls `send_ready` and
`send_small` when its turn is over.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from hermes.broker.carriers import Carrier
from hermes.broker.large_answers import AnswerReader, LargeAnswers
from hermes.broker.pages import PageCache
from hermes.broker.sends import FileSend
from hermes.broker.turns import SharedTurns

__all__ = ["Answers", "Place"]

#: Small answers are collected up to this size before they are sent together.
_COLLECT_BYTES = 32 * 1024


class Place:
    """The place of one answer in the order of answers.

    Attributes:
        is_ready: whether the answer is known.
        answer: what it is; None when there is nothing to send.
    """

    __slots__ = ("answer", "is_ready")

    def __init__(self) -> None:
        self.is_ready = False
        self.answer: bytes | FileSend | None = None

    def fill(self, answer: bytes | FileSend | None) -> None:
        """The answer is known; it belongs to the place from now on."""
        self.answer, self.is_ready = answer, True


class Answers:
    """What a connection has to say, and hasn't said yet.

    Attributes:
        places: of the answers that aren't known yet, or wait behind one that isn't; in order.
        sending: what is the transport's producer now.
        moved_bytes: how much was given to the kernel since the connection's turn began; the
            connection sets it back.
    """

    def __init__(
        self,
        pages: PageCache,
        turns: SharedTurns,
        large_answers: LargeAnswers,
    ) -> None:
        """Prepare; `open` comes first.

        Args:
            pages: keeps cold pages off the reactor.
            turns: say how much may leave at once.
            large_answers: is told what an answer holds in memory until it has left.
        """
        self.places: deque[Place] = deque()
        self.sending: FileSend | None = None
        self.moved_bytes = 0
        self._pages = pages
        self._turns = turns
        self._large_answers = large_answers
        self._reader: AnswerReader | None = None
        self._sent: Callable[[Exception | None], None] = _unheard
        self._transport: Any = None
        self._carrier: Carrier | None = None
        self._small: list[bytes] = []
        self._small_bytes = 0

    def open(
        self,
        transport: Any,
        carrier: Carrier,
        reader: AnswerReader,
        sent: Callable[[Exception | None], None],
    ) -> None:
        """Say where answers go.

        Args:
            transport: where an answer that doesn't leave at once is registered as the producer.
            carrier: moves the bytes.
            reader: on whose behalf answers are held in memory.
            sent: called when an answer that didn't leave at once is through, with None, or with
                the exception that ended it, whenever that is; not after `close`.
        """
        self._transport, self._carrier = transport, carrier
        self._reader, self._sent = reader, sent

    def close(self) -> None:
        """Nobody reads them any more: let go of them, of those that come, and of the reader."""
        self._carrier = None
        self.sending = None  # the transport tells it with stopProducing
        self._let_go()
        # Else the connection and its answers would keep each other in memory.
        self._reader, self._sent = None, _unheard
        self._take_small()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is awaited, nor on its way."""
        return not self.places and self.sending is None and not self._small

    def reserve(self) -> Place:
        """Keep the next place in the order for an answer that comes later."""
        place = Place()
        self.places.append(place)
        return place

    def add(self, answer: bytes | FileSend) -> None:
        """Take an answer, behind all those before it."""
        if self.places:
            self.reserve().fill(answer)
        else:
            self._send(answer)

    def send_ready(self) -> None:
        """Send those whose turn has come."""
        places = self.places
        while places and places[0].is_ready and self.sending is None:
            answer = places.popleft().answer
            if answer is not None:
                self._send(answer)

    def send_small(self) -> None:
        """Send the small answers that were collected."""
        if self._small and self.sending is None:
            self._start(FileSend((self._take_small(),)))

    def _send(self, answer: bytes | FileSend) -> None:
        if isinstance(answer, bytes):
            self._small.append(answer)
            self._small_bytes += len(answer)
            if self._small_bytes >= _COLLECT_BYTES:
                self.send_small()
            return
        if self._small:
            answer.prepend(self._take_small())
        self._start(answer)

    def _take_small(self) -> bytes:
        data = b"".join(self._small)
        self._small.clear()
        self._small_bytes = 0
        return data

    def _start(self, send: FileSend) -> None:
        if self._carrier is None:
            send.release()
            return
        self.moved_bytes += send.size_bytes
        try:
            if not send.start(
                self._transport, self._carrier, self._pages, self._turns, self._through
            ):
                self.sending = send
                if self._reader is not None:
                    self._large_answers.hold(self._reader, send.memory_bytes())
        except (OSError, EOFError) as error:
            self._sent(error)

    def _through(self, error: Exception | None) -> None:
        self.sending = None
        self._let_go()
        self._sent(error)

    def _let_go(self) -> None:
        if self._reader is not None:
            self._large_answers.release(self._reader)


def _unheard(error: Exception | None) -> None:
    """Nobody is there to be told."""
