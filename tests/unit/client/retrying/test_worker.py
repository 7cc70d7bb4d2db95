"""A worker on real streams and claims, without ZooKeeper and brokers."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from hermes.client.groups.streams import Claim, MessageStream
from hermes.client.metrics import RetryCounters, RetryMetrics
from hermes.client.retrying import Letter, RetryMessage, parse_letter
from hermes.client.retrying.ladder import Ladder
from hermes.client.retrying.worker import Worker, WorkerContext
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Lease
from hermes.errors import (
    BrokerUnavailableError,
    ConsumerTimeoutError,
    InvalidMessageError,
    MessageRejectedError,
)
from hermes.protocol import Codec, MessageSet, encode_message_set
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.record_set import RecordSet
from hermes.protocol.records import Record, encode_batch

NOW_MS = 1_000_000


class Rig:
    """A worker of group g for topic t with delays of 5 and 60 s, and what the world does to it."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.published: list[tuple[str, bytes, str]] = []
        self.refusal: Exception | None = None
        self.seen: list[RetryMessage] = []
        self.answer: Callable[[RetryMessage], None] = lambda message: None
        self.main, self.retries = (
            MessageStream(name, None, None, lambda: None) for name in ("t-0", "retries")
        )
        self.shared = WorkerContext(
            Ladder("g", ["t"], ["5s", "60s"]),
            self.handle,
            None,
            self.publish,
            None,
            RetryCounters(),
            clock=lambda: self.seconds,
            now_ms=lambda: NOW_MS + round((self.seconds - 100) * 1000),
        )
        self.worker = Worker([self.main], self.retries, self.shared)

    def handle(self, message: RetryMessage) -> None:
        self.seen.append(message)
        self.answer(message)

    def publish(self, topic: str, letter: Letter) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.published.append((topic, letter.encode(), letter.origin))

    def claim(
        self, stream: MessageStream, topic: str, *payloads: bytes, codec: Codec = Codec.NONE
    ) -> Claim:
        lease = Lease(1, lambda: 0.0)
        lease.until = 1.0
        claim = Claim(topic, BrokerPartition(0, 0), "c-0", stream.lock, lease)
        claim.start_at(0)
        stream.replace_claims(add=[claim])
        self.fetch(claim, *payloads, codec=codec)
        return claim

    def fetch(self, claim: Claim, *payloads: bytes, codec: Codec = Codec.NONE) -> None:
        encoded = encode_message_set(payloads, codec)
        claim.add(MessageSet(encoded, claim.fetch_offset or 0), claim.epoch)

    def go(self) -> None:
        """Do what can be done now."""
        self.worker._resume_due()
        while self.worker._serve_round():
            pass

    def letters(self) -> list[tuple[str, Letter]]:
        found = [(topic, parse_letter(payload)) for topic, payload, _ in self.published]
        return [(topic, letter) for topic, letter in found if letter is not None]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def fail(message: RetryMessage) -> None:
    raise ValueError(f"not {message.message.decode()}")


def letter(payload: bytes = b"x", failed_ms: int = NOW_MS, attempts: int = 1) -> bytes:
    return Letter("g", "t", 7, 3, 99, attempts, 5, failed_ms, "KeyError: 'x'", payload).encode()


def test_what_succeeds_is_finished_and_sent_nowhere(rig: Rig) -> None:
    claim = rig.claim(rig.main, "t", b"a", b"b")
    rig.go()
    assert rig.seen == [
        RetryMessage(b"a", "t", 0, 0, 0, 1, "", None),
        RetryMessage(b"b", "t", 0, 11, 0, 1, "", None),
    ]
    assert (rig.published, claim.finished) == ([], 22)
    assert rig.shared.counters.snapshot() == RetryMetrics(handled=2)


def test_what_fails_goes_into_the_first_retry_topic_before_it_is_finished(rig: Rig) -> None:
    claim = rig.claim(rig.main, "t", b"a", b"b")
    finished = []

    def answer(message: RetryMessage) -> None:
        finished.append(claim.finished)
        if message.message == b"a":
            fail(message)

    rig.answer = answer
    rig.go()
    expected = Letter("g", "t", 0, 0, 0, 1, NOW_MS, NOW_MS, "ValueError: not a", b"a")
    assert rig.published == [("t.g.retry.1", expected.encode(), "t 0-0")]
    assert (finished, claim.finished) == ([0, 11], 22)
    assert rig.shared.counters.snapshot() == RetryMetrics(handled=1, failed=1, retried=1)


def test_a_message_climbs_one_topic_per_failure(rig: Rig) -> None:
    rig.answer = fail
    rig.claim(rig.retries, "t.g.retry.1", letter(failed_ms=NOW_MS - 5000))
    rig.claim(rig.retries, "t.g.retry.2", letter(failed_ms=NOW_MS - 60_000, attempts=2))
    rig.go()
    origin = {"group": "g", "topic": "t", "broker": 7, "partition": 3, "offset": 99}
    times = {"first_failed_ms": 5, "failed_ms": NOW_MS}
    common = {"hermes_letter": 1, **origin, **times, "reason": "ValueError: not x"}
    assert {
        topic: json.loads(payload.partition(b"\n")[0]) for topic, payload, _ in rig.published
    } == {
        "t.g.retry.2": {**common, "attempts": 2},
        "t.g.dead": {**common, "attempts": 3},
    }
    assert {key for *_, key in rig.published} == {"t 7-3"}
    assert {each.attempt for each in rig.seen} == {2, 3}
    assert {each[1:5] for each in rig.seen} == {("t", 3, 99, 7)}
    assert {each[6:8] for each in rig.seen} == {("KeyError: 'x'", 5)}


def test_a_retry_waits_for_its_delay_and_its_partition_with_it(rig: Rig) -> None:
    claim = rig.claim(rig.retries, "t.g.retry.1", letter(), letter(b"y", NOW_MS + 1000))
    other = rig.claim(rig.retries, "t.g.retry.2", letter(b"z", NOW_MS - 60_000))
    rig.go()
    assert [each.message for each in rig.seen] == [b"z"]
    assert (claim.is_paused, claim.finished, claim.fetch_offset) == (True, 0, 0)
    assert not other.is_paused
    rig.seconds += 4.5
    rig.fetch(claim, letter(), letter(b"y", NOW_MS + 1000))
    rig.go()
    assert len(rig.seen) == 1
    rig.seconds += 0.5
    rig.go()
    assert [each.message for each in rig.seen] == [b"z", b"x"]
    assert claim.is_paused, "the second one is due a second later"
    rig.seconds += 1
    rig.fetch(claim, letter(b"y", NOW_MS + 1000))
    rig.go()
    assert [each.message for each in rig.seen] == [b"z", b"x", b"y"]
    rig.go()
    assert claim.finished == claim.position


def test_what_is_due_in_a_moment_stays_in_hand_and_holds_up_nothing_else(rig: Rig) -> None:
    claim = rig.claim(rig.retries, "t.g.retry.1", letter(failed_ms=NOW_MS - 4900))
    rig.claim(rig.main, "t", b"a")
    rig.go()
    assert [each.message for each in rig.seen] == [b"a"]
    assert (claim.is_paused, claim.finished) == (False, 0)
    assert claim.position > 0, "it is in hand"
    rig.seconds += 0.1
    rig.go()
    assert [each.message for each in rig.seen] == [b"a", b"x"]


def test_no_retry_waits_longer_than_its_delay_whatever_the_clocks_say(rig: Rig) -> None:
    ahead = letter(failed_ms=NOW_MS + 10**9)
    claim = rig.claim(rig.retries, "t.g.retry.1", ahead)
    rig.go()
    rig.seconds += 5
    rig.fetch(claim, ahead)
    rig.go()
    assert len(rig.seen) == 1


@pytest.mark.parametrize("payload", [b"by hand", b'{"hermes_letter":1,}\n', b""])
def test_what_is_no_letter_is_handled_at_once_as_a_first_try(rig: Rig, payload: bytes) -> None:
    rig.answer = fail
    rig.claim(rig.retries, "t.g.retry.2", payload)
    rig.go()
    assert rig.seen == [RetryMessage(payload, "t.g.retry.2", 0, 0, 0, 1, "", None)]
    ((topic, found),) = rig.letters()
    assert (topic, found.topic, found.attempts) == ("t.g.dead", "t.g.retry.2", 1)
    assert found.payload == payload


def test_rejected_and_undecodable_messages_are_dead_at_once(rig: Rig) -> None:
    def decode(topic: str, payload: bytes) -> Any:
        assert topic == "t"
        return json.loads(payload)

    def reject(message: RetryMessage) -> None:
        raise MessageRejectedError(f"no {message.message}")

    rig.shared.decode, rig.answer = decode, reject
    rig.claim(rig.main, "t", b"7", b"{")
    rig.claim(rig.retries, "t.g.retry.1", letter(b"8", 0))
    rig.go()
    assert {topic for topic, _ in rig.letters()} == {"t.g.dead"}
    reasons = {each.payload: each.reason for _, each in rig.letters()}
    assert reasons[b"{"].startswith("EncodingError: the decoder failed: JSONDecodeError")
    assert reasons[b"7"] == "MessageRejectedError: no 7"
    assert rig.shared.counters.snapshot() == RetryMetrics(failed=3, dead=3)


def test_what_can_not_be_stored_is_put_back_and_its_partition_waits_longer_and_longer(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.answer = fail
    rig.refusal = BrokerUnavailableError("127.0.0.1:1 is away")
    claim = rig.claim(rig.main, "t", b"a", b"b")
    pauses = []
    for _ in range(7):
        rig.go()
        assert (claim.is_paused, claim.finished, claim.fetch_offset) == (True, 0, 0)
        rig.fetch(claim, b"a", b"b")
        start = rig.seconds
        while claim.is_paused:
            rig.seconds += 0.5
            rig.worker._resume_due()
        pauses.append(rig.seconds - start)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert {each.message for each in rig.seen} == {b"a"}, "nothing of the partition goes past it"
    assert "t 0-0, offset 0: it failed (ValueError: not a) and can't be sent on: " in caplog.text
    rig.refusal = None
    rig.go()
    assert [topic for topic, _ in rig.letters()] == ["t.g.retry.1"] * 2
    assert rig.shared.counters.snapshot() == RetryMetrics(failed=2, retried=2, unsent=7)


def test_a_message_that_can_not_be_stored_is_the_next_owner_s(rig: Rig) -> None:
    """Its offset must not be committed when the partition is taken away meanwhile."""
    claim = rig.claim(rig.main, "t", b"a", b"b")

    def answer(message: RetryMessage) -> None:
        rig.main.revoke([claim])
        assert not rig.main.wait_until_finished(claim, 0)
        fail(message)

    rig.answer, rig.refusal = answer, BrokerUnavailableError("away")
    rig.go()
    assert rig.main.wait_until_finished(claim, 0), "nobody waits for it any more"
    assert claim.finished == 0
    assert len(rig.seen) == 1


def test_a_message_within_a_compressed_one_is_put_back_with_it(rig: Rig) -> None:
    claim = rig.claim(rig.main, "t", b"a", b"b", b"c", codec=Codec.GZIP)
    rig.answer = lambda message: fail(message) if message.message == b"b" else None
    rig.refusal = BrokerUnavailableError("away")
    rig.go()
    assert (claim.finished, claim.fetch_offset) == (0, 0)
    rig.refusal = None
    rig.seconds += 1
    rig.fetch(claim, b"a", b"b", b"c", codec=Codec.GZIP)
    rig.go()
    assert [each.message for each in rig.seen] == [b"a", b"b", b"a", b"b", b"c"]
    assert [each.payload for _, each in rig.letters()] == [b"b"]


def test_a_run_ends_after_the_message_that_is_being_handled(rig: Rig) -> None:
    claim = rig.claim(rig.main, "t", b"a", b"b")

    def answer(message: RetryMessage) -> None:
        rig.shared.is_stopped = True

    rig.answer = answer
    rig.worker.run()
    assert [each.message for each in rig.seen] == [b"a"]
    assert claim.finished == 11, "it may be committed"


def test_an_interrupted_message_is_handled_again(rig: Rig) -> None:
    claim = rig.claim(rig.main, "t", b"a", b"b")

    def answer(message: RetryMessage) -> None:
        if message.message == b"b":
            raise KeyboardInterrupt

    rig.answer = answer
    with pytest.raises(KeyboardInterrupt):
        rig.worker.run()
    assert (claim.finished, claim.fetch_offset, rig.published) == (11, 11, [])


def test_a_message_that_waits_in_hand_is_handled_again_after_a_run(rig: Rig) -> None:
    claim = rig.claim(rig.retries, "t.g.retry.1", letter(failed_ms=NOW_MS - 4900))
    rig.go()
    rig.shared.is_stopped = True
    rig.worker.run()
    assert (claim.finished, claim.fetch_offset, rig.seen) == (0, 0, [])


def test_a_run_ends_with_the_streams(rig: Rig) -> None:
    rig.main.close()
    rig.worker.run()


def test_a_run_raises_what_a_stream_raises(rig: Rig) -> None:
    claim = rig.claim(rig.main, "t", b"a", b"b")
    claim.fail(InvalidMessageError("damaged"))
    with pytest.raises(InvalidMessageError, match="damaged"):
        rig.worker.run()


def test_what_waits_when_a_run_ends_is_handled_by_the_next_run(rig: Rig) -> None:
    waiting = rig.claim(rig.retries, "t.g.retry.2", letter())
    rig.go()
    assert waiting.is_paused
    rig.claim(rig.main, "t").fail(InvalidMessageError("damaged"))
    with pytest.raises(InvalidMessageError, match="damaged"):
        rig.worker.run()
    rig.worker = Worker([rig.main], rig.retries, rig.shared)
    rig.fetch(waiting, letter())
    rig.go()
    assert (waiting.is_paused, rig.seen) == (True, []), "it waits as before"
    rig.seconds += 60
    rig.go()
    rig.fetch(waiting, letter())
    rig.go()
    assert [each.message for each in rig.seen] == [b"x"]


def test_a_run_without_messages_ends_in_time_but_not_while_one_waits(rig: Rig) -> None:
    rig.shared.timeout_seconds = 10.0
    claim = rig.claim(rig.retries, "t.g.retry.2", letter())
    rig.go()
    assert claim.is_paused
    rig.seconds += 59
    rig.worker._wait()
    rig.seconds += 1
    rig.worker._resume_due()
    rig.fetch(claim, letter())
    rig.go()
    assert len(rig.seen) == 1
    rig.seconds += 10
    with pytest.raises(ConsumerTimeoutError, match="no message for 10 s"):
        rig.worker.run()


def test_dead_letters_are_logged_but_not_each_of_thousands(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.shared.ladder = Ladder("g", ["t"], [])
    rig.answer = fail
    rig.claim(rig.main, "t", *[b"a\x1b"] * 100)
    with caplog.at_level(logging.WARNING):
        rig.go()
    assert len(caplog.records) == 5
    assert caplog.messages[0] == (
        "t 0-0, offset 0: after attempt 1 it is a dead letter in t.g.dead: "
        r"ValueError: not a\x1b"
    )
    rig.seconds += 10
    rig.claim(rig.main, "t", b"b")
    rig.go()
    assert caplog.messages[-1].endswith("(95 more such lines suppressed)")


def test_a_tombstone_is_handled_and_sent_on_without_a_value(rig: Rig) -> None:
    rig.shared.decode = lambda topic, payload: payload.decode()
    claim = rig.claim(rig.main, "t", b"a")
    offset = claim.fetch_offset or 0
    batch = encode_batch([Record(0, 1, b"key", None, ())], RecordCodec.NONE)
    claim.add(RecordSet(offset.to_bytes(8) + batch[8:], offset), claim.epoch)

    def refuse_none(message: RetryMessage) -> None:
        if message.message is None:
            raise ValueError("no value")

    rig.answer = refuse_none
    rig.go()
    assert [each.message for each in rig.seen] == ["a", None]
    ((topic, sent),) = rig.letters()
    assert (topic, sent.payload) == ("t.g.retry.1", None)
    rig.claim(rig.retries, "t.g.retry.1", sent.encode())
    rig.seconds += 3_600
    rig.answer = lambda message: None
    rig.go()
    assert [each.message for each in rig.seen] == ["a", None, None]


def test_a_record_keeps_key_headers_and_time_through_all_tries(rig: Rig) -> None:
    claim = rig.claim(rig.main, "t", b"a")
    offset = claim.fetch_offset or 0
    headers = (("from", b"shop"), ("from", None))
    batch = encode_batch([Record(0, 1234, b"key", b"b", headers)], RecordCodec.NONE)
    claim.add(RecordSet(offset.to_bytes(8) + batch[8:], offset), claim.epoch)

    rig.answer = lambda message: fail(message) if message.message == b"b" else None
    rig.go()
    for topic in ("t.g.retry.1", "t.g.retry.2"):
        rig.claim(rig.retries, topic, rig.published[-1][1])
        rig.seconds += 3_600
        rig.go()
    assert [topic for topic, _ in rig.letters()] == ["t.g.retry.1", "t.g.retry.2", "t.g.dead"]
    assert rig.seen[0].key is None
    assert [each.attempt for each in rig.seen[1:]] == [1, 2, 3]
    for each in (*rig.seen[1:], *(letter for _, letter in rig.letters())):
        assert (each.key, each.headers, each.timestamp_ms) == (b"key", headers, 1234)
