"""The registry as a resource of a web site: requests in, responses out, the work in threads."""

from collections.abc import Callable
from concurrent.futures import Future
from time import perf_counter
from typing import Any, Final
from urllib.parse import parse_qs

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from hermes.config.topic import SCHEMAS_TOPIC
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.quoting import quoted
from hermes.registry.errors import FAILED, INVALID_REQUEST, RegistryError, unavailable
from hermes.registry.limits import MAX_BODY_BYTES
from hermes.registry.rest_messages import (
    CONTENT_TYPE,
    FORWARDED_HEADER,
    RestRequest,
    RestResponse,
    error_response,
)
from hermes.registry.service import RegistryService, changes, kind_of
from hermes.registry.store import RegistryStore
from hermes.security import Operation, Rights
from hermes.security import Resource as Topic
from hermes.web import AcceptedHosts

_TOPIC: Final = Topic.topic(SCHEMAS_TOPIC)
_METHODS: Final = (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE")
_THREADS: Final = 4
_MOST_FIELDS: Final = 100


class RegistryResource(Resource):
    """Serves every path below it. Lives in the reactor's thread.

    Args:
        hosts: the names by which browsers may ask; programs may use any.
        prefix: a first segment that may be left out of paths, where it is mounted at the top.
        on_answered: called in the reactor's thread with a call's kind, its response's status and
            the seconds that it took.
        rights: what everybody may do; None where everybody may do everything.
    """

    isLeaf = True
    max_body_bytes = MAX_BODY_BYTES

    def __init__(
        self,
        reactor: Any,
        store: RegistryStore,
        hosts: AcceptedHosts,
        *,
        prefix: str = "",
        on_answered: Callable[[str, int, float], None] = lambda kind, status, seconds: None,
        rights: Rights | None = None,
    ) -> None:
        super().__init__()
        self._rights = rights
        self._reactor = reactor
        self._service = RegistryService(store)
        self._hosts = hosts
        self._prefix = prefix
        self._on_answered = on_answered
        self._log = LimitedLog(ModuleLogger(), reactor.seconds)
        self._pool = ThreadPool(0, _THREADS, "hermes-registry")
        self._pool.start()
        self._is_stopping = False

    def stop(self) -> "Deferred[None]":
        """Stop the threads, and refuse calls from now on; fires when no thread is left."""
        self._is_stopping = True
        done: Deferred[None] = Deferred()

        def end() -> None:
            self._pool.stop()
            self._reactor.callFromThread(done.callback, None)

        self._reactor.callInThread(end)  # not in the pool, which couldn't wait for itself
        return done

    def render(self, request: Any) -> int:
        request.notifyFinish().addErrback(lambda _: None)
        began = perf_counter()
        try:
            call = self._read_call(request)
        except RegistryError as error:
            self._respond(request, error_response(error))
            return int(NOT_DONE_YET)

        def answered(answer: RestResponse) -> None:
            self._on_answered(kind_of(call), answer.status, perf_counter() - began)
            self._respond(request, answer)

        found: Deferred[Any] = deferToThreadPool(
            self._reactor, self._pool, self._service.answer, call
        )
        found.addCallback(self._awaited)
        found.addErrback(self._fault, call)
        found.addCallback(answered)
        return int(NOT_DONE_YET)

    def _read_call(self, request: Any) -> RestRequest:
        """A request as the service understands it.

        Raises RegistryError: it can't be, or a browser sends it for another site's page.
        """
        if self._is_stopping:
            raise unavailable("the registry is being stopped: ask another")
        if request.method not in _METHODS:
            raise RegistryError(405, "HTTP 405 Method Not Allowed")
        if not self._may_ask(request):
            raise RegistryError(
                403,
                "browsers may ask only for pages of this server, by a name that its setting "
                "http_hosts lists",
            )
        mounted_at = len(request.prepath)
        raw_path, _, raw_query = request.uri.partition(b"?")
        raw = raw_path.strip(b"/").split(b"/")[mounted_at:]
        try:
            path = [each.decode() for each in request.postpath]
            if path and not path[-1]:
                path.pop()
            if self._prefix and path[:1] == [self._prefix]:
                del path[0], raw[0]
            query = parse_qs(
                raw_query.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_MOST_FIELDS,
            )
            target = b"/".join(raw) + (b"?" + raw_query if raw_query else b"")
            call = RestRequest(
                "GET" if request.method == b"HEAD" else request.method.decode(),
                tuple(path),
                query,
                request.content.read(),
                target.decode("ascii"),
                request.getHeader(FORWARDED_HEADER) is not None,
            )
        except ValueError:
            raise RegistryError(
                INVALID_REQUEST, "the address is not UTF-8, or has too many parameters"
            ) from None
        self._check_right(request.principal, call)
        return call

    def _check_right(self, principal: str | None, call: RestRequest) -> None:
        if self._rights is None:
            return
        operation = Operation.PRODUCE if changes(call) else Operation.DESCRIBE
        if not self._rights(principal or "", operation, _TOPIC):
            what = "change schemas" if operation is Operation.PRODUCE else "see schemas"
            raise RegistryError(
                403,
                f"{quoted(principal or '')} may not {what}: an access rule has to allow "
                f"{operation} on {_TOPIC}",
            )

    @staticmethod
    def error_page(status: int, text: str) -> Resource:
        """What `hermes.web` serves in place of this resource, as its clients understand it."""
        return _Refused(error_response(RegistryError(status, text)))

    def _may_ask(self, request: Any) -> bool:
        """Whether a request is a program's, or a browser's for a page of this server."""
        # Any web page can make its visitor's browser send requests, and by a name of its own that
        # leads here, even look at the responses.
        origin = request.getHeader(b"Origin")
        site = request.getHeader(b"Sec-Fetch-Site")
        agent = request.getHeader(b"User-Agent") or b""
        if origin is None and site is None and not agent.startswith(b"Mozilla/"):
            return True
        hosts = request.requestHeaders.getRawHeaders(b"Host") or []
        if site not in (None, b"none", b"same-origin") or not self._hosts.accepts(hosts):
            return False
        return origin is None or origin.partition(b"://")[2].lower() == hosts[0].lower()

    def _awaited(self, future: "Future[RestResponse]") -> "RestResponse | Deferred[RestResponse]":
        if future.done():
            return future.result()
        found: Deferred[RestResponse] = Deferred()

        def pass_on() -> None:
            error = future.exception()
            if error is None:
                found.callback(future.result())
            else:
                found.errback(Failure(error))

        future.add_done_callback(lambda _: self._reactor.callFromThread(pass_on))
        return found

    def _fault(self, failure: Failure, call: RestRequest) -> RestResponse:
        self._log.failure(
            "failed", "a call of the registry failed: {path}", failure, path=call.target
        )
        return error_response(RegistryError(FAILED, "a fault: the registry's log says more"))

    def _respond(self, request: Any, answer: RestResponse) -> None:
        if request._disconnected or request.finished:
            return
        request.setResponseCode(answer.status)
        if answer.body:
            request.setHeader("Content-Type", CONTENT_TYPE)
        if answer.status != 204:
            request.setHeader(b"Content-Length", b"%d" % len(answer.body))
        if request.method != b"HEAD":
            request.write(answer.body)
        request.finish()


class _Refused(Resource):
    isLeaf = True

    def __init__(self, answer: RestResponse) -> None:
        super().__init__()
        self._answer = answer

    def render(self, request: Any) -> bytes:
        request.setResponseCode(self._answer.status)
        request.setHeader("Content-Type", CONTENT_TYPE)
        return b"" if request.method == b"HEAD" else self._answer.body
