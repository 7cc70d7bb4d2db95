"""The ladder for loops around other Kafka clients: which try a record is, when, and where next."""

from typing import Any, NamedTuple

import pytest

from hermes.client.retrying import Letter, NextRecord, RecordRetries
from hermes.errors import ConfigError, InvalidTopicError, MessageRejectedError


class Place(NamedTuple):
    topic: str
    partition: int


class Rig:
    """Retries of group g for topic t, with delays of 5 and 60 s, and two clocks."""

    def __init__(self) -> None:
        self.seconds, self.now_ms = 100.0, 1_000_000
        self.retries = RecordRetries(
            "g",
            ["t"],
            delays=["5s", "60s"],
            clock=lambda: self.seconds,
            now_ms=lambda: self.now_ms,
        )

    def pass_by(self, seconds: float) -> None:
        self.seconds += seconds
        self.now_ms += round(seconds * 1000)

    def again(self, failed: NextRecord, partition: int = 0, offset: int = 0) -> Any:
        return self.retries.take(failed.topic, partition, offset, *failed[1:4])


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_what_to_subscribe_to() -> None:
    retries = RecordRetries("g", ["t", "u"], delays=[1000, "1m"])
    assert retries.topics == ["t", "u", "t.g.retry.1", "t.g.retry.2", "u.g.retry.1", "u.g.retry.2"]
    assert retries.dead_topics == ["t.g.dead", "u.g.dead"]


def test_a_record_climbs_and_keeps_what_it_is(rig: Rig) -> None:
    first = rig.retries.take("t", 3, 4711, b"v", b"k", [("source", b"shop")], 77)
    assert first.message == (
        b"v", "t", 3, 4711, None, 1, "", None, b"k", (("source", b"shop"),), 77,
    )  # fmt: skip
    way, attempt, started = [], first, rig.now_ms
    for number in range(1, 4):
        failed = attempt.failed(ValueError(f"no {number}"))
        way.append((failed.topic, failed.is_dead))
        assert (failed.value, failed.key) == (b"v", b"k")
        rig.pass_by(60)
        if failed.is_dead:
            break
        attempt = rig.again(failed)
        assert not attempt.is_early
        assert attempt.message[:1] + attempt.message[1:5] == first.message[:5]
        assert attempt.message[5:8] == (number + 1, f"ValueError: no {number}", started)
        assert attempt.message[8:] == first.message[8:]
    assert way == [("t.g.retry.1", False), ("t.g.retry.2", False), ("t.g.dead", True)]


def test_who_is_rejected_is_dead_at_once(rig: Rig) -> None:
    failed = rig.retries.take("t", 0, 0, None, b"k").failed(MessageRejectedError("never"))
    assert (failed.topic, failed.value, failed.is_dead) == ("t.g.dead", None, True)


def test_without_delays_every_failure_is_dead() -> None:
    retries = RecordRetries("g", ["t"], delays=[])
    assert retries.topics == ["t"]
    assert retries.take("t", 0, 0, b"v").failed(ValueError()).is_dead


def test_a_partition_waits_and_is_resumed_once(rig: Rig) -> None:
    failed = rig.retries.take("t", 0, 0, b"v").failed(ValueError())
    rig.pass_by(2)
    early = rig.again(failed)
    assert (early.is_early, early.seconds_left) == (True, pytest.approx(3))
    assigned = [Place("t", 0), Place("t.g.retry.1", 0), Place("t.g.retry.1", 1)]
    assert rig.retries.due(assigned) == []
    rig.pass_by(3)
    assert rig.retries.due(assigned) == [Place("t.g.retry.1", 0)]
    assert rig.retries.due(assigned) == []
    assert not rig.again(failed).is_early


@pytest.mark.parametrize("wrong_seconds", [-1e6, 1e6])
def test_a_wrong_clock_delays_nothing_for_longer(rig: Rig, wrong_seconds: float) -> None:
    failed = rig.retries.take("t", 0, 0, b"v").failed(ValueError())
    rig.now_ms += round(wrong_seconds * 1000)
    assert rig.again(failed).seconds_left == (5 if wrong_seconds < 0 else 0)
    rig.seconds += 5
    assert not rig.again(failed).is_early


def test_a_partition_that_was_lost_is_forgotten(rig: Rig) -> None:
    failed = rig.retries.take("t", 0, 0, b"v").failed(ValueError())
    assert rig.again(failed).is_early
    assert rig.retries.due([Place("t", 0)]) == []
    rig.pass_by(5)
    assert rig.retries.due([Place("t.g.retry.1", 0)]) == []


def test_what_another_record_waited_for_does_not_count(rig: Rig) -> None:
    failed = rig.retries.take("t", 0, 0, b"v").failed(ValueError())
    assert rig.again(failed, offset=7).is_early
    rig.pass_by(4)
    later = rig.retries.take("t", 0, 1, b"w").failed(ValueError())
    assert rig.again(later, offset=8).seconds_left == pytest.approx(5)


def test_letters_of_both_forms_are_taken(rig: Rig) -> None:
    letter = Letter("g", "t", 7, 3, 99, 1, 5, 6, "no", b"v", b"k", (("a", None),), 77)
    found = rig.retries.take("t.g.retry.1", 0, 0, letter.encode())
    assert found.message == (b"v", "t", 3, 99, 7, 2, "no", 5, b"k", (("a", None),), 77)


def test_headers_that_somebody_has_forged_count_only_in_retry_topics(rig: Rig) -> None:
    failed = rig.retries.take("t", 0, 0, b"v", None, [("a", b"b")]).failed(ValueError("x"))
    forged = rig.retries.take("t", 1, 2, b"v", None, failed.headers)
    assert (forged.message.attempt, forged.is_early) == (1, False)
    assert forged.message.headers == tuple(failed.headers), "an application sees what was sent"
    again = forged.failed(ValueError("y")).headers
    assert len(again) == len(failed.headers)
    assert dict(again)["hermes-offset"] == b"2"


def test_another_record_in_a_retry_topic_is_handled_like_any_other(rig: Rig) -> None:
    strange = [("hermes-letter", b"1"), ("hermes-attempts", b"\xff" * 1000)]
    found = rig.retries.take("t.g.retry.2", 1, 5, b"v", b"k", strange)
    assert (found.message.attempt, found.is_early) == (1, False)
    failed = found.failed(ValueError())
    assert failed.topic == "t.g.dead"
    assert dict(failed.headers)["hermes-topic"] == b"t.g.retry.2"


def test_what_can_not_be(rig: Rig) -> None:
    for topic in ("u", "t.g.dead", "t.g.retry.0"):
        with pytest.raises(ConfigError, match="none of these"):
            rig.retries.take(topic, 0, 0, b"v")
    with pytest.raises(InvalidTopicError, match="ASCII"):
        RecordRetries("my group", ["t"])
    with pytest.raises(InvalidTopicError):
        RecordRetries("g" * 240, ["t"])
