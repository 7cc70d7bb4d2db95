"""Streams: blocking iterators over the messages of the partitions that they own at the moment."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from hermes.client.groups.claims import Claim, StreamMessage
from hermes.coordination.layout import BrokerPartition
from hermes.errors import ClientError, ConsumerTimeoutError, EncodingError, HermesError
from hermes.forks import FORKED
from hermes.plugins import plugin_name
from hermes.protocol import core

__all__ = ["MessageStream", "StreamMessage"]

# How often a waiting stream checks whether its session lives; nothing notifies it.
_LEASE_CHECK_SECONDS = 0.1
# For an application that doesn't ask; all of them are logged.
_MOST_FAILURES = 10


class _Changes(threading.Condition):
    """A condition that notifies its stream of every change first, with the lock held."""

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__()
        self._changed = changed

    def notify_all(self) -> None:
        self._changed()
        super().notify_all()


class MessageStream(core.Supply[StreamMessage]):
    """An iterator that waits for messages, and ends when the connector is shut down.

    One thread at a time iterates. Asking for the next message means that the application has
    finished with the last one: from then on its offset may be committed. A stream has no messages
    while it owns no partition, or ZooKeeper is out of reach for long.

    Messages are handed out in runs. Before each message two things are checked without the lock:
    that the lease lasts, by the clock, since the process may have been stopped for any time; and
    that there is an open run, since every change closes it. `Supply` does both. Everything else
    needs the lock, and is done once per run. A message that is taken at the very moment of a change
    counts as the one in the application's hands.

    Args:
        name: used in errors.
        decode: makes a value of a topic and a payload; None if payloads are the values.
        timeout_seconds: how long `next` waits; None for ever.
        wake_fetchers: called when there is room for more.

    Raises:
        ConsumerTimeoutError: no message came in time; ask again.
        EncodingError: the decoder refused a payload; asking again skips it.
        InvalidNodeError: a partition's offset in ZooKeeper can't be understood, so that it is not
            read until the node is mended. Once; asking again gives messages of the others.
        HermesError: a partition can't be read further (the text says which and why). It is paused
            until a `seek`; asking again gives the messages of the others.
    """

    def __init__(
        self,
        name: str,
        decode: Callable[[str, bytes], Any] | None,
        timeout_seconds: float | None,
        wake_fetchers: Callable[[], None],
    ) -> None:
        self.name = name
        self.lock = _Changes(self._close_run)
        self._decode = decode
        self._timeout_seconds = timeout_seconds
        self._wake_fetchers = wake_fetchers
        self._observer: Callable[[], None] | None = None
        self._claims: list[Claim] = []
        self._current: Claim | None = None
        self._reader: object = None
        self._failures: deque[HermesError] = deque(maxlen=_MOST_FAILURES)
        self._closed = self._is_forked = False

    def poll(self, reader: object) -> StreamMessage | None:
        """Take the next message if there is one now; for readers that must not wait.

        It finishes the last one, as `next` does.

        Args:
            reader: identifies the caller to `finish_if_reader`.

        Raises:
            StopIteration: the connector is shut down.
            HermesError: as `next`.
        """
        self._reader = reader
        message = self._take()
        if message is not None:
            return message
        with self.lock:
            self._finish_current()
            first = self._poll()
        if first is None:
            self._wake_fetchers()
            return None
        return self._decoded(first)

    def has_news(self) -> bool:
        """Whether `poll` would return or raise something now, if only that the stream has ended."""
        with self.lock:
            return (
                self._closed
                or bool(self._failures)
                or any(
                    each.is_ready() and not isinstance(each.failure, _ReportedError)
                    for each in self._claims
                )
            )

    def observe(self, changed: Callable[[], None]) -> None:
        """Set what is called, in any thread and with locks held, when `poll` may have news."""
        self._observer = changed

    def partitions(self) -> list[tuple[str, BrokerPartition]]:
        """The partitions that the stream owns now."""
        with self.lock:
            return [(each.topic, each.partition) for each in self._claims if not each.is_revoked]

    def pause(self, *partitions: tuple[str, BrokerPartition]) -> None:
        """Hold back messages of partitions, of all that are owned unless some are named.

        They stay owned. Partitions that are assigned later are not paused.
        """
        self._set_paused(partitions, True)

    def resume(self, *partitions: tuple[str, BrokerPartition]) -> None:
        """Undo `pause`."""
        self._set_paused(partitions, False)

    def seek(self, topic: str, partition: BrokerPartition, offset: int) -> None:
        """Continue in a partition at an offset where a message starts.

        Raises:
            ClientError: the stream does not own the partition.
        """
        with self.lock:
            for claim in self._claims:
                if (claim.topic, claim.partition) == (topic, partition) and not claim.is_revoked:
                    break
            else:
                raise ClientError(f"stream {self.name} does not own {topic} {partition}")
            if self._current is claim:
                self._current = None
            claim.start_at(offset)
        self._wake_fetchers()

    # -- for the membership ---------------------------------------------------------------------

    def replace_claims(self, add: Iterable[Claim] = (), remove: Iterable[Claim] = ()) -> None:
        """Change which partitions the stream owns."""
        with self.lock:
            gone = set(remove)
            self._claims = [each for each in self._claims if each not in gone] + list(add)
            self.lock.notify_all()

    def revoke(self, claims: Iterable[Claim], *, lost: bool = False) -> None:
        """Hand out nothing more of these; if they are lost, nothing more counts as finished."""
        for claim in claims:
            claim.revoke(lost=lost)

    def wait_until_finished(self, claim: Claim, deadline: float) -> bool:
        """Wait until the application has finished with a revoked claim's last message."""
        with self.lock:
            return self.lock.wait_for(
                lambda: self._current is not claim, max(0.0, deadline - time.monotonic())
            )

    def finish_if_reader(self, reader: object) -> None:
        """Count the message in the application's hands as finished, if this is its reader."""
        with self.lock:
            if reader in (self._reader, self._thread):
                self._finish_current()

    def put_back(self) -> None:
        """Give back the message in the application's hands, if there is one, unfinished.

        Its partition continues with it, and with whatever of its compressed message comes before
        it: here, or at the next owner if it is about to be released. For the stream's reader.
        """
        with self.lock:
            claim, self._current = self._current, None
            if claim is not None:
                claim.put_back()
                self.lock.notify_all()
        self._wake_fetchers()

    def fail(self, error: HermesError) -> None:
        """Have the iterator raise an error, once."""
        with self.lock:
            self._failures.append(error)
            self.lock.notify_all()

    def close(self) -> None:
        """End the iterator."""
        with self.lock:
            self._closed = True
            self.lock.notify_all()

    def forked(self) -> None:
        """See `hermes.forks.Forkable`: in the child every use is an error."""
        self.lock = _Changes(self._close_run)
        self._is_forked = True
        self._claims, self._current, self._items = [], None, None

    # -- inside ---------------------------------------------------------------------------------

    def _refill(self) -> StreamMessage:
        with self.lock:
            self._finish_current()
            first = self._wait()
        return self._decoded(first)

    def _close_run(self) -> None:
        """Make the reader acquire the lock before its next message; with the lock held."""
        self._items = None
        if self._observer is not None:
            self._observer()

    def _finish_current(self) -> None:
        finished = self._current
        if finished is not None:
            self._items = None
            finished.finish()
            self._current = None
            if finished.is_revoked:  # else nobody waits for it
                self.lock.notify_all()

    def _decoded(self, message: StreamMessage) -> StreamMessage:
        if self._decode is None or message.message is None:  # a tombstone has nothing to decode
            return message
        try:
            value = self._decode(message.topic, message.message)
        except HermesError:
            raise
        except Exception as error:
            name = plugin_name(getattr(self._decode, "__self__", self._decode))
            raise EncodingError(
                f"the decoder {name} failed on a message of topic {message.topic!r}: "
                f"{type(error).__name__}: {error}"
            ) from error
        return message.with_value(value)

    def _poll(self) -> StreamMessage | None:
        if self._is_forked:
            raise ClientError(f"stream {self.name} {FORKED}")
        if self._closed:
            raise StopIteration
        if self._failures:
            raise self._failures.popleft()
        return self._open_run()

    def _wait(self) -> StreamMessage:
        timeout = self._timeout_seconds
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            taken = self._poll()
            if taken is not None:
                return taken
            self._wake_fetchers()
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise self.timed_out()
            self.lock.wait(_LEASE_CHECK_SECONDS if left is None else min(left, 0.1))

    def timed_out(self) -> ConsumerTimeoutError:
        """The error for a reader whose time is up."""
        return ConsumerTimeoutError(
            f"stream {self.name} had no message for {self._timeout_seconds:g} s"
        )

    def _open_run(self) -> StreamMessage | None:
        """Open a run of the first partition that has one, and take its first message.

        A partition without one moves to the end.
        """
        for _ in range(len(self._claims)):
            claim = self._claims[0]
            if claim.failure is not None and not claim.is_revoked:
                failure, claim.failure = claim.failure, _ReportedError()
                if not isinstance(failure, _ReportedError):
                    raise failure
            try:
                first = None if claim.failure is not None else claim.take()
            except HermesError as error:
                claim.failure = _ReportedError()
                raise error
            if first is not None:
                self._current = claim
                self._lease = claim.lease
                rest = claim.items
                self._items = rest if self._decode is None else map(self._decoded, rest)
                return first
            self._claims.append(self._claims.pop(0))
        return None

    def _set_paused(
        self, partitions: tuple[tuple[str, BrokerPartition], ...], paused: bool
    ) -> None:
        with self.lock:
            for claim in self._claims:
                if not partitions or (claim.topic, claim.partition) in partitions:
                    claim.is_paused = paused
            self.lock.notify_all()


class _ReportedError(Exception):
    """Stands for a failure that the application has seen."""
