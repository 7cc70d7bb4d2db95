"""Limits and checks before a request reaches a resource, and the headers of every response.

Every response forbids browsers whatever a page here doesn't need: other sites' scripts, frames and
styles, inline scripts, content sniffing, caching. A resource that needs another policy sets the
header anew.
"""

from http import HTTPStatus
from typing import Any

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web import http, server
from twisted.web.resource import Resource, getChildForRequest

from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.web.gates import Rule, WebGate
from hermes.web.hosts import AcceptedHosts
from hermes.web.responses import ErrorPage

#: Nothing but what this site serves itself, and no inline script or style.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

_HEADERS = {
    b"Server": b"Hermes",
    b"Content-Security-Policy": CONTENT_SECURITY_POLICY.encode(),
    b"X-Content-Type-Options": b"nosniff",
    b"X-Frame-Options": b"DENY",
    b"Referrer-Policy": b"no-referrer",
    b"Cross-Origin-Opener-Policy": b"same-origin",
    b"Cross-Origin-Resource-Policy": b"same-origin",
    b"Cache-Control": b"no-store",
}

#: Of a listener with TLS: browsers that were here once never ask this host without it (RFC 6797).
#: That goes for all its ports, so not for localhost, where others' programs listen as well.
_STRICT = b"max-age=31536000"

#: Whoever may pass the listener's gate.
_ANYBODY = Rule()

#: Forms are small, and bodies are kept in memory. A resource's own attribute `max_body_bytes` goes
#: before it.
MAX_BODY_BYTES = 64 * 1024

_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

#: How long a connection may take to close, once everything was handed over.
CLOSING_SECONDS = 60.0

#: Browsers open six each; more are closed at once.
MAX_CONNECTIONS = 256


class Root(Resource):
    """The root of the tree: its own children first, then `fallback`.

    Attributes:
        fallback: the resource for every path that no child has, which sees the whole path, `/`
            included; None for an error page.
        fallback_rule: who may have it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fallback: Any = None
        self.fallback_rule = _ANYBODY
        self._any_host: set[bytes] = set()
        self._rules: dict[bytes, Rule] = {}

    def add(
        self, name: str, resource: Any, *, any_host: bool = False, rule: Rule = _ANYBODY
    ) -> None:
        """Serve a resource at `/NAME`.

        Args:
            name: one segment of a path.
            any_host: whether requests may name any host: for what programs ask, and what nobody
                needs to hide.
            rule: who may have it, of those whom the listener's gate lets pass.
        """
        self.putChild(name.encode(), resource)
        self._rules[name.encode()] = rule
        if any_host:
            self._any_host.add(name.encode())

    def rule(self, name: bytes) -> Rule:
        return self._rules[name] if name in self.children else self.fallback_rule

    def allows_any_host(self, path: bytes) -> bool:
        """Whether the `Host` of a request for this path doesn't matter."""
        return path.partition(b"/")[2].partition(b"/")[0] in self._any_host

    def max_body_bytes(self, path: bytes) -> int:
        name = path.partition(b"/")[2].partition(b"/")[0]
        resource = self.children.get(name, self.fallback)
        return int(getattr(resource, "max_body_bytes", MAX_BODY_BYTES))

    def getChild(self, path: bytes, request: Any) -> Any:
        """Pass what no child has to `fallback`, as if it were the root."""
        if self.fallback is None:
            names = ", ".join(sorted(f"/{name.decode()}" for name in self.children))
            return ErrorPage(HTTPStatus.NOT_FOUND, f"nothing is served there, but at {names}")
        request.postpath.insert(0, request.prepath.pop())
        return getChildForRequest(self.fallback, request)


class _Request(server.Request):
    """A request whose body is limited, and whose failure shows nobody a traceback.

    `principal`: None if the request brings no credentials and the resource itself asks for them.
    """

    _refused = False
    channel: Any
    principal: str | None = None

    def __init__(self, channel: Any, *queued: bool) -> None:
        super().__init__(channel, *queued)
        # Else Twisted reads forms in bodies, before anything is known of who sends them, and for
        # nobody. As an argument, its older versions wouldn't take that.
        self._parsePOSTFormSubmission = False
        self._limited_log: LimitedLog = channel.site.limited_log

    def gotLength(self, length: int | None) -> None:
        self._received_bytes = 0
        # Twisted gives a request its path only when all of it is there.
        self._max_body_bytes = self.channel.site.max_body_bytes(self.channel._path)
        too_long = length is not None and length > self._max_body_bytes
        super().gotLength(0 if too_long else length)
        if too_long:
            self._refuse()

    def handleContentChunk(self, data: bytes) -> None:
        self._received_bytes += len(data)
        if self._received_bytes <= self._max_body_bytes:
            super().handleContentChunk(data)
        elif not self._refused:
            self._refuse()

    def _refuse(self) -> None:
        self._refused = True
        text = b"a body has at most %d bytes here\n" % self._max_body_bytes
        self.channel.transport.write(
            b"HTTP/1.1 413 Content Too Large\r\nContent-Type: text/plain\r\n"
            b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(text), text)
        )
        self.channel.loseConnection()

    def process(self) -> None:
        if not self._refused:
            super().process()

    def processingFailed(self, reason: Failure) -> Failure:
        """Log an internal error; tell the client no more than that there was one."""
        path = self.uri.decode("latin-1")
        self._limited_log.failure("failed", "a request for {path} failed", reason, path=path)
        if self._disconnected or self.finished:
            return reason
        if self.startedWriting:  # all that is left to say is that the rest doesn't come
            self.channel.transport.abortConnection()
            return reason
        page = ErrorPage(HTTPStatus.INTERNAL_SERVER_ERROR, "the broker's log says more")
        self.write(page.render(self))
        self.finish()
        return reason


class _Channel(http.HTTPChannel):
    """A connection that its site knows, and that ends quietly when it is idle."""

    site: "Site"
    transport: Any
    _begun = _is_lost = False
    _end: Any = None  # the call that ends a connection which doesn't close

    def connectionMade(self) -> None:
        super().connectionMade()
        self.site.channels[self] = None

    @property
    def is_waiting(self) -> bool:
        return not self._handlingRequest

    def dataReceived(self, data: bytes) -> None:
        """Read requests; what Twisted can't parse ends the connection, not with a traceback."""
        begins, self._begun = not self._begun, True
        if begins and data.startswith(b"\0"):  # a broker's client: it learns of its mistake at once
            self.transport.write(_BAD_REQUEST)
            self.loseConnection()
            return
        try:
            super().dataReceived(data)
        except Exception as error:
            self.site.limited_log.warn(
                "unreadable",
                "closing an HTTP connection from {peer}: its request can't be read ({error})",
                peer=self.transport.getPeer(),
                error=repr(error),
            )
            self.transport.abortConnection()

    def pauseProducing(self) -> None:
        """Read no requests while responses are unread, not even those that have come already."""
        super().pauseProducing()
        self.paused = True
        self._networkProducer.pauseProducing()

    def resumeProducing(self) -> None:
        super().resumeProducing()
        self.paused = False
        self._networkProducer.resumeProducing()
        self.dataReceived(b"")

    def lineLengthExceeded(self, line: bytes) -> None:
        """Close; Twisted's own way would wait for ever under TLS, for a producer: this channel."""
        self.loseConnection()

    def loseConnection(self) -> None:
        """Close once all is sent, and under TLS the peer agrees; both within a time limit."""
        super().loseConnection()
        if self._end is None and not self._is_lost:
            self._end = self.callLater(CLOSING_SECONDS, self.transport.abortConnection)

    def resetTimeout(self) -> None:
        """Don't: a request's time is limited altogether, however slowly its bytes come."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._is_lost = True
        if self._end is not None and self._end.active():
            self._end.cancel()
        super().connectionLost(reason)
        self.site.channels.pop(self, None)
        self.site.on_closed()

    def timeoutConnection(self) -> None:
        """Close an idle connection; Twisted would log each."""
        self._abortingCall = self.callLater(self.abortTimeout, self._abort)
        self.loseConnection()

    def _abort(self) -> None:
        self._abortingCall = None
        self.transport.abortConnection()


class Site(server.Site):
    """The factory of all connections.

    Args:
        gate: authenticates requests; lets everybody pass unless given.

    Attributes:
        channels: the open connections, the oldest first.
        limited_log: logs what clients can cause.
    """

    protocol: Any = _Channel
    noisy = False
    displayTracebacks = False

    def __init__(
        self, root: Root, hosts: AcceptedHosts, reactor: Any, gate: WebGate | None = None
    ) -> None:
        super().__init__(root, _Request, reactor=reactor)
        self._root = root
        self._gate = gate or WebGate()
        self._hosts = hosts
        self.channels: dict[_Channel, None] = {}
        self.limited_log = LimitedLog(ModuleLogger(), reactor.seconds)
        self.on_closed = lambda: None

    def startFactory(self) -> None:
        """Without Twisted's access log, and its timer."""

    def stopFactory(self) -> None: ...

    def max_body_bytes(self, target: bytes) -> int:
        return self._root.max_body_bytes(target.partition(b"?")[0])

    def log(self, request: Any) -> None:
        """Without Twisted's access log."""

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Make the connection's protocol, or None for one too many.

        Idle connections give way, so that they can't keep others out.
        """
        if len(self.channels) >= MAX_CONNECTIONS:
            waiting = next((each for each in self.channels if each.is_waiting), None)
            if waiting is None:
                return None
            del self.channels[waiting]  # it is told that it is lost only later
            waiting.transport.abortConnection()
        return super().buildProtocol(addr)

    def getResourceFor(self, request: Any) -> Any:
        for name, value in _HEADERS.items():
            request.setHeader(name, value)
        if request.isSecure() and not self._hosts.is_loopback(request.getHeader(b"Host") or b""):
            request.setHeader(b"Strict-Transport-Security", _STRICT)
        if not request.uri.startswith(b"/"):  # proxies' and others' forms of an address
            return ErrorPage(HTTPStatus.BAD_REQUEST, "what is asked for must begin with a slash")
        if not self._root.allows_any_host(request.path):
            named = request.requestHeaders.getRawHeaders(b"Host") or []
            if not self._hosts.accepts(named):
                return ErrorPage(
                    HTTPStatus.FORBIDDEN,
                    "this server is not known by that name; its setting http_hosts lists the names "
                    "that it accepts, beside those of the loopback interface",
                )
            if _is_part_of_another_site(request):
                return ErrorPage(HTTPStatus.FORBIDDEN, "pages of other sites can only link to it")
        rule = self._root.rule(request.postpath[0])
        return self._gate.pass_on(request, rule, super().getResourceFor(request), self.limited_log)


def _is_part_of_another_site(request: Any) -> bool:
    """Whether another site's page makes a browser ask this, as an image, a frame or a script.

    It couldn't read the response, but it could let a thousand visitors' searches run.
    """
    site, target = (request.getHeader(name) for name in (b"Sec-Fetch-Site", b"Sec-Fetch-Dest"))
    return site in (b"cross-site", b"same-site") and target != b"document"
