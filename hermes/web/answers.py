"""Ways to respond to a request: JSON, text and errors; later, or bit by bit in turns.

A resource calls one of the `write_` functions from its `render_GET` and returns what it returns;
`respond_later` is for what a worker thread finds out, `stream` for what is too much for one turn of
the reactor or for memory.
"""

import json
from collections.abc import Callable, Iterator
from html import escape
from http import HTTPStatus
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET
from zope.interface import implementer

#: How long one turn of a streamed response may keep the reactor, unless one chunk takes longer.
TURN_SECONDS = 0.004

_Pieces = Iterator["bytes | Deferred[bytes | None]"]

#: A peer that takes nothing of a streamed response for this long is cut off.
STALLED_SECONDS = 60.0


def write_json(request: Any, value: Any, status: int = HTTPStatus.OK) -> bytes:
    """Respond with a JSON document.

    Args:
        request: twisted.web's, not yet responded to.
        value: what `json` can write.
        status: the HTTP status.

    Returns:
        The body, for a `render` method to return.
    """
    body = json.dumps(value, indent=2) + "\n"
    return _body(request, body, "application/json", status)


def write_text(request: Any, text: str, status: int = HTTPStatus.OK) -> bytes:
    """Respond with plain text; see `write_json`."""
    return _body(request, text, "text/plain; charset=utf-8", status)


def _body(request: Any, text: str, content_type: str, status: int) -> bytes:
    request.setResponseCode(int(status))
    request.setHeader(b"Content-Type", content_type.encode())
    return text.encode()


class ErrorPage(Resource):
    """What is answered instead of a page: HTML to browsers, JSON to programs that want it, or text.

    Args:
        status: the HTTP status.
        detail: one sentence for whoever asked; it may quote them, and is escaped.
    """

    isLeaf = True

    def __init__(self, status: int, detail: str) -> None:
        super().__init__()
        self._status = HTTPStatus(status)
        self._detail = detail

    def render(self, request: Any) -> bytes:
        """Respond with the error, whatever the method."""
        status, accepted = self._status, (request.getHeader(b"accept") or b"").lower()
        title = f"{status.value} {status.phrase}"
        if b"text/html" in accepted:
            page = (
                '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
                f"<title>{title}</title></head>\n"
                f"<body><h1>{title}</h1>\n<p>{escape(self._detail)}</p></body></html>\n"
            )
            return _body(request, page, "text/html; charset=utf-8", status)
        if b"json" in accepted:
            return write_json(request, {"status": status.value, "error": self._detail}, status)
        return write_text(request, f"{title}: {self._detail}\n", status)


def respond_later(request: Any, body: "Deferred[bytes]") -> int:
    """Respond when something has been found out.

    Args:
        request: twisted.web's; headers may be set until `body` fires.
        body: fires with the response's body. It is cancelled when the client goes away first; a
            failure is logged and answered as an error of the server's.

    Returns:
        What a `render` method returns.
    """

    def write(data: bytes) -> None:
        request.write(data)
        request.finish()

    return _when_known(request, body, write)


def stream(
    request: Any,
    reactor: Any,
    pieces: "_Pieces | Deferred[_Pieces]",
    ended: Callable[[], None] = lambda: None,
) -> int:
    """Respond bit by bit, in turns of a few milliseconds, as fast as the client reads.

    Args:
        request: twisted.web's, with its headers set.
        reactor: takes turns with everything else.
        pieces: the body, or a Deferred of it, which is cancelled when the client goes away first;
            closed when it goes away later. A piece may be a Deferred, whose None ends the body. An
            exception or a failure cuts the response off.
        ended: called once when no more is sent and no piece is waited for, whatever the reason.

    Returns:
        What a `render` method returns.
    """
    if not isinstance(pieces, Deferred):
        _Stream(request, reactor, pieces, ended).start()
        return int(NOT_DONE_YET)
    return _when_known(
        request, pieces, lambda found: _Stream(request, reactor, found, ended).start()
    )


def _when_known(request: Any, found: "Deferred[Any]", write: Callable[[Any], None]) -> int:
    """Write what is found, unless the client is gone by then."""
    gone = False

    def left(_: Any) -> None:
        nonlocal gone
        gone = True
        found.cancel()

    def fail(failure: Failure) -> None:
        if not (gone and failure.check(CancelledError)):
            request.processingFailed(failure)

    request.notifyFinish().addErrback(left)
    found.addCallback(lambda value: None if gone else write(value)).addErrback(fail)
    return int(NOT_DONE_YET)


@implementer(IPushProducer)
class _Stream:
    """A response under way; see `stream`."""

    def __init__(
        self, request: Any, reactor: Any, pieces: _Pieces, ended: Callable[[], None]
    ) -> None:
        self._request, self._reactor = request, reactor
        self._pieces, self._ended = pieces, ended
        self._next: Any = None  # the call of the next turn, or of the end of the patience
        self._is_waiting = False  # for a piece
        self._is_paused = self._is_over = False

    def start(self) -> None:
        self._request.notifyFinish().addErrback(lambda _: self.stopProducing())
        self._request.registerProducer(self, True)
        self.resumeProducing()

    def pauseProducing(self) -> None:
        """The client has enough for now."""
        self._is_paused = True
        self._schedule(STALLED_SECONDS, self._give_up)

    def resumeProducing(self) -> None:
        """The client can take more."""
        self._is_paused = False
        self._schedule(0, self._turn)

    def stopProducing(self) -> None:
        """The client is gone."""
        if not self._is_over:
            self._end()

    def _schedule(self, seconds: float, call: Callable[[], None]) -> None:
        self._unschedule()
        if not self._is_over:
            self._next = self._reactor.callLater(seconds, call)

    def _unschedule(self) -> None:
        if self._next is not None and self._next.active():
            self._next.cancel()
        self._next = None

    def _turn(self) -> None:
        """Write until the turn is over, the client has enough, or nothing is left for now."""
        if self._is_waiting:
            return
        end = self._reactor.seconds() + TURN_SECONDS
        parts = []
        try:
            while isinstance(piece := next(self._pieces, None), bytes):
                parts.append(piece)
                if self._reactor.seconds() >= end:
                    break
        except Exception:
            self._fail(Failure())
            return
        self._is_waiting = isinstance(piece, Deferred)
        self._write(b"".join(parts), is_last=piece is None)
        if isinstance(piece, Deferred):
            piece.addCallbacks(self._arrived, self._fail)

    def _arrived(self, piece: bytes | None) -> None:
        self._is_waiting = False
        if self._is_over:
            self._close()
        else:
            self._write(piece or b"", is_last=piece is None)

    def _write(self, data: bytes, *, is_last: bool) -> None:
        if self._is_over:
            return
        if not (is_last or self._is_waiting or self._is_paused):
            self._schedule(0, self._turn)
        if data:
            self._request.write(data)  # may pause us
        if is_last and not self._is_over:
            self._end()
            self._request.unregisterProducer()
            self._request.finish()

    def _fail(self, failure: Failure) -> None:
        self._is_waiting = False
        if self._is_over:
            self._close()
            return
        self._end()
        self._request.processingFailed(failure)

    def _give_up(self) -> None:
        self._end()
        self._request.transport.abortConnection()

    def _end(self) -> None:
        self._is_over = True
        self._unschedule()
        if not self._is_waiting:
            self._close()

    def _close(self) -> None:
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()
        self._ended()
