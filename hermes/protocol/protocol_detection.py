"""Who is at the other end of a wrong port, by the bytes with which they begin: one table.

A server logs which listener the client was looking for; a client's error says whose port it was
given. Nothing here is asked before something is wrong.

Source of the layouts: RFC 9112 and 8446, ZooKeeper's `ConnectRequest`, Kafka's ApiVersions.
"""

from enum import Enum
from struct import Struct
from typing import Final

from hermes.protocol.wire import Buffer


class Spoken(Enum):
    """A protocol, with what a server's log says of its client: where else such a client belongs."""

    HTTP = "it is HTTP, for which there is the port of http_listen"
    TLS = "it is TLS, which this listener does not have"
    ZOOKEEPER = "it is a ZooKeeper client, for which there is the port of coordination_listen"
    KAFKA = "current Kafka clients begin like this; they need a port of kafka_listen"
    BROKER = "it is a client of Hermes' own or of Kafka 0.7, for which there is the port of listen"


#: How clients begin, and how servers answer what they don't understand.
_CLIENTS: Final[tuple[tuple[bytes, Spoken], ...]] = (
    *((method, Spoken.HTTP) for method in
      (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")),
    (b"\x16\x03", Spoken.TLS),  # a handshake, of any version of SSL 3 and TLS
    *((word, Spoken.ZOOKEEPER) for word in
      (b"conf", b"cons", b"dump", b"envi", b"isro", b"mntr", b"ruok", b"srvr", b"stat", b"wchs")),
)  # fmt: skip
_SERVERS: Final[tuple[tuple[bytes, Spoken], ...]] = (
    (b"HTTP", Spoken.HTTP),
    (b"\x15\x03", Spoken.TLS),  # an alert
    (b"Zook", Spoken.ZOOKEEPER),  # "Zookeeper version: ..."
    (b"This", Spoken.ZOOKEEPER),  # "This ZooKeeper instance is not currently serving requests"
    (b"srvr", Spoken.ZOOKEEPER),  # "srvr is not executed because ..."
)

#: What a client of a broker reads.
_NOT_A_BROKER: Final = {
    Spoken.HTTP: "speaks HTTP: give the broker's port (listen), not that of http_listen",
    Spoken.TLS: "speaks TLS: set tls_ca (or tls=True), or give the port of a plain listener",
    Spoken.ZOOKEEPER: "is ZooKeeper, or a broker's coordination, which zookeeper_connect takes: "
    "give the broker's port (listen, usually 9092)",
    Spoken.KAFKA: "speaks Kafka's protocol: give the broker's port (listen, usually 9092), not "
    "that of kafka_listen, which is for Kafka's clients",
}
#: ... and one of ZooKeeper.
_NOT_COORDINATION: Final = {
    Spoken.HTTP: "it speaks HTTP: give the port of ZooKeeper, or of a broker's coordination "
    "(coordination_listen, usually 2181), not that of http_listen",
    Spoken.TLS: "an alert of TLS",
    Spoken.KAFKA: "it speaks Kafka's protocol: give the port of ZooKeeper, or of a broker's "
    "coordination (coordination_listen, usually 2181), not that of kafka_listen",
    Spoken.BROKER: "it is a broker's own port (listen): give that of ZooKeeper, or of the broker's "
    "coordination (coordination_listen, usually 2181); or name the broker where one is asked for",
}

_CONNECT: Final = Struct(">iqiqi")  # version, last zxid, timeout, session, length of its password
_CONNECT_BYTES: Final = (44, 45)  # without and with "read only"
_API_VERSIONS: Final = b"\x00\x12"
_CORRELATION: Final = b"Her?"

#: Asks whether somebody is Kafka: ApiVersions 0, the one request that all versions answer.
KAFKA_PROBE: Final = b"\x00\x00\x00\x0a" + _API_VERSIONS + b"\x00\x00" + _CORRELATION + b"\xff\xff"
#: Asks whether somebody is ZooKeeper, of any version; changes nothing.
ZOOKEEPER_PROBE: Final = b"srvr"


def client_hint(first: Buffer) -> str:
    """Say who begins with these bytes, for the end of a server's error; nothing if unknown."""
    spoken = _found(_CLIENTS, first)
    return "" if spoken is None else f": {spoken.value}"


def frame_hint(frame: Buffer) -> str:
    """The same for a client's first whole frame, without its size."""
    if is_zookeeper_connect(frame):
        return f": {Spoken.ZOOKEEPER.value}"
    return f": {Spoken.KAFKA.value}" if bytes(frame[:2]) == _API_VERSIONS else ""


def is_zookeeper_connect(frame: Buffer) -> bool:
    """Whether a frame is what a ZooKeeper client begins with; to Kafka 0.7 it is no request."""
    if len(frame) not in _CONNECT_BYTES:
        return False
    version, _, _, _, password_bytes = _CONNECT.unpack_from(frame)
    return version == 0 and bool(password_bytes == 16)


def is_kafka_answer(body: Buffer) -> bool:
    return bytes(body[:4]) == _CORRELATION


def not_a_broker(first: Buffer | Spoken) -> str | None:
    """Say what answers so in a broker's place, after its address; None if that is unknown."""
    spoken = first if isinstance(first, Spoken) else _found(_SERVERS, first)
    return None if spoken is None else _NOT_A_BROKER.get(spoken)


def not_coordination(first: Buffer | Spoken) -> str | None:
    """Say what answers so in ZooKeeper's place; None if that is unknown."""
    spoken = first if isinstance(first, Spoken) else _found(_SERVERS, first)
    return None if spoken is None else _NOT_COORDINATION.get(spoken)


def _found(table: tuple[tuple[bytes, Spoken], ...], first: Buffer) -> Spoken | None:
    begins = bytes(first[:4])
    return next((spoken for known, spoken in table if begins.startswith(known)), None)
