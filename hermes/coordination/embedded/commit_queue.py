"""Group commit: nothing is sent before the changes that it reflects are on disk.

A transaction changes the tree at once and is written by a worker thread. While one batch is being
written, the next one gathers, so a thousand writes cost a few fsyncs. Whatever is to be sent
meanwhile, to any client, may reflect changes that are not on disk yet (a read sees them), so it
waits in one queue, in order. When nothing is being written it is sent at once.

When a write fails, nothing that waits is ever sent. The tree is then ahead of the disk, and the
owner must start again from what is stored.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from hermes.announcement import Announcement
from hermes.coordination.embedded.limits import ITEM_BYTES
from hermes.coordination.embedded.tree_changes import Change, NodeWritten
from hermes.logs import ModuleLogger

#: How long what waited for one write is called: a thousand clients may have.
_CALLING_SECONDS = 0.01


class CommitQueue:
    """Writes changes in batches and holds back what depends on them; lives in the reactor's thread.

    Args:
        write: writes changes and the zxid that they lead to, in a thread; its first argument is
            called with a Failure, or with anything else when they are on disk.
        failed: called once when that fails. The queue is dead from then on.
        clock: the reactor, or a test's `Clock`.

    Attributes:
        held_bytes: the size of the changes and messages that wait for the disk; the connections
            serve nothing more while that is too much.
    """

    _log = ModuleLogger()

    def __init__(
        self,
        write: Callable[[Callable[[Any], None], Sequence[Change], int], object],
        failed: Callable[[Failure], None],
        clock: IReactorTime,
    ) -> None:
        self._clock = clock
        self._resumption: IDelayedCall | None = None
        self._write = write
        self._failed = failed
        self.held_bytes = 0
        self._dead = False
        self._calling = False
        self._submitted = 0  # transactions so far
        self._written = 0  # of those
        self._batch: list[Change] = []
        self._batch_bytes = 0
        self._zxid = 0
        self._running = False
        self._writing = 0, 0  # how many will be written then, and the size of that
        self._waiting: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self._idle = Announcement[None]()

    def commit(self, changes: Sequence[Change], zxid: int) -> None:
        """Have the changes of a transaction written, which is stored as a whole or not at all."""
        if self._dead:
            return
        self._submitted += 1
        self._batch += changes
        size = 0
        for each in changes:
            size += ITEM_BYTES + (len(each.data or b"") if isinstance(each, NodeWritten) else 0)
        self._batch_bytes += size
        self.held_bytes += size
        self._zxid = zxid
        if not self._running:
            self._start()

    def call_after(self, function: Callable[..., None], *args: Any) -> None:
        """Call a function once everything committed so far is on disk, after what waits already."""
        if self._dead:
            return
        # What one of the waiting functions asks for is called after those that wait already.
        if self._calling or self._waiting or self._written != self._submitted:
            self._waiting.append((self._submitted, function, args))
            self.held_bytes += _message_bytes(args)
        else:
            function(*args)

    def abandon(self) -> None:
        """Call and write nothing more: the owner starts again from what is stored."""
        self._dead = True
        if self._resumption is not None:
            self._resumption.cancel()
            self._resumption = None
        self._waiting.clear()
        self._batch.clear()
        self.held_bytes = 0

    def idle(self) -> "Deferred[None]":
        """Wait until everything committed is on disk and sent, or the queue is dead."""
        idle = self._idle.wait()
        self._notify_idle()
        return idle

    def _start(self) -> None:
        batch, self._batch = self._batch, []
        size, self._batch_bytes = self._batch_bytes, 0
        self._running = True
        self._writing = self._submitted, size
        self._write(self._done, batch, self._zxid)

    def _done(self, result: Any) -> None:
        if isinstance(result, Failure):
            self._fail(result)
            return
        self._running = False
        self._written, size = self._writing
        if self._dead:
            self._notify_idle()
            return
        self.held_bytes -= size
        if self._batch:
            self._start()  # before the waiting functions, so that the disk never waits for them
        self._call_ready()
        if self._idle:
            self._notify_idle()

    def _resume(self) -> None:
        self._resumption = None
        self._call_ready()
        self._notify_idle()

    def _call_ready(self) -> None:
        """Call what need not wait any longer: for a while, then others may have a turn."""
        if self._calling or self._resumption is not None:
            return
        self._calling = True
        ends = self._clock.seconds() + _CALLING_SECONDS
        try:
            while self._waiting and self._waiting[0][0] <= self._written:
                if self._clock.seconds() >= ends:
                    self._resumption = self._clock.callLater(0, self._resume)
                    break
                _, function, args = self._waiting.popleft()
                self.held_bytes -= _message_bytes(args)
                try:
                    function(*args)
                except Exception:
                    # One connection's fault must not keep the others from being served.
                    self._log.failure("could not notify a client")
        finally:
            self._calling = False

    def _fail(self, failure: Failure) -> None:
        self._running = False
        if not self._dead:
            self.abandon()
            self._failed(failure)
        self._notify_idle()

    def _notify_idle(self) -> None:
        if not self._running and self._resumption is None:
            self._idle.tell(None)


def _message_bytes(args: tuple[Any, ...]) -> int:
    size = ITEM_BYTES
    for each in args:
        if isinstance(each, bytes):
            size += len(each)
    return size
