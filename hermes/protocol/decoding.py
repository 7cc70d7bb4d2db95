"""From the bytes of one request to its value, by type and version.

A request may have 32,767 entries, and then takes a tenth of a second to decode. `long_request`
recognizes those by their count, so that they can be decoded where nobody waits for it.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from hermes.errors import RemoteProtocolError
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
from hermes.protocol.requests import (
    FetchRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
)
from hermes.protocol.wire import Buffer, ByteReader

__all__ = [
    "LONG_ENTRIES",
    "LongProduce",
    "LongRequest",
    "Request",
    "decode_request",
    "long_request",
]

#: A request with more entries than this is long. Decoded, an entry takes some 500 bytes, and
#: thousands of connections may each have sent such a request.
LONG_ENTRIES: Final = 64

# Where the int16 count of entries is: after the type, the version and other fixed fields.
_COUNT_AT: Final = {
    MultiFetchRequest.TYPE: 2,
    MultiProduceRequest.TYPE: 2,
    AcknowledgedProduceRequest.TYPE: 10,
    WaitingFetchRequest.TYPE: 12,
    MetadataRequest.TYPE: 4,
}
_INT16: Final = struct.Struct(">h")
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
        return kafka(reader)
    own = _OWN.get(request_type)
    if own is None:
        raise RemoteProtocolError(f"there is no request type {request_type}")
    version = reader.int16()
    return own(reader) if version == 0 else UnsupportedRequest(request_type, version)


@dataclass(frozen=True, slots=True)
class LongRequest:
    """A request with very many entries that has not been decoded yet.

    Attributes:
        frame: the request without its size prefix, as a view of what was received.
    """

    frame: memoryview

    def decode(self) -> Request:
        """Decode it, which takes up to a tenth of a second; any thread may.

        Raises:
            RemoteProtocolError: as for `decode_request`.
        """
        return decode_request(self.frame)


class LongProduce(LongRequest):
    """A long request that appends."""

    __slots__ = ()


def long_request(frame: memoryview) -> LongRequest | None:
    """Recognize a request that declares more than `LONG_ENTRIES` entries.

    Args:
        frame: the request without its size prefix.
    """
    if len(frame) < _LEAST_BYTES:
        return None
    (request_type,) = _INT16.unpack_from(frame)
    at = _COUNT_AT.get(request_type)
    if at is None or _INT16.unpack_from(frame, at)[0] <= LONG_ENTRIES:
        return None
    produces = request_type in (MultiProduceRequest.TYPE, AcknowledgedProduceRequest.TYPE)
    return LongProduce(frame) if produces else LongRequest(frame)
