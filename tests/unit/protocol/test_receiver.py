import tracemalloc

import pytest

from hermes.errors import RemoteProtocolError
from hermes.protocol import (
    AcknowledgedProduceRequest,
    Codec,
    FetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    PlainAcknowledgedProduce,
    ProduceRequest,
    ProduceRun,
    RequestReceiver,
    ResponseReceiver,
    UnsupportedRequest,
    encode_message,
    encode_message_set,
)

MIB = 1024 * 1024
FETCH = FetchRequest("t1", 0, 3, 30)


def new_receiver(max_request_bytes=100 * MIB, max_message_bytes=1_000_000):
    return RequestReceiver(max_request_bytes, max_message_bytes)


def produce(topic="t1", partition=0, payloads=(b"hello",)):
    return ProduceRequest(topic, partition, encode_message_set(payloads))


def take_all(receiver):
    taken = []
    while (request := receiver.next_request()) is not None:
        taken.append(request)
    return taken


def receive(data, **limits):
    receiver = new_receiver(**limits)
    receiver.receive_data(data)
    return take_all(receiver)


def as_bytes(run):
    return [bytes(buffer) for buffer in run.buffers]


# -- requests and runs --------------------------------------------------------------------------


def test_nothing_comes_from_nothing():
    receiver = new_receiver()
    assert receiver.next_request() is None
    receiver.receive_data(b"")
    assert receiver.next_request() is None
    assert receiver.buffered_bytes == 0


def test_pipelined_requests_come_in_order():
    offsets = OffsetsRequest("t1", 0, -1, 1)
    assert receive(FETCH.encode() + offsets.encode() + FETCH.encode()) == [FETCH, offsets, FETCH]


def test_a_run_is_one_value_for_many_requests():
    requests = [produce(payloads=[b"one", b"two"]), produce(payloads=[b""]), produce()]
    (run,) = receive(b"".join(request.encode() for request in requests))

    assert type(run) is ProduceRun
    assert (run.topic, run.partition) == ("t1", 0)
    assert as_bytes(run) == [request.message_set for request in requests]
    assert (run.request_count, run.message_count) == (3, 4)
    assert run.byte_count == sum(len(request.message_set) for request in requests)
    assert repr(run) == "ProduceRun('t1', 0, 3 requests, 4 messages, 51 bytes)"


def test_a_run_goes_on_over_chunks():
    receiver = new_receiver()
    for _ in range(5):
        receiver.receive_data(produce().encode())
    receiver.receive_data(produce().encode()[:9])

    (run,) = take_all(receiver)
    assert run.request_count == 5
    assert receiver.buffered_bytes == 9


def test_a_run_includes_the_request_that_spans_chunks():
    stream = produce().encode() * 10
    receiver = new_receiver()
    receiver.receive_data(stream[:50])
    assert [run.request_count for run in take_all(receiver)] == [1]
    receiver.receive_data(stream[50:])
    assert [run.request_count for run in take_all(receiver)] == [9]


@pytest.mark.parametrize(
    "other",
    [
        FETCH,
        produce(topic="t2"),
        produce(topic="t"),
        produce(topic="t1x"),
        produce(partition=1),
        ProduceRequest("t1", 0, b""),
        ProduceRequest("t1", 0, encode_message(b"old", magic=0)),
        ProduceRequest("t1", 0, encode_message(b"bits", attributes=0xFC)),
        ProduceRequest("t1", 0, encode_message_set([b"a"], Codec.GZIP)),
        ProduceRequest("t1", 0, encode_message(b"bad")[:-1] + b"?"),
        ProduceRequest("t1", 0, encode_message(b"ok") + encode_message(b"bad")[:-1] + b"?"),
        ProduceRequest("t1", 0, encode_message(b"ok") + b"\0\0\0"),
        ProduceRequest("t1", 0, encode_message(b"ok") + encode_message(b"partial")[:-1]),
        ProduceRequest("t1", 0, bytes.fromhex("000000050100000000")),
        ProduceRequest("t1", 0, bytes.fromhex("ffffffff")),
        MultiProduceRequest((produce(), produce())),
    ],
)
def test_what_does_not_fit_a_run_ends_it_and_comes_by_itself(other):
    stream = produce().encode() * 2 + other.encode() + produce().encode() * 3
    before, middle, after = receive(stream)

    assert (type(before), before.request_count) == (ProduceRun, 2)
    assert (type(after), after.request_count) == (ProduceRun, 3)
    if type(middle) is ProduceRun:
        assert (middle.topic, middle.partition) == (other.topic, other.partition)
        assert as_bytes(middle) == [other.message_set]
    else:
        assert middle == other


def test_only_regular_sets_are_in_runs():
    irregular = ProduceRequest("t1", 0, encode_message(b"bad")[:-1] + b"?")

    assert receive(irregular.encode()) == [irregular]


def test_a_random_partition_is_chosen_for_each_request():
    runs = receive(produce(partition=-1).encode() * 3)

    assert [(run.partition, run.request_count) for run in runs] == [(-1, 1)] * 3


def test_extra_bytes_in_a_produce_are_ignored():
    request = bytes.fromhex(
        "00000020 0000 0005 746a756e6b 00000000 0000000b 0000000701008cdc168378 4a554e4b"
    )
    (run,) = receive(request * 2)

    assert as_bytes(run) == [bytes.fromhex("0000000701008cdc168378")] * 2


def test_payloads_above_the_limit_are_left_to_the_broker():
    limit = 1000
    exact = produce(payloads=[bytes(limit)])
    above = produce(payloads=[bytes(limit + 1)])
    among = produce(payloads=[b"x", bytes(limit + 1)])

    taken = receive(exact.encode() + above.encode() + among.encode(), max_message_bytes=limit)
    assert taken[-2:] == [above, among]


def test_buffers_stay_as_they_are():
    receiver = new_receiver()
    receiver.receive_data(produce(payloads=[b"a" * 100, b"b" * 100]).encode() * 2)
    (run,) = take_all(receiver)
    before = as_bytes(run)
    receiver.receive_data(produce(payloads=[b"c" * 500]).encode() * 50)
    take_all(receiver)

    assert as_bytes(run) == before


@pytest.mark.parametrize("size", [100_000, 200_000, 999_000, 3 * MIB])
def test_large_requests_come_whole(size):
    request = produce(payloads=[bytes(size // 2), bytes(size // 2)])
    stream = FETCH.encode() + request.encode() + FETCH.encode()
    receiver = new_receiver()
    taken = []
    for start in range(0, len(stream), 65_536):
        receiver.receive_data(stream[start : start + 65_536])
        taken += take_all(receiver)

    first, large, last = taken
    assert first == last == FETCH
    sets = large.buffers if type(large) is ProduceRun else [large.message_set]
    assert b"".join(sets) == request.message_set


# -- faults -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stream",
    [
        "00000000",
        "ffffffff",
        "06400001",
        "474554202f20485454502f312e300d0a0d0a",
        "000000020005",
        "00000002ffff",
        "0000000100",
        "000000080001000274310000",
        "0000001c0000000574706172740000000000000 1f40000000701008cdc168378".replace(" ", ""),
    ],
)
def test_what_is_no_request_is_refused_after_what_came_before(stream):
    receiver = new_receiver()
    receiver.receive_data(FETCH.encode() + produce().encode() + bytes.fromhex(stream))

    assert receiver.next_request() == FETCH
    assert receiver.next_request().request_count == 1
    for _ in range(3):
        with pytest.raises(RemoteProtocolError):
            receiver.next_request()
    receiver.receive_data(FETCH.encode())
    with pytest.raises(RemoteProtocolError):
        receiver.next_request()


def test_a_size_is_refused_before_its_body_arrives():
    receiver = new_receiver(max_request_bytes=100)
    for byte in (b"\0", b"\0", b"\0"):
        receiver.receive_data(byte)
        assert receiver.next_request() is None
    receiver.receive_data(b"\x65")
    with pytest.raises(RemoteProtocolError, match="101 bytes; 1 to 100"):
        receiver.next_request()


def test_the_limit_of_requests_is_exact():
    request = produce(payloads=[bytes(50)]).encode()
    limit = len(request) - 4

    (run,) = receive(request, max_request_bytes=limit)
    assert run.request_count == 1
    with pytest.raises(RemoteProtocolError):
        receive(request * 2, max_request_bytes=limit - 1)


def test_a_limit_that_is_lowered_meanwhile_is_told_with_the_next_bytes():
    receiver = new_receiver(max_request_bytes=1000)
    receiver.receive_data((900).to_bytes(4) + bytes(100))
    assert receiver.next_request() is None
    receiver.limit(500, 500)
    assert receiver.missing_bytes == 800  # whoever asks has nobody to tell of an error
    receiver.receive_data(bytes(100))
    with pytest.raises(RemoteProtocolError, match="900 bytes; 1 to 500"):
        receiver.next_request()


def test_a_nonsense_size_behind_a_run():
    receiver = new_receiver(max_request_bytes=100)
    receiver.receive_data(produce().encode() * 2 + produce(payloads=[bytes(200)]).encode())

    assert receiver.next_request().request_count == 2
    with pytest.raises(RemoteProtocolError):
        receiver.next_request()


# -- memory -------------------------------------------------------------------------------------


def test_bytes_held_are_counted():
    receiver = new_receiver()
    fetch = FETCH.encode()
    receiver.receive_data(fetch + fetch + fetch[:10])
    assert receiver.buffered_bytes == 2 * len(fetch) + 10
    receiver.next_request()
    assert receiver.buffered_bytes == len(fetch) + 10
    receiver.next_request()
    assert receiver.next_request() is None
    assert receiver.buffered_bytes == 10
    receiver.receive_data(fetch[10:15])
    assert receiver.next_request() is None
    assert receiver.buffered_bytes == 15
    receiver.receive_data(fetch[15:] + fetch)
    assert receiver.buffered_bytes == 2 * len(fetch)
    assert receiver.next_request() == FETCH
    assert receiver.buffered_bytes == len(fetch)
    assert take_all(receiver) == [FETCH]
    assert receiver.buffered_bytes == 0


def test_a_claim_of_100_mebibytes_costs_what_arrived():
    claim = (100 * MIB).to_bytes(4, "big") + bytes(1000)
    tracemalloc.start()
    try:
        receivers = [new_receiver() for _ in range(100)]
        for receiver in receivers:
            receiver.receive_data(claim)
            assert receiver.next_request() is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 100 * 5000
    assert receivers[0].buffered_bytes == 1004


def test_a_large_request_is_gathered_once():
    request = produce(payloads=[bytes(4 * MIB)]).encode()
    pieces = [request[start : start + 65_536] for start in range(0, len(request), 65_536)]
    tracemalloc.start()
    try:
        receiver = new_receiver(max_message_bytes=10 * MIB)
        for piece in pieces:
            receiver.receive_data(piece)
            taken = receiver.next_request()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert taken.byte_count == 4 * MIB + 10
    assert peak < 6 * MIB


# -- answers ------------------------------------------------------------------------------------


def test_answers_come_whole_and_in_order():
    receiver = ResponseReceiver(1000)
    stream = bytes.fromhex("000000020000 00000003000102 00000001ff")
    taken = []
    for byte in stream:
        receiver.receive_data(bytes([byte]))
        while (answer := receiver.next_response()) is not None:
            taken.append(bytes(answer))

    assert taken == [b"\0\0", b"\0\1\2", b"\xff"]
    assert receiver.buffered_bytes == 0


@pytest.mark.parametrize("size", ["00000000", "ffffffff", "000003e9"])
def test_nonsense_sizes_of_answers_are_refused(size):
    receiver = ResponseReceiver(1000)
    receiver.receive_data(bytes.fromhex("000000020000" + size))

    assert receiver.next_response() == b"\0\0"
    with pytest.raises(RemoteProtocolError):
        receiver.next_response()


def test_a_browser_is_recognized():
    with pytest.raises(RemoteProtocolError, match="it is HTTP, for which there is the port of"):
        receive(b"GET / HTTP/1.1\r\n")


def test_a_client_that_begins_with_tls_is_recognized():
    with pytest.raises(RemoteProtocolError, match="it is TLS, which this listener does not have"):
        receive(bytes.fromhex("16 03 01 02 00 01 00 01 fc"))


# -- acknowledged ones --------------------------------------------------------------------------


def acknowledged(*produces, acks=2, timeout_ms=1500):
    return AcknowledgedProduceRequest(acks, timeout_ms, produces)


@pytest.mark.parametrize("cut", [1, 5, 30, 60])
def test_a_plain_acknowledged_produce_is_checked_on_the_way(cut):
    wanted = [
        acknowledged(produce(payloads=(b"one",))),
        acknowledged(produce(payloads=(b"two", b"three"))),
        acknowledged(produce("t2", 3), acks=1, timeout_ms=-1),
        acknowledged(produce("t2", 3), acks=9),
    ]
    run = produce("t2", 3)
    data = b"".join(each.encode() for each in (*wanted[:2], run, run, *wanted[2:]))
    receiver = new_receiver()
    receiver.receive_data(data[:cut])
    taken = take_all(receiver)
    receiver.receive_data(data[cut:])
    taken += take_all(receiver)
    assert [type(each) for each in taken] == [
        PlainAcknowledgedProduce,
        PlainAcknowledgedProduce,
        ProduceRun,
        PlainAcknowledgedProduce,
        PlainAcknowledgedProduce,
    ]
    assert taken.pop(2).request_count == 2
    assert [each.decoded() for each in taken] == wanted
    assert [each.message_count for each in taken] == [1, 2, 1, 1]


def test_what_is_not_plain_is_decoded():
    compressed = encode_message_set([b"x"], Codec.GZIP)
    old = encode_message(b"x", magic=0)
    damaged = encode_message_set([b"x"])[:-1] + b"y"
    wanted = [
        acknowledged(),
        acknowledged(produce(), produce()),
        acknowledged(produce(partition=-1)),
        acknowledged(produce(payloads=(bytes(70_000),))),
        *(acknowledged(ProduceRequest("t1", 0, each)) for each in (b"", compressed, old, damaged)),
    ]
    received = receive(b"".join(each.encode() for each in wanted))
    assert received == wanted
    too_large = acknowledged(produce(payloads=(bytes(200),)))
    assert receive(too_large.encode(), max_message_bytes=100) == [too_large]


def test_another_version_is_another_request():
    encoded = bytearray(acknowledged(produce()).encode())
    encoded[7] = 1
    assert receive(bytes(encoded)) == [UnsupportedRequest(64, 1)]
