"""Responses on their way: the same bytes over sendfile and over copies, and nothing left open."""

import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_bench import CountingClock, HotPages
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from hermes.protocol import ErrorCode
from hermes.server.carriers import CopyingCarrier, SendfileCarrier, carrier_for
from hermes.server.fairness import QUANTUM_BYTES, FairScheduler
from hermes.server.large_responses import LargeResponses
from hermes.server.outcomes import DeferredResponse
from hermes.server.pages import PageCache
from hermes.server.responses import Responses
from hermes.server.sends import (
    Fetched,
    FileSend,
    MessageSetSend,
    MultiMessageSetSend,
    waiting_fetch_response,
)

TURNS = FairScheduler(Clock())


class FakeSlice:
    """A range of a file, as the log would hand it out."""

    def __init__(self, path: Path, position: int, length: int) -> None:
        self._fd = os.open(path, os.O_RDONLY)
        self.position = position
        self.length = length
        self.released = 0

    def fileno(self) -> int:
        return self._fd

    def release(self) -> None:
        if not self.released:
            os.close(self._fd)
        self.released += 1


class SocketTransport:
    """As much of a TCP transport as a carrier uses, on one end of a socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.producer: Any = None
        self.wants_to_write = False

    def getHandle(self) -> socket.socket:
        return self._socket

    def startWriting(self) -> None:
        self.wants_to_write = True

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert not streaming
        assert self.producer is None
        self.producer = producer
        producer.resumeProducing()

    def unregisterProducer(self) -> None:
        self.producer = None


class Pair:
    """A carrier over a real socket, and the other end of it."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self.theirs.setblocking(False)
        self.ours = ours
        self.transport = SocketTransport(ours)
        self.carrier = SendfileCarrier(self.transport)
        self.ended: list[Exception | None] = []

    def start(self, send: FileSend, pages: PageCache) -> bool:
        return send.start(self.transport, self.carrier, pages, TURNS, self.ended.append)

    def read_all(self) -> bytes:
        """Read and let the producer go on, until nothing more comes."""
        data = bytearray()
        while True:
            try:
                data += self.theirs.recv(1 << 20)
            except BlockingIOError:
                if self.transport.producer is None or not self.transport.wants_to_write:
                    return bytes(data)
                self.transport.wants_to_write = False
                self.transport.producer.resumeProducing()

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


def at_once(function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
    result: Deferred[Any] = Deferred()
    result.callback(function(*args))
    return result


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


@pytest.fixture
def big(tmp_path: Path) -> Path:
    path = tmp_path / "segment"
    path.write_bytes(os.urandom(5_000_000))
    return path


def test_a_small_answer_leaves_at_once(pair: Pair, big: Path) -> None:
    part = FakeSlice(big, 100, 5000)
    assert pair.start(MessageSetSend(ErrorCode.NONE, part), HotPages(at_once))
    expected = struct.pack(">ih", 5002, 0) + big.read_bytes()[100:5100]
    assert pair.read_all() == expected
    assert part.released
    assert pair.transport.producer is None
    assert pair.ended == [], "what left at once is not told again"


def test_a_large_answer_is_finished_by_the_producer(pair: Pair, big: Path) -> None:
    part = FakeSlice(big, 7, 4_900_000)
    assert not pair.start(MessageSetSend(ErrorCode.NONE, part), HotPages(at_once))
    assert pair.read_all() == struct.pack(">ih", 4_900_002, 0) + big.read_bytes()[7:4_900_007]
    assert pair.ended == [None]
    assert part.released
    assert pair.transport.producer is None


def test_errors_and_empty_sets_are_a_header_only(pair: Pair) -> None:
    assert pair.start(MessageSetSend(ErrorCode.OFFSET_OUT_OF_RANGE), HotPages(at_once))
    assert pair.read_all() == bytes.fromhex("000000020001")


def test_multifetch_is_the_recorded_layout(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_bytes(b"0000000b01003610a68668656c6c6f")
    send = MultiMessageSetSend(
        [
            Fetched(ErrorCode.NONE, FakeSlice(path, 0, 15)),
            Fetched(ErrorCode.OFFSET_OUT_OF_RANGE),
            Fetched(ErrorCode.WRONG_PARTITION),
            Fetched(ErrorCode.NONE),
        ]
    )
    assert pair.start(send, HotPages(at_once))
    assert pair.read_all() == (
        bytes.fromhex("000000290000000000110000")
        + b"0000000b0100361"
        + bytes.fromhex("000000020001000000020003000000020000")
    )


def test_waiting_fetch_names_the_high_watermarks(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_bytes(b"abcdef")
    part = FakeSlice(path, 1, 3)
    found = [Fetched(ErrorCode.NONE, part, 6), Fetched(ErrorCode.WRONG_PARTITION)]
    send = waiting_fetch_response(found, tells_content=False)
    assert isinstance(send, FileSend)
    assert pair.start(send, HotPages(at_once))
    body = struct.pack(">hh", 0, 2) + struct.pack(">hqi", 0, 6, 3) + b"bcd"
    body += struct.pack(">hqi", 3, -1, 0)
    assert pair.read_all() == struct.pack(">i", len(body)) + body
    few = [found[0]._replace(messages=b"bcd"), found[1]]
    assert waiting_fetch_response(few, tells_content=False) == struct.pack(">i", len(body)) + body


def test_a_lost_connection_releases_what_was_not_sent(pair: Pair, big: Path) -> None:
    parts = [FakeSlice(big, 0, 4_000_000), FakeSlice(big, 0, 10)]
    assert not pair.start(FileSend(parts), HotPages(at_once))
    pair.transport.producer.stopProducing()
    assert [part.released for part in parts] == [1, 1]
    assert pair.ended == []


def test_a_peer_that_is_gone_raises_and_releases(pair: Pair, big: Path) -> None:
    part = FakeSlice(big, 0, 100)
    pair.theirs.close()
    with pytest.raises(ConnectionError):
        pair.start(MessageSetSend(ErrorCode.NONE, part), HotPages(at_once))
    assert part.released


def test_a_peer_that_leaves_midway_ends_the_send_quietly(pair: Pair, big: Path) -> None:
    part = FakeSlice(big, 0, 4_000_000)
    assert not pair.start(FileSend([part]), HotPages(at_once))
    pair.theirs.close()
    pair.transport.producer.resumeProducing()
    (error,) = pair.ended
    assert isinstance(error, ConnectionError)
    assert part.released


def test_a_segment_that_was_cut_ends_the_send_instead_of_spinning(
    pair: Pair, tmp_path: Path
) -> None:
    path = tmp_path / "cut"
    path.write_bytes(b"only this")
    with pytest.raises(EOFError):
        pair.start(FileSend([FakeSlice(path, 0, 1000)]), HotPages(at_once))


class ColdPages(PageCache):
    """Says that nothing is in memory until a thread has read it."""

    def resident_until(self, fd: int, start: int, end: int) -> int:
        return start


def test_cold_ranges_wait_for_a_thread_and_give_the_same_bytes(pair: Pair, big: Path) -> None:
    calls: list[tuple[Callable[..., Any], tuple[Any, ...], Deferred[Any]]] = []

    def later(function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        result: Deferred[Any] = Deferred()
        calls.append((function, args, result))
        return result

    part = FakeSlice(big, 0, 4_900_000)
    pages = ColdPages(later)
    assert not pair.start(MessageSetSend(ErrorCode.NONE, part), pages)
    received = pair.read_all()
    assert len(received) == 6, "the header has left, the cold range has not"
    while calls:
        function, args, result = calls.pop()
        result.callback(function(*args))
        received += pair.read_all()
    assert received[6:] == big.read_bytes()[:4_900_000]
    assert pages.warmed == 3, "4.9 MB in windows of 2 MiB"
    assert part.released


def test_a_connection_lost_during_a_warm_up_keeps_the_file_until_the_thread_is_back(
    pair: Pair, big: Path
) -> None:
    waiting: list[Deferred[Any]] = []

    def later(function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        waiting.append(Deferred())
        return waiting[-1]

    part = FakeSlice(big, 0, 1000)
    assert not pair.start(FileSend([part]), ColdPages(later))
    pair.transport.producer.stopProducing()
    assert not part.released
    waiting[0].callback(1000)
    assert part.released


def test_a_disk_that_fails_during_a_warm_up_ends_the_send(pair: Pair, big: Path) -> None:
    waiting: list[Deferred[Any]] = []

    def later(function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        waiting.append(Deferred())
        return waiting[-1]

    part = FakeSlice(big, 0, 1000)
    assert not pair.start(FileSend([part]), ColdPages(later))
    waiting[0].errback(OSError(5, "Input/output error"))
    (error,) = pair.ended
    assert isinstance(error, OSError)
    assert part.released


def test_copies_give_the_same_bytes_with_bounded_reads(big: Path) -> None:
    transport = StringTransport()
    carrier = carrier_for(transport)
    assert isinstance(carrier, CopyingCarrier)
    ended: list[Exception | None] = []
    part = FakeSlice(big, 11, 1_000_000)
    send = MessageSetSend(ErrorCode.NONE, part)
    assert not send.start(transport, carrier, HotPages(at_once), TURNS, ended.append)
    rounds, largest, before = 0, 0, 0
    while not ended:
        largest = max(largest, len(transport.value()) - before)
        before = len(transport.value())
        transport.producer.resumeProducing()
        rounds += 1
    assert transport.value() == struct.pack(">ih", 1_000_002, 0) + big.read_bytes()[11:1_000_011]
    assert ended == [None]
    assert largest <= 3 * 64 * 1024
    assert rounds > 10


class BufferingTransport(StringTransport):
    """Buffers what is written, and tells a push producer when that is much, as Twisted's TCP."""

    LIMIT = 64 * 1024

    def __init__(self) -> None:
        super().__init__()
        self.buffered = 0
        self.most_buffered = 0
        self.pauses = 0
        self._has_paused = False

    def write(self, data: bytes) -> None:
        super().write(data)
        self.buffered += len(data)
        self.most_buffered = max(self.most_buffered, self.buffered)
        if self.producer is not None and self.buffered > self.LIMIT:
            assert self.streaming
            self.pauses += 1
            self._has_paused = True
            self.producer.pauseProducing()

    def unregisterProducer(self) -> None:
        super().unregisterProducer()
        self._has_paused = False

    def drain(self) -> None:
        """The peer reads everything."""
        self.buffered = 0
        if self.producer is not None and self._has_paused:
            self._has_paused = False
            self.producer.resumeProducing()


@pytest.mark.parametrize("calls_between_reads", [1, 7, 1000])
def test_pushed_copies_give_the_same_bytes_and_never_buffer_much(
    big: Path, calls_between_reads: int
) -> None:
    """However slowly the peer reads, and however many responses there are."""
    clock, transport = Clock(), BufferingTransport()
    carrier, scheduler = CopyingCarrier(transport, is_pushed=True), FairScheduler(clock)
    expected = b""
    for length in (1_000_000, 10, 65_530, 65_536, 1, 500_000):
        ended: list[Exception | None] = []
        send = MessageSetSend(ErrorCode.NONE, FakeSlice(big, 11, length))
        done = send.start(transport, carrier, HotPages(at_once), scheduler, ended.append)
        for call in range(10_000):
            if done or ended:
                break
            clock.advance(0)
            if call % calls_between_reads == 0:
                transport.drain()
        assert done or ended == [None]
        expected += struct.pack(">ih", length + 2, 0) + big.read_bytes()[11 : 11 + length]
    assert transport.value() == expected
    assert transport.most_buffered <= 4 * 64 * 1024
    assert transport.pauses > 3


def test_a_copied_send_does_not_go_on_while_its_transport_is_full(big: Path) -> None:
    clock, transport = Clock(), BufferingTransport()
    carrier, scheduler = CopyingCarrier(transport, is_pushed=True), FairScheduler(clock)
    ended: list[Exception | None] = []
    send = MessageSetSend(ErrorCode.NONE, FakeSlice(big, 0, 1_000_000))
    assert not send.start(transport, carrier, HotPages(at_once), scheduler, ended.append)
    for _ in range(20):
        clock.advance(0)
    assert clock.getDelayedCalls() == [], "it waits for the transport, and keeps nobody busy"
    before = len(transport.value())
    transport.drain()
    assert len(transport.value()) > before
    transport.producer.stopProducing()


def test_hot_pages_are_recognised(big: Path) -> None:
    big.read_bytes()
    fd = os.open(big, os.O_RDONLY)
    try:
        pages = PageCache(at_once)
        assert pages.resident_until(fd, 0, 5_000_000) in (0, 5_000_000)
        assert pages.warm(fd, 0, 5_000_000).result == 2 * 1024 * 1024
        assert pages.warm(fd, 4_999_000, 5_000_000).result == 5_000_000
    finally:
        os.close(fd)


class GreedyCarrier:
    """A peer that takes everything at once."""

    is_pushed = False

    def __init__(self) -> None:
        self.moved = 0
        self.wakes = 0

    def send_bytes(self, data: bytes | memoryview, more: bool) -> int:
        self.moved += len(data)
        return len(data)

    def send_file(self, fd: int, position: int, count: int) -> int:
        self.moved += count
        return count

    def wake_when_writable(self) -> bool:
        self.wakes += 1
        return True

    def full(self) -> None:
        pass

    def writable(self) -> None:
        pass

    def may_go_on(self) -> bool:
        return True

    def unregistered(self) -> None:
        pass

    def unsent_bytes(self) -> int:
        return 0


def test_one_turn_moves_a_bounded_share_however_much_the_peer_takes(big: Path) -> None:
    carrier, transport = GreedyCarrier(), StringTransport()
    ended: list[Exception | None] = []
    send = FileSend([FakeSlice(big, 0, 4_900_000)])
    assert not send.start(transport, carrier, HotPages(at_once), TURNS, ended.append)
    assert carrier.moved <= QUANTUM_BYTES
    turns = 1
    while not ended:
        before = carrier.moved
        transport.producer.resumeProducing()
        assert carrier.moved - before <= QUANTUM_BYTES
        turns += 1
    assert turns == 3
    assert carrier.moved == 4_900_000
    assert carrier.wakes == turns - 1


def test_many_who_read_as_fast_as_they_can_take_turns(big: Path) -> None:
    clock = CountingClock()
    turns = FairScheduler(clock)

    class SlowCarrier(GreedyCarrier):
        def send_file(self, fd: int, position: int, count: int) -> int:
            clock.rightNow += count / 2e9
            return super().send_file(fd, position, count)

    transports, carriers = [], []
    for _ in range(500):
        transport, carrier = StringTransport(), SlowCarrier()
        send = FileSend([FakeSlice(big, 0, 4_900_000)])
        assert not send.start(transport, carrier, HotPages(at_once), turns, lambda error: None)
        transports.append(transport)
        carriers.append(carrier)
    clock.advance(0)  # a round is over
    before = [carrier.moved for carrier in carriers]
    began = clock.seconds()
    for transport in transports:  # all have room
        transport.producer.resumeProducing()
    assert clock.seconds() - began < 0.02
    assert carriers[0].moved - before[0] == QUANTUM_BYTES
    transports[-1].producer.resumeProducing()
    assert carriers[-1].moved == before[-1], "it waits, however often it is asked"
    rounds = 0
    while carriers[-1].moved == before[-1]:
        began = clock.seconds()
        (call,) = clock.getDelayedCalls()
        clock.calls.remove(call)
        call.func()
        assert clock.seconds() - began < 0.02
        rounds += 1
    assert rounds < 20
    assert all(carrier.moved > then for carrier, then in zip(carriers, before, strict=True))
    for transport in transports:
        transport.producer.stopProducing()
    assert clock.seconds() < 10


def responses_of(pair: Pair) -> tuple[Responses, list[Exception | None]]:
    sent: list[Exception | None] = []
    made = Responses(HotPages(at_once), TURNS, LargeResponses(1 << 20, Clock()))
    reader: Any = object()
    made.open(pair.transport, pair.carrier, reader, sent.append)
    return made, sent


def test_known_answers_wait_for_an_unknown_one_before_them(pair: Pair) -> None:
    responses, _ = responses_of(pair)
    first = DeferredResponse()
    responses.add(b"0")
    responses.awaited.append(first)
    responses.add(b"2")
    responses.send_ready()
    responses.send_small()
    assert pair.read_all() == b"0"
    first.resolve(b"1")
    responses.send_ready()
    responses.send_small()
    assert pair.read_all() == b"12"
    assert responses.is_empty


def test_what_the_socket_does_not_take_of_small_answers_follows(pair: Pair) -> None:
    responses, sent = responses_of(pair)
    data = os.urandom(3_000_000)
    responses.add(data)
    responses.send_small()
    sending = responses.sending
    assert sending is not None
    assert sending.size_bytes == len(data)
    assert 0 < sending.sent_bytes < len(data)
    responses.add(b"next")
    responses.send_small()
    assert responses.sending is sending, "one at a time"
    assert pair.read_all() == data
    assert sent == [None]
    assert not responses.is_empty
    responses.send_small()
    assert pair.read_all() == b"next"
    assert responses.is_empty
