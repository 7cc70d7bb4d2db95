"""Authenticates requests, and authorizes them for what they ask for.

Each listener has a `WebGate`. By the listener's `authentication` a request is from

    none    `anonymous`
    scram   the user whose name and password it carries (basic authentication, RFC 7617)
    tls     whom the connection's certificate names

What is mounted with a `Rule` that `is_open` is given to anybody. Where the resource itself asks for
a password (`logs_in`), a request may bring none: its `principal` is then None. All others get 401,
and 403 if the rule doesn't allow them.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from hermes.errors import HermesError
from hermes.limited_log import LimitedLog
from hermes.quoting import quoted
from hermes.security import ANONYMOUS
from hermes.web.logins import (
    BadCredentialsError,
    Logins,
    TooBusyError,
    parse_authorization,
)
from hermes.web.responses import ErrorPage

_CHALLENGE: Final = b'Basic realm="Hermes", charset="UTF-8"'


class Rule(NamedTuple):
    """Who may have what is mounted at a name.

    Attributes:
        is_open: anybody, whatever the listener requires.
        logs_in: whether the resource itself asks those for a password who bring none.
        allows: whether a principal may; called for each request, in the reactor's thread.
        action: what the rule is about, for people: "describe the cluster".
    """

    is_open: bool = False
    logs_in: bool = False
    allows: Callable[[str], bool] = lambda principal: True
    action: str = ""


class _Refusal(NamedTuple):
    """A refused request: a word for the metrics, and the response."""

    reason: str
    status: HTTPStatus
    text: str


class WebGate:
    """Authenticates the requests of one listener. Lives in the reactor's thread.

    Args:
        authentication: `none`, `scram` or `tls`.
        logins: checks passwords; needed for `scram`.
        name_of: whom the certificate of a request's connection names, or None; needed for `tls`.
        refused: called with a word for each refusal: `not_authenticated`, `not_authorized`, or
            `unavailable` while users can't be looked up.
        introduce: called with whom a certificate names, before it is authorized; fires once known.
    """

    def __init__(
        self,
        authentication: str = "none",
        logins: Logins | None = None,
        name_of: Callable[[Any], str | None] = lambda request: None,
        refused: Callable[[str], None] = lambda reason: None,
        introduce: "Callable[[str], Deferred[Any]] | None" = None,
    ) -> None:
        self._introduce = introduce
        self.authentication = authentication
        self._logins = logins
        self._name_of = name_of
        self._refused = refused

    def pass_on(self, request: Any, rule: Rule, resource: Any, log: LimitedLog) -> Any:
        """The resource that a request asks for, or a page in its place; sets `principal`."""
        if rule.is_open:
            return resource

        def decide(found: str | _Refusal | None) -> Any:
            if found is None and not rule.logs_in:
                found = _not_authenticated(self._wanted)
            if isinstance(found, str) and not rule.allows(found):
                text = f"{quoted(found)} may not {rule.action}: an access rule has to allow it"
                found = _Refusal("not_authorized", HTTPStatus.FORBIDDEN, text)
            if isinstance(found, _Refusal):
                return self._page(found, request, resource, log)
            request.principal = found
            return resource

        found = self._principal(request)
        if isinstance(found, Deferred):
            return _Later(found.addCallback(decide))
        return decide(found)

    @property
    def _wanted(self) -> str:
        if self.authentication == "tls":
            return "a client certificate that names a principal is needed"
        return "a user's name and password are needed"

    def _principal(self, request: Any) -> "str | _Refusal | Deferred[Any] | None":
        """Who the request is from; None if it doesn't say."""
        if self.authentication == "none":
            return ANONYMOUS
        if self.authentication == "tls":
            name = self._name_of(request)
            if name is None or self._introduce is None:
                return name
            return self._introduce(name).addCallbacks(lambda _: name, _could_not_tell)
        headers = request.requestHeaders.getRawHeaders(b"Authorization") or []
        if not headers:
            return None
        assert self._logins is not None
        try:
            if len(headers) > 1:
                raise BadCredentialsError("one Authorization header is expected")
            given = parse_authorization(headers[0])
            address = getattr(request.getClientAddress(), "host", "")
            checked = self._logins.check(address, given)
        except BadCredentialsError as error:
            return _not_authenticated(str(error))
        except TooBusyError:
            return _BUSY
        return checked.addCallbacks(lambda name: _WRONG if name is None else name, _could_not_tell)

    def _page(self, refusal: _Refusal, request: Any, resource: Any, log: LimitedLog) -> Any:
        self._refused(refusal.reason)
        log.warn(
            refusal.reason,
            "refused {method} {path} of {peer}: {text}",
            method=request.method.decode("latin-1"),
            path=request.path.decode("latin-1"),
            peer=getattr(request.getClientAddress(), "host", ""),
            text=refusal.text,
        )
        if refusal.status == HTTPStatus.UNAUTHORIZED and self.authentication == "scram":
            request.setHeader(b"WWW-Authenticate", _CHALLENGE)
        if refusal is _BUSY:
            request.setHeader(b"Retry-After", b"5")
        make_page = getattr(resource, "error_page", ErrorPage)
        return make_page(int(refusal.status), refusal.text)


class _Later(Resource):
    """What is known once a password has been checked."""

    isLeaf = True

    def __init__(self, found: "Deferred[Any]") -> None:
        super().__init__()
        self._found = found

    def render(self, request: Any) -> int:
        request.notifyFinish().addErrback(lambda _: None)

        def respond(found: Any) -> None:
            if not request._disconnected:
                request.render(found)

        def fail(failure: Any) -> None:
            if not (request._disconnected or request.finished):
                request.processingFailed(failure)

        self._found.addCallback(respond).addErrback(fail)
        return int(NOT_DONE_YET)


def _not_authenticated(text: str) -> _Refusal:
    return _Refusal("not_authenticated", HTTPStatus.UNAUTHORIZED, text)


def _could_not_tell(failure: Failure) -> _Refusal:
    failure.trap(HermesError)
    return _BUSY


_BUSY: Final = _Refusal(
    "unavailable",
    HTTPStatus.SERVICE_UNAVAILABLE,
    "the password can't be checked now: try again in a few seconds",
)
_WRONG: Final = _not_authenticated("there is no such user with this password")
