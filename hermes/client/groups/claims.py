"""One partition that a stream of this consumer owns: fetched, handed out, finished, committed.

Four offsets only ever move on, but for a seek or a reset:

    committed <= finished <= position <= fetch_offset

`position` is where the next message to be handed out starts; `finished` is behind the last one
that the application has finished with, and so what may be committed. Everything is guarded by the
condition of the stream; the fetcher, the membership and the application meet there.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from hermes.coordination.layout import BrokerPartition
from hermes.protocol import Message, MessageSet

__all__ = ["Claim"]


class _Chunk:
    """Fetched messages: an iteration under way, and what they take."""

    __slots__ = ("iterator", "messages", "size_bytes")

    def __init__(self, messages: MessageSet) -> None:
        self.messages = messages
        self.size_bytes = len(messages)
        self.iterator: Iterator[tuple[Message, int]] = iter(messages)


class Claim:
    """A partition while it is owned. Its `lock` is the stream's.

    Args:
        topic: the topic.
        partition: the partition.
        stream_id: the stream, as it stands in ZooKeeper.
        lock: the condition of the stream.
        is_held: whether the session that the claim belongs to lives for certain.
        session_id: that session.

    Attributes:
        offset_version: the version of the offset's node; None while there is no node.
        committed: the offset in ZooKeeper; None while there is none.
        fetch_offset: where to fetch next; None until that is known.
        position, finished: see above.
        epoch: counts seeks, so that what was fetched before one is not taken for what comes after.
        handed: behind the message that the application has in its hands; None if it has none.
        failure: what the stream raises; nothing is fetched any more.
        needs_iteration: a fetch can't go on before the application has taken what was fetched,
            since only iterating finds its end.
    """

    def __init__(
        self,
        topic: str,
        partition: BrokerPartition,
        stream_id: str,
        lock: threading.Condition,
        is_held: Callable[[], bool],
        session_id: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.stream_id = stream_id
        self.lock = lock
        self.is_held = is_held
        self.session_id = session_id
        self.offset_version: int | None = None
        self.committed: int | None = None
        self.fetch_offset: int | None = None
        self.position = self.finished = 0
        self.epoch = 0
        self.handed: int | None = None
        self.failure: Exception | None = None
        self.needs_iteration = False
        self.is_paused = False
        self.is_revoked = False
        self.is_lost = False
        self._chunks: deque[_Chunk] = deque()
        self._buffered_bytes = 0

    def __str__(self) -> str:
        return f"{self.topic} {self.partition}"

    # -- positions ------------------------------------------------------------------------------

    def start_at(self, offset: int) -> None:
        """Go on from an offset; forgets what was fetched."""
        with self.lock:
            self.epoch += 1
            self._chunks.clear()
            self._buffered_bytes = 0
            self.needs_iteration = False
            self.failure = None
            self.handed = None
            self.fetch_offset = self.position = self.finished = offset
            self.lock.notify_all()

    def fail(self, error: Exception) -> None:
        """Have the stream raise an error; the partition rests until a seek."""
        with self.lock:
            self.failure = error
            self.lock.notify_all()

    # -- fetching -------------------------------------------------------------------------------

    def wants_bytes(self, share_bytes: int, fetch_bytes: int) -> int:
        """How much to fetch; 0 for nothing now."""
        if self.is_revoked or self.failure is not None or self.needs_iteration:
            return 0
        room = share_bytes - self._buffered_bytes
        most = min(fetch_bytes, share_bytes)
        return min(room, most) if 2 * room >= most or not self._chunks else 0

    def add(self, messages: MessageSet, epoch: int) -> None:
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
            chunk = _Chunk(messages)
            self._chunks.append(chunk)
            self._buffered_bytes += chunk.size_bytes
            self.lock.notify_all()

    # -- handing out ----------------------------------------------------------------------------

    def next_message(self) -> tuple[Message, int, int] | None:
        """Take the next message, with the lock held: it, its offset, and where the next starts.

        None when there is none, or the claim does not stand at this very moment.

        Raises:
            InvalidMessageError, ExpandedTooLargeError: the next message is damaged.
        """
        if self.is_revoked or self.is_paused:
            return None
        while self._chunks:
            if not self.is_held():
                return None
            chunk = self._chunks[0]
            following = next(chunk.iterator, None)
            if following is not None:
                message, next_offset = following
                offset, self.position = self.position, next_offset
                self.handed = next_offset
                return message, offset, next_offset
            self._drop_first(chunk)
        return None

    def is_ready(self) -> bool:
        """Whether there may be something to hand out, or to say; with the lock held."""
        can_go = bool(self._chunks) and not self.is_paused and self.is_held()
        return not self.is_revoked and (can_go or self.failure is not None)

    def finish(self) -> None:
        """The application is done with the message in its hands; with the lock held."""
        if self.handed is not None and not self.is_lost:
            self.finished = self.handed
        self.handed = None

    def _drop_first(self, chunk: _Chunk) -> None:
        self._chunks.popleft()
        self._buffered_bytes -= chunk.size_bytes
        # Also when the set held no message at all (empty compressed ones): it is passed.
        self.position = max(self.position, chunk.messages.next_offset)
        if self.handed is None:
            self.finished = max(self.finished, self.position)
        if self.needs_iteration:
            self.needs_iteration = False
            self.fetch_offset = self.position

    def dump(self) -> dict[str, Any]:
        """What an operator may want to see."""
        return {"position": self.position, "finished": self.finished, "committed": self.committed}
