"""Where a broker listens, as other clients than Kafka 0.7's find it. Pure functions.

    /hermes/brokers/<id>    ephemeral    {"listeners": [...], "http": [...], "kafka": [...],
                                          "replication": 1, "rack": "zone-1"}

0.7's node of a broker has room for one host and port, and for no word about TLS. So this one is
beside it, is written in the same transaction, and ends with the same session. Each listener is

    {"name": "outside", "host": "kafka1.example.org", "port": 9094, "tls": true,
     "authentication": "scram"}

Whoever reads it skips keys that it doesn't know, and listeners that it can't understand.
`replication` is the version of what brokers do to keep copies of each other's partitions; earlier
releases don't write it.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from hermes.errors import InvalidNodeError
from hermes.quoting import quoted

HERMES_BROKERS: Final = "/hermes/brokers"

#: The version that is written.
_REPLICATION: Final = 1

_MOST_LISTENERS: Final = 64
_LONGEST: Final = 255
_HOST: Final = re.compile(r"[A-Za-z0-9._:%-]+")


class ListenerNode(NamedTuple):
    """One port of a broker.

    Attributes:
        name: unique in a broker; like listeners of several brokers have the same.
        host: a name or an address, also of IPv6, by which clients reach it.
        authentication: how clients say who they are: `none`, `tls`, `scram`, or what a later
            release knows.
    """

    name: str
    host: str
    port: int
    tls: bool
    authentication: str

    @property
    def is_plain(self) -> bool:
        return not self.tls and self.authentication == "none"


class BrokerListeners(NamedTuple):
    """`listeners`: those that speak the broker's protocol, in the order of broker.yaml.

    `http`: those that speak HTTP. `kafka`: those that speak that of Kafka's current clients.
    `replication`: whether it can have copies. `rack`: where it stands; empty if it doesn't say.
    """

    listeners: Sequence[ListenerNode]
    http: Sequence[ListenerNode] = ()
    kafka: Sequence[ListenerNode] = ()
    replication: bool = False
    rack: str = ""

    def matching(self, asked: ListenerNode) -> ListenerNode | None:
        """Which of the listeners a client should use that has reached another broker's.

        That of the same name, if one was given to it; else one with the same rules; else None.
        Names that are places only break ties.
        """
        return _like(self.listeners, asked)

    def matching_kafka(self, asked: ListenerNode) -> ListenerNode | None:
        """The same for the listeners that speak Kafka's current protocol."""
        return _like(self.kafka, asked)


def _like(listeners: Sequence[ListenerNode], asked: ListenerNode) -> ListenerNode | None:
    same = [each for each in listeners if each[3:] == asked[3:]]
    named = [each for each in listeners if each.name == asked.name]
    if not asked.name.isdigit() and named:
        return named[0]
    return next((each for each in same if each in named), same[0] if same else None)


def listeners_path(broker_id: int) -> str:
    return f"{HERMES_BROKERS}/{broker_id}"


def format_listeners(listeners: BrokerListeners) -> bytes:
    """Write where a broker listens; a broker without Kafka's protocol doesn't mention it."""
    kinds = {"listeners": listeners.listeners, "http": listeners.http, "kafka": listeners.kafka}
    shown: dict[str, Any] = {
        key: [each._asdict() for each in some]
        for key, some in kinds.items()
        if some or key != "kafka"
    }
    if listeners.replication:
        shown["replication"] = _REPLICATION
    if listeners.rack:
        shown["rack"] = listeners.rack
    return json.dumps(shown).encode()


def parse_listeners(path: str, value: bytes) -> BrokerListeners:
    """Read where a broker listens; InvalidNodeError, with the path, if that can't be understood."""
    try:
        found = json.loads(value)
        kinds = [found["listeners"], found.get("http", []), found.get("kafka", [])]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        kinds = [None]
    if not all(isinstance(each, list) for each in kinds):
        shown = quoted(value.decode(errors="replace")) if value else "nothing"
        raise InvalidNodeError(f"{path}: expected listeners as JSON, got {shown}")
    version, rack = found.get("replication"), found.get("rack")
    has_copies = type(version) is int and version >= _REPLICATION
    is_rack = isinstance(rack, str) and len(rack) <= _LONGEST
    listeners, http, kafka = map(_understood, kinds)
    return BrokerListeners(listeners, http, kafka, has_copies, rack if is_rack else "")


def _understood(values: list[Any]) -> tuple[ListenerNode, ...]:
    read = map(_listener, values[:_MOST_LISTENERS])
    return tuple(each for each in read if each is not None)


def _listener(value: Any) -> ListenerNode | None:
    if not isinstance(value, dict):
        return None
    fields: list[Any] = [value.get(each) for each in ListenerNode._fields]
    node = ListenerNode(*fields)
    texts = (node.name, node.host, node.authentication)
    if not all(isinstance(each, str) and 0 < len(each) <= _LONGEST for each in texts):
        return None
    is_understood = (
        _HOST.fullmatch(node.host) is not None
        and type(node.port) is int
        and 0 < node.port < 65536
        and isinstance(node.tls, bool)
    )
    return node if is_understood else None
