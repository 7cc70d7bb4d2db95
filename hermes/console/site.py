"""The console as a Twisted resource; pages are made in worker threads."""

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

from twisted.internet.defer import Deferred
from twisted.internet.threads import blockingCallFromThread, deferToThreadPool
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from hermes.config.broker import BrokerConfig
from hermes.console.cluster_client import ClusterClient
from hermes.console.page_request import PageRequest, PageResponse
from hermes.console.pages import Console
from hermes.console.registry_records import RegistryRecords
from hermes.console.sessions import SESSION_COOKIE, Access, Password, check_exposure
from hermes.security import ANONYMOUS
from hermes.web import ErrorPage, Rule, WebGuard, WebServer, stream

_THREADS: Final = 8
_STREAM_THREADS: Final = 4
# Each may hold tens of megabytes.
_MOST_STREAMS: Final = 8
_MOST_FIELDS: Final = 1000
_FORM: Final = b"application/x-www-form-urlencoded"


def serve_console(
    web: WebServer,
    reactor: Any,
    cluster: ClusterClient,
    *,
    setting: str,
    password: Password | None,
    may_act: Callable[[], bool],
    records: RegistryRecords | None = None,
    broker_config: Callable[[], BrokerConfig] | None = None,
) -> None:
    """Serve the console from a web server whose ports are open, until that stops.

    Args:
        web: the console gets every path that nothing else has; its guard knows users and rules.
        cluster: closed when the server stops.
        setting: where the ports' addresses come from, for the error.
        password: required where a port authenticates nobody; None to require none.
        may_act: whether the console may change anything, at this moment.
        records: closed when the server stops.
        broker_config: the settings in force of the broker whose console it is, if it is one's.

    Raises:
        ConfigError: other machines can connect, and there is no password; the server serves
            everything else.
    """
    open_to_all = [
        address
        for address, gate in zip(web.addresses, web.gates, strict=True)
        if gate.authentication == "none"
    ]
    check_exposure(setting, open_to_all, has_password=password is not None)
    access = Access(password, _Users(reactor, web.guard), web.guard.rights)
    resource = ConsoleResource(reactor, Console(cluster, access, may_act, records, broker_config))
    web.root.fallback, web.root.fallback_rule = resource, Rule(logs_in=True)
    web.on_stop.append(resource.stop)


class _Users:
    def __init__(self, reactor: Any, guard: WebGuard) -> None:
        self._reactor = reactor
        self._guard = guard

    def log_in(self, address: str, user: str, password: str) -> tuple[str, object] | None:
        check = self._guard.check
        if check is None:
            return None
        found: Any = blockingCallFromThread(self._reactor, check, address, user, password)
        return None if found is None else (found.name, found.verifiers)

    def proof_of(self, user: str) -> object | None:
        found = self._guard.find(user)
        return None if found is None else found.verifiers


class ConsoleResource(Resource):
    """Serves every path below it, by threads that stop with it. Lives in the reactor's thread."""

    isLeaf = True

    def __init__(self, reactor: Any, console: Console, pool: Any = None) -> None:
        super().__init__()
        self._reactor = reactor
        self._console = console
        self._pool = pool or ThreadPool(0, _THREADS, "hermes-console")
        # Of their own, so that searches don't hold up pages.
        self._stream_pool = pool or ThreadPool(0, _STREAM_THREADS, "hermes-console-streams")
        self._streams = 0
        for each in {self._pool, self._stream_pool}:
            each.start()
        self._is_stopping = False

    def stop(self) -> "Deferred[None]":
        """Disconnect and end the threads; pending requests end with an error. Fires when done."""
        self._is_stopping = True
        done: Deferred[None] = Deferred()

        def end() -> None:
            try:
                self._console.close()
            finally:
                for each in {self._pool, self._stream_pool}:
                    each.stop()
                self._reactor.callFromThread(done.callback, None)

        # Not in the pool, which couldn't wait for itself.
        self._reactor.callInThread(end)
        return done

    def render(self, request: Any) -> bytes | int:
        if request.method not in (b"GET", b"HEAD", b"POST"):
            request.setHeader(b"Allow", b"GET, HEAD, POST")
            return ErrorPage(405, "only GET, HEAD and POST are understood").render(request)
        page_request = _page_request(request)
        if page_request is None:
            return ErrorPage(400, "the address or the form is not UTF-8, or too long").render(
                request
            )
        if self._is_stopping:
            return ErrorPage(503, "the console is being stopped").render(request)
        request.notifyFinish().addErrback(lambda _: None)
        answered = deferToThreadPool(self._reactor, self._pool, self._answer, request, page_request)
        answered.addCallback(lambda answer: self._respond(request, answer))
        answered.addErrback(lambda failure: _fail(request, failure))
        return int(NOT_DONE_YET)

    def _answer(self, request: Any, page_request: PageRequest) -> PageResponse:
        """Answer in a thread, unless the client has gone: requests queue for threads."""
        return PageResponse(b"") if request._disconnected else self._console.answer(page_request)

    def _respond(self, request: Any, answer: PageResponse) -> None:
        if request._disconnected:
            _close(answer.body)
            return
        request.setResponseCode(answer.status)
        request.setHeader(b"Content-Type", answer.content_type.encode())
        for name, value in answer.headers.items():
            request.setHeader(name.encode(), value.encode("ascii", "replace"))
        for name, value in answer.cookies.items():
            request.cookies.append(_cookie(name, value, is_secure=request.isSecure()))
        if request.method == b"HEAD" or isinstance(answer.body, bytes):
            body = answer.body if isinstance(answer.body, bytes) else b""
            _close(answer.body)
            request.setHeader(b"Content-Length", b"%d" % len(body))
            if request.method != b"HEAD":
                request.write(body)
            request.finish()
        elif self._streams >= _MOST_STREAMS:
            _close(answer.body)
            request.responseHeaders.removeHeader(b"Content-Disposition")
            page = ErrorPage(
                503, "too many searches are under way: wait for one to end, and reload"
            )
            request.write(page.render(request))
            request.finish()
        else:
            self._send(request, answer.body)

    def _send(self, request: Any, pieces: Iterator[bytes]) -> None:
        def made_in_threads() -> "Iterator[Deferred[bytes | None]]":
            while True:
                yield deferToThreadPool(self._reactor, self._stream_pool, next, pieces, None)

        def ended() -> None:
            self._streams -= 1
            _close(pieces)

        self._streams += 1
        stream(request, self._reactor, made_in_threads(), ended)


def _page_request(request: Any) -> PageRequest | None:
    path, _, query = request.uri.partition(b"?")
    try:
        parts = [unquote_to_bytes(part).decode() for part in path.strip(b"/").split(b"/")]
        form = b""
        if request.method == b"POST":
            kind = (request.getHeader(b"content-type") or b"").partition(b";")[0]
            form = request.content.read() if kind.strip().lower() == _FORM else b""
        return PageRequest(
            "POST" if request.method == b"POST" else "GET",
            tuple(parts) if parts != [""] else (),
            _fields(query),
            _fields(form),
            # As they come: nothing of ours is quoted, and to unquote takes time without bound.
            {
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in request.received_cookies.items()
            },
            request.uri.decode("ascii"),
            getattr(request.getClientAddress(), "host", ""),
            principal=getattr(request, "principal", ANONYMOUS),
        )
    except ValueError:
        return None


def _fields(text: bytes) -> dict[str, str]:
    pairs = parse_qsl(
        text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
    )
    return dict(pairs)


def _cookie(name: str, value: str, *, is_secure: bool) -> bytes:
    """A Set-Cookie header; an empty value deletes the cookie. No script needs to see any."""
    parts = [f"{name}={value}", "Path=/", "HttpOnly", "SameSite=Strict"]
    if not value:
        parts.append("Max-Age=0")
    elif name != SESSION_COOKIE:
        parts.append("Max-Age=31536000")
    if is_secure:
        parts.append("Secure")
    return "; ".join(parts).encode("ascii", "replace")


def _fail(request: Any, failure: Failure) -> None:
    if not (request._disconnected or request.finished):
        request.processingFailed(failure)


def _close(body: bytes | Iterator[bytes]) -> None:
    close = getattr(body, "close", None)
    if close is not None:
        close()
