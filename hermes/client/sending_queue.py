"""The asynchronous producer's queue and its sender thread.

There is an open batch per topic, to which the calls add, and the batches that the sender is busy
with. Whenever the sender is free it takes all the open ones, at once: so a message waits only while
those before it are on their way, batches grow by themselves while a broker is slow, up to the
queue's limits, and order is kept. With `queue_time` they wait to be filled, as in Kafka 0.7.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from hermes.client.batching import Batch, SendHandle
from hermes.client.producer_config import ProducerConfig
from hermes.errors import BrokerTimeoutError, ClientError, QueueFullError

_log = logging.getLogger(__name__)


class NoRoomNowError(Exception):
    """There is no room in the queue at the moment; never shown to an application."""


class SendingQueue:
    """Items in, batches out, in a thread of its own.

    Args:
        config: the queue's limits, and whether batches wait.
        settle: called in the sender thread with the batches that leave together, the oldest first;
            sends and settles them all.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        config: ProducerConfig,
        settle: Callable[[Sequence[Batch]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settle = settle
        self._clock = clock
        self._queue_size = config.queue_size
        self._queue_bytes = config.queue_bytes
        # How long batches wait to be filled, and with how many messages they are full.
        self._fill_seconds = 0.0 if config.queue_time is None else config.seconds("queue_time")
        self._full_count = config.batch_size if self._fill_seconds else sys.maxsize
        self._blocks = config.queue_full == "block"
        self._enqueue_seconds = config.seconds("enqueue_timeout")
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._open: dict[str, Batch] = {}
        self._message_count = self._size_bytes = 0  # of the open batches
        self._sending: Sequence[Batch] = ()
        self._is_flushing = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="hermes-producer", daemon=True)
        self._thread.start()

    @property
    def queued_count(self) -> int:
        """How many messages wait."""
        return self._message_count

    def put(
        self, topic: str, item: Any, key: Any, count: int, size_bytes: int, may_wait: bool = True
    ) -> SendHandle:
        """Accept an item.

        Args:
            topic: the batch to put it into; see `Batch`.
            item: what to send; see `Batch`.
            key: its key, or None.
            count: how many messages it holds.
            size_bytes: how many bytes of payload, 0 when they are not known yet.
            may_wait: whether the thread may wait for room; an event loop's must not.

        Raises:
            NoRoomNowError: there is no room; wait for some in another thread.
            QueueFullError: there is no room, and there was none in time.
            ClientError: the queue is closed.
        """
        lock = self._lock
        lock.acquire()  # `with` takes twice as long, once per message
        try:
            total = self._message_count + count
            if (
                total > self._queue_size
                or self._size_bytes + size_bytes > self._queue_bytes
                or self._closing
            ):
                self._wait_for_room(count, size_bytes, may_wait)
                total = self._message_count + count
            self._message_count = total
            self._size_bytes += size_bytes
            try:
                batch = self._open[topic]
            except KeyError:
                batch = self._open[topic] = Batch(topic, self._clock())
                self._work.notify()
            if total >= self._full_count:
                self._work.notify()
            return batch.add(item, key, count)
        finally:
            lock.release()

    def flush(self, deadline: float) -> None:
        """Wait until what was accepted so far has an outcome.

        Args:
            deadline: on the queue's clock.

        Raises:
            BrokerTimeoutError: it did not come in time; sending continues.
        """
        with self._lock:
            batches = [*self._sending, *self._open.values()]
            self._is_flushing = True
            self._work.notify()
        for batch in batches:
            if not batch.wait_for_all(max(deadline - self._clock(), 0)):
                raise BrokerTimeoutError("not everything could be sent in time; sending continues")

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
        for batch in (*self._sending, *self._open.values()):
            batch.abandon(error)

    def _wait_for_room(self, count: int, size_bytes: int, may_wait: bool) -> None:
        if self._closing:
            raise ClientError("the producer is closed")
        if self._blocks and not may_wait and not self._has_room(count, size_bytes):
            raise NoRoomNowError
        seconds = self._enqueue_seconds if self._blocks else 0.0
        if not self._room.wait_for(
            lambda: self._closing or self._has_room(count, size_bytes), seconds
        ):
            raise QueueFullError(
                f"{self._message_count} messages of {self._size_bytes} bytes wait "
                f"already, and there was no room for {count} more within {seconds:g} s"
            )
        if self._closing:
            raise ClientError("the producer is closed")

    def _has_room(self, count: int, size_bytes: int) -> bool:
        if not self._open:
            return True  # what alone is larger than the queue must pass too
        return (
            self._message_count + count <= self._queue_size
            and self._size_bytes + size_bytes <= self._queue_bytes
        )

    def _run(self) -> None:
        while batches := self._take():
            try:
                self._settle(batches)
            except Exception as error:
                # Not even a fault of ours may end the sender, or let a batch vanish.
                _log.exception("batches of %d items failed", sum(len(b.items) for b in batches))
                for batch in batches:
                    if not batch.is_done:
                        batch.finish([error] * len(batch.items))
            with self._lock:
                self._sending = ()

    def _take(self) -> Sequence[Batch]:
        """Wait for batches that are due; none when the queue is closed and empty."""
        with self._lock:
            while not self._open:
                if self._closing:
                    return ()
                self._is_flushing = False
                self._work.wait()
            while (left := self._seconds_to_fill()) > 0:
                self._work.wait(left)
            self._sending, self._open = tuple(self._open.values()), {}
            self._message_count = self._size_bytes = 0
            self._is_flushing = False
            self._room.notify_all()
            return self._sending

    def _seconds_to_fill(self) -> float:
        """How long the open batches may still wait for more; 0 or less when they are due."""
        if self._closing or self._is_flushing or self._message_count >= self._full_count:
            return 0.0
        oldest = next(iter(self._open.values()))
        return oldest.started + self._fill_seconds - self._clock()
