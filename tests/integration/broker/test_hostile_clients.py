"""Clients that break the rules, on purpose or not: the outcome of 0.7, one line, bounded memory."""

import random
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hermes_testkit import (
    BrokerProcess,
    RawClient,
    fetch,
    frame,
    message,
    produce,
    produce_acknowledged,
    wait_until_visible,
)

StartBroker = Callable[..., BrokerProcess]

MIB = 1 << 20


def test_one_rate_limited_line_per_kind_of_offence(start_broker: StartBroker) -> None:
    broker = start_broker()
    for _ in range(50):
        with broker.connect() as client:
            client.send(b"GET / HTTP/1.0\r\n\r\n")
            assert client.closed()
    broker.stop()
    refusals = [line for line in broker.lines if "closing the connection" in line]
    assert 1 <= len(refusals) <= 10
    assert not any("Traceback" in line for line in broker.lines)


def test_fuzzed_requests_disturb_nobody(start_broker: StartBroker) -> None:
    """Mutated requests over many connections, while a well-behaved client goes on."""
    broker = start_broker(num_partitions=2)
    chance = random.Random(4)
    valid = [
        produce("t", 0, message(b"hello")),
        fetch("t", 0, 0),
        frame(struct.pack(">hh1siqi", 4, 1, b"t", 0, -1, 10)),
        frame(struct.pack(">hhh", 66, 0, -1)),
        frame(struct.pack(">hhh1siq", 67, 0, 1, b"t", 0, 7)),
    ]
    with broker.connect() as good:
        for round_number in range(300):
            data = bytearray(b"".join(chance.choices(valid, k=4)))
            for _ in range(chance.randrange(1, 6)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            with broker.connect() as bad:
                bad.send(bytes(data))
                bad.socket.shutdown(socket.SHUT_WR)
                while bad.receive(65536):
                    pass
            if round_number % 50 == 0:
                assert good.alive()
        assert good.alive()
    assert broker.stop() == 0
    assert not any("Traceback" in line for line in broker.lines), "".join(broker.lines)


def test_a_thousand_claims_of_a_hundred_megabytes(start_broker: StartBroker) -> None:
    """1,000 connections announce a 100 MB request each and send a part of it."""
    broker = start_broker()
    with broker.connect() as good:
        assert good.alive()
        before = broker.memory_bytes()
        clients = [broker.connect() for _ in range(1000)]
        try:
            claim = struct.pack(">i", 100 * 1024 * 1024 - 1) + b"\0\0\0\1t" + bytes(200_000)
            for client in clients:
                client.socket.setblocking(False)
                client.socket.send(claim)
            assert good.alive()
            assert good.call(fetch("t", 0, 0)) == bytes.fromhex("000000020000")
            grown = broker.memory_bytes() - before
            assert grown < 50 * MIB, f"{grown / MIB:.1f} MiB"
        finally:
            for client in clients:
                client.close()
        assert good.alive()


def test_a_hundred_clients_that_never_read(start_broker: StartBroker) -> None:
    """100 clients pipeline 1,000 fetches of 1 MB each and read nothing."""
    broker = start_broker(flush_messages=1)
    with broker.connect() as good:
        good.send(produce("t", 0, message(bytes(200)) * 6000))
        assert good.alive()
        before = broker.memory_bytes()
        clients = [broker.connect() for _ in range(100)]
        try:
            for client in clients:
                client.socket.setblocking(False)
                try:
                    client.socket.send(fetch("t", 0, 0, MIB) * 1000)
                except BlockingIOError:
                    pytest.fail("30 KB of requests did not fit the socket")
            for _ in range(20):
                assert good.alive()
            grown = broker.memory_bytes() - before
            assert grown < 100 * MIB, f"{grown / MIB:.1f} MiB"
        finally:
            for client in clients:
                client.close()


def test_a_slow_reader_gets_every_byte_of_pipelined_fetches(start_broker: StartBroker) -> None:
    broker = start_broker()
    stored = b"".join(message(struct.pack(">i", n) * 500) for n in range(600))
    with broker.connect() as client:
        client.send(produce("t", 0, stored))
        wait_until_visible(client, "t", 0, len(stored))
        client.send(fetch("t", 0, 0, 2 * MIB) * 30)
        for _ in range(30):
            assert client.answer()[6:] == stored


def test_too_many_connections_are_closed_at_once_and_room_is_used_again(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(max_connections=3)
    clients = [broker.connect() for _ in range(3)]
    assert all(client.alive() for client in clients)
    with broker.connect() as surplus:
        assert surplus.closed()
    clients.pop().close()
    assert clients[0].alive()
    deadline = 1000
    while deadline:  # the broker learns of the close in its own time: try until there is room
        with broker.connect() as again:
            if again.alive():
                break
        deadline -= 1
    assert deadline
    for client in clients:
        client.close()


def test_idle_connections_are_closed_and_busy_ones_are_not(start_broker: StartBroker) -> None:
    broker = start_broker(idle_timeout="300ms")
    with broker.connect() as idle, broker.connect() as busy:
        assert idle.alive()
        while not idle.readable():
            assert busy.alive()
        assert idle.closed()
        assert busy.alive()


def test_a_request_above_the_limit_is_refused_before_its_body(start_broker: StartBroker) -> None:
    broker = start_broker(max_request_bytes=1000, max_message_bytes=900)
    with broker.connect() as client:
        client.send(struct.pack(">i", 1001))
        assert client.closed()
    with broker.connect() as client:
        fits = produce("t", 0, message(bytes(1000 - 4 - 2 - 1 - 4 - 4 - 10)))
        client.send(fits)
        assert client.alive()


def test_decompression_bombs_close_and_append_nothing(start_broker: StartBroker) -> None:
    broker = start_broker(max_expanded_bytes="1MiB")
    inner = message(bytes(2 * MIB))
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = message(compressor.compress(inner) + compressor.flush(), attributes=1)
    with broker.connect() as client:
        client.send(produce("t", 0, bomb))
        assert client.closed()
    assert broker.segment("t").stat().st_size == 0


def test_half_a_request_and_gone(start_broker: StartBroker) -> None:
    broker = start_broker()
    whole = produce("t", 0, message(b"whole"))
    with broker.connect() as client:
        client.send(whole + whole[:-3])
    with broker.connect() as client:
        wait_until_visible(client, "t", 0, len(message(b"whole")))
        assert client.alive()
    broker.stop()
    assert broker.segment("t").read_bytes() == message(b"whole")


def test_what_arrived_before_the_peer_closed_is_appended(start_broker: StartBroker) -> None:
    """A producer sends compressed and plain sets, closes at once, and loses nothing."""
    broker = start_broker()
    plain = message(b"plain")
    compressor = zlib.compressobj(6, zlib.DEFLATED, 31)
    packed = message(compressor.compress(plain * 50) + compressor.flush(), attributes=1)
    sent = b"".join([plain, packed, plain, packed, plain])
    with broker.connect() as client:
        client.send(
            b"".join(produce("t", 0, each) for each in (plain, packed, plain, packed, plain))
        )
    with broker.connect() as client:
        wait_until_visible(client, "t", 0, len(sent))
        assert client.call(fetch("t", 0, 0))[6:] == sent


def large_log(broker: BrokerProcess, client: RawClient) -> bytes:
    """Store more than any socket's buffers take; what was stored."""
    stored = message(bytes(990_000)) * 12
    client.send(produce("large", 0, stored))
    wait_until_visible(client, "large", 0, len(stored))
    return stored


def test_answers_before_a_bad_request_arrive_whole(start_broker: StartBroker) -> None:
    """Closing with unread input would throw away what the kernel hasn't sent yet."""
    broker = start_broker()
    with broker.connect() as client:
        stored = large_log(broker, client)
        client.send(fetch("large", 0, 0, 1 << 24) * 2 + struct.pack(">i", -1) + bytes(300_000))
        assert client.answer()[6:] == stored
        assert client.answer()[6:] == stored
        assert client.socket.recv(1) == b"", "the end of the answers, and no reset"


def test_a_stop_finishes_the_answer_of_a_client_with_more_requests(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    with broker.connect() as client:
        stored = large_log(broker, client)
        client.send(fetch("large", 0, 0, 1 << 24) * 5000)
        assert client.receive(1000)
        broker.process.terminate()
        rest = 4 + 2 + len(stored) - 1000
        assert len(client.receive(rest)) == rest
        while data := client.socket.recv(1 << 20):  # whole answers, then the end, and no reset
            rest += len(data)
        assert (rest + 1000) % (4 + 2 + len(stored)) == 0
    assert broker.wait() == 0


def test_requests_with_very_many_entries(start_broker: StartBroker) -> None:
    broker = start_broker()
    count = 5000
    entry = struct.pack(">h1siqi", 1, b"t", 0, 0, 100)
    one = message(b"x")
    multiproduce = struct.pack(">hh", 3, count)
    multiproduce += struct.pack(">h1sii", 1, b"t", 0, len(one)).join([b"", *[one] * count])
    with broker.connect() as client:
        client.send(frame(multiproduce))
        wait_until_visible(client, "t", 0, count * len(one))
        answer = client.call(frame(struct.pack(">hh", 2, count) + entry * count))
        assert len(answer) == 4 + 2 + count * (4 + 2 + 100)
        waits = struct.pack(">hhiih", 65, 0, 1000, 1, count) + entry * count
        assert client.call(frame(waits)) == struct.pack(">ih", 2, -1)
        bad = struct.pack(">hh", 2, count) + entry * (count - 1)
        client.send(frame(bad + struct.pack(">h1siqi", 1, b"t", 0, 0, -1)))
        assert client.closed()


def test_two_deletes_of_a_topic_at_once(start_broker: StartBroker) -> None:
    broker = start_broker(segment_bytes=100)
    delete = frame(struct.pack(">hhh1s", 68, 0, 1, b"t"))
    with broker.connect() as one, broker.connect() as other:
        for round_number in range(5):
            for _ in range(20):
                one.call(produce_acknowledged(("t", 0, message(bytes(100)))))
            one.send(delete)
            other.send(delete)
            codes = sorted(struct.unpack(">ih", c.answer())[1] for c in (one, other))
            assert codes[0] == 0
            assert codes[1] in (65, 71), round_number
        kept = message(b"kept")
        one.call(produce_acknowledged(("t", 0, kept)))
    broker.kill()
    broker.start()
    with broker.connect() as client:
        assert client.call(fetch("t", 0, 0))[6:] == kept


def test_a_stray_directory_with_a_large_number_is_left_alone(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    stray = tmp_path / "logs" / "backup-1763715600"
    stray.mkdir(parents=True)
    (stray / "notes.txt").write_text("mine")
    broker = start_broker()
    with broker.connect() as client:
        metadata = client.call(frame(struct.pack(">hhh", 66, 0, -1)))
        assert b"backup" not in metadata
    broker.stop()
    assert [path.name for path in stray.iterdir()] == ["notes.txt"]
    assert any("backup-1763715600" in line for line in broker.lines)
