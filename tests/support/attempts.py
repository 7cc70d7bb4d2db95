"""What somebody who doesn't belong may try on a broker's ports: requests, and their judgement.

A request is made of nothing but its type and the topic that it is about, so that a new type needs
one more line here, and `test_attempts.py` fails until it has one.
"""

import socket
import ssl
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Final

from hermes.protocol import (
    AcknowledgedProduceRequest,
    Acks,
    AlterTopicRequest,
    AppendTimesRequest,
    AuthenticateRequest,
    BoundaryRequest,
    ClusterBrokersRequest,
    ClusterIdRequest,
    CoordinationRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    DescribePartitionsRequest,
    DescribeSettingsRequest,
    FetchRequest,
    MetadataRequest,
    MirroredProduceRequest,
    MirroredSet,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    RecentLogLinesRequest,
    RecordFetchRequest,
    RecordProduceRequest,
    ReloadConfigRequest,
    SourceFlags,
    SourcePositionsRequest,
    WaitingFetchRequest,
    decode_acknowledged_produce_response,
    decode_metadata_response,
    decode_mirrored_produce_response,
    decode_multifetch_response,
    decode_record_fetch_response,
    decode_waiting_fetch_response,
    encode_message_set,
)
from hermes.protocol.records import Record, encode_batch

#: How long an answer may take before a test fails; never waited for in vain.
DEADLINE_SECONDS: Final = 60.0

FORGED: Final = b"forged payload"
_SET: Final = bytes(encode_message_set([FORGED]))
_BATCH: Final = encode_batch([Record(0, 0, None, FORGED)])


def _mirrored(topic: str) -> bytes:
    each = MirroredSet(topic, 0, "elsewhere/0", 0, len(_SET), SourceFlags(0), _SET)
    return MirroredProduceRequest(Acks.FLUSHED, 30_000, (each,)).encode()


#: Of each type of request one about a topic; those without a topic ignore it.
REQUESTS: Final[Mapping[int, Callable[[str], bytes]]] = {
    0: lambda topic: ProduceRequest(topic, 0, _SET).encode(),
    1: lambda topic: FetchRequest(topic, 0, 0, 1 << 20).encode(),
    2: lambda topic: MultiFetchRequest((FetchRequest(topic, 0, 0, 1 << 20),)).encode(),
    3: lambda topic: MultiProduceRequest((ProduceRequest(topic, 0, _SET),)).encode(),
    4: lambda topic: OffsetsRequest(topic, 0, -1, 10).encode(),
    64: lambda topic: AcknowledgedProduceRequest(
        Acks.FLUSHED, 30_000, (ProduceRequest(topic, 0, _SET),)
    ).encode(),
    65: lambda topic: WaitingFetchRequest(1000, 1, (FetchRequest(topic, 0, 0, 1 << 20),)).encode(),
    66: lambda topic: MetadataRequest((topic,)).encode(),
    82: lambda topic: RecordFetchRequest(1000, 1, (FetchRequest(topic, 0, 0, 1 << 20),)).encode(),
    83: lambda topic: RecordProduceRequest(
        Acks.FLUSHED, 30_000, (ProduceRequest(topic, 0, _BATCH),)
    ).encode(),
    67: lambda topic: BoundaryRequest(topic, 0, 5).encode(),
    68: lambda topic: DeleteTopicRequest(topic).encode(),
    69: lambda topic: AppendTimesRequest(topic, 0, 0, 10, 1).encode(),
    70: lambda topic: CoordinationRequest().encode(),
    71: lambda topic: CreateTopicRequest(f"{topic}-of-mine", ()).encode(),
    72: lambda topic: AlterTopicRequest(topic, (("retention_time", "1s"),), ()).encode(),
    73: lambda topic: ReloadConfigRequest().encode(),
    74: lambda topic: DescribeSettingsRequest(topic).encode(),
    75: lambda topic: DescribePartitionsRequest(topic, 0).encode(),
    76: lambda topic: RecentLogLinesRequest(0, 100).encode(),
    77: _mirrored,
    78: lambda topic: SourcePositionsRequest(topic, 0, False, 0).encode(),
    79: lambda topic: ClusterIdRequest().encode(),
    81: lambda topic: ClusterBrokersRequest().encode(),
    80: lambda topic: AuthenticateRequest("SCRAM-SHA-256", b"n,,n=mallory,r=0123456789").encode(),
}

#: Those that aren't about a topic.
WITHOUT_TOPIC: Final = frozenset({70, 73, 76, 79, 80, 81})

#: Those that have no response when all is well.
UNANSWERED: Final = frozenset({0, 3})

# Of 0.7's, codes that it knows; of Hermes' own, that it is not said who asks, or not allowed.
_REFUSALS_OF_07: Final = frozenset({3, 80})
_REFUSALS: Final = frozenset({79, 80})


class Wire:
    """A socket to the broker, with TLS or without.

    Args:
        port: of a listener.
        context: None for no TLS.
        source: the address of this machine to connect from.
    """

    def __init__(
        self, port: int, context: ssl.SSLContext | None, source: str = "127.0.0.1"
    ) -> None:
        self.socket: socket.socket = socket.create_connection(
            ("127.0.0.1", port), DEADLINE_SECONDS, (source, 0)
        )
        if context is not None:
            try:
                self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
            except BaseException:
                self.socket.close()
                raise

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()

    def call(self, request: bytes) -> bytes:
        """Send a request; all of its answer but the size, or b"" when there is none but an end."""
        try:
            self.socket.sendall(request)
            head = self._receive(4)
            return self._receive(struct.unpack(">i", head)[0]) if len(head) == 4 else b""
        except (ConnectionError, ssl.SSLError):
            return b""

    def exchange(self, request: bytes) -> bytes:
        """Send a request; all that comes until the end."""
        try:
            self.socket.sendall(request)
        except (ConnectionError, ssl.SSLError):
            return b""
        data = b""
        while True:
            try:
                more = self.socket.recv(65536)
            except (ConnectionError, ssl.SSLError):
                return data
            if not more:
                return data
            data += more

    def _receive(self, size: int) -> bytes:
        data = b""
        while 0 <= len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                return data
            data += more
        return data


def is_refused(request_type: int, answer: bytes) -> bool:
    """Whether an answer, b"" for an end of the connection, refuses and tells nothing.

    A request of many parts is refused if each part is.
    """
    if not answer:
        return True
    (code,) = struct.unpack_from(">h", answer)
    if request_type in (1, 4):
        return code in _REFUSALS_OF_07 and not answer[2:].strip(b"\0")
    if code != 0:
        return code in _REFUSALS
    if request_type == 2:
        fetched = decode_multifetch_response(answer)
        return all(each.error in _REFUSALS_OF_07 and not each.messages for each in fetched)
    if request_type in (64, 83):
        produced = decode_acknowledged_produce_response(answer)
        return all(each.error in _REFUSALS for each in produced)
    if request_type == 65:
        waited = decode_waiting_fetch_response(answer)
        return all(
            each.error in _REFUSALS and each.high_watermark == -1 and not each.messages
            for each in waited
        )
    if request_type == 82:
        brought = decode_record_fetch_response(answer)
        return all(
            each.error in _REFUSALS and each.high_watermark == -1 and not each.data
            for each in brought
        )
    if request_type == 66:
        return not any(each.partitions for each in decode_metadata_response(answer).topics)
    if request_type == 77:
        return all(each.error in _REFUSALS for each in decode_mirrored_produce_response(answer))
    return False


# -- HTTP -----------------------------------------------------------------------------------------

#: What is served over HTTP: method, path, body; `{topic}` and `{group}` are filled in.
ROUTES: Final = (
    ("GET", "/", ""),
    ("GET", "/topics", ""),
    ("GET", "/topics/{topic}", ""),
    ("GET", "/topics/{topic}/messages", ""),
    ("GET", "/topics/{topic}/search?text=read", ""),
    ("GET", "/topics/{topic}/tail", ""),
    ("GET", "/dead-letters", ""),
    ("GET", "/topics/{topic}/redrive?to=topic", ""),
    ("POST", "/topics/{topic}/redrive", "stop=1"),
    ("GET", "/groups", ""),
    ("GET", "/groups/{group}", ""),
    ("POST", "/groups/{group}/reset", "topic={topic}&to=earliest"),
    ("GET", "/brokers", ""),
    ("GET", "/brokers/0", ""),
    ("GET", "/mirrors", ""),
    ("GET", "/audit", ""),
    ("GET", "/metrics", ""),
    ("GET", "/registry/subjects", ""),
    ("GET", "/registry/schemas/ids/1", ""),
    ("GET", "/registry/config", ""),
    ("POST", "/registry/subjects/{topic}-value/versions", '{{"schema": "\\"string\\""}}'),
    ("PUT", "/registry/config", '{{"compatibility": "NONE"}}'),
    ("DELETE", "/registry/subjects/{topic}-value", ""),
)


def ask(
    port: int,
    context: ssl.SSLContext | None,
    route: tuple[str, str, str],
    *,
    credentials: str = "",
    source: str = "127.0.0.1",
    **names: str,
) -> tuple[int, str]:
    """Ask over HTTP: the status, 0 when there is no answer, and the body.

    Args:
        port: where to.
        context: None for no TLS.
        route: of `ROUTES`.
        credentials: `USER:PASSWORD` for basic authentication.
        source: the address of this machine to connect from.
        names: fill in the route.
    """
    method, path, body = (each.format(**names) for each in route)
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
    if credentials:
        head.append(f"Authorization: Basic {b64encode(credentials.encode()).decode()}")
    if body:
        kind = "application/json" if body.startswith("{") else "application/x-www-form-urlencoded"
        head += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    request = "\r\n".join((*head, "", body)).encode()
    with Wire(port, context, source) as wire:
        answer = wire.exchange(request)
    status, _, rest = answer.partition(b"\r\n\r\n")
    code = status.split(b" ")[1:2]
    return int(code[0]) if code else 0, rest.decode(errors="replace")


# -- coordination ---------------------------------------------------------------------------------


def _text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">i", len(data)) + data


def _acl() -> bytes:
    return struct.pack(">ii", 1, 31) + _text("world") + _text("anyone")


#: Requests of ZooKeeper's protocol about a node: their type, and what follows the header.
NODE_REQUESTS: Final[Mapping[str, tuple[int, Callable[[str], bytes]]]] = {
    "create": (1, lambda path: _text(f"{path}-mine") + _text(b"x") + _acl() + b"\0\0\0\0"),
    "create ephemeral": (
        1,
        lambda path: _text(f"{path}-mine") + _text(b"x") + _acl() + b"\0\0\0\1",
    ),
    "delete": (2, lambda path: _text(path) + b"\xff\xff\xff\xff"),
    "exists, with a watch": (3, lambda path: _text(path) + b"\1"),
    "get": (4, lambda path: _text(path) + b"\0"),
    "set": (5, lambda path: _text(path) + _text(b"9") + b"\xff\xff\xff\xff"),
    "get ACL": (6, _text),
    "set ACL": (7, lambda path: _text(path) + _acl() + b"\xff\xff\xff\xff"),
    "children": (8, lambda path: _text(path) + b"\0"),
    "children with stat": (12, lambda path: _text(path) + b"\0"),
    "multi": (
        14,
        lambda path: (
            b"\0\0\0\5\0\xff\xff\xff\xff"
            + _text(path)
            + _text(b"9")
            + b"\xff\xff\xff\xff"
            + b"\xff\xff\xff\xff\1\xff\xff\xff\xff"
        ),
    ),
}


class Node(Wire):
    """A session of coordination's protocol, in bytes."""

    def open(self, credentials: str = "") -> None:
        """Begin a session; with `USER:PASSWORD`, by ZooKeeper's digest."""
        self.call(struct.pack(">iiqiqi16s?", 45, 0, 0, 10_000, 0, 16, bytes(16), False))
        if credentials:
            auth = struct.pack(">iii", -4, 100, 0) + _text("digest") + _text(credentials)
            self.call(_text(auth))

    def request(self, name: str, path: str) -> tuple[int | None, bytes]:
        """Make a request; the error that it is answered with, None for an end, and the rest."""
        kind, body = NODE_REQUESTS[name]
        answer = self.call(_text(struct.pack(">ii", 1, kind) + body(path)))
        while answer[:4] == b"\xff\xff\xff\xff":  # an event
            answer = self.call(b"")
        if len(answer) < 16:
            return None, b""
        return struct.unpack_from(">i", answer, 12)[0], answer[16:]


def is_refused_part(name: str, answer: bytes) -> bool:
    """Whether a transaction was refused, whose answer has an error for each of its parts."""
    return name == "multi" and answer[:4] == b"\xff\xff\xff\xff"
