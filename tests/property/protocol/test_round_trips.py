"""Whatever can be said on the wire is read as it was written."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.protocol import (
    MIN_CHARGE_BYTES,
    AcknowledgedProduceRequest,
    AlterTopicRequest,
    AppendRun,
    AppendTimesRequest,
    AppendTimesResponse,
    AuthenticateRequest,
    BoundaryRequest,
    BrokerMetadata,
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
    MirroredEntry,
    MirroredProduceRequest,
    MirroredSet,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    PartitionMetadata,
    PartitionPositions,
    ProducedEntry,
    ProduceRequest,
    RecentLogLinesRequest,
    ReloadConfigRequest,
    SourcePosition,
    SourcePositionsRequest,
    SourcePositionsResponse,
    SourceSpan,
    TopicMetadata,
    WaitingFetchRequest,
    check_message_set,
    compress,
    decode_acknowledged_produce_response,
    decode_append_times_response,
    decode_metadata_response,
    decode_mirrored_produce_response,
    decode_offsets_response,
    decode_request,
    decode_source_positions_response,
    decompress,
    encode_acknowledged_produce_response,
    encode_append_times_response,
    encode_message,
    encode_metadata_response,
    encode_mirrored_produce_response,
    encode_offsets_response,
    encode_source_positions_response,
    find_valid_message,
)

int16 = st.integers(-(1 << 15), (1 << 15) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
topics = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
codes = int16

fetches = st.builds(FetchRequest, topics, int32, int64, int32)
produces = st.builds(ProduceRequest, topics, int32, st.binary(max_size=60))
several = st.lists(fetches, max_size=4).map(tuple)
names = st.lists(topics, max_size=4).map(tuple)
settings = st.lists(st.tuples(topics, topics), max_size=4).map(tuple)
mirrored_sets = st.builds(
    MirroredSet, topics, int32, topics, int64, int64, int16, st.binary(max_size=60)
)
several_produces = st.lists(produces, max_size=4).map(tuple)

requests = st.one_of(
    produces,
    fetches,
    st.builds(MultiFetchRequest, several),
    st.builds(MultiProduceRequest, several_produces),
    st.builds(OffsetsRequest, topics, int32, int64, int32),
    st.builds(AcknowledgedProduceRequest, int16, int32, several_produces),
    st.builds(WaitingFetchRequest, int32, int32, several),
    st.builds(MetadataRequest, st.none() | st.lists(topics, max_size=4).map(tuple)),
    st.builds(BoundaryRequest, topics, int32, int64),
    st.builds(DeleteTopicRequest, topics),
    st.builds(AppendTimesRequest, topics, int32, int64, int64, int64),
    st.builds(CreateTopicRequest, topics, settings),
    st.builds(AlterTopicRequest, topics, settings, st.none() | names),
    st.builds(ReloadConfigRequest),
    st.builds(DescribeSettingsRequest, topics),
    st.builds(DescribePartitionsRequest, topics, int32),
    st.builds(RecentLogLinesRequest, int64, int16),
    st.builds(MirroredProduceRequest, int16, int32, st.lists(mirrored_sets, max_size=4).map(tuple)),
    st.builds(SourcePositionsRequest, topics, int32, st.booleans(), int64),
    st.builds(ClusterIdRequest),
    st.builds(ClusterBrokersRequest),
    st.builds(AuthenticateRequest, topics, st.binary(max_size=2048)),
)


@given(requests)
def test_requests(request):
    encoded = request.encode()

    assert int.from_bytes(encoded[:4], "big") == len(encoded) - 4
    assert decode_request(encoded[4:]) == request


@given(st.lists(int64, max_size=20))
def test_offsets(offsets):
    assert decode_offsets_response(encode_offsets_response(offsets)[4:]) == offsets


@given(st.lists(st.builds(ProducedEntry, int32, codes, int64, st.text(max_size=5)), max_size=10))
def test_acknowledgements(entries):
    encoded = encode_acknowledged_produce_response(entries)
    assert decode_acknowledged_produce_response(encoded[4:]) == entries


@given(st.lists(st.builds(MirroredEntry, codes, int64, int64), max_size=10))
def test_mirrored_produces(entries):
    encoded = encode_mirrored_produce_response(entries)
    assert decode_mirrored_produce_response(encoded[4:]) == entries


sources = st.builds(SourcePosition, int32, int64, topics)
positions = st.builds(PartitionPositions, int32, int64, int64, st.lists(sources, max_size=4))
spans = st.builds(SourceSpan, int32, int16, int64, int64, int64, int64)


@given(
    st.builds(
        SourcePositionsResponse, int64, st.lists(positions, max_size=4), st.lists(spans, max_size=4)
    )
)
def test_source_positions(answer):
    encoded = encode_source_positions_response(answer)
    assert decode_source_positions_response(encoded[4:]) == answer


runs = st.builds(AppendRun, int64, st.none() | st.integers(0, (1 << 63) - 1))


@given(st.builds(AppendTimesResponse, int64, st.lists(runs, max_size=10)))
def test_append_times(answer):
    assert decode_append_times_response(encode_append_times_response(answer)[4:]) == answer


partitions = st.builds(PartitionMetadata, int32, int64, int64, int64)
topic_metadata = st.builds(
    TopicMetadata, topics, codes, int32, st.lists(partitions, max_size=3).map(tuple), st.booleans()
)


@given(
    st.builds(
        BrokerMetadata,
        int32,
        topics,
        int32,
        int32,
        int32,
        st.lists(st.tuples(int16, int16), max_size=12).map(tuple),
        st.lists(topic_metadata, max_size=3).map(tuple),
    )
)
def test_metadata(metadata):
    assert decode_metadata_response(encode_metadata_response(metadata)[4:]) == metadata


@given(st.sampled_from([Codec.GZIP, Codec.SNAPPY]), st.binary(max_size=3000), st.integers(1, 50))
def test_compression(codec, data, times):
    data *= times
    assert decompress(codec, compress(codec, data), len(data) + MIN_CHARGE_BYTES) == data


# A tree of sets: payloads are leaves, lists with a codec are compressed messages.
payloads = st.binary(max_size=30)
codecs = st.sampled_from([Codec.GZIP, Codec.SNAPPY])
trees = st.recursive(
    st.tuples(payloads, st.sampled_from([0, 1])),
    lambda inner: st.tuples(codecs, st.lists(inner, max_size=4)),
    max_leaves=12,
)


def encode_tree(tree):
    match tree:
        case (Codec() as codec, list(inner)):
            packed = compress(codec, b"".join(map(encode_tree, inner)))
            return encode_message(packed, attributes=codec)
        case (bytes() as payload, int(magic)):
            return encode_message(payload, magic=magic)


def leaves(tree):
    match tree:
        case (Codec(), list(inner)):
            return [leaf for each in inner for leaf in leaves(each)]
        case (bytes() as payload, int()):
            return [payload]


@given(st.lists(trees, max_size=6), st.integers(0, 1 << 40), st.data())
def test_sets_of_all_kinds(forest, base, data):
    """Offsets are 0.7's, a cut anywhere leaves the whole messages, and the broker agrees."""
    encoded = [encode_tree(tree) for tree in forest]
    whole = b"".join(encoded)
    cut = data.draw(st.integers(0, len(whole)))
    expected, position = [], 0
    for tree, each in zip(forest, encoded, strict=True):
        if position + len(each) > cut:
            break
        inside = leaves(tree)
        expected += [(payload, base + position) for payload in inside[:-1]]
        position += len(each)
        expected += [(payload, base + position) for payload in inside[-1:]]

    message_set = MessageSet(whole[:cut], base)
    assert [(m.payload, n) for m, n in message_set] == expected
    assert message_set.next_offset == base + position
    if position or cut < 4:
        check = check_message_set(whole[:cut], max_message_bytes=1 << 20)
        assert (check.valid_bytes, check.message_count) == (position, len(expected))


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6), st.data())
def test_the_next_message_is_found_from_anywhere(payloads, data):
    """From within a message of text the next boundary is found; from a boundary, that one."""
    messages = [encode_message(payload.hex().encode()) for payload in payloads]
    log = b"".join(messages)
    boundaries = [sum(map(len, messages[:n])) for n in range(len(messages))]
    start = data.draw(st.integers(0, len(log)))

    expected = min((b for b in boundaries if b >= start), default=None)
    assert find_valid_message(log, start, max_message_bytes=100) == expected
