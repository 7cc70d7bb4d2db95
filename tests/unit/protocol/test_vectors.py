"""What a Kafka 0.7.2 broker and its clients were recorded to say, in both directions."""

import ast
import json
import re
from pathlib import Path

import pytest

from hermes.errors import (
    InvalidMessageError,
    InvalidTopicError,
    MessageTooLargeError,
    RemoteProtocolError,
)
from hermes.protocol import (
    Codec,
    ErrorCode,
    FetchRequest,
    MessageSet,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    RequestReceiver,
    check_message_set,
    check_topic_name,
    compress,
    decode_fetch_response,
    decode_multifetch_response,
    decode_offsets_response,
    decode_request,
    encode_message_set,
    encode_offsets_response,
    fetch_response_header,
    multifetch_response_header,
)
from hermes.protocol.messages import Message

_RECORDED = json.loads(
    (Path(__file__).parents[2] / "vectors" / "kafka-0.7.2.json").read_text(encoding="utf-8")
)
VECTORS = {v["name"]: bytes.fromhex(v["hex"]) for v in _RECORDED["vectors"]}
BEHAVIOURS = {b["name"]: b for b in _RECORDED["behaviours"]}
REQUESTS = [name for name in VECTORS if name.endswith(".request")]
RESPONSES = [
    name
    for name in VECTORS
    if name.endswith(".response") and name != "fetch-negative-size.response"
]
SEGMENTS = [name for name in VECTORS if name.startswith("disk/")]

# Requests that 0.7.2 closed on while decoding them: everything else that closes is decided later.
UNDECODABLE = {
    "multiproduce-negative-count",
    "produce-setsize-too-big",
    "fetch-null-topic",
    "multifetch-negative",
    "request-unknown-id",
    "request-id-minus-1",
    "request-size-0",
    "request-size-negative",
    "request-size-huge",
    "request-http",
    "fetch-truncated",
}

# Requests that 0.7.2 closed on for a reason that only a broker knows.
DECIDED_BY_THE_BROKER = {
    "produce-partition-2-of-2",
    "produce-partition-minus-2",
    "fetch-negative-size",
    "offsets-wrong-partition",
    "offsets-bad-topic",
}

MAX_MESSAGE_BYTES = 1_000_000


def name_of(vector):
    return vector.removesuffix(".request")


def closed(vector):
    return BEHAVIOURS.get(name_of(vector), {}).get("connection_after", "open") != "open"


def produces_in(request):
    if isinstance(request, MultiProduceRequest):
        return list(request.produces)
    return [request] if isinstance(request, ProduceRequest) else []


@pytest.mark.parametrize("vector", [v for v in REQUESTS if name_of(v) not in UNDECODABLE])
def test_recorded_requests_are_read_and_written_alike(vector):
    recorded = VECTORS[vector]
    encoded = decode_request(recorded[4:]).encode()

    if name_of(vector) == "produce-trailing-junk":
        recorded = (len(recorded) - 8).to_bytes(4, "big") + recorded[4:].removesuffix(b"JUNK")
    assert encoded == recorded


@pytest.mark.parametrize("vector", [v for v in REQUESTS if name_of(v) in UNDECODABLE])
def test_recorded_requests_that_are_none_are_refused(vector):
    assert closed(vector)
    receiver = RequestReceiver(100 * 1024 * 1024, MAX_MESSAGE_BYTES)
    receiver.receive_data(VECTORS[vector])
    with pytest.raises(RemoteProtocolError):
        receiver.next_request()


@pytest.mark.parametrize("vector", [v for v in REQUESTS if name_of(v) not in UNDECODABLE])
def test_recorded_message_sets_are_judged_as_07_did(vector):
    request = decode_request(VECTORS[vector][4:])
    refused = False
    for produce in produces_in(request):
        try:
            check = check_message_set(produce.message_set, max_message_bytes=MAX_MESSAGE_BYTES)
        except InvalidMessageError:
            refused = True
        else:
            behaviour = BEHAVIOURS.get(name_of(vector), {})
            after, before = behaviour.get("log_bytes_after"), behaviour.get("log_bytes_before")
            if after is not None and not closed(vector):
                assert check.valid_bytes == after - (before or 0)
    assert refused == (closed(vector) and name_of(vector) not in DECIDED_BY_THE_BROKER)


def test_sizes_that_were_too_large_for_the_recording():
    def produced(*payloads, codec=Codec.NONE):
        message_set = encode_message_set(payloads, codec)
        return check_message_set(message_set, max_message_bytes=MAX_MESSAGE_BYTES).valid_bytes

    assert BEHAVIOURS["produce-largest"]["log_bytes_after"] == produced(bytes(1_000_000))
    assert BEHAVIOURS["produce-gzip-bomb"]["connection_after"] == "open"
    assert produced(bytes(1_500_000), codec=Codec.GZIP)
    for payloads in ([bytes(1_000_001)], [b"ok", bytes(1_000_001)]):
        with pytest.raises(MessageTooLargeError):
            produced(*payloads)


@pytest.mark.parametrize("vector", [v for v in REQUESTS if "jvm/" in v and "produce" in v])
def test_the_jvm_wrote_its_message_sets_as_we_do(vector):
    for produce in produces_in(decode_request(VECTORS[vector][4:])):
        shallow = [m for m, _ in MessageSet(produce.message_set).iterate(deep=False)]
        if len(shallow) == 1 and shallow[0].codec is Codec.GZIP:
            # The same bytes inside; how well they are compressed is each library's own.
            inside = [m.payload for m, _ in MessageSet(produce.message_set)]
            ours = encode_message_set(inside, Codec.GZIP)
            assert [m.payload for m, _ in MessageSet(ours)] == inside
        else:
            payloads = [m.payload for m in shallow]
            assert encode_message_set(payloads) == bytes(produce.message_set)


def answer_of(vector):
    """Write the answer again from what was read of it."""
    request = decode_request(VECTORS[vector.replace(".response", ".request")][4:])
    body = VECTORS[vector][4:]
    if isinstance(request, OffsetsRequest):
        return encode_offsets_response(decode_offsets_response(body))
    if isinstance(request, MultiFetchRequest):
        entries = decode_multifetch_response(body)
        sends = b"".join(
            fetch_response_header(len(messages), error) + messages for error, messages in entries
        )
        return multifetch_response_header(len(sends)) + sends
    error, messages = decode_fetch_response(body)
    return fetch_response_header(len(messages), error) + bytes(messages)


@pytest.mark.parametrize("vector", RESPONSES)
def test_recorded_answers_are_read_and_written_alike(vector):
    assert answer_of(vector) == VECTORS[vector]


def test_the_codes_in_recorded_answers():
    def error(name):
        return decode_fetch_response(VECTORS[name + ".response"][4:]).error

    assert error("fetch-t1") is ErrorCode.NONE
    assert error("fetch-past-end") is ErrorCode.OFFSET_OUT_OF_RANGE
    assert error("fetch-wrong-partition") is ErrorCode.WRONG_PARTITION
    assert error("fetch-bad-topic") is ErrorCode.UNKNOWN
    multi = decode_multifetch_response(VECTORS["multifetch.response"][4:])
    assert [entry.error for entry in multi] == [0, 1, 3, 0]


def fetched(name):
    return MessageSet(decode_fetch_response(VECTORS[name + ".response"][4:]).messages)


def test_recorded_fetches_are_iterated_over():
    assert [(m.payload, m.magic, n) for m, n in fetched("fetch-t1")] == [
        (b"hello", 1, 15),
        (b"old", 0, 27),
        (b"hello", 1, 42),
        (b"world!", 1, 58),
        (b"", 1, 68),
    ]
    assert [m.payload for m, _ in fetched("fetch-partial")] == [b"hello"]
    assert (list(fetched("fetch-small")), fetched("fetch-small").first_message_size) == ([], 15)


def test_recorded_compressed_fetches_are_iterated_over():
    assert [(m.payload, n) for m, n in fetched("fetch-gzip")][:6] == [
        (b"hello", 0),
        (b"world!", 0),
        (b"", 67),
        (b"hello", 67),
        (b"world!", 67),
        (b"", 131),
    ]
    assert fetched("fetch-gzip").next_offset == len(fetched("fetch-gzip"))
    snappy = [(m.payload, n) for m, n in fetched("fetch-snappy")]
    assert snappy == [
        (b"hello", 0),
        (b"world!", 0),
        (b"", 73),
        (b"hello", 73),
        (b"world!", 73),
        (b"", 126),
    ]


def test_a_corrupt_fetch_names_the_bad_and_the_next_offset():
    with pytest.raises(InvalidMessageError) as caught:
        list(fetched("fetch-corrupt-segment"))
    assert (caught.value.offset, caught.value.next_offset) == (0, 38)
    with pytest.raises(InvalidMessageError) as caught:
        list(MessageSet(fetched("fetch-garbage").data, 30))
    assert (caught.value.offset, caught.value.next_offset) == (30, 39)


@pytest.mark.parametrize("vector", SEGMENTS)
def test_recorded_segments_are_message_sets(vector):
    segment = VECTORS[vector]

    check = check_message_set(segment, max_message_bytes=MAX_MESSAGE_BYTES)
    assert check.valid_bytes == len(segment)
    assert check.message_count == len(list(MessageSet(segment)))
    shallow = [m for m, _ in MessageSet(segment).iterate(deep=False)]
    assert b"".join(map(Message.encode, shallow)) == segment


def test_snappy_is_written_as_the_jvm_wrote_it():
    inside = VECTORS["produce-set-of-3.request"][-41:]
    (wrapper, _), *_ = fetched("fetch-snappy").iterate(deep=False)

    assert compress(Codec.SNAPPY, inside) == wrapper.payload


def recorded_topics():
    for name, behaviour in BEHAVIOURS.items():
        if name.startswith("topic names"):
            for quoted, outcome in behaviour["observed"].items():
                topic = ast.literal_eval(quoted)
                if repeated := re.fullmatch(r"(.)\*(\d+)", topic):
                    topic = repeated[1] * int(repeated[2])
                yield topic, outcome["fetch"] != "00000002ffff"


@pytest.mark.parametrize(("topic", "legal"), list(recorded_topics()))
def test_topic_names_are_judged_as_07_did(topic, legal):
    if legal:
        check_topic_name(topic)
    else:
        with pytest.raises(InvalidTopicError):
            check_topic_name(topic)


def test_every_recorded_request_type_was_met():
    kinds = {
        type(decode_request(VECTORS[v][4:])) for v in REQUESTS if name_of(v) not in UNDECODABLE
    }

    assert kinds == {
        ProduceRequest,
        FetchRequest,
        MultiFetchRequest,
        MultiProduceRequest,
        OffsetsRequest,
    }
