"""Streams: blocking iterators over the messages of the partitions that they own at the moment.

A `Claim` is one such partition: fetched, handed out, finished, committed. Four offsets only ever
increase, except through a seek or a reset:

    committed <= finished <= position <= fetch_offset

`position` is where the next message to be handed out starts; `finished` is the end of the last one
that the application has finished with, and so what may be committed. The lock of the stream guards
everything; the fetcher, the membership and the application meet there.

Messages are handed out in runs. `Claim.take` begins one: the reader may continue with its iterator
without the lock until somebody closes the run; how far the reader got is read off the run. So a
message that the reader takes at the moment when the run is closed is noticed later, but never lost.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from hermes.client.fetching import FetchedSet
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Lease
from hermes.errors import ClientError, ConsumerTimeoutError, EncodingError, HermesError
from hermes.forks import FORKED
from hermes.plugins import plugin_name
from hermes.protocol import RecordSet, core
from hermes.protocol.loops import ListedRows

# How often a waiting stream checks whether its session lives; nothing notifies it.
_LEASE_CHECK_SECONDS = 0.1
# For an application that doesn't ask; all of them are logged.
_MOST_FAILURES = 10
# How many messages are made at once, where that is not done one by one. Few enough for the garbage
# collector not to start because of them.
MADE_AT_ONCE: Final = 256


class StreamMessage(NamedTuple):
    """A message of a stream.

    Attributes:
        message: the payload, decoded; None for a tombstone.
        partition: its number on the broker.
        offset: where it starts; those within a compressed message share one.
        next_offset: where to resume after it.
        key, headers, timestamp_ms: see `StreamRecord`; none for messages of 0.7.
    """

    message: Any
    topic: str
    partition: int
    offset: int
    next_offset: int
    broker_id: int

    @property
    def key(self) -> bytes | None:
        return None

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return ()

    @property
    def timestamp_ms(self) -> int | None:
        return None

    def with_value(self, value: Any) -> "StreamMessage":
        return StreamMessage(value, *self[1:])


class StreamRecord(StreamMessage):
    """A record of a topic of Kafka's format.

    Attributes:
        headers: pairs of a name and a value.
        timestamp_ms: ms since 1970; None if it has none.
    """

    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None

    def with_value(self, value: Any) -> "StreamRecord":
        made = StreamRecord(value, *self[1:])
        made.__dict__.update(self.__dict__)
        return made


class _Chunk:
    __slots__ = ("messages", "runs", "size_bytes")

    def __init__(self, messages: FetchedSet, runs: Iterator[ListedRows[StreamMessage]]) -> None:
        self.messages = messages
        self.runs = runs
        self.size_bytes = len(messages)


class Claim:
    """A partition while it is owned.

    Args:
        lock: the stream's; notifying all on it closes the open run.
        lease: of the session in which the partition is owned.

    Attributes:
        offset_version: the version of the offset's node; None while there is no node.
        committed: the offset in ZooKeeper; None while there is none.
        fetch_offset: where to fetch next; None until that is known.
        epoch: counts seeks, so that data fetched before one is not taken for data after it.
        failure: what the stream raises; nothing more is fetched.
        needs_iteration: the next fetch has to wait until the application has consumed all of the
            former ones, since only iterating finds the last one's end, or nothing follows it.
    """

    def __init__(
        self,
        topic: str,
        partition: BrokerPartition,
        stream_id: str,
        lock: threading.Condition,
        lease: Lease,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.stream_id = stream_id
        self.lock = lock
        self.lease = lease
        self.session_id = lease.session_id
        self.offset_version: int | None = None
        self.committed: int | None = None
        self.fetch_offset: int | None = None
        self.epoch = 0
        self.failure: Exception | None = None
        self.needs_iteration = False
        self.is_paused = False
        self.is_revoked = False
        self.is_lost = False
        self._position = self._finished = 0
        # Behind the message that the application has in its hands; None if it has none.
        self._in_hands: int | None = None
        self._in_hands_start = 0
        self._chunks: deque[_Chunk] = deque()
        self._buffered_bytes = 0
        self._run: ListedRows[StreamMessage] = ListedRows([])
        self._counted = 0

    def __str__(self) -> str:
        return f"{self.topic} {self.partition}"

    def is_held(self) -> bool:
        return self.lease.is_held()

    # -- positions ------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        with self.lock:
            self._count()
            return self._position

    @property
    def finished(self) -> int:
        with self.lock:
            self._count()
            return self._finished

    def start_at(self, offset: int) -> None:
        with self.lock:
            self.epoch += 1
            self._chunks.clear()
            self._buffered_bytes = 0
            self._start_run(ListedRows([]))
            self.needs_iteration = False
            self.failure = None
            self._in_hands = None
            self.fetch_offset = self._position = self._finished = offset
            self.lock.notify_all()

    def fail(self, error: Exception) -> None:
        """Have the stream raise an error; the partition rests until a seek."""
        with self.lock:
            self.failure = error
            self.lock.notify_all()

    def revoke(self, *, lost: bool) -> None:
        """Hand out nothing more; if the claim is lost, nothing more counts as finished."""
        with self.lock:
            self._count()
            self.is_revoked = True
            self.is_lost = self.is_lost or lost
            self.lock.notify_all()

    # -- fetching -------------------------------------------------------------------------------

    def wants_bytes(self, share_bytes: int, fetch_bytes: int) -> int:
        """0 for nothing now."""
        if self.is_revoked or self.failure is not None or self.needs_iteration:
            return 0
        room = share_bytes - self._buffered_bytes
        most = min(fetch_bytes, share_bytes)
        return min(room, most) if 2 * room >= most or not self._chunks else 0

    def add(self, messages: FetchedSet, epoch: int) -> None:
        if not len(messages):
            return
        with self.lock:
            if epoch != self.epoch or self.is_revoked:
                return
            following = messages.next_offset
            if following > messages.base_offset:
                self.fetch_offset = following
            else:
                self.needs_iteration = True
            chunk = _Chunk(messages, self._runs(messages))
            self._chunks.append(chunk)
            self._buffered_bytes += chunk.size_bytes
            self.lock.notify_all()

    def waits_for_reader(self) -> bool:
        """Fetch nothing more until all that was fetched is read; False if that is so already."""
        with self.lock:
            self.needs_iteration = bool(self._chunks)
            return self.needs_iteration

    # -- handing out ----------------------------------------------------------------------------

    def take(self) -> StreamMessage | None:
        """Take the next message, with the lock held. The reader has finished with the last one.

        The reader may take those after it from `items` without the lock while the run isn't closed
        and the lease is held, both of which it checks before each message.

        Returns:
            The message, not yet decoded; None if there is none, or the lease isn't held.

        Raises:
            InvalidMessageError, ExpandedTooLargeError: the next message is damaged.
        """
        if self.is_revoked or self.is_paused:
            return None
        self._count()
        while self.is_held():
            for message in self._run.items:
                return message
            if not self._chunks:
                return None
            run = next(self._chunks[0].runs, None)
            if run is None:
                self._drop_first()
            else:
                self._start_run(run)
        return None

    @property
    def items(self) -> Iterator[StreamMessage]:
        return self._run.items

    def is_ready(self) -> bool:
        """Whether there may be a message to hand out, or an error to raise; with the lock held."""
        can_go = bool(self._chunks) and not self.is_paused and self.is_held()
        return self.has_failed or (can_go and not self.is_revoked)

    @property
    def has_failed(self) -> bool:
        """Whether `failure` is due: what was fetched before it is handed out first."""
        return self.failure is not None and not self._chunks and not self.is_revoked

    def finish(self) -> None:
        """The application has finished with the message in its hands; with the lock held."""
        self._count()
        if self._in_hands is not None and not self.is_lost:
            self._finished = self._in_hands
        self._in_hands = None

    def put_back(self) -> None:
        """Have the message in the application's hands handed out again; with the lock held."""
        self._count()
        if self._in_hands is None:
            return
        if self.is_revoked:
            self._in_hands = None
        else:
            self.start_at(self._in_hands_start)

    def _runs(self, messages: FetchedSet) -> Iterator[ListedRows[StreamMessage]]:
        source = (self.topic, self.partition.partition, self.partition.broker_id)
        if isinstance(messages, RecordSet):
            return messages.rows(StreamRecord, source, MADE_AT_ONCE)
        return messages.rows(StreamMessage, source, MADE_AT_ONCE)

    def _start_run(self, run: ListedRows[StreamMessage]) -> None:
        self._run = run
        self._counted = 0

    def _count(self) -> None:
        """Bring the offsets up to date with what the reader has taken of the run.

        It has the last of these in its hands, and was finished with one when it took the next.
        """
        taken, finished, start, end = self._run.reached()
        if taken == self._counted:
            return
        self._counted = taken
        if taken > 1 and not self.is_lost:
            self._finished = finished
        self._in_hands_start = start
        self._position = self._in_hands = end

    def _drop_first(self) -> None:
        chunk = self._chunks.popleft()
        self._start_run(ListedRows([]))  # the last one holds on to the fetched bytes
        self._buffered_bytes -= chunk.size_bytes
        # Also when the set held no message at all (only empty compressed ones).
        self._position = max(self._position, chunk.messages.next_offset)
        if self._in_hands is None:
            self._finished = max(self._finished, self._position)
        if self.needs_iteration and not self._chunks:
            self.needs_iteration = False
            self.fetch_offset = self._position


class _Changes(threading.Condition):
    """Tells its stream of every change first, with the lock held."""

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

    Before each message `Supply` checks two things without the lock: that the lease lasts, since the
    process may have been stopped for any time; and that there is an open run, since every change
    closes it. Everything else needs the lock, and is done once per run.

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
        """Take the next message if there is one now, for readers that must not wait.

        It finishes the last one, and raises, as `next` does. The reader identifies the caller to
        `finish_if_reader`.
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
        """Whether `poll` would return or raise something now, the stream's end included."""
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

        Raises ClientError if the stream does not own the partition.
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
        with self.lock:
            gone = set(remove)
            self._claims = [each for each in self._claims if each not in gone] + list(add)
            self.lock.notify_all()

    def revoke(self, claims: Iterable[Claim], *, lost: bool = False) -> None:
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
        it: here, or at the next owner. For the stream's reader.
        """
        with self.lock:
            claim, self._current = self._current, None
            if claim is not None:
                claim.put_back()
                self.lock.notify_all()
        self._wake_fetchers()

    def fail(self, error: HermesError) -> None:
        with self.lock:
            self._failures.append(error)
            self.lock.notify_all()

    def close(self) -> None:
        with self.lock:
            self._closed = True
            self.lock.notify_all()

    def forked(self) -> None:
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
        return ConsumerTimeoutError(
            f"stream {self.name} had no message for {self._timeout_seconds:g} s"
        )

    def _open_run(self) -> StreamMessage | None:
        """Open a run of the first partition that has one, and take its first message.

        A partition without one moves to the end.
        """
        for _ in range(len(self._claims)):
            claim = self._claims[0]
            failure = claim.failure
            try:
                first = None if isinstance(failure, _ReportedError) else claim.take()
            except HermesError as error:
                claim.failure = _ReportedError()
                raise error
            if failure is not None and claim.has_failed:
                claim.failure = _ReportedError()
                if not isinstance(failure, _ReportedError):
                    raise failure
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
    """Replaces a failure that the application has seen."""
