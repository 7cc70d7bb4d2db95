"""What somebody who doesn't belong may try on a broker's port: requests, ways, and their judgement.

A request is made of nothing but its type and the topic that it is about, so that a new type needs
one more line here, and `test_attempts.py` fails until it has one.
"""

import socket
import ssl
import struct
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
    ReloadConfigRequest,
    SourceFlags,
    SourcePositionsRequest,
    WaitingFetchRequest,
    decode_acknowledged_produce_response,
    decode_metadata_response,
    decode_mirrored_produce_response,
    decode_multifetch_response,
    decode_waiting_fetch_response,
    encode_message_set,
)

#: How long an answer may take before a test fails; never waited for in vain.
DEADLINE_SECONDS: Final = 60.0

FORGED: Final = b"forged payload"
_SET: Final = bytes(encode_message_set([FORGED]))


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
    if request_type == 64:
        produced = decode_acknowledged_produce_response(answer)
        return all(each.error in _REFUSALS for each in produced)
    if request_type == 65:
        waited = decode_waiting_fetch_response(answer)
        return all(
            each.error in _REFUSALS and each.high_watermark == -1 and not each.messages
            for each in waited
        )
    if request_type == 66:
        return not any(each.partitions for each in decode_metadata_response(answer).topics)
    if request_type == 77:
        return all(each.error in _REFUSALS for each in decode_mirrored_produce_response(answer))
    return False
