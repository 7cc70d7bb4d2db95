"""One partition that a stream of this consumer owns: fetched, handed out, finished, committed.

Four offsets only ever increase, except through a seek or a reset:

    committed <= finished <= position <= fetch_offset

`position` is where the next message to be handed out starts; `finished` is the end of the last one
that the application has finished with, and so what may be committed. The lock of the stream guards
everything; the fetcher, the membership and the application meet there.

Messages are handed out in runs. `take` begins one: the reader may continue with its iterator
without the lock until somebody closes the run; how far the reader got is read off the run. So a
message that the reader takes at the moment when the run is closed is noticed later, but never lost.
"""

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from hermes.client.fetching import FetchedSet
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Lease
from hermes.protocol import RecordSet
from hermes.protocol.loops import ListedRows

# How many messages are made at once, where that is not done one by one. Few enough for the garbage
# collector not to start because of them.
MADE_AT_ONCE: Final = 256


class StreamMessage(NamedTuple):
    """A message of a stream.

    Attributes:
        message: the payload, decoded.
        topic: its topic.
        partition: its partition's number on the broker.
        offset: where it starts in the partition; those within a compressed message share one.
        next_offset: where to resume after it.
        broker_id: the broker that has the partition.
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
        """None."""
        return None

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """None at all."""
        return ()

    @property
    def timestamp_ms(self) -> int | None:
        """None."""
        return None

    def with_value(self, value: Any) -> "StreamMessage":
        """The same message with its payload decoded."""
        return StreamMessage(value, *self[1:])


class StreamRecord(StreamMessage):
    """A record of a topic of Kafka's format.

    Attributes:
        message: its value, decoded; None for a tombstone.
        key: its key; None if it has none.
        headers: pairs of a name and a value.
        timestamp_ms: ms since 1970; None if it has none.
    """

    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None

    def with_value(self, value: Any) -> "StreamRecord":
        """The same record with its value decoded."""
        made = StreamRecord(value, *self[1:])
        made.__dict__.update(self.__dict__)
        return made


class _Chunk:
    """Fetched messages: an iteration under way, and the memory they take."""

    __slots__ = ("messages", "runs", "size_bytes")

    def __init__(self, messages: FetchedSet, runs: Iterator[ListedRows[StreamMessage]]) -> None:
        self.messages = messages
        self.runs = runs
        self.size_bytes = len(messages)


class Claim:
    """A partition while it is owned. Its `lock` is the stream's.

    Args:
        topic: the topic.
        partition: the partition.
        stream_id: the stream's name in ZooKeeper.
        lock: the condition of the stream. Notifying all on it closes the open run.
        lease: of the session in which the partition is owned.

    Attributes:
        session_id: the session of the lease.
        offset_version: the version of the offset's node; None while there is no node.
        committed: the offset in ZooKeeper; None while there is none.
        fetch_offset: where to fetch next; None until that is known.
        epoch: counts seeks, so that data fetched before one is not taken for data after it.
        failure: what the stream raises; nothing more is fetched.
        needs_iteration: the next fetch has to wait until the application has consumed the last
            one, since only iterating finds its end.
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
        """Whether the session in which the partition is owned lives for certain."""
        return self.lease.is_held()

    # -- positions ------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Where the next message to be handed out starts."""
        with self.lock:
            self._count()
            return self._position

    @property
    def finished(self) -> int:
        """The end of the last message that the application has finished with."""
        with self.lock:
            self._count()
            return self._finished

    def start_at(self, offset: int) -> None:
        """Resume at an offset; forgets what was fetched."""
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
        """How much to fetch; 0 for nothing now."""
        if self.is_revoked or self.failure is not None or self.needs_iteration:
            return 0
        room = share_bytes - self._buffered_bytes
        most = min(fetch_bytes, share_bytes)
        return min(room, most) if 2 * room >= most or not self._chunks else 0

    def add(self, messages: FetchedSet, epoch: int) -> None:
        """Take what was fetched at `fetch_offset`."""
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
        """What comes after the message that was taken."""
        return self._run.items

    def is_ready(self) -> bool:
        """Whether there may be a message to hand out, or an error to raise; with the lock held."""
        can_go = bool(self._chunks) and not self.is_paused and self.is_held()
        return not self.is_revoked and (can_go or self.failure is not None)

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
        """The runs in which the messages of a set are handed out."""
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
        if self.needs_iteration:
            self.needs_iteration = False
            self.fetch_offset = self._position
