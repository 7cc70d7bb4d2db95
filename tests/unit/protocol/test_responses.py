from dataclasses import replace

import pytest

from hermes import errors
from hermes.protocol import (
    AppendRun,
    AppendTimesResponse,
    BrokerMetadata,
    ErrorCode,
    FetchedEntry,
    PartitionMetadata,
    ProducedEntry,
    TopicMetadata,
    WaitingFetchedEntry,
    decode_acknowledged_produce_response,
    decode_append_times_response,
    decode_boundary_response,
    decode_error_response,
    decode_fetch_response,
    decode_metadata_response,
    decode_multifetch_response,
    decode_offsets_response,
    decode_waiting_fetch_response,
    encode_acknowledged_produce_response,
    encode_append_times_response,
    encode_boundary_response,
    encode_error_response,
    encode_metadata_response,
    encode_offsets_response,
    fetch_response_header,
    multifetch_response_header,
    waiting_fetch_entry_header,
    waiting_fetch_response_header,
)

HELLO = bytes.fromhex("0000000b01003610a68668656c6c6f")

METADATA = BrokerMetadata(
    broker_id=7,
    version="0.1.0",
    max_request_bytes=104857600,
    max_message_bytes=1000000,
    default_partitions=2,
    request_versions=((0, 0), (66, 0)),
    topics=(
        TopicMetadata("t1", ErrorCode.NONE, 2, (PartitionMetadata(1, 114, 532, 600),), True),
        TopicMetadata("a/b", ErrorCode.INVALID_TOPIC, 0, ()),
    ),
)

# Answer bodies with their size: golden bytes and what they mean.
FETCH = bytes.fromhex("00000011 0000 0000000b01003610a68668656c6c6f")
MULTIFETCH = bytes.fromhex(
    "00000029 0000 00000011 0000 0000000b01003610a68668656c6c6f"
    "00000002 0001 00000002 0003 00000002 0000"
)
OFFSETS = bytes.fromhex("00000016 0000 00000002 0000000000000214 00000000000001c8")
PRODUCED = bytes.fromhex(
    "00000020 0000 0002 00000003 0000 0000000000001000 ffffffff 0040 ffffffffffffffff"
)
WAITED = bytes.fromhex(
    "0000002f 0000 0002 0000 0000000000000214 0000000f 0000000b01003610a68668656c6c6f"
    "0003 ffffffffffffffff 00000000"
)
METADATA_BYTES = bytes.fromhex(
    "00000062 0000 00000007 0005 302e312e30 06400000 000f4240 00000002"
    "0002 0000 0000 0042 0000"
    "00000002"
    "0002 7431 0000 00000002 00000001"
    "00000001 0000000000000072 0000000000000214 0000000000000258"
    "0003 612f62 0042 00000000 00000000"
    "01 00"
)
APPEND_TIMES = bytes.fromhex(
    "0000002e 0000 000000000000012c 00000002"
    "0000000000000072 000000000036ee80 00000000000000c8 ffffffffffffffff"
)
BOUNDARY = bytes.fromhex("0000000a 0000 0000000000000072")


def test_fetch():
    assert fetch_response_header(15) + HELLO == FETCH
    assert fetch_response_header(0, ErrorCode.UNKNOWN) == bytes.fromhex("00000002 ffff")
    assert decode_fetch_response(FETCH[4:]) == FetchedEntry(ErrorCode.NONE, memoryview(HELLO))
    assert decode_fetch_response(bytes.fromhex("ffff")).error is ErrorCode.UNKNOWN


def test_multifetch():
    sends = (
        fetch_response_header(15)
        + HELLO
        + b"".join(fetch_response_header(0, error) for error in (1, 3, 0))
    )
    assert multifetch_response_header(len(sends)) + sends == MULTIFETCH
    assert [(e, bytes(m)) for e, m in decode_multifetch_response(MULTIFETCH[4:])] == [
        (0, HELLO),
        (1, b""),
        (3, b""),
        (0, b""),
    ]
    assert decode_multifetch_response(bytes.fromhex("0000")) == []


def test_offsets():
    assert encode_offsets_response([532, 456]) == OFFSETS
    assert decode_offsets_response(OFFSETS[4:]) == [532, 456]
    assert encode_offsets_response([]) == bytes.fromhex("00000006 0000 00000000")


def test_acknowledged_produce():
    entries = [
        ProducedEntry(3, ErrorCode.NONE, 4096),
        ProducedEntry(-1, ErrorCode.MESSAGE_TOO_LARGE, -1),
    ]
    assert encode_acknowledged_produce_response(entries) == PRODUCED
    assert decode_acknowledged_produce_response(PRODUCED[4:]) == entries


def test_acknowledged_produce_with_reasons():
    entries = [
        ProducedEntry(3, ErrorCode.NONE, 4096),
        ProducedEntry(-1, ErrorCode.STORAGE_UNAVAILABLE, -1, "no room"),
    ]
    encoded = encode_acknowledged_produce_response(entries)
    after = bytes.fromhex("0000 0007") + b"no room"
    plain = encode_acknowledged_produce_response([entries[0], replace(entries[1], reason="")])
    assert encoded == (len(plain) - 4 + len(after)).to_bytes(4) + plain[4:] + after
    assert decode_acknowledged_produce_response(encoded[4:]) == entries
    for length in range(len(plain) + 1, len(encoded)):
        with pytest.raises(errors.RemoteProtocolError):
            decode_acknowledged_produce_response(encoded[4:length])


def test_waiting_fetch():
    entries = (
        waiting_fetch_entry_header(ErrorCode.NONE, 532, 15)
        + HELLO
        + waiting_fetch_entry_header(ErrorCode.WRONG_PARTITION, -1, 0)
    )
    assert waiting_fetch_response_header(len(entries), 2) + entries == WAITED
    assert decode_waiting_fetch_response(WAITED[4:]) == [
        WaitingFetchedEntry(ErrorCode.NONE, 532, memoryview(HELLO)),
        WaitingFetchedEntry(ErrorCode.WRONG_PARTITION, -1, memoryview(b"")),
    ]


def test_metadata():
    assert encode_metadata_response(METADATA) == METADATA_BYTES
    assert decode_metadata_response(METADATA_BYTES[4:]) == METADATA


def test_metadata_from_before_there_were_formats():
    topics = decode_metadata_response(METADATA_BYTES[4:-2]).topics
    assert [each.topic for each in topics] == ["t1", "a/b"]
    assert not any(each.holds_records for each in topics)


def test_metadata_say_how_many_copies_topics_of_kafkas_format_have():
    copied = TopicMetadata("t", ErrorCode.NONE, 1, (), holds_records=True, copies=3)
    metadata = replace(METADATA, topics=(*METADATA.topics, copied))
    assert decode_metadata_response(encode_metadata_response(metadata)[4:]) == metadata


def test_a_broker_of_a_cluster_has_some_numbers_of_a_topic_of_kafkas_format():
    told = tuple(PartitionMetadata(number, 0, 1, 70) for number in (1, 3))
    assert list(TopicMetadata("t", ErrorCode.NONE, 4, told, holds_records=True).numbers) == [1, 3]
    assert list(TopicMetadata("t", ErrorCode.NONE, 4, told).numbers) == [0, 1, 2, 3]
    assert list(TopicMetadata("t", ErrorCode.UNKNOWN_TOPIC, 4, ()).numbers) == [0, 1, 2, 3]


def test_boundary():
    assert encode_boundary_response(ErrorCode.NONE, 114) == BOUNDARY
    assert decode_boundary_response(BOUNDARY[4:]) == 114
    refused = encode_boundary_response(ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert refused == bytes.fromhex("0000000a 0001 ffffffffffffffff")
    with pytest.raises(errors.OffsetOutOfRangeBrokerError):
        decode_boundary_response(refused[4:])


def test_append_times():
    answer = AppendTimesResponse(300, [AppendRun(114, 3_600_000), AppendRun(200, None)])
    assert encode_append_times_response(answer) == APPEND_TIMES
    assert decode_append_times_response(APPEND_TIMES[4:]) == answer
    nothing = bytes.fromhex("0000000e 0000 0000000000000072 00000000")
    assert encode_append_times_response(AppendTimesResponse(114, [])) == nothing
    assert decode_append_times_response(nothing[4:]) == (114, [])


def test_answers_that_are_only_a_code():
    assert encode_error_response(ErrorCode.NONE) == bytes.fromhex("00000002 0000")
    decode_error_response(bytes.fromhex("0000"))


OWN_DECODERS = [
    decode_offsets_response,
    decode_multifetch_response,
    decode_error_response,
    decode_acknowledged_produce_response,
    decode_waiting_fetch_response,
    decode_metadata_response,
    decode_boundary_response,
    decode_append_times_response,
]


@pytest.mark.parametrize("decode", OWN_DECODERS)
def test_an_answer_that_refuses_the_request_is_raised(decode):
    refusal = encode_error_response(ErrorCode.UNSUPPORTED_VERSION)[4:]
    with pytest.raises(errors.UnsupportedRequestVersionError, match=r"^asked b1: "):
        decode(refusal, detail="asked b1")


@pytest.mark.parametrize("decode", OWN_DECODERS)
def test_an_unknown_refusal_is_raised_with_its_code(decode):
    with pytest.raises(errors.UnknownBrokerError) as caught:
        decode(bytes.fromhex("7abc"))
    assert caught.value.code == 0x7ABC


@pytest.mark.parametrize(
    ("decode", "answer"),
    [
        (decode_offsets_response, OFFSETS),
        (decode_acknowledged_produce_response, PRODUCED),
        (decode_waiting_fetch_response, WAITED),
        (decode_metadata_response, METADATA_BYTES),
        (decode_boundary_response, BOUNDARY),
        (decode_append_times_response, APPEND_TIMES),
        (decode_error_response, bytes.fromhex("000000020000")),
    ],
)
def test_answers_that_are_cut_short_are_refused(decode, answer):
    wholes = {len(METADATA_BYTES) - 2} if answer is METADATA_BYTES else set()  # without formats
    for length in set(range(4, len(answer))) - wholes:
        with pytest.raises(errors.RemoteProtocolError):
            decode(answer[4:length])


def test_a_multifetch_that_is_cut_short_is_refused():
    entry_ends = {2, 2 + 21, 2 + 27, 2 + 33}  # nothing seems to lack there
    for length in set(range(len(MULTIFETCH) - 4)) - entry_ends:
        with pytest.raises(errors.RemoteProtocolError):
            decode_multifetch_response(MULTIFETCH[4 : 4 + length])


@pytest.mark.parametrize(
    ("decode", "body"),
    [
        (decode_fetch_response, "00"),
        (decode_offsets_response, "0000 ffffffff"),
        (decode_acknowledged_produce_response, "0000 ffff"),
        (decode_waiting_fetch_response, "0000 ffff"),
        (decode_waiting_fetch_response, "0000 0001 0000 0000000000000000 ffffffff"),
        (decode_multifetch_response, "0000 ffffffff"),
        (decode_multifetch_response, "0000 00000001 00"),
    ],
)
def test_nonsense_is_refused(decode, body):
    with pytest.raises(errors.RemoteProtocolError):
        decode(bytes.fromhex(body))


def test_a_claimed_count_costs_nothing():
    with pytest.raises(errors.RemoteProtocolError):
        decode_offsets_response(bytes.fromhex("0000 7fffffff"))


def test_unknown_codes_of_entries_are_kept():
    (entry,) = decode_acknowledged_produce_response(
        bytes.fromhex("0000 0001 00000000 7abc ffffffffffffffff")
    )
    assert entry.error == 0x7ABC
