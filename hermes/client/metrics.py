"""What producers, consumers and members of groups count, and snapshots of it."""

import threading
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ProducerMetrics:
    """A snapshot of a producer's counters since it was created. All but `queued` only grow.

    Attributes:
        queued: messages waiting for the sender now.
        sent: messages that reached what `acks` says.
        failed: messages given up.
        dropped: messages that were never accepted: the queue was full, or a hook took them out.
        hook_errors: exceptions raised by callback hooks.
        batches: batches completed; a synchronous send is one.
        largest_batch: messages in the largest of them.
        batch_seconds: total time of all batches, from the first message to the outcome.
        slowest_batch_seconds: the longest of these times.
    """

    queued: int
    sent: int
    failed: int
    dropped: int
    hook_errors: int
    batches: int
    largest_batch: int
    batch_seconds: float
    slowest_batch_seconds: float

    @property
    def mean_batch_size(self) -> float:
        """Messages per batch; 0 before the first."""
        return (self.sent + self.failed) / self.batches if self.batches else 0.0

    @property
    def mean_latency_seconds(self) -> float:
        """The mean time from a batch's first message to its outcome; 0 before the first."""
        return self.batch_seconds / self.batches if self.batches else 0.0


class ProducerCounters:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent = self._failed = self._dropped = self._hook_errors = 0
        self._batches = self._largest_batch = 0
        self._batch_seconds = self._slowest_batch_seconds = 0.0

    def count_batch(self, sent: int, failed: int, seconds: float) -> None:
        with self._lock:
            self._sent += sent
            self._failed += failed
            self._batches += 1
            self._largest_batch = max(self._largest_batch, sent + failed)
            self._batch_seconds += seconds
            self._slowest_batch_seconds = max(self._slowest_batch_seconds, seconds)

    def count_dropped(self, count: int) -> None:
        with self._lock:
            self._dropped += count

    def count_hook_error(self) -> None:
        with self._lock:
            self._hook_errors += 1

    def snapshot(self, queued: int) -> ProducerMetrics:
        with self._lock:
            return ProducerMetrics(
                queued,
                self._sent,
                self._failed,
                self._dropped,
                self._hook_errors,
                self._batches,
                self._largest_batch,
                self._batch_seconds,
                self._slowest_batch_seconds,
            )

    def forked(self) -> None:
        self._lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class ConsumerMetrics:
    """A snapshot of a consumer's counters since it was created. All only grow.

    Attributes:
        fetches: partitions that were fetched from; each of a multifetch counts.
        failed_fetches: those answered with an error, and requests that failed as a whole.
        fetched_bytes: bytes of messages received.
        skipped: damaged ranges that iterations skipped.
    """

    fetches: int
    failed_fetches: int
    fetched_bytes: int
    skipped: int


class ConsumerCounters:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fetches = self._failed_fetches = self._fetched_bytes = self._skipped = 0

    def count(self, fetched: Any) -> None:
        """Of one fetch, or of the `FetchResult`s of several."""
        results = fetched if isinstance(fetched, list) else ()
        sets = [each.messages for each in results] if results else [fetched]
        with self._lock:
            self._fetches += len(sets)
            self._failed_fetches += sum(each.error is not None for each in results)
            self._fetched_bytes += sum(map(len, sets))

    def count_failure(self) -> None:
        with self._lock:
            self._failed_fetches += 1

    def count_skipped(self, count: int) -> None:
        with self._lock:
            self._skipped += count

    def snapshot(self) -> ConsumerMetrics:
        with self._lock:
            return ConsumerMetrics(
                self._fetches, self._failed_fetches, self._fetched_bytes, self._skipped
            )


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """How far a member of a group is in one of its partitions.

    Attributes:
        position: where the next message that is handed out starts.
        committed: the offset in ZooKeeper; None while there is none.
    """

    topic: str
    broker_id: int
    partition: int
    position: int
    committed: int | None


@dataclass(frozen=True, slots=True)
class GroupMetrics:
    """A snapshot of a group member's counters since it was created.

    Attributes:
        consumer: its fetch counters, over all brokers.
        taken: partitions it acquired; one may count several times.
        lost: partitions it released, or lost with its session.
        commits: offsets stored.
        failed_commits: offsets it could not store because another member has the partition.
        partitions: those it owns now.
    """

    consumer: ConsumerMetrics
    taken: int
    lost: int
    commits: int
    failed_commits: int
    partitions: tuple[PartitionPosition, ...]


@dataclass(frozen=True, slots=True)
class RetryMetrics:
    """A snapshot of a retrying consumer's counters since it was created. All only grow.

    Attributes:
        handled: messages the application handled, on any attempt.
        failed: failed attempts whose message was sent on.
        retried: messages sent to a retry topic.
        dead: messages sent to the dead-letter topic.
        unsent: how often a failed message couldn't be sent on, and was put back.
    """

    handled: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    unsent: int = 0


class RetryCounters:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = RetryMetrics()

    def count(
        self, *, handled: int = 0, failed: int = 0, retried: int = 0, dead: int = 0, unsent: int = 0
    ) -> None:
        with self._lock:
            now = self._counts
            self._counts = RetryMetrics(
                now.handled + handled,
                now.failed + failed,
                now.retried + retried,
                now.dead + dead,
                now.unsent + unsent,
            )

    def snapshot(self) -> RetryMetrics:
        return self._counts
