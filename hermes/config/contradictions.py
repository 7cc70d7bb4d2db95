"""Settings that contradict each other, though each may be right by itself.

Looks at values only: no file, no Twisted, no port that is really open.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from hermes.config.topic import check_untrimmed
from hermes.errors import ConfigError

if TYPE_CHECKING:
    from hermes.config.broker import BrokerConfig

#: All interfaces, as each address family writes it.
_ANYWHERE = frozenset({"", "0.0.0.0", "::"})


class _Address(NamedTuple):
    """What an endpoint occupies.

    Attributes:
        setting: where the endpoint comes from.
        text: the endpoint string.
        port: a TCP port that is not 0, or a UNIX socket's path.
        interface: "" for all of them.
    """

    setting: str
    text: str
    port: str
    interface: str


def check_contradictions(config: "BrokerConfig") -> None:
    """Refuse a configuration whose settings contradict each other.

    Raises:
        ConfigError: names one of the settings, and the other.
    """
    _check_coordination(config)
    _check_sizes(config)
    _check_retention(config)
    taken: list[_Address] = []
    for address in _addresses(config):
        for other in taken:
            if _collide(address, other):
                raise ConfigError(
                    address.setting,
                    f"{address.text!r} is taken by {other.setting} already ({other.text!r})",
                )
        taken.append(address)


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


def _check_retention(config: "BrokerConfig") -> None:
    for topic, entry in config.topics.items():
        try:
            check_untrimmed(topic, entry)
        except ConfigError as error:
            raise ConfigError(f"topics.{topic}.{error.key}", error.message) from None


def _addresses(config: "BrokerConfig") -> Iterator[_Address]:
    endpoints = [("listen", text) for text in config.listen]
    if config.coordination == "embedded":
        endpoints.append(("coordination_listen", config.coordination_listen))
    endpoints += [("http_listen", text) for text in config.http_listen or ()]
    if config.mirror is not None:
        endpoints += [
            ("mirror.http_listen", text) for text in config.mirror.config.http_listen or ()
        ]
    for setting, text in endpoints:
        kind, *arguments = re.split(r"(?<!\\):", text)
        named = dict(each.split("=", 1) for each in arguments if "=" in each)
        first = arguments[0] if "=" not in arguments[0] else ""
        if kind == "unix":
            yield _Address(setting, text, first or named.get("address", ""), "unix")
        elif kind in ("tcp", "tcp6", "ssl"):
            port = (first or named.get("port", "")).lstrip("0")
            interface = named.get("interface", "").replace("\\", "")
            if port:
                yield _Address(setting, text, port, "" if interface in _ANYWHERE else interface)


def _collide(one: _Address, other: _Address) -> bool:
    if "unix" in (one.interface, other.interface):
        return one[2:] == other[2:]
    same_interface = one.interface == other.interface or "" in (one.interface, other.interface)
    return one.port == other.port and same_interface
