"""Any chunking of any stream gives the same requests; a run counts as its requests."""

from itertools import pairwise

from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.errors import RemoteProtocolError
from hermes.protocol import (
    AcknowledgedProduceRequest,
    Codec,
    FetchRequest,
    MultiProduceRequest,
    PlainAcknowledgedProduce,
    ProduceRequest,
    ProduceRun,
    RecordFetchRequest,
    RequestReceiver,
    ResponseReceiver,
    WaitingFetchRequest,
    check_message_set,
    encode_message,
    encode_message_set,
    frame,
)

MAX_REQUEST_BYTES = 2000
MAX_MESSAGE_BYTES = 300

topics = st.sampled_from(["t", "t1", "t2", "", "längeres Thema"])
partitions = st.sampled_from([0, 0, 0, 1, -1, -2])
payloads = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"", bytes(MAX_MESSAGE_BYTES), bytes(MAX_MESSAGE_BYTES + 1)]),
)
plain_sets = st.lists(payloads, max_size=4).map(encode_message_set)
message_sets = st.one_of(
    plain_sets,
    plain_sets,
    plain_sets,
    plain_sets.map(lambda encoded: encoded[:-1]),
    st.lists(payloads, max_size=3).map(lambda each: encode_message_set(each, Codec.GZIP)),
    st.lists(payloads, max_size=3).map(lambda each: encode_message_set(each, magic=0)),
    st.binary(max_size=40),
)
produces = st.builds(ProduceRequest, topics, partitions, message_sets)


acknowledged = st.builds(
    AcknowledgedProduceRequest,
    st.integers(1, 3),
    st.sampled_from([-1, 1500]),
    st.lists(produces, min_size=1, max_size=2).map(tuple),
)


def with_junk(request, junk):
    encoded = request.encode()
    return (len(encoded) - 4 + len(junk)).to_bytes(4, "big") + encoded[4:] + junk


requests = st.one_of(
    produces.map(ProduceRequest.encode),
    produces.map(ProduceRequest.encode),
    produces.map(ProduceRequest.encode),
    st.builds(with_junk, produces | acknowledged, st.binary(max_size=5)),
    acknowledged.map(AcknowledgedProduceRequest.encode),
    st.builds(FetchRequest, topics, partitions, st.just(0), st.just(100)).map(FetchRequest.encode),
    st.builds(MultiProduceRequest, st.lists(produces, max_size=2).map(tuple)).map(
        MultiProduceRequest.encode
    ),
)
# Streams may end in anything at all; what came before must come out nonetheless.
streams = st.builds(
    lambda whole, repeat, rest: b"".join(whole) * repeat + rest,
    st.lists(requests, max_size=6),
    st.integers(1, 3),
    st.one_of(st.just(b""), st.binary(max_size=12), requests.map(lambda encoded: encoded[:-1])),
)


def as_requests(taken):
    """A run as the requests it stands for, of which only the sets' bytes are left."""
    if isinstance(taken, ProduceRun):
        assert taken.byte_count == sum(map(len, taken.buffers))
        assert taken.request_count == len(taken.buffers)
        checks = [
            check_message_set(buffer, max_message_bytes=MAX_MESSAGE_BYTES)
            for buffer in taken.buffers
        ]
        assert [check.valid_bytes for check in checks] == [len(buffer) for buffer in taken.buffers]
        assert sum(check.message_count for check in checks) == taken.message_count
        return [
            ProduceRequest(taken.topic, taken.partition, bytes(buffer)) for buffer in taken.buffers
        ]
    if isinstance(taken, PlainAcknowledgedProduce):
        check = check_message_set(taken.message_set, max_message_bytes=MAX_MESSAGE_BYTES)
        assert check.valid_bytes == len(taken.message_set)
        assert check.message_count == taken.message_count > 0
        assert taken.partition >= 0
        return [taken.decoded()]
    return [taken]


def received(pieces):
    receiver = RequestReceiver(MAX_REQUEST_BYTES, MAX_MESSAGE_BYTES)
    taken = []
    failed = False
    for piece in pieces:
        receiver.receive_data(piece)
        try:
            while (request := receiver.next_request()) is not None:
                taken += as_requests(request)
            assert len(receiver.partial) == receiver.buffered_bytes
        except RemoteProtocolError:
            failed = True
    return taken, failed, None if failed else receiver.buffered_bytes


def cut(stream, positions):
    places = [0, *sorted(positions), len(stream)]
    return [stream[a:b] for a, b in pairwise(places)]


@given(streams, st.data())
def test_any_chunking_gives_the_same_requests(stream, data):
    whole = received([stream])
    positions = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))

    assert received(cut(stream, positions)) == whole


@settings(max_examples=examples(50))
@given(streams)
def test_bytes_may_come_one_by_one(stream):
    assert received([stream[n : n + 1] for n in range(len(stream))]) == received([stream])


@given(streams, st.data())
def test_several_pieces_may_arrive_before_anything_is_taken(stream, data):
    positions = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    receiver = RequestReceiver(MAX_REQUEST_BYTES, MAX_MESSAGE_BYTES)
    for piece in cut(stream, positions):
        receiver.receive_data(piece)
    taken = []
    failed = False
    try:
        while (request := receiver.next_request()) is not None:
            taken += as_requests(request)
    except RemoteProtocolError:
        failed = True

    assert (taken, failed) == received([stream])[:2]


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=10), st.data())
def test_any_chunking_gives_the_same_answers(answers, data):
    stream = b"".join(len(answer).to_bytes(4, "big") + answer for answer in answers)
    positions = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    receiver = ResponseReceiver(50)
    taken = []
    for piece in cut(stream, positions):
        receiver.receive_data(piece)
        while (answer := receiver.next_response()) is not None:
            taken.append(bytes(answer))

    assert taken == answers


def test_runs_are_as_long_as_chunks_allow():
    """The property above holds for a receiver that never makes runs, too."""
    request = ProduceRequest("t", 0, encode_message(b"x")).encode()
    receiver = RequestReceiver(MAX_REQUEST_BYTES, MAX_MESSAGE_BYTES)
    receiver.receive_data(request * 1000)

    assert receiver.next_request().request_count == 1000


@st.composite
def fetches(draw):
    """Fetches of a few partitions, some with bytes behind them."""
    numbers = st.sampled_from([-1, 0, 7, 2**31 - 1])
    fetch = st.builds(FetchRequest, st.sampled_from(["t", "u"]), numbers, numbers, numbers)
    kind = draw(st.sampled_from([FetchRequest, WaitingFetchRequest, RecordFetchRequest]))
    if kind is FetchRequest:
        request = draw(fetch)
    else:
        several = tuple(draw(st.lists(fetch, min_size=0, max_size=2)))
        request = kind(draw(st.sampled_from([5, 6])), 1, several)
    body = request.encode()[4:] + draw(st.sampled_from([b"", b"", b"", bytes(12)]))
    return request, frame(body)


@given(st.lists(fetches(), max_size=12), st.booleans())
def test_fetches_that_go_on_are_what_they_are(several, at_once):
    receiver = RequestReceiver(MAX_REQUEST_BYTES, MAX_MESSAGE_BYTES)
    for piece in [b"".join(each for _, each in several)] if at_once else [e for _, e in several]:
        receiver.receive_data(piece)
    taken = [receiver.next_request() for _ in several]
    assert [(type(each), each) for each in taken] == [(type(each), each) for each, _ in several]
    assert receiver.next_request() is None
