"""The items that calls send, the batches they leave in, their handles, and the queue in between.

Each call of an application is an item. The items for one topic are collected in a `Batch`, and
whoever sends the batch settles it with one outcome per item, in their order.

An asynchronous producer's queue has an open batch per topic, to which the calls add, and the
batches that its sender thread is busy with. Whenever that is free it takes all the open ones, at
once: so a message waits only while those before it are on their way, batches grow by themselves
while a broker is slow, up to the queue's limits, and order is kept. With `queue_time` they wait to
be filled, as in Kafka 0.7.
"""

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from hermes.client.producer_config import ProducerConfig
from hermes.client.sync_producer import SendResult
from hermes.errors import BrokerTimeoutError, ClientError, QueueFullError

_log = logging.getLogger(__name__)


#: What became of an item: where it went, or why it failed.
Outcome: TypeAlias = SendResult | Exception


class Batch:
    """Items for one topic that leave together, and what became of each.

    Payloads are kept without an object around each: an asynchronous producer makes hundreds of
    thousands of items per second.

    Attributes:
        topic: empty when handlers see the items first, which then name their topics.
        started: when the first item came, on the monotonic clock.
        items: per item a payload, or a list of two payloads or more; with handlers the
            `ProducerData`. Empty again when all outcomes are known.
        keys: the keys of the items; None while none has one.
    """

    __slots__ = (
        "_callbacks",
        "_further_count",
        "_on_observed",
        "_outcomes",
        "_unobserved",
        "_watched",
        "items",
        "keys",
        "started",
        "topic",
    )

    def __init__(self, topic: str, started: float) -> None:
        self.topic = topic
        self.started = started
        self.items: list[Any] = []
        self.keys: list[Any] | None = None
        self._further_count = 0  # of the messages in lists all but the first of each
        self._outcomes: Sequence[Outcome] | None = None
        # Called once each, by whichever thread takes them out.
        self._callbacks: deque[Callable[[], object]] = deque()
        # The items that somebody waits for; and of those that failed and that nobody has looked
        # at, how many messages each holds.
        self._watched: set[int] = set()
        self._unobserved: dict[int, int] = {}
        self._on_observed: Callable[[int], None] | None = None

    def add(self, item: Any, key: Any, count: int) -> "SendHandle":
        """Add an item, its key or None, and the number of its messages. One thread at a time."""
        index = len(self.items)
        self.items.append(item)
        if count > 1:
            self._further_count += count - 1
        if self.keys is not None:
            self.keys.append(key)
        elif key is not None:
            self.keys = [None] * index
            self.keys.append(key)
        return SendHandle((self, index))

    @property
    def message_count(self) -> int:
        return len(self.items) + self._further_count

    @property
    def is_done(self) -> bool:
        return self._outcomes is not None

    def finish(self, outcomes: Sequence[Outcome]) -> None:
        """Settle the batch, once, with an outcome per item. Callbacks run in this thread.

        Outcomes are looked up only for the items that somebody wants to know of.
        """
        self._outcomes = outcomes
        self.items, self.keys = [], None
        self._call_back()

    def watch_failures(self, failed: Mapping[int, int], on_observed: Callable[[int], None]) -> int:
        """Keep in mind, before `finish`, which failed items nobody waits for; count their messages.

        Args:
            failed: the number of messages by item.
            on_observed: called with such a number when somebody looks at the outcome after all.
        """
        self._on_observed = on_observed
        self._unobserved = {
            index: count for index, count in failed.items() if index not in self._watched
        }
        return sum(self._unobserved.values())

    def observe(self, index: int) -> None:
        self._watched.add(index)
        if self._unobserved and self._on_observed is not None:
            self._on_observed(self._unobserved.pop(index, 0))

    def abandon(self, error: Exception) -> None:
        """Settle it in a forked process, where nobody else will; calls nobody back."""
        self._callbacks.clear()
        if self._outcomes is None:
            self._outcomes = [error] * len(self.items)

    def wait(self, index: int, timeout_seconds: float | None) -> bool:
        if self._outcomes is not None:
            return True
        self._watched.add(index)
        return self.wait_for_all(timeout_seconds)

    def wait_for_all(self, timeout_seconds: float | None) -> bool:
        if self._outcomes is not None:
            return True
        done = threading.Event()
        self._callbacks.append(done.set)
        return self._outcomes is not None or done.wait(timeout_seconds)

    def outcome(self, index: int) -> Outcome:
        assert self._outcomes is not None
        return self._outcomes[index]

    def outcomes(self, indices: Sequence[int]) -> Iterable[Outcome]:
        assert self._outcomes is not None
        if indices == list(range(len(self._outcomes))):
            return self._outcomes  # looked up one after the other, which is quicker
        return map(self._outcomes.__getitem__, indices)

    def call_when_done(
        self, callback: "Callable[[SendHandle], None]", handle: "SendHandle"
    ) -> None:
        self.observe(handle[1])
        self._callbacks.append(partial(_call_back, callback, handle))
        if self._outcomes is not None:
            self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:
                return  # another thread has taken it
            callback()


class SendHandle(tuple[Batch, int]):
    """The outcome of one send, known now or later.

        handle = producer.send("clicks", b"payload")
        topic, partition, offset = handle.result(timeout_seconds=5)

    Threads may share it. It keeps the outcomes of its whole batch, but not the messages.
    """

    __slots__ = ()

    @property
    def done(self) -> bool:
        return self[0].is_done

    def result(self, timeout_seconds: float | None = None) -> SendResult:
        """Wait for the outcome: where the messages went, or without acknowledgement were sent.

        Args:
            timeout_seconds: None for as long as the producer's own limits allow.

        Raises:
            BrokerTimeoutError: the outcome is not known in time; it may still come.
            Exception: what the send finally failed with.
        """
        outcome = self._outcome(timeout_seconds)
        if isinstance(outcome, SendResult):
            return outcome
        raise outcome

    def exception(self, timeout_seconds: float | None = None) -> Exception | None:
        """Wait as `result` does; the exception that the send failed with, or None."""
        outcome = self._outcome(timeout_seconds)
        return None if isinstance(outcome, SendResult) else outcome

    def add_done_callback(self, callback: "Callable[[SendHandle], None]") -> None:
        """Call it with this handle when the outcome is known, in the sender's thread, or now.

        It must not block, since nothing is sent meanwhile. What it raises is logged.
        """
        self[0].call_when_done(callback, self)

    def __repr__(self) -> str:
        state = repr(self[0].outcome(self[1])) if self.done else "pending"
        return f"<SendHandle {state}>"

    def _outcome(self, timeout_seconds: float | None) -> Outcome:
        batch, index = self
        if not batch.wait(index, timeout_seconds):
            raise BrokerTimeoutError(f"the outcome is not known after {timeout_seconds} s")
        outcome = batch.outcome(index)
        if not isinstance(outcome, SendResult):
            batch.observe(index)
        return outcome


def ends_the_application(error: BaseException) -> bool:
    """Whether what an application's function raised is to be passed on: an interrupt, or an exit.

    In any thread but the main one an exit ends nothing but the thread, unheard: it would be the
    sender's.
    """
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and not isinstance(error, Exception)


def _call_back(callback: Callable[[SendHandle], None], handle: SendHandle) -> None:
    try:
        callback(handle)
    except BaseException as error:
        if ends_the_application(error):
            raise
        _log.exception("a callback for the outcome of a send failed")


class NoRoomNowError(Exception):
    """There is no room in the queue at the moment; never shown to an application."""


class WaitingSend:
    """A send that found no room: when it is called, which blocks, it waits for some.

    Args:
        accept: called with this.
    """

    def __init__(self, accept: "Callable[[WaitingSend], SendHandle]", queue: "SendingQueue"):
        self.is_given_up = False
        self._accept = accept
        self._queue = queue

    def __call__(self) -> SendHandle:
        return self._accept(self)

    def give_up(self) -> None:
        """End the wait: nothing is sent, unless there was room already."""
        self.is_given_up = True
        self._queue.look_for_room()


class SendingQueue:
    """Items in, batches out, in a thread of its own.

    That calls `settle`, to be sent and settled, with batches that leave together, oldest first.
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
        return self._message_count

    def put(
        self,
        topic: str,
        item: Any,
        key: Any,
        count: int,
        size_bytes: int,
        may_wait: bool = True,
        waiting: WaitingSend | None = None,
    ) -> SendHandle:
        """Accept an item of `count` messages for the batch of a topic; see `Batch`.

        Args:
            size_bytes: how many bytes of payload, 0 when they are not known yet.
            may_wait: whether the thread may wait for room; an event loop's must not.
            waiting: what may give the wait up.

        Raises:
            NoRoomNowError: there is no room; wait for some in another thread.
            QueueFullError: there is no room, and there was none in time; or it was given up.
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
                or waiting is not None
            ):
                self._wait_for_room(count, size_bytes, may_wait, waiting)
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

    def check_thread(self, method: str) -> None:
        """Raise ClientError for what the sender's own thread would wait for in vain."""
        if threading.current_thread() is self._thread:
            raise ClientError(
                f"{method} can't be called by a callback or a hook, which the sender waits for"
            )

    def flush(self, deadline: float) -> None:
        """Wait until what was accepted so far has an outcome, or raise BrokerTimeoutError.

        The deadline is on the queue's clock.
        """
        with self._lock:
            batches = [*self._sending, *self._open.values()]
            self._is_flushing = True
            self._work.notify()
        for batch in batches:
            if not batch.wait_for_all(max(deadline - self._clock(), 0)):
                raise BrokerTimeoutError("not everything could be sent in time; sending continues")

    def look_for_room(self) -> None:
        """Have those who wait for room look again."""
        with self._lock:
            self._room.notify_all()

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

    def _wait_for_room(
        self, count: int, size_bytes: int, may_wait: bool, waiting: WaitingSend | None
    ) -> None:
        def is_given_up() -> bool:
            return waiting is not None and waiting.is_given_up

        if self._closing:
            raise ClientError("the producer is closed")
        if self._blocks and not may_wait and not self._has_room(count, size_bytes):
            raise NoRoomNowError
        seconds = self._enqueue_seconds if self._blocks else 0.0
        if not self._room.wait_for(
            lambda: self._closing or is_given_up() or self._has_room(count, size_bytes), seconds
        ):
            raise QueueFullError(
                f"{self._message_count} messages of {self._size_bytes} bytes wait "
                f"already, and there was no room for {count} more within {seconds:g} s"
            )
        if self._closing:
            raise ClientError("the producer is closed")

        if is_given_up():
            raise QueueFullError("nobody waits for room any more")

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
            except BaseException as error:
                # Not even an exit may end the sender, or let a batch vanish.
                _log.exception("batches of %d items failed", sum(len(b.items) for b in batches))
                failure = ClientError(f"sending ended with {error!r}")
                failure.__cause__ = error
                for batch in batches:
                    if not batch.is_done:
                        batch.finish([failure] * len(batch.items))
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
