"""How clients reach a broker's listeners: what is configured, else where they are bound."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress

from hermes.config.broker import BrokerConfig
from hermes.config.listeners import ListenerConfig
from hermes.coordination.listeners import BrokerListeners, ListenerNode
from hermes.errors import ConfigError
from hermes.listening import Address

_ANYWHERE = ("", "0.0.0.0", "::")


def advertised_listeners(
    config: BrokerConfig,
    addresses: Sequence[Address],
    http_addresses: Sequence[Address],
    kafka_addresses: Sequence[Address] = (),
) -> BrokerListeners:
    """Say of each listener how others reach it; UNIX sockets are left out.

    Its own `advertised` comes first, then `advertised_host`, then where it is bound. Of HTTP and
    Kafka's ports only those that are bound to every address take `advertised_host`.
    `advertised_port` is for the listener that clients of Kafka 0.7 find, if that doesn't say it
    itself. The addresses are in the order of the listeners in the configuration.

    Raises:
        ConfigError: a listener is bound to every address, nothing is configured for it, and this
            machine's name has no address. An HTTP or a Kafka port is left out then.
    """
    listeners = []
    for listener, address in zip(config.listen, addresses, strict=False):
        if not isinstance(address, str):
            bound = address[0] if address[0] not in _ANYWHERE else ""
            listeners.append(_node(listener, address[1], config.advertised_host or bound))
    found = _found_by_0_7(listeners)
    if found is not None and config.advertised_port is not None:
        given = {each.name for each in config.listen if each.advertised_place[1] is not None}
        if found.name not in given:
            place = listeners.index(found)
            listeners[place] = found._replace(port=config.advertised_port)
    http = _other_nodes(config, config.http_listen, http_addresses)
    kafka = tuple(_other_nodes(config, config.kafka_listen, kafka_addresses))
    return BrokerListeners(
        tuple(listeners), tuple(http), kafka, replication=bool(kafka), rack=config.rack or ""
    )


def _other_nodes(
    config: BrokerConfig,
    listeners: Sequence[ListenerConfig] | None,
    addresses: Sequence[Address],
) -> Iterator[ListenerNode]:
    for listener, address in zip(listeners or (), addresses, strict=False):
        if not isinstance(address, str):
            bound = address[0] if address[0] not in _ANYWHERE else config.advertised_host or ""
            with suppress(ConfigError):
                yield _node(listener, address[1], bound)


def registered_place(config: BrokerConfig, listeners: BrokerListeners) -> tuple[str, int]:
    """The host and port that clients of Kafka 0.7 find: of the first listener that they can use.

    Raises ConfigError: there is no TCP port, and none is configured.
    """
    found = _found_by_0_7(listeners.listeners)
    if found is not None:
        return found.host, found.port
    if config.advertised_port is None:
        raise ConfigError("advertised_port", "needed, as the broker listens on no TCP port")
    return config.advertised_host or own_host(), config.advertised_port


def own_host() -> str:
    """An address of this machine, by its name; ConfigError if its name has none."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise ConfigError(
            "advertised_host", f"needed, as this machine's name has no address: {error}"
        ) from error


def _found_by_0_7(listeners: Sequence[ListenerNode]) -> ListenerNode | None:
    return next((each for each in listeners if each.is_plain), next(iter(listeners), None))


def _node(listener: ListenerConfig, bound_port: int, bound_host: str) -> ListenerNode:
    host, port = listener.advertised_place
    return ListenerNode(
        listener.name,
        host or bound_host or own_host(),
        port or bound_port,
        listener.tls is not None,
        listener.authentication,
    )
