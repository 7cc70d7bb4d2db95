"""From the bytes of one request to its value, by type and version."""

from collections.abc import Callable
from typing import Final, TypeAlias

from hermes.errors import RemoteProtocolError
from hermes.protocol.own_requests import (
    AcknowledgedProduceRequest,
    AppendTimesRequest,
    BoundaryRequest,
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
from hermes.protocol.wire import Buffer, Reader

__all__ = ["Request", "decode_request"]

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
    | UnsupportedRequest
)

_KAFKA: Final[dict[int, Callable[[Reader], Request]]] = {
    ProduceRequest.TYPE: ProduceRequest.decode,
    FetchRequest.TYPE: FetchRequest.decode,
    MultiFetchRequest.TYPE: MultiFetchRequest.decode,
    MultiProduceRequest.TYPE: MultiProduceRequest.decode,
    OffsetsRequest.TYPE: OffsetsRequest.decode,
}

_OWN: Final[dict[int, Callable[[Reader], Request]]] = {
    AcknowledgedProduceRequest.TYPE: AcknowledgedProduceRequest.decode,
    WaitingFetchRequest.TYPE: WaitingFetchRequest.decode,
    MetadataRequest.TYPE: MetadataRequest.decode,
    BoundaryRequest.TYPE: BoundaryRequest.decode,
    DeleteTopicRequest.TYPE: DeleteTopicRequest.decode,
    AppendTimesRequest.TYPE: AppendTimesRequest.decode,
}


def decode_request(frame: Buffer) -> Request:
    """Decode one whole request.

    Args:
        frame: the request without its size prefix. Message sets in the result are views of it.

    Returns:
        The request. Its message sets are not looked into, its names and numbers not judged.

    Raises:
        RemoteProtocolError: the bytes are no request; close the connection, as 0.7 does. Bytes
            behind a whole request are no fault.
    """
    reader = Reader(frame)
    request_type = reader.int16()
    if kafka := _KAFKA.get(request_type):
        return kafka(reader)
    own = _OWN.get(request_type)
    if own is None:
        raise RemoteProtocolError(f"there is no request type {request_type}")
    version = reader.int16()
    return own(reader) if version == 0 else UnsupportedRequest(request_type, version)
