"""Ports, opened from Twisted's endpoint strings, with TLS where it is asked for.

Errors name the setting that the string comes from. A port opens at once or not at all: endpoints
that need a running reactor to open are refused, since at a start it isn't running yet.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twisted.internet import endpoints
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.python.failure import Failure

from hermes.config.endpoints import read_endpoint
from hermes.config.listeners import BY_CERTIFICATE, ListenerConfig
from hermes.errors import ConfigError, HermesError

if TYPE_CHECKING:
    from hermes.listening.handshakes import Handshakes
    from hermes.listening.tls import ServerTls

__all__ = ["Address", "Listener", "OpenPort"]

#: A host and a port, or a UNIX socket's path.
Address = tuple[str, int] | str

#: How many connections may wait to be accepted; Twisted's 50 are few when all clients reconnect.
_BACKLOG = 1024

#: How many are accepted before other events are served; Twisted would accept more and more.
_ACCEPTED_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class OpenPort:
    """A listening port; whoever opened it stops it."""

    port: IListeningPort
    address: Address


class Listener:
    """A listener of the settings, checked and ready to be opened.

    Args:
        setting: where it comes from, for error messages.

    Attributes:
        tls: None without TLS.
        handshakes: of its TLS, once it is open.

    Raises:
        ConfigError: its endpoint is invalid, or its certificate can't be used.
    """

    def __init__(self, reactor: Any, setting: str, config: ListenerConfig) -> None:
        self.config = config
        self.tls: ServerTls | None = None
        self.handshakes: Handshakes | None = None
        self._reactor = reactor
        self._setting = setting
        text = config.endpoint
        if read_endpoint(text).is_tcp and ":backlog=" not in text:
            text += f":backlog={_BACKLOG}"
        try:
            self._endpoint: Any = endpoints.serverFromString(reactor, text)  # type: ignore[no-untyped-call]
        except Exception as error:  # whatever the endpoint's parser, maybe a plugin's, raises
            text = f"{config.endpoint!r} is not an endpoint such as tcp:9092: {error}"
            raise ConfigError(setting, text) from error
        if config.tls is not None:
            from hermes.listening import tls  # OpenSSL, which most brokers don't need

            self.tls = tls.ServerTls(setting, config.tls, self._demands_principal, reactor.seconds)

    @property
    def label(self) -> str:
        """The label in metrics: the setting, and its name there."""
        return f"{self._setting}.{self.config.name}"

    @property
    def _demands_principal(self) -> bool:
        return self.config.authentication == BY_CERTIFICATE

    def refresh(self) -> None:
        """Read the certificate's files again, for connections from now on."""
        if self.tls is not None:
            self.tls.refresh()

    def open(self, factory: IProtocolFactory) -> OpenPort:
        """Listen; `factory` makes the protocol of each connection, after the handshake with TLS.

        Raises HermesError if the port can't be opened, or not at once.
        """
        if self.tls is not None:
            from hermes.listening.handshakes import TlsFactory

            factory = wrapped = TlsFactory(
                self.tls, factory, self._reactor, self._demands_principal
            )
            self.handshakes = wrapped.handshakes
        opened: list[Any] = []
        self._endpoint.listen(factory).addBoth(opened.append)
        if not opened:
            raise HermesError(f"{self._setting}: {self.config.endpoint!r} did not open at once")
        (port,) = opened
        if isinstance(port, Failure):
            reason = port.getErrorMessage()
            raise HermesError(f"{self._setting}: can't open {self.config.endpoint!r}: {reason}")
        _accept_few_at_once(port)
        return OpenPort(port, _address(port.getHost()))


def _accept_few_at_once(port: Any) -> None:
    """Keep a port that many connect to at once from starving existing connections."""
    accept = port.doRead

    def accept_few() -> None:
        port.numberAccepts = min(port.numberAccepts, _ACCEPTED_AT_ONCE)
        accept()

    port.doRead = accept_few


def _address(host: Any) -> Address:
    if hasattr(host, "port"):
        return host.host, host.port
    return host.name.decode() if isinstance(host.name, bytes) else str(host.name)
