"""The asynchronous producer's queue and its sender thread.

There is one open batch, to which every call adds, and at most one that the sender is busy with.
The sender takes the open one whole when it is full enough or old enough; so batches grow by
themselves while a broker is slow, up to the queue's limits, and order is kept.
"""

import logging
import threading
import time
from collections.abc import Callable

from hermes.client.batching import Batch, ProducerData, SendHandle
from hermes.client.producer_config import ProducerConfig
from hermes.errors import BrokerTimeoutError, ClientError, QueueFullError

__all__ = ["NoRoomNowError", "SendingQueue"]

_log = logging.getLogger(__name__)


class NoRoomNowError(Exception):
    """There is no room in the queue at the moment; never shown to an application."""


class SendingQueue:
    """Items in, batches out, in a thread of its own.

    Args:
        config: the queue's limits.
        settle: called in the sender thread with each batch; sends and settles it.
    """

    def __init__(self, config: ProducerConfig, settle: Callable[[Batch], None]) -> None:
        self._settle = settle
        self._queue_size = config.queue_size
        self._queue_bytes = config.queue_bytes
        self._batch_size = config.batch_size
        self._queue_seconds = config.seconds("queue_time")
        self._blocks = config.queue_full == "block"
        self._enqueue_seconds = config.seconds("enqueue_timeout")
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._open = Batch()
        self._busy: Batch | None = None
        self._hurry = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="hermes-producer", daemon=True)
        self._thread.start()

    @property
    def queued_count(self) -> int:
        """How many messages wait."""
        return self._open.message_count

    def put(
        self, item: ProducerData, count: int, size_bytes: int, may_wait: bool = True
    ) -> SendHandle:
        """Accept an item.

        Args:
            item: what to send.
            count: how many messages it holds.
            size_bytes: how many bytes of payload, 0 when they are not known yet.
            may_wait: whether the thread may wait for room; an event loop's must not.

        Raises:
            NoRoomNowError: there is no room, and some should be waited for in another thread.
            QueueFullError: there is no room, and none came in time.
            ClientError: the queue is closed.
        """
        with self._lock:
            if self._closing:
                raise ClientError("the producer is closed")
            batch = self._open
            total = batch.message_count + count
            if total > self._queue_size or batch.size_bytes + size_bytes > self._queue_bytes:
                self._wait_for_room(count, size_bytes, may_wait)
                batch = self._open
                total = batch.message_count + count
            items = batch.items
            index = len(items)
            items.append(item)
            batch.message_count = total
            batch.size_bytes += size_bytes
            if not index:
                batch.started = time.monotonic()
                self._work.notify()
            elif total - count < self._batch_size <= total:
                self._work.notify()
        return SendHandle((batch, index))

    def flush(self, deadline: float) -> None:
        """Wait until what was accepted so far has an outcome.

        Args:
            deadline: on the monotonic clock.

        Raises:
            BrokerTimeoutError: it did not come in time; sending goes on.
        """
        with self._lock:
            batches = [each for each in (self._busy, self._open) if each and each.items]
            self._hurry = True
            self._work.notify()
        for batch in batches:
            if not batch.wait_for_all(max(deadline - time.monotonic(), 0)):
                raise BrokerTimeoutError("not everything could be sent in time; sending goes on")

    def refuse(self) -> None:
        """Accept nothing more; what was accepted leaves at once."""
        with self._lock:
            self._closing = True
            self._work.notify()
            self._room.notify_all()

    def join(self, timeout_seconds: float) -> bool:
        """Wait until the sender has ended, after `refuse`; whether it has."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def abandon(self, error: Exception) -> None:
        """In a forked process, where the sender doesn't run: end every batch with an error."""
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._closing = True
        for batch in (self._busy, self._open):
            if batch is not None:
                batch.abandon(error)

    def _wait_for_room(self, count: int, size_bytes: int, may_wait: bool) -> None:
        if self._blocks and not may_wait and not self._fits(count, size_bytes):
            raise NoRoomNowError
        seconds = self._enqueue_seconds if self._blocks else 0.0
        if not self._room.wait_for(lambda: self._closing or self._fits(count, size_bytes), seconds):
            raise QueueFullError(
                f"{self._open.message_count} messages of {self._open.size_bytes} bytes wait "
                f"already, and there was no room for {count} more within {seconds:g} s"
            )
        if self._closing:
            raise ClientError("the producer is closed")

    def _fits(self, count: int, size_bytes: int) -> bool:
        batch = self._open
        if not batch.items:
            return True  # what alone is larger than the queue must pass too
        return (
            batch.message_count + count <= self._queue_size
            and batch.size_bytes + size_bytes <= self._queue_bytes
        )

    def _run(self) -> None:
        while (batch := self._take()) is not None:
            try:
                self._settle(batch)
            except Exception as error:
                # Not even a fault of ours may end the sender, or let a batch vanish.
                _log.exception("a batch of %d messages failed", batch.message_count)
                if not batch.is_done:
                    batch.finish([error] * len(batch.items))
            with self._lock:
                self._busy = None

    def _take(self) -> Batch | None:
        """Wait for a batch that is due; None when the queue is closed and empty."""
        with self._lock:
            while not self._open.items:
                if self._closing:
                    return None
                self._hurry = False
                self._work.wait()
            batch = self._open
            due = batch.started + self._queue_seconds
            while batch.message_count < self._batch_size and not (self._closing or self._hurry):
                remaining = due - time.monotonic()
                if remaining <= 0:
                    break
                self._work.wait(remaining)
            self._busy, self._open = batch, Batch()
            self._hurry = False
            self._room.notify_all()
            return batch
