import pytest

from hermes.errors import LocalProtocolError, RemoteProtocolError
from hermes.protocol import (
    REQUEST_VERSIONS,
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
    UnsupportedRequest,
    WaitingFetchRequest,
    decode_request,
)

HELLO = bytes.fromhex("0000000b01003610a68668656c6c6f")

# Golden bytes: 0.7's as recorded from a 0.7.2 broker and its clients, ours as documented in
# docs/wire-protocol.md.
REQUESTS = {
    "produce": (
        ProduceRequest("t1", 0, HELLO),
        "0000001d 0000 0002 7431 00000000 0000000f 0000000b01003610a68668656c6c6f",
    ),
    "fetch": (
        FetchRequest("t1", 0, 3, 30),
        "00000016 0001 0002 7431 00000000 0000000000000003 0000001e",
    ),
    "multifetch": (
        MultiFetchRequest((FetchRequest("t1", 5, 0, 100), FetchRequest("é", 0, 1 << 40, 1))),
        "0000002c 0002 0002"
        "0002 7431 00000005 0000000000000000 00000064"
        "0002 c3a9 00000000 0000010000000000 00000001",
    ),
    "multifetch of nothing": (MultiFetchRequest(()), "00000004 0002 0000"),
    "multiproduce": (
        MultiProduceRequest((ProduceRequest("mp1", 0, HELLO), ProduceRequest("", -1, b""))),
        "0000002a 0003 0002 0003 6d7031 00000000 0000000f 0000000b01003610a68668656c6c6f"
        "0000 ffffffff 00000000",
    ),
    "multiproduce of nothing": (MultiProduceRequest(()), "00000004 0003 0000"),
    "offsets": (
        OffsetsRequest("roll", 0, -2, 100),
        "00000018 0004 0004 726f6c6c 00000000 fffffffffffffffe 00000064",
    ),
    "acknowledged produce": (
        AcknowledgedProduceRequest(Acks.FLUSHED, 1500, (ProduceRequest("t1", -1, HELLO),)),
        "00000027 0040 0000 0002 000005dc 0001"
        "0002 7431 ffffffff 0000000f 0000000b01003610a68668656c6c6f",
    ),
    "waiting fetch": (
        WaitingFetchRequest(5000, 1, (FetchRequest("t1", 0, 3, 30),)),
        "00000022 0041 0000 00001388 00000001 00010002 7431 00000000 0000000000000003 0000001e",
    ),
    "record fetch": (
        RecordFetchRequest(5000, 1, (FetchRequest("t1", 0, 3, 30),)),
        "00000022 0052 0000 00001388 00000001 00010002 7431 00000000 0000000000000003 0000001e",
    ),
    "record produce": (
        RecordProduceRequest(Acks.FLUSHED, 1500, (ProduceRequest("t1", 0, b"batch"),)),
        "0000001d 0053 0000 0002 000005dc 0001 0002 7431 00000000 00000005 6261746368",
    ),
    "metadata": (MetadataRequest(("t1", "")), "0000000c 0042 0000 0002 0002 7431 0000"),
    "metadata of no topic": (MetadataRequest(()), "00000006 0042 0000 0000"),
    "metadata of all topics": (MetadataRequest(None), "00000006 0042 0000 ffff"),
    "boundary": (
        BoundaryRequest("t1", 1, 4096),
        "00000014 0043 0000 0002 7431 00000001 0000000000001000",
    ),
    "delete topic": (DeleteTopicRequest("t1"), "00000008 0044 0000 0002 7431"),
    "append times": (
        AppendTimesRequest("t1", 1, 4096, 8192, 3_600_000),
        "00000024 0045 0000 0002 7431 000000010000000000001000 0000000000002000 000000000036ee80",
    ),
    "coordination": (CoordinationRequest(), "00000004 0046 0000"),
    "create topic": (
        CreateTopicRequest("t1", (("a", "8"),)),
        "00000010 0047 0000 0002 7431 0001 0001 61 0001 38",
    ),
    "alter topic": (
        AlterTopicRequest("t1", (("a", "8"),), ("b",)),
        "00000015 0048 0000 0002 7431 0001 0001 61 0001 38 0001 0001 62",
    ),
    "alter topic, all reset": (
        AlterTopicRequest("t1", (), None),
        "0000000c 0048 0000 0002 7431 0000 ffff",
    ),
    "reload": (ReloadConfigRequest(), "00000004 0049 0000"),
    "settings": (DescribeSettingsRequest("t1"), "00000008 004a 0000 0002 7431"),
    "settings of the broker": (DescribeSettingsRequest(""), "00000006 004a 0000 0000"),
    "partitions": (
        DescribePartitionsRequest("t1", 64),
        "0000000c 004b 0000 0002 7431 00000040",
    ),
    "log lines": (RecentLogLinesRequest(-1, 100), "0000000e 004c 0000 ffffffffffffffff 0064"),
    "mirrored produce": (
        MirroredProduceRequest(
            2,
            1500,
            (
                MirroredSet("ab", 3, "s", 4, 6, SourceFlags.VERBATIM | SourceFlags.FOLLOWS, b"xy"),
                MirroredSet("ab", 0, "s", 6, 9, SourceFlags.NONE, b""),
            ),
        ),
        "00000050 004d 0000 0002 000005dc 0002"
        " 0002 6162 00000003 0001 73 0000000000000004 0000000000000006 0003 00000002 7879"
        " 0002 6162 00000000 0001 73 0000000000000006 0000000000000009 0000 00000000",
    ),
    "source positions": (
        SourcePositionsRequest("ab", -1, True, 7),
        "00000016 004e 0000 0002 6162 ffffffff 0001 0000000000000007",
    ),
    "cluster id": (ClusterIdRequest(), "00000004 004f 0000"),
    "authenticate": (
        AuthenticateRequest("AB", b"n,,"),
        "0000000f 0050 0000 0002 4142 00000003 6e2c2c",
    ),
    "cluster brokers": (ClusterBrokersRequest(), "00000004 0051 0000"),
    "a later version": (UnsupportedRequest(66, 1), "00000004 0042 0001"),
}


@pytest.fixture(params=REQUESTS.values(), ids=REQUESTS.keys())
def golden(request):
    value, encoded = request.param
    return value, bytes.fromhex(encoded)


def test_requests_are_encoded(golden):
    value, encoded = golden
    assert value.encode() == encoded


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_requests_are_decoded(golden, kind):
    value, encoded = golden
    assert decode_request(kind(encoded[4:])) == value


def test_what_follows_a_request_is_ignored(golden):
    value, encoded = golden
    assert decode_request(encoded[4:] + b"XENK") == value


def test_requests_that_are_cut_short_are_refused(golden):
    _, encoded = golden
    for length in range(4, len(encoded)):
        with pytest.raises(RemoteProtocolError):
            decode_request(encoded[4:length])


def test_message_sets_are_views_of_the_request():
    _, encoded = REQUESTS["produce"]
    received = bytearray.fromhex(encoded)[4:]
    request = decode_request(received)

    received[-1] ^= 0xFF
    assert request.message_set[-1] == HELLO[-1] ^ 0xFF


@pytest.mark.parametrize(
    ("why", "frame"),
    [
        ("unknown type", "0005"),
        ("negative type", "ffff"),
        ("unknown type of ours", "0045 0000"),
        ("negative count", "0002 ffff"),
        ("negative count", "0003 ffff"),
        ("negative count", "0040 0000 0001 00000000 ffff"),
        ("negative count", "0041 0000 00000000 00000000 ffff"),
        ("negative count other than -1", "0042 0000 fffe"),
        ("topic of length -1", "0000 ffff 00000000 00000000"),
        ("topic of length -1", "0001 ffff 00000000 0000000000000000 000003e8"),
        ("topic of length -1", "0002 0001 ffff 00000000 0000000000000000 000003e8"),
        ("topic of length -1", "0004 ffff 00000000 0000000000000000 000003e8"),
        ("topic of length -1", "0040 0000 0001 00000000 0001 ffff 00000000 00000000"),
        ("topic of length -1", "0042 0000 0001 ffff"),
        ("topic of length -1", "0044 0000 ffff"),
        ("topic beyond the request", "0001 0015 7431 00000000 0000000000000000 000003e8"),
        ("too many settings", "0047 0000 0002 7431 0041" + "0001 61 0001 61" * 65),
        ("negative count of settings", "0047 0000 0002 7431 ffff"),
        ("negative count other than -1", "0048 0000 0002 7431 0000 fffe"),
        ("set of negative size", "0000 0002 7431 00000000 ffffffff"),
        ("set beyond the request", "0000 0002 7431 00000000 00000005 00000000"),
        ("set beyond the request", "0003 0001 0002 7431 00000000 00000005 00000000"),
        ("no version", "0042"),
    ],
)
def test_where_07_closes_a_request_is_refused(why, frame):
    with pytest.raises(RemoteProtocolError):
        decode_request(bytes.fromhex(frame))


def test_a_topic_of_negative_length_in_a_multiproduce_waits_for_its_turn():
    # 0.7 carries out the entries before it, and closes when it comes to this one.
    request = decode_request(
        bytes.fromhex("0003 0002 0002 7431 00000000 00000000 ffff 00000000 00000000")
    )

    assert [produce.topic for produce in request.produces] == ["t1", ""]


def test_a_topic_of_broken_utf8_becomes_an_illegal_name():
    request = decode_request(bytes.fromhex("0001 0002 fffe 00000000 0000000000000000 00000001"))

    assert request.topic == "\ufffd\ufffd"


def test_unknown_acks_are_left_to_the_broker():
    request = decode_request(bytes.fromhex("0040 0000 0003 00000000 0000"))

    assert request.acks == 3
    assert request.acks not in (Acks.WRITTEN, Acks.FLUSHED)


def test_every_request_type_is_announced_with_its_version():
    types = {type(value).TYPE for value, _ in REQUESTS.values() if hasattr(value, "TYPE")}

    assert dict(REQUEST_VERSIONS) == dict.fromkeys(types, 0)


@pytest.mark.parametrize(
    "request_",
    [
        FetchRequest("t1", 1 << 31, 0, 0),
        FetchRequest("t1", 0, 1 << 63, 0),
        FetchRequest("x" * 32_768, 0, 0, 0),
        FetchRequest("\ud800", 0, 0, 0),
        MultiFetchRequest((FetchRequest("t", 0, 0, 0),) * 32_768),
        MetadataRequest(("t",) * 32_768),
    ],
    ids=range(6),
)
def test_what_does_not_fit_the_wire_is_our_fault(request_):
    with pytest.raises(LocalProtocolError):
        request_.encode()
