"""Settings that contradict each other, though each may be right by itself.

Looks at values only: no file, no Twisted, no open port.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from hermes.config.endpoints import read_endpoint
from hermes.config.exposure import check_listeners
from hermes.config.topic import check_format, check_untrimmed
from hermes.errors import ConfigError
from hermes.quoting import quoted

if TYPE_CHECKING:
    from hermes.config.broker import BrokerConfig

#: All interfaces, as each address family writes it.
_ANYWHERE = frozenset({"", "0.0.0.0", "::"})


class _Address(NamedTuple):
    """`port`: a TCP port that isn't 0, or a UNIX socket's path. `interface`: "" for all of them."""

    setting: str
    text: str
    port: str
    interface: str


def check_contradictions(config: "BrokerConfig") -> None:
    """Refuse a configuration whose settings contradict each other. Raises ConfigError."""
    _check_coordination(config)
    _check_replication(config)
    _check_sizes(config)
    _check_retention(config)
    _check_heartbeats(config)
    taken: list[_Address] = []
    for address in _addresses(config):
        for other in taken:
            if _collide(address, other):
                raise ConfigError(
                    address.setting,
                    f"{address.text!r} is taken by {other.setting} already ({other.text!r})",
                )
        taken.append(address)
    _check_listeners(config)


def _check_listeners(config: "BrokerConfig") -> None:
    for setting, listeners in config.listeners():
        allow_insecure, knows_users = config.allow_insecure, config.knows_users
        if setting == "mirror.http_listen" and config.mirror is not None:
            allow_insecure |= config.mirror.config.allow_insecure
            knows_users = bool(config.mirror.config.users_file or config.users_file)
        check_listeners(setting, listeners, allow_insecure=allow_insecure, knows_users=knows_users)


def _check_coordination(config: "BrokerConfig") -> None:
    if config.coordination == "zookeeper" and config.zookeeper_connect is None:
        raise ConfigError(
            "zookeeper_connect", "coordination: zookeeper needs it, as host:port/chroot"
        )
    if config.coordination == "embedded" and config.zookeeper_connect is not None:
        raise ConfigError(
            "zookeeper_connect",
            "it has no effect with coordination: embedded (the default): "
            "set coordination: zookeeper, or leave it out",
        )


def _check_replication(config: "BrokerConfig") -> None:
    if config.default_replication_factor > 1:
        if config.kafka_listen is None:
            raise ConfigError(
                "default_replication_factor", "copies of topics need kafka_listen on every broker"
            )
        if config.coordination == "none":
            raise ConfigError(
                "default_replication_factor",
                "copies of topics need coordination: zookeeper, or embedded in one of the brokers",
            )
    names = {each.name for each in config.kafka_listen or ()}
    if config.replication_listener and config.replication_listener not in names:
        raise ConfigError(
            "replication_listener",
            f"no listener of kafka_listen is called {quoted(config.replication_listener)}",
        )


def _check_sizes(config: "BrokerConfig") -> None:
    if len(config.topics) > config.max_topics:
        raise ConfigError(
            "topics", f"it names {len(config.topics)}, but max_topics is {config.max_topics}"
        )
    if config.max_message_bytes > config.max_request_bytes:
        raise ConfigError(
            "max_message_bytes",
            f"{config.max_message_bytes} bytes don't fit into a request: "
            f"max_request_bytes is {config.max_request_bytes}",
        )


def _check_heartbeats(config: "BrokerConfig") -> None:
    interval_ms = config.group_consumer_heartbeat_interval_ms
    session_ms = config.group_consumer_session_timeout_ms
    if interval_ms >= session_ms:
        raise ConfigError(
            "group_consumer_heartbeat_interval",
            f"{interval_ms} ms leave no time for a heartbeat within a session: "
            f"group_consumer_session_timeout is {session_ms} ms",
        )


def _check_retention(config: "BrokerConfig") -> None:
    for topic, entry in config.topics.items():
        try:
            check_untrimmed(topic, entry)
            check_format(entry, config.topic(topic))
        except ConfigError as error:
            raise ConfigError(f"topics.{topic}.{error.key}", error.message) from None


def _addresses(config: "BrokerConfig") -> Iterator[_Address]:
    for setting, listeners in config.listeners():
        for each in listeners:
            text = each.endpoint
            endpoint = read_endpoint(text)
            if endpoint.path:
                yield _Address(setting, text, endpoint.path, "unix")
            elif endpoint.is_tcp and (port := endpoint.port.lstrip("0")):
                interface = "" if endpoint.interface in _ANYWHERE else endpoint.interface
                yield _Address(setting, text, port, interface)


def _collide(one: _Address, other: _Address) -> bool:
    if "unix" in (one.interface, other.interface):
        return one[2:] == other[2:]
    same_interface = one.interface == other.interface or "" in (one.interface, other.interface)
    return one.port == other.port and same_interface
