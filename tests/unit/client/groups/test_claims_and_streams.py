"""Claims and streams without ZooKeeper and brokers: fetched sets come in, messages go out."""

import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

from hermes.client.groups.streams import Claim, MessageStream
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Lease
from hermes.errors import ConsumerTimeoutError, EncodingError, InvalidMessageError
from hermes.protocol import Codec, MessageSet, encode_message_set

Make = Callable[..., Claim]


def lasting() -> Lease:
    lease = Lease(1, lambda: 0.0)
    lease.until = 1.0
    return lease


@pytest.fixture
def stream() -> MessageStream:
    return MessageStream("s", lambda topic, payload: payload, 0.05, lambda: None)


@pytest.fixture
def make(stream: MessageStream) -> Make:
    def claim(partition: int = 0, start: int = 0, lease: Lease | None = None) -> Claim:
        made = Claim("t", BrokerPartition(0, partition), "c-0", stream.lock, lease or lasting())
        made.start_at(start)
        stream.replace_claims(add=[made])
        return made

    return claim


def fetched(*payloads: bytes, base: int = 0, codec: Codec = Codec.NONE) -> MessageSet:
    return MessageSet(encode_message_set(payloads, codec), base)


def test_offsets_move_on_as_the_application_does(stream: MessageStream, make: Make) -> None:
    claim = make(start=100)
    claim.add(fetched(b"a", b"b", base=100), claim.epoch)
    assert claim.fetch_offset == 122
    assert (next(stream)[0], claim.position, claim.finished) == (b"a", 111, 100)
    assert (next(stream)[3:5], claim.position, claim.finished) == ((111, 122), 122, 111)
    with pytest.raises(ConsumerTimeoutError):
        next(stream)
    assert claim.finished == 122


def test_a_compressed_message_is_finished_as_a_whole(stream: MessageStream, make: Make) -> None:
    claim = make()
    messages = fetched(b"a", b"b", b"c", codec=Codec.GZIP)
    claim.add(messages, claim.epoch)
    seen = []
    for _ in range(3):
        seen.append(next(stream)[0])
        assert claim.finished == 0
    with pytest.raises(ConsumerTimeoutError):
        next(stream)
    assert (seen, claim.finished) == ([b"a", b"b", b"c"], len(messages))


def test_nothing_is_handed_out_without_a_lease(stream: MessageStream, make: Make) -> None:
    lease = lasting()
    claim = make(lease=lease)
    claim.add(fetched(b"a", b"b"), claim.epoch)
    assert next(stream)[0] == b"a"
    lease.until = 0.0
    with pytest.raises(ConsumerTimeoutError):
        next(stream)
    lease.until = 1.0
    assert next(stream)[0] == b"b"


def test_a_revoked_claim_ends_with_the_message_in_hand(stream: MessageStream, make: Make) -> None:
    claim = make()
    claim.add(fetched(b"a", b"b"), claim.epoch)
    assert next(stream)[0] == b"a"
    stream.revoke([claim])
    assert not stream.wait_until_finished(claim, 0)
    with pytest.raises(ConsumerTimeoutError):
        next(stream)
    assert stream.wait_until_finished(claim, 0)
    assert claim.finished == 11
    claim.add(fetched(b"c", base=22), claim.epoch)
    with pytest.raises(ConsumerTimeoutError):
        next(stream)


def test_a_message_taken_at_the_moment_of_a_revocation_is_the_one_in_hand(
    stream: MessageStream, make: Make
) -> None:
    claim = make()
    claim.add(fetched(b"a", b"b", b"c"), claim.epoch)
    assert next(stream)[0] == b"a"
    looked_at = stream._items  # as the reader does, just before another thread revokes the claim
    stream.revoke([claim])
    assert looked_at is not None
    assert next(looked_at)[0] == b"b"
    assert not stream.wait_until_finished(claim, 0)
    assert (claim.position, claim.finished) == (22, 11)
    with pytest.raises(ConsumerTimeoutError):
        next(stream)
    assert stream.wait_until_finished(claim, 0)
    assert claim.finished == 22


def test_a_lost_claim_finishes_nothing_that_is_taken_at_that_moment(
    stream: MessageStream, make: Make
) -> None:
    claim = make()
    claim.add(fetched(b"a", b"b", b"c", b"d"), claim.epoch)
    assert [next(stream)[0] for _ in range(2)] == [b"a", b"b"]
    looked_at = stream._items
    stream.revoke([claim], lost=True)
    assert looked_at is not None
    assert next(looked_at)[0] == b"c"
    with pytest.raises(ConsumerTimeoutError):
        next(stream)
    assert claim.finished == 11


def test_what_the_reader_says_is_finished_is_not_waited_for(
    stream: MessageStream, make: Make
) -> None:
    claim = make()
    claim.add(fetched(b"a", b"b", b"c"), claim.epoch)
    assert [next(stream)[0] for _ in range(2)] == [b"a", b"b"]
    stream.finish_if_reader("somebody else")
    assert claim.finished == 11
    stream.finish_if_reader(threading.get_ident())
    assert claim.finished == 22
    stream.revoke([claim])
    assert stream.wait_until_finished(claim, 0)
    with pytest.raises(ConsumerTimeoutError):
        next(stream)
    assert claim.position == 22


def test_the_reader_is_who_took_the_last_message(stream: MessageStream, make: Make) -> None:
    claim = make()
    claim.add(fetched(b"a", b"b", b"c"), claim.epoch)
    assert next(stream)[0] == b"a"
    other = threading.Thread(target=next, args=(stream,))
    other.start()
    other.join(60)
    stream.finish_if_reader(threading.get_ident())
    assert claim.finished == 11


def test_a_task_s_word_counts_as_well(stream: MessageStream, make: Make) -> None:
    claim = make()
    claim.add(fetched(b"a", b"b", b"c"), claim.epoch)
    for each in (b"a", b"b"):
        message = stream.poll("a task")
        assert message is not None
        assert message.message == each
    stream.finish_if_reader("another task")
    assert claim.finished == 11
    stream.finish_if_reader("a task")
    assert claim.finished == 22


def test_offsets_are_right_at_every_message_of_many(stream: MessageStream, make: Make) -> None:
    claim = make()
    payloads = [b"%d" % number for number in range(2000)]
    for start in range(0, 2000, 700):
        base = claim.fetch_offset
        claim.add(fetched(*payloads[start : start + 700], base=base or 0), claim.epoch)
    previous = 0
    for payload in payloads:
        message = next(stream)
        assert (message.message, message.offset) == (payload, previous)
        assert (claim.finished, claim.position) == (previous, message.next_offset)
        previous = message.next_offset


def test_a_change_elsewhere_shows_at_the_next_message(stream: MessageStream, make: Make) -> None:
    claim = make()
    claim.add(fetched(b"a", b"b", b"c"), claim.epoch)
    assert next(stream)[0] == b"a"
    stream.fail(InvalidMessageError("elsewhere"))
    with pytest.raises(InvalidMessageError, match="elsewhere"):
        next(stream)
    stream.pause()
    with pytest.raises(ConsumerTimeoutError):
        next(stream)
    stream.resume()
    assert next(stream)[0] == b"b"
    stream.close()
    with pytest.raises(StopIteration):
        next(stream)


def test_what_is_lost_is_not_finished(stream: MessageStream, make: Make) -> None:
    claim = make()
    claim.add(fetched(b"a", b"b"), claim.epoch)
    next(stream)
    stream.revoke([claim], lost=True)
    with pytest.raises(ConsumerTimeoutError):
        next(stream)
    assert claim.finished == 0


def test_a_seek_forgets_what_is_under_way(stream: MessageStream, make: Make) -> None:
    claim = make()
    epoch = claim.epoch
    claim.add(fetched(b"a"), epoch)
    stream.seek("t", BrokerPartition(0, 0), 55)
    claim.add(fetched(b"late", base=11), epoch)
    assert claim.fetch_offset == claim.finished == 55
    with pytest.raises(ConsumerTimeoutError):
        next(stream)


def test_damage_is_raised_once_and_the_others_go_on(stream: MessageStream, make: Make) -> None:
    damaged, whole = make(0), make(1)
    data = bytearray(encode_message_set([b"first", b"second"]))
    data[-1] ^= 1
    damaged.add(MessageSet(bytes(data)), damaged.epoch)
    whole.add(fetched(b"x"), whole.epoch)
    assert next(stream)[0] == b"first"
    with pytest.raises(InvalidMessageError):
        next(stream)
    assert next(stream)[0] == b"x"
    assert not damaged.wants_bytes(1000, 1000)
    stream.seek("t", BrokerPartition(0, 0), 0)
    assert damaged.wants_bytes(1000, 1000) == 1000


def test_what_is_buffered_is_bounded(stream: MessageStream, make: Make) -> None:
    claim = make()
    assert claim.wants_bytes(1000, 400) == 400
    assert claim.wants_bytes(100, 400) == 100
    claim.add(fetched(b"x" * 890), claim.epoch)
    assert claim.wants_bytes(1000, 400) == 0
    next(stream)
    with pytest.raises(ConsumerTimeoutError):
        next(stream)
    assert claim.wants_bytes(1000, 400) == 400


def test_partitions_take_turns_and_can_be_paused(stream: MessageStream, make: Make) -> None:
    first, second = make(0), make(1)
    first.add(fetched(b"a"), first.epoch)
    second.add(fetched(b"b"), second.epoch)
    stream.pause(("t", BrokerPartition(0, 0)))
    assert next(stream)[0] == b"b"
    stream.resume()
    assert next(stream)[0] == b"a"
    assert sorted(stream.partitions()) == [("t", (0, 0)), ("t", (0, 1))]


def test_a_reader_that_waits_is_woken(make: Make) -> None:
    waiting = MessageStream("w", lambda topic, payload: payload, None, lambda: None)
    claim = Claim("t", BrokerPartition(0, 0), "c-0", waiting.lock, lasting())
    claim.start_at(0)
    waiting.replace_claims(add=[claim])
    found: queue.Queue[Any] = queue.Queue()

    def read() -> None:
        for each in waiting:
            found.put(each.message)

    reader = threading.Thread(target=read)
    reader.start()
    claim.add(fetched(b"a", b"b"), claim.epoch)
    assert [found.get(timeout=60) for _ in range(2)] == [b"a", b"b"]
    waiting.close()
    reader.join(60)
    assert not reader.is_alive()


class Picky:
    def decode(self, topic: str, payload: bytes) -> bytes:
        if payload == b"b":
            raise KeyError("mood")
        return payload


def test_a_decoder_that_misbehaves_is_named_and_the_next_message_comes() -> None:
    stream = MessageStream("s", Picky().decode, 0.05, lambda: None)
    claim = Claim("t", BrokerPartition(0, 0), "c-0", stream.lock, lasting())
    claim.start_at(0)
    stream.replace_claims(add=[claim])
    claim.add(fetched(b"a", b"b", b"c"), claim.epoch)
    assert next(stream)[0] == b"a"
    with pytest.raises(EncodingError, match=r"Picky failed on a message of topic 't': KeyError"):
        next(stream)
    assert next(stream)[0] == b"c"


def test_what_was_fetched_before_a_failure_is_handed_out_before_it(
    stream: MessageStream, make: Make
) -> None:
    claim = make()
    claim.add(fetched(b"a", b"b"), claim.epoch)
    claim.fail(InvalidMessageError("damaged", offset=22, next_offset=50))
    assert stream.has_news()
    assert [next(stream)[0] for _ in range(2)] == [b"a", b"b"]
    with pytest.raises(InvalidMessageError, match="damaged"):
        next(stream)
    assert claim.finished == 22
    with pytest.raises(ConsumerTimeoutError):
        next(stream)


def test_a_failure_behind_messages_of_a_paused_partition_is_no_news(
    stream: MessageStream, make: Make
) -> None:
    claim = make()
    claim.add(fetched(b"a"), claim.epoch)
    claim.fail(InvalidMessageError("damaged"))
    stream.pause()
    assert not stream.has_news()
    assert stream.poll("a task") is None


@pytest.mark.parametrize("first_bytes", [11, 33])
def test_what_a_fetch_found_behind_damage_is_handed_out_once(
    stream: MessageStream, make: Make, first_bytes: int
) -> None:
    whole = bytearray(encode_message_set([b"a", b"x", b"b"]))
    whole[11] ^= 0x40  # the length of the second
    claim = make()

    def fetch() -> None:
        offset = claim.fetch_offset
        assert offset is not None
        if offset < 33 and claim.wants_bytes(1 << 20, 1 << 20):
            data = whole[offset : offset + (33 if offset else first_bytes)]
            claim.add(MessageSet(data, offset, on_corrupt="skip"), claim.epoch)

    fetch()
    fetch()
    read = []
    for _ in range(4):
        message = stream.poll("a task")
        read.append(message and message.message)
        fetch()
    assert read == [b"a", b"b", None, None]
    assert claim.fetch_offset == 33
