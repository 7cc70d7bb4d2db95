"""A listener's certificate: read again when its files change, and watched for its end.

A connection keeps what it began with. A new certificate has to be good: a pair that can't be read,
doesn't belong together or isn't valid now is refused with a log line, and the former one stays.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from zope.interface import implementer

from hermes.config.listeners import TlsConfig
from hermes.errors import ConfigError
from hermes.listening.contexts import make_context
from hermes.logs import ModuleLogger
from hermes.security.certificates import KeyPair, read_authorities, read_pair
from hermes.security.openssl_reasons import reasons
from hermes.security.pem_files import Stamp, UnreadableFileError, file_name, read_pem, stamp

__all__ = ["WARNING_DAYS", "ServerTls"]

#: A certificate that ends sooner is warned of, at the start and then daily.
WARNING_DAYS: Final = 14

#: How often files are looked at, at the most.
_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Loaded:
    context: SSL.Context
    pair: KeyPair


@implementer(IOpenSSLServerConnectionCreator)
class ServerTls:
    """The TLS of one listener. Lives in the reactor's thread.

    Args:
        setting: its name in the settings, for messages.
        demands_certificate: whether a client without a certificate is refused, whatever
            `client_certificate` says.
        seconds: a monotonic clock.
        now: the wall clock, UTC, for certificates' ends.

    Raises:
        ConfigError: the files can't be used.
    """

    _log = ModuleLogger()

    def __init__(
        self,
        setting: str,
        config: TlsConfig,
        demands_certificate: bool,
        seconds: Callable[[], float],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.config = config
        self._setting = setting
        self._demands_certificate = demands_certificate
        self._seconds = seconds
        self._now = now
        self._stamp = self._look_at_files()
        self._again: datetime | None = None  # when the same files may be good
        self._looked = seconds()
        self._loaded = self._load()
        self._warn_of_key()
        self.warn_of_end()

    @property
    def pair(self) -> KeyPair:
        return self._loaded.pair

    @property
    def end_seconds(self) -> float:
        """When the certificate in use ends, in seconds since 1970."""
        return self._loaded.pair.end.timestamp()

    def serverConnectionForTLS(self, tls_protocol: Any) -> SSL.Connection:
        if self._seconds() - self._looked >= _LOOK_SECONDS:
            self.refresh()
        connection = SSL.Connection(self._loaded.context, None)
        connection.set_app_data(tls_protocol)
        return connection

    def refresh(self) -> None:
        """Use the files as they are now, if they have changed and are good."""
        self._looked = self._seconds()
        found = self._look_at_files()
        is_changed = found != self._stamp
        if not is_changed and (self._again is None or self._now() < self._again):
            return
        self._stamp, self._again = found, None
        try:
            loaded = self._load()
            self._check_validity(loaded.pair)
        except ConfigError as error:
            if isinstance(error, UnreadableFileError):
                self._again = self._now()
            if is_changed:
                self._log.error(
                    "the certificate in use is kept, its files can't be used: {error}",
                    error=error,
                )
            return
        self._loaded = loaded
        self._log.info(
            "{setting}: a new certificate is in use: {subject}, valid until {end}",
            setting=self._setting,
            subject=loaded.pair.subject,
            end=_date(loaded.pair.end),
        )
        self._warn_of_key()
        self.warn_of_end()

    def warn_of_end(self) -> None:
        """Log that the certificate in use isn't valid now, or will end soon."""
        pair, now = self._loaded.pair, self._now()
        values = {
            "setting": self._setting,
            "path": str(self.config.certificate),
            "end": _date(pair.end),
        }
        if now >= pair.end:
            self._log.error("{setting}: the certificate in {path} has ended on {end}", **values)
        elif now < pair.begin:
            values["begin"] = _date(pair.begin)
            self._log.error("{setting}: the certificate in {path} begins on {begin}", **values)
        elif pair.end - now < timedelta(days=WARNING_DAYS):
            self._log.warn(
                "{setting}: the certificate in {path} ends on {end}: renew it, a new one is taken "
                "without a restart",
                **values,
            )

    def _warn_of_key(self) -> None:
        """Log that every user of this machine can read the key, and impersonate this broker."""
        with suppress(OSError):
            if os.stat(self.config.key).st_mode & stat.S_IROTH:
                self._log.warn(
                    "{setting}: everybody on this machine can read the key in {path}: chmod o-r",
                    setting=self._setting,
                    path=str(self.config.key),
                )

    # -- files ------------------------------------------------------------------------------------

    @property
    def _paths(self) -> list[Path]:
        config = self.config
        paths = (config.certificate, config.key, config.client_ca)
        return [Path(path) for path in paths if path is not None]

    def _look_at_files(self) -> tuple[Stamp, ...]:
        """What changes with a file: nothing is read."""
        return tuple(map(stamp, self._paths))

    def _load(self) -> _Loaded:
        config = self.config
        pair = self._parsed(
            read_pair, self._read("certificate", config.certificate), self._read("key", config.key)
        )
        authorities: tuple[x509.Certificate, ...] = ()
        if config.client_ca is not None:
            pem = self._read("client_ca", config.client_ca)
            authorities = self._parsed(read_authorities, pem)
        try:
            context = make_context(config, pair, authorities, self._verify_mode)
        except (SSL.Error, ValueError) as error:
            why = [str(error), *reasons(error)][-1]
            raise ConfigError(self._key("certificate"), f"OpenSSL refuses it: {why}") from None
        return _Loaded(context, pair)

    def _check_validity(self, pair: KeyPair) -> None:
        now = self._now()
        if now < pair.begin:
            self._again = pair.begin
        if not pair.begin <= now < pair.end:
            raise ConfigError(
                self._key("certificate"),
                f"it is valid from {_date(pair.begin)} until {_date(pair.end)}, and not now",
            )

    def _read(self, name: str, path: Path) -> bytes:
        return read_pem(path, self._key(name))

    def _parsed(self, read: Callable[..., Any], *content: bytes) -> Any:
        try:
            return read(*content)
        except ConfigError as error:
            path = getattr(self.config, error.key)
            text = f"{file_name(path)}: {error.message}"
            raise ConfigError(self._key(error.key), text) from None

    def _key(self, name: str) -> str:
        return f"{self._setting}: tls.{name}"

    @property
    def _verify_mode(self) -> int:
        if self._demands_certificate or self.config.client_certificate == "required":
            return SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT
        return SSL.VERIFY_PEER if self.config.client_certificate == "optional" else SSL.VERIFY_NONE


def _date(when: datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M UTC")
