"""A hundred thousand damaged frames: nothing comes out but requests and the errors that are meant.

The seed is fixed, so that every run sees the same frames; the frames are valid ones that were
damaged in the ways that hurt parsers: bits, lengths, pieces lost, doubled and exchanged.
"""

import random
import tracemalloc

import pytest

from hermes.errors import InvalidMessageError, MessageTooLargeError, RemoteProtocolError
from hermes.protocol import (
    AcknowledgedProduceRequest,
    AlterTopicRequest,
    AppendTimesRequest,
    AuthenticateRequest,
    BoundaryRequest,
    ClusterBrokersRequest,
    ClusterIdRequest,
    Codec,
    CreateTopicRequest,
    DeleteTopicRequest,
    DescribePartitionsRequest,
    DescribeSettingsRequest,
    FetchRequest,
    MessageSet,
    MetadataRequest,
    MirroredProduceRequest,
    MirroredSet,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    ProduceRun,
    RecentLogLinesRequest,
    RequestReceiver,
    SourcePositionsRequest,
    WaitingFetchRequest,
    check_message_set,
    compress,
    decode_acknowledged_produce_response,
    decode_append_times_response,
    decode_log_lines_response,
    decode_metadata_response,
    decode_multifetch_response,
    decode_offsets_response,
    decode_partitions_response,
    decode_reload_response,
    decode_settings_response,
    decode_waiting_fetch_response,
    encode_message,
    encode_message_set,
    find_valid_message,
)

FRAMES = 100_000
BATCHES = 20
MAX_REQUEST_BYTES = 4096
MAX_MESSAGE_BYTES = 200
MAX_EXPANDED_BYTES = 10_000

PAYLOADS = [b"hello", b"world!", b"", b"a" * 40]
PLAIN = encode_message_set(PAYLOADS)
SETS = [
    PLAIN,
    encode_message_set(PAYLOADS, magic=0),
    encode_message_set(PAYLOADS, Codec.GZIP),
    encode_message_set(PAYLOADS, Codec.SNAPPY),
    encode_message(compress(Codec.SNAPPY, encode_message_set(PAYLOADS, Codec.GZIP)), attributes=2),
    PLAIN + encode_message_set(PAYLOADS, Codec.GZIP) + PLAIN[:-3],
    b"",
]
PRODUCES = tuple(ProduceRequest("topic", n, each) for n, each in enumerate(SETS))
FETCHES = (FetchRequest("topic", 0, 0, 100), FetchRequest("é", 1, 1 << 40, 1 << 20))
REQUESTS = [
    *(request.encode() for request in PRODUCES + FETCHES),
    MultiProduceRequest(PRODUCES[:3]).encode(),
    MultiFetchRequest(FETCHES).encode(),
    OffsetsRequest("topic", 0, -1, 10).encode(),
    AcknowledgedProduceRequest(2, 1000, PRODUCES[2:5]).encode(),
    WaitingFetchRequest(1000, 1, FETCHES).encode(),
    MetadataRequest(("topic", "é")).encode(),
    BoundaryRequest("topic", 0, 1000).encode(),
    DeleteTopicRequest("topic").encode(),
    AppendTimesRequest("topic", 0, 0, 1000, 60_000).encode(),
    CreateTopicRequest("topic", (("partitions", "8"),)).encode(),
    AlterTopicRequest("topic", (("partitions", "8"),), ("flush_messages",)).encode(),
    DescribeSettingsRequest("topic").encode(),
    DescribePartitionsRequest("topic", 64).encode(),
    RecentLogLinesRequest(-1, 100).encode(),
    MirroredProduceRequest(2, 0, (MirroredSet("t", 0, "s/t/0-0", 0, 9, 0, b"123456789"),)).encode(),
    SourcePositionsRequest("t", -1, False, 0).encode(),
    ClusterIdRequest().encode(),
    AuthenticateRequest("SCRAM-SHA-256", b"n,,n=a,r=b").encode(),
    ClusterBrokersRequest().encode(),
]
NUMBERS = [0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 5, 6, 64, 100]


def damaged(rng, frame):
    """A frame with one to four faults; in half of the cases its size fits what is left."""
    data = bytearray(frame)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0 if data:
                data[place % len(data)] ^= 1 << rng.randrange(8)
            case 1:
                width = rng.choice([1, 2, 4])
                number = rng.choice(NUMBERS) & ((1 << 8 * width) - 1)
                data[place : place + width] = number.to_bytes(width, "big")
            case 2:
                del data[place : place + rng.randint(1, 20)]
            case 3:
                data[place:place] = rng.randbytes(rng.randint(1, 8))
            case 4:
                data[place:place] = data[place : place + rng.randint(1, 30)]
            case _:
                other = rng.choice(REQUESTS)
                start = rng.randrange(len(other))
                data[place : place + 8] = other[start : start + rng.randint(1, 40)]
    if rng.random() < 0.5:
        data[:4] = max(len(data) - 4, 1).to_bytes(4, "big")
    return bytes(data)


def use(request):
    """Do with a request what a broker and its consumers would; returns what was refused."""
    if isinstance(request, ProduceRun):
        sets = request.buffers
    elif isinstance(request, ProduceRequest):
        sets = [request.message_set]
    elif isinstance(request, MultiProduceRequest | AcknowledgedProduceRequest):
        sets = [produce.message_set for produce in request.produces]
    else:
        sets = []
    refused = 0
    for message_set in sets:
        try:
            check = check_message_set(
                message_set,
                max_message_bytes=MAX_MESSAGE_BYTES,
                max_expanded_bytes=MAX_EXPANDED_BYTES,
            )
        except (InvalidMessageError, MessageTooLargeError):
            refused += 1
            consume(message_set)
        else:
            appended = MessageSet(memoryview(message_set)[: check.valid_bytes])
            assert len(list(appended)) == check.message_count
            assert appended.valid_bytes == check.valid_bytes
    assert not (refused and isinstance(request, ProduceRun))
    return refused


def consume(message_set):
    """Read a damaged set as a consumer that skips; it gets on, or says that it can't."""
    position = 0
    while position < len(message_set):
        rest = MessageSet(
            memoryview(message_set)[position:],
            position,
            on_corrupt="skip",
            max_expanded_bytes=MAX_EXPANDED_BYTES,
        )
        try:
            for message, next_offset in rest:
                assert message.is_valid
                assert position <= next_offset <= len(message_set)
            following = rest.next_offset
        except InvalidMessageError as error:
            following = len(message_set) if error.next_offset is None else error.next_offset
        if following == position:
            return  # a larger fetch would be needed
        assert following > position
        position = following


@pytest.mark.parametrize("batch", range(BATCHES))
def test_damaged_requests(batch):
    rng = random.Random(batch)
    accepted = refused_sets = refused_requests = 0
    for _ in range(FRAMES // BATCHES):
        receiver = RequestReceiver(MAX_REQUEST_BYTES, MAX_MESSAGE_BYTES)
        receiver.receive_data(damaged(rng, rng.choice(REQUESTS)))
        try:
            while (request := receiver.next_request()) is not None:
                accepted += 1
                refused_sets += use(request)
        except RemoteProtocolError:
            refused_requests += 1
        assert receiver.buffered_bytes < MAX_REQUEST_BYTES

    # The damage must not be so coarse that only one way is ever taken.
    assert min(accepted, refused_sets, refused_requests) > FRAMES // BATCHES // 20


def test_a_stream_of_damaged_requests_costs_no_memory():
    rng = random.Random(99)
    frames = [damaged(rng, rng.choice(REQUESTS)) for _ in range(7000)]
    receiver = RequestReceiver(MAX_REQUEST_BYTES, MAX_MESSAGE_BYTES)
    tracemalloc.start()
    try:
        for frame in frames:
            receiver.receive_data(frame)
            try:
                while receiver.next_request() is not None:
                    pass
            except RemoteProtocolError:
                receiver = RequestReceiver(MAX_REQUEST_BYTES, MAX_MESSAGE_BYTES)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert sum(map(len, frames)) > 500_000 > 2 * peak


@pytest.mark.parametrize(
    "decode",
    [
        decode_reload_response,
        decode_settings_response,
        decode_partitions_response,
        decode_log_lines_response,
        decode_acknowledged_produce_response,
        decode_metadata_response,
        decode_append_times_response,
        decode_multifetch_response,
        decode_offsets_response,
        decode_waiting_fetch_response,
    ],
)
def test_nonsense_answers(decode):
    rng = random.Random(decode.__name__)
    refused = 0
    for _ in range(2000):
        body = bytes(2) + rng.randbytes(rng.randrange(40))
        if rng.random() < 0.5:  # small numbers get further
            body = bytes(byte & 3 if rng.random() < 0.7 else byte for byte in body)
        try:
            decode(bytes(2) + body[2:])
        except RemoteProtocolError:
            refused += 1

    assert refused > 1000


def test_nonsense_is_searched():
    rng = random.Random(5)
    good = encode_message(b"found")
    for _ in range(2000):
        nonsense = bytes(rng.choice(b"\0\0\0\1\2\x0b\xff") for _ in range(rng.randrange(200)))
        place = rng.randrange(len(nonsense) + 1)
        log = nonsense[:place] + good + nonsense[place:]
        found = find_valid_message(log, 0, max_message_bytes=1000)
        assert found is not None
        assert found <= place
