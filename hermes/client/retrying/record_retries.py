"""Retries and dead letters for applications that read with another Kafka client.

It does no I/O: the application's loop polls, handles, stores and commits, by whichever client, and
asks here which try a record is, whether it is too early for that, and where it goes if it fails.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hermes.client.retrying.ladder import Ladder, Rung, is_hopeless
from hermes.client.retrying.letter_headers import letter_record, read_letter
from hermes.client.retrying.letters import Letter, reason_of
from hermes.client.retrying.messages import RetryMessage
from hermes.errors import ConfigError
from hermes.protocol import check_kafka_topic_name
from hermes.protocol.records import Headers


class NextRecord(NamedTuple):
    """What is to be stored before the record that failed is committed, and where.

    Its first three fields are, in this order, what both confluent-kafka's `produce` and aiokafka's
    `send_and_wait` begin with.

    Attributes:
        headers: the record's own, and those that make it a letter.
        is_dead: whether the topic is that of the dead letters.
    """

    topic: str
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    is_dead: bool


class _Held(NamedTuple):
    """What a partition waits for; `until`, by the clock."""

    offset: int
    until: float
    is_paused: bool = True


class RecordAttempt:
    """A record that was polled, as one of the tries of what was published.

    Attributes:
        message: what the application handles: as `RetryingConsumer` hands it over, undecoded.
        seconds_left: how long it is to wait until then; 0 if it is due.
    """

    def __init__(
        self,
        ladder: Ladder,
        rung: Rung,
        letter: Letter,
        message: RetryMessage,
        seconds_left: float,
        now_ms: Callable[[], int],
    ) -> None:
        self._ladder = ladder
        self._rung = rung
        self._letter = letter
        self._now_ms = now_ms
        self.message = message
        self.seconds_left = seconds_left

    @property
    def is_early(self) -> bool:
        """Whether to pause the partition, and to seek back to this record."""
        return self.seconds_left > 0

    def failed(self, error: BaseException) -> NextRecord:
        """Say where the record goes that `error` has kept from being handled.

        After a `MessageRejectedError`, which says that no retry can help, it is a dead letter.
        """
        dead = self._ladder.dead(self._rung.topic)
        topic = dead if is_hopeless(error) else self._ladder.above(self._rung)
        now_ms, attempts = self._now_ms(), self._letter.attempts + 1
        letter = replace(
            self._letter,
            group=self._ladder.group,
            attempts=attempts,
            first_failed_ms=now_ms if attempts == 1 else self._letter.first_failed_ms,
            failed_ms=now_ms,
            reason=reason_of(error),
        )
        record = letter_record(letter)
        return NextRecord(topic, record.value, letter.key, list(record.headers), topic == dead)


class RecordRetries:
    """The ladder of retry topics of a group, for a loop around another client's consumer.

    The topics, attempts, reasons and origins are those of `RetryingConsumer`: the same commands and
    pages show and replay its dead letters. docs/retries.md has such loops. Not for several threads.

    Example:
        retries = RecordRetries("billing", ["orders"], delays=["5s", "1m"])
        order = retries.take("orders", 3, 4711, b"2 books", b"key", [("source", b"shop")])
        try:
            charge(order.message)
        except Exception as error:
            failed = order.failed(error)
            producer.produce(*failed[:3], headers=failed.headers)

    Args:
        group: the consumer's group.
        topics: the topics to read, at least one.
        delays: how long a record waits after each failure, durations as in the settings; one retry
            topic for each. None at all makes every failed record a dead letter.

    Attributes:
        topics: what the consumer is to subscribe to: the topics, and their retry topics.
        dead_topics: where dead letters go.

    Raises:
        ArgumentError: there is no topic, or one is not a text.
        ConfigError: a delay is wrong, there are too many, or topics get in each other's way.
        InvalidTopicError: Kafka doesn't allow a topic's name, or with the group's it is too long.
    """

    def __init__(
        self,
        group: str,
        topics: Sequence[str],
        *,
        delays: Sequence[str | float] = ("5s", "1m", "10m"),
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._ladder = ladder = Ladder(group, topics, delays)
        self._clock = clock
        self._now_ms = now_ms
        self._held: dict[tuple[str, int], _Held] = {}
        levels = range(1, len(delays) + 1)
        self.topics = [*ladder.topics]
        self.topics += [ladder.retry(topic, level) for topic in ladder.topics for level in levels]
        self.dead_topics = [ladder.dead(topic) for topic in ladder.topics]
        for name in (*self.topics, *self.dead_topics):
            check_kafka_topic_name(name)

    def take(
        self,
        topic: str,
        partition: int,
        offset: int,
        value: bytes | None,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordAttempt:
        """Take a record as it was polled.

        If it `is_early`, pause its partition and seek back to it; `due` says when to resume.

        Raises:
            ConfigError: the topic is none of those in `topics`.
        """
        own: Headers = tuple(headers or ())
        rung, before = self._ladder.rung(topic), None
        if rung is not None:
            before = read_letter(value, key, own)
        elif topic in self._ladder.topics:
            rung = Rung(topic, 0)
        else:
            raise ConfigError("topics", f"{topic!r} is none of these, and no retry topic of theirs")
        seconds_left = 0.0
        if before is not None:
            seconds_left = self._seconds_left((topic, partition), offset, rung, before)
            message = RetryMessage.again(before, before.payload)
            return RecordAttempt(self._ladder, rung, before, message, seconds_left, self._now_ms)
        beside = key, own, timestamp_ms
        message = RetryMessage(value, topic, partition, offset, None, 1, "", None, *beside)
        place = self._ladder.group, topic, None, partition, offset
        letter = Letter(*place, 0, 0, 0, "", value, *beside)
        return RecordAttempt(self._ladder, rung, letter, message, 0.0, self._now_ms)

    def due(self, assignment: Iterable[Any]) -> list[Any]:
        """Say which partitions to resume.

        Args:
            assignment: what the consumer has now, as its `assignment()` says: objects with a
                `topic` and a `partition`. What else was paused is forgotten.

        Returns:
            Those of the assignment whose time has come.
        """
        if not self._held:
            return []
        now, found, kept = self._clock(), [], {}
        for each in assignment:
            place = each.topic, each.partition
            held = self._held.get(place)
            if held is None:
                continue
            if held.is_paused and now >= held.until:
                held = held._replace(is_paused=False)
                found.append(each)
            kept[place] = held
        self._held = kept
        return found

    def _seconds_left(
        self, place: tuple[str, int], offset: int, rung: Rung, letter: Letter
    ) -> float:
        """No longer than its delay, whatever the clock says of the machine on which it failed."""
        now, delay = self._clock(), self._ladder.delay(rung.level)
        seconds = min(delay, delay - (self._now_ms() - letter.failed_ms) / 1000)
        held = self._held.pop(place, None)
        if held is not None and held.offset == offset:
            seconds = min(seconds, held.until - now)
        if seconds <= 0:
            return 0.0
        self._held[place] = _Held(offset, now + seconds)
        return seconds
