"""From the bytes of one request to its value, by type and version.

A request may have 32,767 entries, and then takes a tenth of a second to decode. `long_request`
recognizes those by their count, so that a thread can decode them; those that append are then
decoded a slice at a time.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

from hermes.errors import RemoteProtocolError
from hermes.protocol.admin_requests import (
    AlterTopicRequest,
    CreateTopicRequest,
    DescribePartitionsRequest,
    DescribeSettingsRequest,
    RecentLogLinesRequest,
    ReloadConfigRequest,
)
from hermes.protocol.authentication import AuthenticateRequest
from hermes.protocol.cluster_brokers import ClusterBrokersRequest
from hermes.protocol.mirror_requests import (
    ClusterIdRequest,
    MirroredProduceRequest,
    SourcePositionsRequest,
)
from hermes.protocol.own_requests import (
    AcknowledgedProduceRequest,
    AppendTimesRequest,
    BoundaryRequest,
    CoordinationRequest,
    DeleteTopicRequest,
    MetadataRequest,
    UnsupportedRequest,
    WaitingFetchRequest,
)
from hermes.protocol.protocol_detection import Spoken, frame_hint, is_zookeeper_connect
from hermes.protocol.record_requests import RecordFetchRequest, RecordProduceRequest
from hermes.protocol.requests import (
    FetchRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    counted,
)
from hermes.protocol.wire import Buffer, ByteReader

#: A request with more entries than this is long. Decoded, an entry takes some 500 bytes, and
#: thousands of connections may each have sent such a request.
LONG_ENTRIES: Final = 64

#: How many entries of a long produce are decoded at a time. Garbage collections look at all that
#: are held, in the broker's one interpreter: at 2,048 that takes it a millisecond.
SLICE_ENTRIES: Final = 2048

# Where the int16 count of entries is: after the type, the version and other fixed fields.
_COUNT_AT: Final = {
    MultiFetchRequest.TYPE: 2,
    MultiProduceRequest.TYPE: 2,
    AcknowledgedProduceRequest.TYPE: 10,
    WaitingFetchRequest.TYPE: 12,
    RecordFetchRequest.TYPE: 12,
    MetadataRequest.TYPE: 4,
}

_INT16: Final = struct.Struct(">h")
_ACKNOWLEDGED: Final = struct.Struct(">hhi")  # version, acks, timeout ms
_LEAST_BYTES: Final = 2 * LONG_ENTRIES  # an entry is a string, or begins with one

#: Any request that can arrive.
Request: TypeAlias = (
    ProduceRequest
    | FetchRequest
    | MultiFetchRequest
    | MultiProduceRequest
    | OffsetsRequest
    | AcknowledgedProduceRequest
    | WaitingFetchRequest
    | MetadataRequest
    | BoundaryRequest
    | DeleteTopicRequest
    | AppendTimesRequest
    | CoordinationRequest
    | DescribeSettingsRequest
    | CreateTopicRequest
    | AlterTopicRequest
    | ReloadConfigRequest
    | DescribePartitionsRequest
    | RecentLogLinesRequest
    | MirroredProduceRequest
    | SourcePositionsRequest
    | ClusterIdRequest
    | AuthenticateRequest
    | ClusterBrokersRequest
    | RecordFetchRequest
    | RecordProduceRequest
    | UnsupportedRequest
)

_KAFKA: Final[dict[int, Callable[[ByteReader], Request]]] = {
    ProduceRequest.TYPE: ProduceRequest.decode,
    FetchRequest.TYPE: FetchRequest.decode,
    MultiFetchRequest.TYPE: MultiFetchRequest.decode,
    MultiProduceRequest.TYPE: MultiProduceRequest.decode,
    OffsetsRequest.TYPE: OffsetsRequest.decode,
}

_OWN: Final[dict[int, Callable[[ByteReader], Request]]] = {
    AcknowledgedProduceRequest.TYPE: AcknowledgedProduceRequest.decode,
    WaitingFetchRequest.TYPE: WaitingFetchRequest.decode,
    MetadataRequest.TYPE: MetadataRequest.decode,
    BoundaryRequest.TYPE: BoundaryRequest.decode,
    DeleteTopicRequest.TYPE: DeleteTopicRequest.decode,
    AppendTimesRequest.TYPE: AppendTimesRequest.decode,
    CoordinationRequest.TYPE: CoordinationRequest.decode,
    DescribeSettingsRequest.TYPE: DescribeSettingsRequest.decode,
    CreateTopicRequest.TYPE: CreateTopicRequest.decode,
    AlterTopicRequest.TYPE: AlterTopicRequest.decode,
    ReloadConfigRequest.TYPE: ReloadConfigRequest.decode,
    DescribePartitionsRequest.TYPE: DescribePartitionsRequest.decode,
    RecentLogLinesRequest.TYPE: RecentLogLinesRequest.decode,
    MirroredProduceRequest.TYPE: MirroredProduceRequest.decode,
    SourcePositionsRequest.TYPE: SourcePositionsRequest.decode,
    ClusterIdRequest.TYPE: ClusterIdRequest.decode,
    AuthenticateRequest.TYPE: AuthenticateRequest.decode,
    ClusterBrokersRequest.TYPE: ClusterBrokersRequest.decode,
    RecordFetchRequest.TYPE: RecordFetchRequest.decode,
    RecordProduceRequest.TYPE: RecordProduceRequest.decode,
}


def decode_request(frame: Buffer) -> Request:
    """Decode one whole request.

    Args:
        frame: the request without its size prefix. Message sets in the result are views of it.

    Returns:
        The request. Its message sets are not looked into, its names and numbers not judged.

    Raises:
        RemoteProtocolError: the bytes are not a request; close the connection, as 0.7 does.
            Bytes after a whole request are not an error.
    """
    reader = ByteReader(frame)
    request_type = reader.int16()
    if kafka := _KAFKA.get(request_type):
        if request_type == 0 and is_zookeeper_connect(frame):  # else a produce to no topic
            raise RemoteProtocolError(f"it is no request{frame_hint(frame)}")
        return kafka(reader)
    own = _OWN.get(request_type)
    if own is None:
        raise RemoteProtocolError(f"there is no request type {request_type}{frame_hint(frame)}")
    version = reader.int16()
    return own(reader) if version == 0 else UnsupportedRequest(request_type, version)


def other_protocol_hint(frame: Buffer) -> str:
    """Say whose first request this is, for the end of an error of a server of another protocol.

    Empty if nobody is known to begin so.
    """
    hint = frame_hint(frame)
    if hint:
        return hint
    try:
        # Decoding one with very many entries would hold up everybody else.
        if long_request(memoryview(frame)) is None:
            decode_request(frame)
            return f": {Spoken.BROKER.value}"
    except RemoteProtocolError:
        pass
    return ""


@dataclass(frozen=True, slots=True)
class LongRequest:
    """A request with very many entries, not yet decoded: a view of what was received."""

    frame: memoryview

    def decode(self) -> Request:
        """Decode it, which takes up to a tenth of a second; any thread may. Raises as above."""
        return decode_request(self.frame)


@dataclass(frozen=True, slots=True)
class LongProduce:
    """A long request that appends: a multiproduce, or an acknowledged produce.

    Its entries are decoded a slice at a time, so that few of them are held as values.

    `acks`, `timeout_ms`: as of an `AcknowledgedProduceRequest`; None and 0 for a multiproduce.
    """

    frame: memoryview
    acks: int | None
    timeout_ms: int
    count: int

    def topics(self) -> set[str]:
        """The names of its topics. Reads all of it, up to a tenth of a second; any thread may.

        A request that isn't whole appends nothing, so this comes before the first slice. Raises as
        `decode_request`.
        """
        return {produce.topic for produce in self._produces()}

    def slices(self) -> Iterator[tuple[ProduceRequest, ...]]:
        """Decode it, `SLICE_ENTRIES` at a time; any thread may take the next slice."""
        produces = self._produces()
        while part := tuple(islice(produces, SLICE_ENTRIES)):
            yield part

    def _produces(self) -> Iterator[ProduceRequest]:
        is_multiproduce = self.acks is None
        request_type = (MultiProduceRequest if is_multiproduce else AcknowledgedProduceRequest).TYPE
        reader = ByteReader(self.frame)
        reader.take(_COUNT_AT[request_type])
        for _ in counted(reader):
            yield ProduceRequest.decode(reader, null_topic="" if is_multiproduce else None)


def long_request(frame: memoryview) -> LongRequest | LongProduce | None:
    if len(frame) < _LEAST_BYTES:
        return None
    (request_type,) = _INT16.unpack_from(frame)
    at = _COUNT_AT.get(request_type)
    if at is None:
        return None
    (count,) = _INT16.unpack_from(frame, at)
    if count <= LONG_ENTRIES:
        return None
    if request_type == MultiProduceRequest.TYPE:
        return LongProduce(frame, None, 0, count)
    if request_type == AcknowledgedProduceRequest.TYPE:
        version, acks, timeout_ms = _ACKNOWLEDGED.unpack_from(frame, 2)
        return LongProduce(frame, acks, timeout_ms, count) if version == 0 else None
    return LongRequest(frame)
