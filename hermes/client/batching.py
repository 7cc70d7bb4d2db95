"""What an application sends and learns: items, the batches they leave in, handles. No I/O.

Each call of an application is an item. The items for one topic are collected in a `Batch`, and
whoever sends the batch settles it with one outcome per item, in their order.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from hermes.client.sync_producer import SendResult
from hermes.coordination.layout import BrokerPartition
from hermes.errors import BrokerTimeoutError

_log = logging.getLogger(__name__)


class Keys(list[Any]):
    """A key for each message of a list, in their order; None for a message without one.

    The messages may go to several partitions. One send of thousands costs a fraction of thousands
    of sends.

    Example:
        producer.send("clicks", [b"first", b"second"], key=Keys(["user-7", "user-8"]))
    """

    __slots__ = ()


class InPartition(NamedTuple):
    """A key for messages whose partition is chosen already; what `send` makes of `partition`.

    Attributes:
        partition: the partition's number; with several brokers that have one of this number, a
            `BrokerPartition`, which names the broker as well.
        key: stored with the messages, where their topic keeps keys; None for none, `Keys` for one
            per message.
    """

    partition: int | BrokerPartition
    key: Any = None


class ProducerData(NamedTuple):
    """What one call sends.

    Example:
        producer.send(ProducerData("clicks", [b"first", b"second"], key="user-7"))

    Attributes:
        topic: where to.
        messages: one value, or a list of values; all go to the same partition.
        key: chooses the partition; None for no key; `Keys` for one per message; `InPartition` for a
            certain partition.
    """

    topic: str
    messages: Any
    key: Any = None


def message_count(item: Any) -> int:
    """How many messages an item of a batch holds: a list is several."""
    messages = item.messages if isinstance(item, ProducerData) else item
    return len(messages) if type(messages) is list else 1


#: What became of an item: where it went, or why it failed.
Outcome: TypeAlias = SendResult | Exception


class Batch:
    """Items for one topic that leave together, and what became of each.

    Payloads are kept as they are, without an object around each: an asynchronous producer makes
    hundreds of thousands of items per second.

    Args:
        topic: where to; empty when handlers see the items first, which then name their topics.
        started: see below.

    Attributes:
        topic: where to.
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
        """Add an item. One thread at a time.

        Args:
            item: see `items`.
            key: its key, or None.
            count: how many messages it holds.
        """
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
        """How many messages the items hold."""
        return len(self.items) + self._further_count

    @property
    def is_done(self) -> bool:
        """Whether every outcome is known."""
        return self._outcomes is not None

    def finish(self, outcomes: Sequence[Outcome]) -> None:
        """Settle the batch, once, and notify whoever waits. Callbacks run in this thread.

        Args:
            outcomes: one per item, in order; asked only for those that somebody wants to know.
        """
        self._outcomes = outcomes
        self.items, self.keys = [], None
        self._call_back()

    def watch_failures(self, failed: Mapping[int, int], on_observed: Callable[[int], None]) -> int:
        """Keep in mind, before `finish`, which failed items nobody waits for.

        Args:
            failed: the number of messages by item.
            on_observed: called with such a number when somebody looks at the outcome after all.

        Returns:
            How many messages they are.
        """
        self._on_observed = on_observed
        self._unobserved = {
            index: count for index, count in failed.items() if index not in self._watched
        }
        return sum(self._unobserved.values())

    def observe(self, index: int) -> None:
        """Note that somebody has learned of an item's failure, or is going to."""
        self._watched.add(index)
        if self._unobserved and self._on_observed is not None:
            self._on_observed(self._unobserved.pop(index, 0))

    def abandon(self, error: Exception) -> None:
        """Settle it in a forked process, where nobody else will; calls nobody back."""
        self._callbacks.clear()
        if self._outcomes is None:
            self._outcomes = [error] * len(self.items)

    def wait(self, index: int, timeout_seconds: float | None) -> bool:
        """Wait for an item until the batch is done; whether that came in time."""
        if self._outcomes is not None:
            return True
        self._watched.add(index)
        return self.wait_for_all(timeout_seconds)

    def wait_for_all(self, timeout_seconds: float | None) -> bool:
        """Wait until the batch is done, without looking at any item."""
        if self._outcomes is not None:
            return True
        done = threading.Event()
        self._callbacks.append(done.set)
        return self._outcomes is not None or done.wait(timeout_seconds)

    def outcome(self, index: int) -> Outcome:
        """What became of an item of a batch that is done."""
        assert self._outcomes is not None
        return self._outcomes[index]

    def outcomes(self, indices: Sequence[int]) -> Iterable[Outcome]:
        """What became of items of a batch that is done, in the order of the indices."""
        assert self._outcomes is not None
        if indices == list(range(len(self._outcomes))):
            return self._outcomes  # looked up one after the other, which is quicker
        return map(self._outcomes.__getitem__, indices)

    def call_when_done(
        self, callback: "Callable[[SendHandle], None]", handle: "SendHandle"
    ) -> None:
        """Call it with the handle when the batch is done, or now if it is."""
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
        """Whether the outcome is known."""
        return self[0].is_done

    def result(self, timeout_seconds: float | None = None) -> SendResult:
        """Wait for the outcome.

        Args:
            timeout_seconds: how long at most; None for as long as the producer's own limits
                allow.

        Returns:
            Where the messages went; without acknowledgement only where to they were sent.

        Raises:
            BrokerTimeoutError: the outcome is not known in time; it may still come.
            Exception: what the send finally failed with.
        """
        outcome = self._outcome(timeout_seconds)
        if isinstance(outcome, SendResult):
            return outcome
        raise outcome

    def exception(self, timeout_seconds: float | None = None) -> Exception | None:
        """Wait for the outcome; the exception that the send failed with, or None.

        Raises:
            BrokerTimeoutError: as for `result`.
        """
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


def _call_back(callback: Callable[[SendHandle], None], handle: SendHandle) -> None:
    try:
        callback(handle)
    except Exception:
        _log.exception("a callback for the outcome of a send failed")
