"""Ports of this process, opened from Twisted's endpoint strings.

Errors name the setting that the string comes from. A port opens at once or not at all: endpoints
that need a running reactor to open are refused, since at a start it isn't running yet.
"""

from dataclasses import dataclass
from typing import Any

from twisted.internet import endpoints
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.python.failure import Failure

from hermes.config import ListenerConfig
from hermes.errors import ConfigError, HermesError

__all__ = ["Address", "Listener", "OpenPort"]

#: A host and a port, or a UNIX socket's path.
Address = tuple[str, int] | str

#: How many connections may wait to be accepted; Twisted's 50 are few when all clients reconnect.
_BACKLOG = 1024

#: How many are accepted before other events are served; Twisted would accept more and more.
_ACCEPTED_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class OpenPort:
    """A port that listens.

    Attributes:
        port: Twisted's; stopped by whoever opened it.
        address: what it is bound to.
    """

    port: IListeningPort
    address: Address


class Listener:
    """An endpoint string, parsed and ready to be opened.

    Args:
        reactor: serves the port.
        setting: where it comes from, for error messages.
        config: the endpoint string, and the rules for those who connect.

    Raises:
        ConfigError: it is not an endpoint.

    Attributes:
        config: as given.
    """

    def __init__(self, reactor: Any, setting: str, config: ListenerConfig) -> None:
        self._setting = setting
        self.config = config
        self._description = text = description = config.endpoint
        if text.startswith("tcp:") and ":backlog=" not in text:
            text += f":backlog={_BACKLOG}"
        try:
            self._endpoint: Any = endpoints.serverFromString(reactor, text)  # type: ignore[no-untyped-call]
        except Exception as error:  # whatever the endpoint's parser, maybe a plugin's, raises
            text = f"{description!r} is not an endpoint such as tcp:9092: {error}"
            raise ConfigError(setting, text) from error

    def open(self, factory: IProtocolFactory) -> OpenPort:
        """Listen.

        Args:
            factory: makes the protocol of each connection.

        Raises:
            HermesError: the port can't be opened, or not at once.
        """
        opened: list[Any] = []
        self._endpoint.listen(factory).addBoth(opened.append)
        if not opened:
            raise HermesError(f"{self._setting}: {self._description!r} did not open at once")
        (port,) = opened
        if isinstance(port, Failure):
            reason = port.getErrorMessage()
            raise HermesError(f"{self._setting}: can't open {self._description!r}: {reason}")
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
