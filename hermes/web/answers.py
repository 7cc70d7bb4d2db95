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
    chunks: "Iterator[bytes] | Deferred[Iterator[bytes]]",
    ended: Callable[[], None] = lambda: None,
) -> int:
    """Respond bit by bit, in turns of a few milliseconds, as fast as the client reads.

    Args:
        request: twisted.web's, with its headers set.
        reactor: takes turns with everything else.
        chunks: the body, or a Deferred of it, which is cancelled when the client goes away first;
            closed when it goes away later. An exception cuts the response off.
        ended: called once when no more is sent, whatever the reason.

    Returns:
        What a `render` method returns.
    """
    if not isinstance(chunks, Deferred):
        _Stream(request, reactor, chunks, ended).start()
        return int(NOT_DONE_YET)
    return _when_known(
        request, chunks, lambda found: _Stream(request, reactor, found, ended).start()
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
        self, request: Any, reactor: Any, chunks: Iterator[bytes], ended: Callable[[], None]
    ) -> None:
        self._request, self._reactor = request, reactor
        self._chunks, self._ended = chunks, ended
        self._next: Any = None  # the call of the next turn, or of the end of the patience
        self._is_over = False

    def start(self) -> None:
        self._request.notifyFinish().addErrback(lambda _: self.stopProducing())
        self._request.registerProducer(self, True)
        self.resumeProducing()

    def pauseProducing(self) -> None:
        """The client has enough for now."""
        self._schedule(STALLED_SECONDS, self._give_up)

    def resumeProducing(self) -> None:
        """The client can take more."""
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
        """Write until the turn is over, the client has enough, or nothing is left."""
        this = self._next = self._reactor.callLater(0, self._turn)
        end = self._reactor.seconds() + TURN_SECONDS
        parts = []
        try:
            for chunk in self._chunks:
                parts.append(chunk)
                if self._reactor.seconds() >= end:
                    break
            else:
                self._finish(b"".join(parts))
                return
        except Exception:
            self._end()
            self._request.processingFailed(Failure())
            return
        if self._next is this:
            self._request.write(b"".join(parts))  # may pause us

    def _finish(self, last: bytes) -> None:
        request = self._request
        if last:
            request.write(last)
        if not self._is_over:
            self._end()
            request.unregisterProducer()
            request.finish()

    def _give_up(self) -> None:
        self._end()
        self._request.transport.abortConnection()

    def _end(self) -> None:
        self._is_over = True
        self._unschedule()
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()
        self._ended()
