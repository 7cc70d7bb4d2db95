"""Bytes <-> values: Kafka 0.7's wire format and Hermes' additions to it. No I/O, no clock.

    messages, message_set   a message, a set of them; compression, expansion: compressed sets
    core, loops             what runs once per message: compiled (_core.c), or in Python
    set_check, search       what a broker checks; resuming after damage
    requests, own_requests  0.7's requests and ours; decoding: bytes to either
    responses, error_codes  the responses, and the codes in them
    framing, receiver       a stream of bytes to requests or responses
    wire                    integers and strings, of which everything else consists
    topics                  which names are allowed

docs/message-format.md and docs/wire-protocol.md have the byte tables.
"""

from hermes.protocol.compression import MIN_CHARGE_BYTES, Codec, compress, decompress
from hermes.protocol.decoding import (
    LONG_ENTRIES,
    LongProduce,
    LongRequest,
    Request,
    decode_request,
)
from hermes.protocol.error_codes import ErrorCode, code_for, error_for
from hermes.protocol.expansion import DEFAULT_MAX_EXPANDED_BYTES, MAX_NESTING
from hermes.protocol.message_set import MessageAndOffset, MessageSet
from hermes.protocol.messages import Message, encode_fitting, encode_message, encode_message_set
from hermes.protocol.own_requests import (
    REQUEST_VERSIONS,
    AcknowledgedProduceRequest,
    Acks,
    AppendTimesRequest,
    BoundaryRequest,
    CoordinationRequest,
    DeleteTopicRequest,
    MetadataRequest,
    UnsupportedRequest,
    WaitingFetchRequest,
)
from hermes.protocol.receiver import ProduceRun, RequestReceiver, ResponseReceiver
from hermes.protocol.requests import (
    EARLIEST,
    LATEST,
    RANDOM_PARTITION,
    FetchRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
)
from hermes.protocol.responses import (
    AppendRun,
    AppendTimesAnswer,
    BrokerMetadata,
    FetchedEntry,
    PartitionMetadata,
    ProducedEntry,
    TopicMetadata,
    WaitingFetchedEntry,
    decode_acknowledged_produce_response,
    decode_append_times_response,
    decode_boundary_response,
    decode_coordination_response,
    decode_error_response,
    decode_fetch_response,
    decode_metadata_response,
    decode_multifetch_response,
    decode_offsets_response,
    decode_waiting_fetch_response,
    encode_acknowledged_produce_response,
    encode_append_times_response,
    encode_boundary_response,
    encode_coordination_response,
    encode_error_response,
    encode_metadata_response,
    encode_offsets_response,
    encode_partitions_metadata,
    encode_topic_metadata,
    fetch_response_header,
    metadata_response_header,
    multifetch_response_header,
    waiting_fetch_entry_header,
    waiting_fetch_response_header,
)
from hermes.protocol.search import find_valid_message
from hermes.protocol.set_check import SetCheck, check_message_set, check_plain_set
from hermes.protocol.topics import check_new_topic_name, check_topic_name
from hermes.protocol.wire import Buffer, frame

__all__ = [
    "DEFAULT_MAX_EXPANDED_BYTES",
    "EARLIEST",
    "LATEST",
    "LONG_ENTRIES",
    "MAX_NESTING",
    "MIN_CHARGE_BYTES",
    "RANDOM_PARTITION",
    "REQUEST_VERSIONS",
    "AcknowledgedProduceRequest",
    "Acks",
    "AppendRun",
    "AppendTimesAnswer",
    "AppendTimesRequest",
    "BoundaryRequest",
    "BrokerMetadata",
    "Buffer",
    "Codec",
    "CoordinationRequest",
    "DeleteTopicRequest",
    "ErrorCode",
    "FetchRequest",
    "FetchedEntry",
    "LongProduce",
    "LongRequest",
    "Message",
    "MessageAndOffset",
    "MessageSet",
    "MetadataRequest",
    "MultiFetchRequest",
    "MultiProduceRequest",
    "OffsetsRequest",
    "PartitionMetadata",
    "ProduceRequest",
    "ProduceRun",
    "ProducedEntry",
    "Request",
    "RequestReceiver",
    "ResponseReceiver",
    "SetCheck",
    "TopicMetadata",
    "UnsupportedRequest",
    "WaitingFetchRequest",
    "WaitingFetchedEntry",
    "check_message_set",
    "check_new_topic_name",
    "check_plain_set",
    "check_topic_name",
    "code_for",
    "compress",
    "decode_acknowledged_produce_response",
    "decode_append_times_response",
    "decode_boundary_response",
    "decode_coordination_response",
    "decode_error_response",
    "decode_fetch_response",
    "decode_metadata_response",
    "decode_multifetch_response",
    "decode_offsets_response",
    "decode_request",
    "decode_waiting_fetch_response",
    "decompress",
    "encode_acknowledged_produce_response",
    "encode_append_times_response",
    "encode_boundary_response",
    "encode_coordination_response",
    "encode_error_response",
    "encode_fitting",
    "encode_message",
    "encode_message_set",
    "encode_metadata_response",
    "encode_offsets_response",
    "encode_partitions_metadata",
    "encode_topic_metadata",
    "error_for",
    "fetch_response_header",
    "find_valid_message",
    "frame",
    "metadata_response_header",
    "multifetch_response_header",
    "waiting_fetch_entry_header",
    "waiting_fetch_response_header",
]
