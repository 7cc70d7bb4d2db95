"""Login, sessions and CSRF tokens.

Every browser has a session, a random cookie. A form that changes something carries a token, an HMAC
of that cookie by a secret of this process: another site can make a browser send the cookie, but
can't compute the token.

Where a listener authenticates users and a request brings none, the only page is the login; the
session is then that user's for as long as the password stays the same. Where a listener
authenticates nobody, the login asks for the console's own password, if it has one; whoever gives
it stays `anonymous`.
"""

import hashlib
import hmac
import os
import re
import secrets
import threading
import time
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from hermes.config.files import read_regular_file
from hermes.console.login_limit import LoginLimit, TooManyTriesError
from hermes.console.page_request import PageRequest, PageResponse, redirect
from hermes.console.sources import Sources
from hermes.console.viewer import Viewer
from hermes.errors import ConfigError
from hermes.security import ANONYMOUS, Rights

#: Why nothing can be changed.
NO_ACTIONS: Final = "Nothing may be changed from here: console_actions is not set."

SESSION_COOKIE: Final = "hermes_session"
_SESSION: Final = re.compile("[A-Za-z0-9_-]{43}")

# scrypt's cost: 32 MiB and about a tenth of a second for each try.
_N, _R, _P = 2**15, 8, 1
_MOST_MEMORY_BYTES: Final = 128 * 1024 * 1024
_MOST_N: Final = 2**16
_MOST_PASSWORD_CHARACTERS: Final = 1000
_MOST_FILE_BYTES: Final = 64 * 1024

# Of users at once: after failures each holds one of eight threads for seconds.
_MOST_LOGINS: Final = 4

_IDLE_SECONDS: Final = 12 * 3600.0
_MOST_SESSIONS: Final = 1000


def hash_password(password: str) -> str:
    """What a password file holds: `scrypt$N$r$p$salt$hash`, salt and hash in Base64."""
    salt = os.urandom(16)
    digest = _scrypt(password, salt, _N, _R, _P)
    return f"scrypt${_N}${_R}${_P}${b64encode(salt).decode()}${b64encode(digest).decode()}"


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    given = password.encode(errors="surrogatepass")
    return hashlib.scrypt(given, salt=salt, n=n, r=r, p=p, maxmem=_MOST_MEMORY_BYTES, dklen=32)


class Password:
    """A scrypt hash from a password file, as `hermes console --write-password` makes it.

    Raises ConfigError: it can't be read or parsed, or others than its owner may read it.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            text = read_regular_file(path, _MOST_FILE_BYTES).decode("ascii").strip()
            mode = Path(path).stat().st_mode
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("console_password_file", f"can't read {path}: {error}") from error
        if mode & 0o077:
            raise ConfigError(
                "console_password_file", f"others may read {path}: run chmod 600 {path}"
            )
        try:
            kind, *costs, salt, digest = text.split("$")
            self._n, self._r, self._p = map(int, costs)
            self._salt = b64decode(salt, validate=True)
            self._digest = b64decode(digest, validate=True)
            is_usable = kind == "scrypt" and 2 <= self._n <= _MOST_N and len(self._digest) == 32
            is_usable &= 1 <= self._r <= 8 and 1 <= self._p <= 4
        except (ValueError, Base64Error):
            is_usable = False
        if not is_usable:
            raise ConfigError(
                "console_password_file",
                f"{path} holds no password: make it with hermes console --write-password {path}",
            )

    def is_right(self, password: str) -> bool:
        """Takes a tenth of a second, on purpose."""
        found = _scrypt(password, self._salt, self._n, self._r, self._p)
        return hmac.compare_digest(found, self._digest)


class UserStore(Protocol):
    """Checks users' passwords. Methods may block, and may be called in any thread."""

    def log_in(self, address: str, user: str, password: str) -> tuple[str, object] | None:
        """The user's own name, and proof that the password is right; or None. Slow for guessers."""

    def proof_of(self, user: str) -> object | None:
        """What `log_in` would prove now by the right password; None for an unknown user."""


class _Session(NamedTuple):
    """An authenticated session; `user` is None where the console's own password was given."""

    user: str | None
    proof: object
    used_at: float


class Access:
    """Checks requests before they reach a page. Thread-safe.

    Args:
        password: required where a listener authenticates nobody; None to require none.
        users: those who may log in where a listener authenticates users.
        rights: None where everybody may do everything.
    """

    def __init__(
        self,
        password: Password | None,
        users: UserStore | None = None,
        rights: Rights | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._password = password
        self._users = users
        self._rights = rights
        self._clock = clock
        self._limit = LoginLimit(clock)
        self._logins = LoginLimit(clock, _MOST_LOGINS, waiting=0, failures=None)
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        # The sessions that have given a password, the last one used at the end.
        self._known: OrderedDict[str, _Session] = OrderedDict()

    def check(
        self, request: PageRequest, sources: Sources
    ) -> tuple[PageRequest, PageResponse | None]:
        """Authenticate a request and check its CSRF token.

        Returns the request with its session's token, and a response: None if a page is to make it.
        """
        session = request.cookies.get(SESSION_COOKIE, "")
        if not _SESSION.fullmatch(session):
            session = secrets.token_urlsafe(32)
        must_log_in = self._must_log_in(request)
        known = self._known_as(session, request) if must_log_in else None
        request = replace(
            request,
            cookies={**request.cookies, SESSION_COOKIE: session},
            csrf=self.token(session),
            may_log_out=known is not None,
            viewer=self._viewer(session, request, known),
        )
        if request.method == "POST":
            given = request.form.get("csrf", "")
            if not hmac.compare_digest(given.encode(errors="replace"), request.csrf.encode()):
                return request, self._refusal(
                    request,
                    sources,
                    "This form is too old, or not from here. Go back, reload, retry.",
                )
        if not must_log_in:
            return request, self._only_with_actions(request, sources)
        if request.path == ("login",):
            return request, self._login(request, sources)
        if known is None:
            if request.method != "GET":
                return request, redirect("/login")
            return request, self._form(request, sources, request.here)
        if request.path == ("logout",) and request.method == "POST":
            with self._lock:
                self._known.pop(session, None)
            return request, redirect("/login", cookies={SESSION_COOKIE: ""})
        return request, self._only_with_actions(request, sources)

    def token(self, session: str) -> str:
        return hmac.new(self._secret, session.encode(), hashlib.sha256).hexdigest()

    # -- passwords ------------------------------------------------------------------------------

    def _must_log_in(self, request: PageRequest) -> bool:
        return request.principal is None or (
            request.principal == ANONYMOUS and self._password is not None
        )

    def _viewer(self, session: str, request: PageRequest, known: _Session | None) -> Viewer:
        if known is None:
            return Viewer(request.principal or ANONYMOUS, self._rights)
        user = known.user
        if user is None:
            return Viewer(ANONYMOUS, self._rights)
        return Viewer(user, self._rights, lambda: self._known_as(session, request) is not None)

    def _login(self, request: PageRequest, sources: Sources) -> PageResponse:
        if request.method != "POST":
            return self._form(request, sources, "/")
        back = request.form.get("back", "/")
        try:
            found = self._given(request)
        except TooManyTriesError as error:
            form = self._form(request, sources, back, str(error))
            later = {"Retry-After": str(error.retry_after_seconds)}
            return replace(form, status=429, headers=later)
        if found is None:
            wrong = "This is not the password."
            if request.principal is None:
                wrong = "There is no such user with this password."
            return replace(self._form(request, sources, back, wrong), status=403)
        # A new one: whoever may have known the old one does not know this.
        session = secrets.token_urlsafe(32)
        with self._lock:
            self._known[session] = found
            while len(self._known) > _MOST_SESSIONS:
                self._known.popitem(last=False)
        return redirect(back, cookies={SESSION_COOKIE: session})

    def _given(self, request: PageRequest) -> _Session | None:
        """The session that a login form opens; None if the password is wrong."""
        password, given = self._password, request.form.get("password", "")
        if len(given) > _MOST_PASSWORD_CHARACTERS:
            return None
        if request.principal is None:
            user = request.form.get("user", "")
            found = self._logged_in(request.client, user, given) if user else None
            return None if found is None else _Session(*found, self._clock())
        if password is None:
            return None
        is_right = self._limit.check(request.client, lambda: password.is_right(given))
        return _Session(None, None, self._clock()) if is_right else None

    def _logged_in(self, client: str, user: str, password: str) -> tuple[str, object] | None:
        users, found = self._users, None
        if users is None:
            return None

        def is_right() -> bool:
            nonlocal found
            found = users.log_in(client, user, password)
            return found is not None

        self._logins.check(client, is_right)
        return found

    def _known_as(self, session: str, request: PageRequest) -> _Session | None:
        now = self._clock()
        with self._lock:
            known = self._known.get(session)
        if known is None or (known.user is None) != (request.principal is not None):
            return None
        lasts = now - known.used_at <= _IDLE_SECONDS
        if lasts and known.user is not None:
            assert self._users is not None
            lasts = self._users.proof_of(known.user) == known.proof
        with self._lock:
            if not lasts or session not in self._known:
                self._known.pop(session, None)
                return None
            self._known[session] = known._replace(used_at=now)
            self._known.move_to_end(session)
        return known

    # -- answers --------------------------------------------------------------------------------

    @staticmethod
    def _form(request: PageRequest, sources: Sources, back: str, error: str = "") -> PageResponse:
        page = sources.page(
            request,
            "login",
            "login.html",
            back=back,
            error=error,
            asks_user=request.principal is None,
            given_user=request.form.get("user", ""),
        )
        return replace(page, status=401)

    @staticmethod
    def _only_with_actions(request: PageRequest, sources: Sources) -> PageResponse | None:
        if request.method == "POST" and not sources.may_act():
            return Access._refusal(request, sources, NO_ACTIONS)
        return None

    @staticmethod
    def _refusal(request: PageRequest, sources: Sources, text: str) -> PageResponse:
        page = sources.page(request, "", "problem.html", heading="Refused", text=text)
        return replace(page, status=403)


def check_exposure(setting: str, addresses: Iterable[object], *, has_password: bool) -> None:
    """Refuse to serve without a password where other machines can connect.

    `addresses`: what the ports are bound to: pairs of host and port, or paths.
    """
    for address in addresses:
        if has_password or not isinstance(address, tuple):
            continue
        try:
            is_open = not ip_address(str(address[0]).partition("%")[0]).is_loopback
        except ValueError:
            is_open = address[0] != "localhost"
        if is_open:
            raise ConfigError(
                setting,
                f"{address[0]}:{address[1]} can be reached from other machines, and the console "
                "has no password: listen on 127.0.0.1, or make a password file with "
                "hermes console --write-password FILE and name it "
                f"({'--password-file' if setting == '--listen' else 'console_password_file'})",
            )
