"""Responses: JSON, text and error pages; deferred, or streamed.

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
    """Respond with a JSON document; returns the body, for a `render` method to return."""
    body = json.dumps(value, indent=2) + "\n"
    return _body(request, body, "application/json", status)


def write_text(request: Any, text: str, status: int = HTTPStatus.OK) -> bytes:
    return _body(request, text, "text/plain; charset=utf-8", status)


def _body(request: Any, text: str, content_type: str, status: int) -> bytes:
    request.setResponseCode(int(status))
    request.setHeader(b"Content-Type", content_type.encode())
    return text.encode()


class ErrorPage(Resource):
    """An error: HTML for browsers, JSON for programs that want it, or text.

    `detail`: one sentence for whoever asked; it may quote them, and is escaped.
    """

    isLeaf = True

    def __init__(self, status: int, detail: str) -> None:
        super().__init__()
        self._status = HTTPStatus(status)
        self._detail = detail

    def render(self, request: Any) -> bytes:
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
    """Respond once the body is known.

    Args:
        request: headers may be set until `body` fires.
        body: cancelled when the client goes away first; a failure is logged and answered as an
            internal error.
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
    """Send a body in pieces, in turns of a few milliseconds, as fast as the client reads.

    Args:
        request: with its headers set.
        pieces: the body, or a Deferred of it, which is cancelled when the client goes away first;
            closed when it goes away later. A piece may be a Deferred, whose None ends the body. An
            exception or a failure cuts the response off.
        ended: called once when no more is sent and no piece is waited for, whatever the reason.
    """
    if not isinstance(pieces, Deferred):
        _Stream(request, reactor, pieces, ended).start()
        return int(NOT_DONE_YET)
    return _when_known(
        request, pieces, lambda found: _Stream(request, reactor, found, ended).start()
    )


def _when_known(request: Any, found: "Deferred[Any]", write: Callable[[Any], None]) -> int:
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
        self._is_paused = True
        self._schedule(STALLED_SECONDS, self._give_up)

    def resumeProducing(self) -> None:
        self._is_paused = False
        self._schedule(0, self._turn)

    def stopProducing(self) -> None:
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
        self._request.unregisterProducer()
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
