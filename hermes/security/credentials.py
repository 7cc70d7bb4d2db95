"""A client's security: whom it trusts, its certificate, its user and password.

The same six settings everywhere: in the configurations of producers and consumers, which are such
values themselves, in `hermes.aio`, on command lines, in Spark's options.

Files are read when a connection is made, and again when they have changed, so that a program goes
on with a renewed certificate. `ssl` is imported once somebody wants TLS.
"""

import logging
import os
import threading
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

from hermes.errors import ConfigError
from hermes.keywords import explains_keywords
from hermes.quoting import quoted
from hermes.security.pem_files import Stamp, UnreadableFileError, file_name, open_pem, stamp

if TYPE_CHECKING:
    import ssl

_log = logging.getLogger(__name__)

_FILES: Final = ("tls_ca", "tls_certificate", "tls_key")
_Paths: TypeAlias = tuple[str | None, str | None, str | None]
# Of each of the three.
_Stamps: TypeAlias = tuple[Stamp, ...]
# More sets of files than any program uses; beyond that, contexts are made anew.
_MOST_CONTEXTS: Final = 64


@explains_keywords
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """How a client authenticates, and how it verifies brokers.

    Example:
        ClientSecurity(tls_ca="ca.pem", user="clicks-writer", password=password)
        ClientSecurity(tls_ca="ca.pem", tls_certificate="web.pem", tls_key="web.key")

    Attributes:
        tls: whether to connect by TLS; None: if any of the `tls_...` settings is given.
        tls_ca: the PEM file with the certificates of the authorities to trust; None for those that
            the system trusts. A broker's certificate must be valid for the host that is connected
            to.
        tls_certificate: the PEM file with the client's own certificate, and those between it and
            its authority; None for none.
        tls_key: the PEM file with that certificate's key, not encrypted; None if it is in the same
            file.
        user: the name for SCRAM authentication, or None. No password leaves the process.
        password: the user's password.

    Raises:
        ConfigError: settings contradict each other; the text names one.
    """

    tls: bool | None = None
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.tls is not None and type(self.tls) is not bool:
            raise ConfigError("tls", f"expected True, False or None, got {quoted(self.tls)}")
        for key in _FILES:
            value = getattr(self, key)
            if isinstance(value, os.PathLike):
                object.__setattr__(self, key, value := os.fspath(value))
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigError(key, f"expected the name of a file, got {quoted(value)}")
            if value is not None and self.tls is False:
                raise ConfigError(key, "is of no use with tls=False")
        if self.tls_key and not self.tls_certificate:
            raise ConfigError("tls_certificate", "is missing, of which tls_key is the key")
        if self.user is not None and (not isinstance(self.user, str) or not self.user):
            raise ConfigError("user", f"expected a name, got {quoted(self.user)}")
        if self.password is not None and not isinstance(self.password, str):
            raise ConfigError("password", f"expected a str, got a {type(self.password).__name__}")
        if self.user is not None and not self.password:
            raise ConfigError("password", f"is missing for user {quoted(self.user)}")
        if self.user is None and self.password is not None:
            raise ConfigError("user", "is missing, of which the password is")

    @property
    def uses_tls(self) -> bool:
        if self.tls is not None:
            return self.tls
        return any(getattr(self, key) is not None for key in _FILES)

    @property
    def is_plain(self) -> bool:
        """Whether connections are plain ones, like those of Kafka 0.7's clients."""
        return self.user is None and not self.uses_tls

    @property
    def authentication(self) -> str:
        """How it can authenticate on a listener: "scram", "tls" (a certificate) or "none"."""
        if self.user is not None:
            return "scram"
        return "none" if self.tls_certificate is None else "tls"

    @property
    def whom(self) -> str:
        """The identity for error texts; never a secret."""
        if self.user is not None:
            return f"user {quoted(self.user)}"
        if self.tls_certificate is not None:
            return f"the holder of {file_name(self.tls_certificate)}"
        return "anonymous"

    def fits(self, tls: bool, authentication: str) -> bool:
        """Whether this client can use a listener; `authentication`: "none", "tls" or "scram"."""
        return tls == self.uses_tls and authentication == self.authentication

    @property
    def security(self) -> "ClientSecurity":
        """These six settings alone, of a configuration that has more."""
        if type(self) is ClientSecurity:
            return self
        return ClientSecurity(**ClientSecurity.settings(self))

    def settings(self) -> dict[str, Any]:
        """Those that are given, as keyword arguments."""
        named = {each.name: getattr(self, each.name) for each in fields(ClientSecurity)}
        return {name: value for name, value in named.items() if value is not None}

    def check(self) -> Self:
        """Check that the files are there, and fit.

        Reads them, unless it did so before. Returns itself.

        Raises:
            ConfigError: a file can't be used, or the user's name or the password is invalid; the
                text names the setting and the file.
        """
        if self.uses_tls:
            self.ssl_context()
        if self.user is not None and self.password is not None:
            from hermes.security.scram import ScramClient

            ScramClient(self.user, self.password)
        return self

    def ssl_context(self) -> "ssl.SSLContext":
        """The context for connections by TLS: one object for as long as the files are the same.

        It verifies the peer and its name, and takes TLS 1.2 or later. Threads may share it. When a
        file has changed and can't be used (it is being replaced, say), that is logged, and the
        former context stays in use.

        Raises:
            ConfigError: a file can't be used; the text names the setting and the file.
        """
        return _contexts.get((self.tls_ca, self.tls_certificate, self.tls_key))


class _CachedContext(NamedTuple):
    """A context, and the state of the files that were read last, usable or not.

    `context`: made from them, or from their predecessors.
    """

    stamps: _Stamps
    context: "ssl.SSLContext"


class _Contexts:
    """Contexts by their files. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[_Paths, _CachedContext] = {}

    def get(self, paths: _Paths) -> "ssl.SSLContext":
        with self._lock:
            kept = self._kept.get(paths)
            stamps = tuple(None if path is None else stamp(path) for path in paths)
            if kept is not None and kept.stamps == stamps:
                return kept.context
            try:
                context = _make_context(*paths)
            except ConfigError as error:
                if kept is None:
                    raise
                _log.warning("the former certificates stay in use: %s", error)
                context = kept.context
                if isinstance(error, UnreadableFileError):  # which the next connection reads again
                    stamps = kept.stamps
            if kept is None and len(self._kept) >= _MOST_CONTEXTS:
                del self._kept[next(iter(self._kept))]
            self._kept[paths] = _CachedContext(stamps, context)
            return context

    def forked(self) -> None:
        """Replace the lock: a thread that doesn't run here may have held it."""
        self._lock = threading.Lock()


_contexts = _Contexts()
os.register_at_fork(after_in_child=_contexts.forked)


def _make_context(ca: str | None, certificate: str | None, key: str | None) -> "ssl.SSLContext":
    import ssl  # here, so that it costs those nothing who connect without TLS

    for setting, path in zip(_FILES, (ca, certificate, key), strict=True):
        if path is not None:
            open_pem(path, setting).close()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificates and names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if ca is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(ca)
        except OSError as error:
            what = f"{file_name(ca)} holds no certificate in PEM that can be read: {error}"
            raise ConfigError("tls_ca", what) from None
    if certificate is not None:
        _load_own(context, certificate, key)
    return context


def _load_own(context: "ssl.SSLContext", certificate: str, key: str | None) -> None:
    setting, path = ("tls_key", key) if key else ("tls_certificate", certificate)

    def refuse_prompt() -> str:  # else OpenSSL would ask on the terminal
        advice = "give a key without a pass phrase, readable to you only"
        raise ConfigError(setting, f"{file_name(path)} is encrypted: {advice}")

    try:
        context.load_cert_chain(certificate, key, refuse_prompt)
    except OSError as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            what = f"{file_name(path)} is not the key of {file_name(certificate)}"
        elif key:
            what = f"{file_name(certificate)} and {file_name(key)} can't be read as PEM: {error}"
        else:
            what = f"{file_name(certificate)} can't be read as PEM with both, or tls_key: {error}"
        raise ConfigError(setting, what) from None


#: As Kafka 0.7's clients connect: without TLS, as nobody.
PLAIN: Final = ClientSecurity()
