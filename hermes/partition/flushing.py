"""When logs are flushed and committed, and who is notified: group commit over worker threads.

A log's flush is due after `flush_messages` messages or `flush_interval_ms`, or at once when an
acknowledgement waits for it. At most one flush of a log runs at a time: what is appended
meanwhile is covered by the next one, so a thousand waiting producers cost one fsync.
`GROUP_WINDOW_SECONDS` keeps a busy log from flushing back to back: it costs a waiting consumer at
most that long and saves a thread switch per received chunk.

A log's first flush takes longest, since it puts names on disk as well, and one request can create
thousands of logs. So first flushes run one at a time, and leave the other threads to others.

A flush for which there was no file descriptor has done nothing: it is retried. Any other failure
has taken the log offline, and fails those that wait for it.

Of a log without other copies a flush is the commit. Of any other one it isn't: `commit` says,
later, up to where enough copies are flushed.

Invariant: observers and acknowledgements hear of an offset only once the log's high watermark is at
or above it.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from hermes.errors import LogOfflineError, StorageError
from hermes.logs import ModuleLogger
from hermes.metrics import Histogram
from hermes.partition.flush_queue import FlushPolicy, FlushQueue, FlushState
from hermes.rate_limit import RateLimit
from hermes.storage import FlushedEnd, HighWatermark, Log

#: The least time between the starts of two flushes of one log that nobody waits for.
GROUP_WINDOW_SECONDS = 0.003

#: How many flushes are handed to each thread: it need not wait for a reactor that is busy.
_AHEAD = 2

#: The pause before a flush for which there was no file descriptor is tried again.
RETRY_SECONDS = 0.2


class FlushScheduler:
    """Schedules the flushes of all logs of one broker; lives in the reactor's thread.

    Args:
        in_thread: calls a function in a flush thread and returns its Deferred.
        threads: how many there are.

    Attributes:
        failures: how many flushes failed, and took their log offline.
        seconds: how long each took, from being due on, so waiting for a thread counts.
        visible_seconds: of each the time from the oldest append that it covers to its being
            visible.
    """

    _log = ModuleLogger()

    def __init__(
        self,
        clock: IReactorTime,
        in_thread: Callable[..., "Deferred[Any]"],
        policy_for: Callable[[str], FlushPolicy],
        threads: int = 1,
    ) -> None:
        self._clock = clock
        self._in_thread = in_thread
        self._policy_for = policy_for
        self._states: dict[Log, FlushState] = {}
        self._committed: list[Callable[[Log], None]] = []
        self._running: set[FlushState] = set()
        self._queue = FlushQueue(_AHEAD * threads)
        self._first = FlushQueue(1)
        self._rate = RateLimit(clock.seconds, allowed=1, period=60.0)
        self._idle: list[Deferred[None]] = []
        self.flushes = self.failures = 0
        self.seconds = Histogram()
        self.visible_seconds = Histogram()

    @property
    def flushing(self) -> list[Log]:
        """The logs whose flush has begun or waits for a thread, deleted ones too, by name."""
        return sorted((state.log for state in self._running), key=lambda log: log.name)

    @property
    def running(self) -> int:
        return len(self._running)

    def is_flushing(self, log: Log) -> bool:
        """Whether a log's flush has begun, or somebody waits for one; until they were told."""
        state = self._states.get(log)
        return state is not None and (state.running or bool(state.waiting))

    def use_threads(self, threads: int) -> None:
        self._queue.most = _AHEAD * threads

    @property
    def queued(self) -> int:
        """How many logs wait for their first flush, which comes one at a time."""
        return len(self._first)

    def on_committed(self, observer: Callable[[Log], None]) -> None:
        """Have `observer` called in the reactor whenever a log's high watermark may have moved."""
        self._committed.append(observer)

    def reopened(self, log: Log) -> None:
        """A log is back online: what recovery has kept of it became visible."""
        self._tell_committed(log)

    def commit(self, log: Log, offset: int) -> None:
        """Enough other copies are flushed up to an offset: see `Log.commit`."""
        before = log.high_watermark
        if log.commit(offset) > before:
            self._tell_committed(log)

    def appended(self, log: Log) -> None:
        state = self._states.get(log) or self._state(log)
        if not state.oldest:
            state.oldest = self._clock.seconds()
        if state.running:
            state.again = True
        elif log.unflushed_messages >= state.policy.messages:
            if state.timer is None or state.timer_due > state.last_start + GROUP_WINDOW_SECONDS:
                self._start_at(state, state.last_start + GROUP_WINDOW_SECONDS)
        elif state.timer is None:
            self._start_at(state, self._clock.seconds() + state.policy.interval_ms / 1000)

    def flush_now(self, log: Log, urgent: bool = True) -> "Deferred[FlushedEnd]":
        """Start a group commit of all that was appended; an urgent one before those due by policy.

        Returns a Deferred of the flushed end once all of it is on disk. Fails with StorageError
        when the flush does; the log is then offline.
        """
        flushed: Deferred[FlushedEnd] = Deferred()
        if log.flushed_end >= log.end_offset:
            flushed.callback(log.flushed_end)
            return flushed
        if log.is_offline:
            flushed.errback(LogOfflineError(f"{log.topic}-{log.partition} is offline"))
            return flushed
        state = self._states.get(log) or self._state(log)
        state.waiting.append((log.end_offset, flushed))
        if not state.running:
            self._start(state, urgent)
        elif not state.queued:
            state.again, state.urgent = True, state.urgent or urgent
        elif urgent and not state.urgent and state.queue is not None:
            state.queue.promote(state)
        return flushed

    def commit_now(self, log: Log, urgent: bool = True) -> "Deferred[Any]":
        """Do as `flush_now` does; fires once all that was appended is committed."""
        flushed: Deferred[Any] = self.flush_now(log, urgent)
        if not log.is_sole_copy:
            flushed.addCallback(self._until_committed, log, log.end_offset)
        return flushed

    def _until_committed(
        self, _: FlushedEnd, log: Log, offset: int
    ) -> "HighWatermark | Deferred[HighWatermark]":
        if log.high_watermark >= offset:
            return log.high_watermark
        state = self._states.get(log) or self._state(log)
        committed: Deferred[HighWatermark] = Deferred()
        state.uncommitted.append((offset, committed))
        return committed

    def policy_changed(self, log: Log) -> None:
        state = self._states.get(log)
        if state is not None:
            state.policy = self._policy_for(log.topic)
            if state.timer is not None:  # perhaps later than the new policy allows
                self._cancel_timer(state)
                self.appended(log)

    def forget(self, log: Log) -> None:
        """A log was deleted: drop its timers, fail what waits for it."""
        state = self._states.pop(log, None)
        if state is None:
            return
        self._cancel_timer(state)
        self._fail_waiting(state, LogOfflineError(f"{log.topic}-{log.partition} was deleted"))

    def stop(self) -> "Deferred[None]":
        """Stop scheduling; fires when no flush is running any more.

        What is unflushed then stays so: closing the data directory flushes it. A disk that hangs
        keeps it from firing; `flushing` says which logs are waited for.
        """
        for state in self._states.values():
            self._cancel_timer(state)
        stopped: Deferred[None] = Deferred()
        self._idle.append(stopped)
        self._tell_idle()
        return stopped

    def _state(self, log: Log) -> FlushState:
        state = self._states[log] = FlushState(log, self._policy_for(log.topic))
        return state

    def _start_at(self, state: FlushState, due: float) -> None:
        self._cancel_timer(state)
        delay = due - self._clock.seconds()
        if delay <= 0:
            self._start(state)
            return
        state.timer_due = due
        state.timer = self._clock.callLater(delay, self._start, state)

    def _start(self, state: FlushState, urgent: bool = False) -> None:
        self._cancel_timer(state)
        state.running, state.urgent = True, urgent
        state.last_start = self._clock.seconds()
        self._running.add(state)
        queue = self._queue if state.log.flushed_end else self._first
        queue.add(state)
        self._run_next(queue)

    def _run_next(self, queue: FlushQueue) -> None:
        while (state := queue.take()) is not None:
            self._run(state)

    def _run(self, state: FlushState) -> None:
        state.again = state.urgent = False
        state.covered, state.oldest = state.covered or state.oldest, 0.0
        self.flushes += 1
        self._in_thread(state.log.flush).addCallbacks(
            self._done, self._failed, callbackArgs=(state,), errbackArgs=(state,)
        )

    def _ended(self, state: FlushState) -> None:
        state.running = False
        self._running.discard(state)
        queue = state.queue
        assert queue is not None
        queue.running -= 1
        self._run_next(queue)

    def _done(self, flushed_end: FlushedEnd, state: FlushState) -> None:
        self._ended(state)
        now = self._clock.seconds()
        self.seconds.observe(now - state.last_start)
        is_committed = state.log.is_sole_copy
        if state.covered:
            if is_committed:
                self.visible_seconds.observe(now - state.covered)
            state.covered = 0.0
        if flushed_end >= state.log.end_offset:
            state.oldest = 0.0  # it had been appended before the flush looked what there is
        if is_committed:
            self._tell_committed(state.log)
        ready = [entry for entry in state.waiting if entry[0] <= flushed_end]
        if ready:
            state.waiting = [entry for entry in state.waiting if entry[0] > flushed_end]
            for _, flushed in ready:
                flushed.callback(flushed_end)
        if not state.running and self._states.get(state.log) is state:
            if state.waiting:
                self._start(state, state.urgent)
            elif state.again and not self._idle:
                state.again = False
                self.appended(state.log)
        self._tell_idle()

    def _tell_committed(self, log: Log) -> None:
        for observer in self._committed:
            observer(log)
        state = self._states.get(log)
        if state is None or not state.uncommitted:
            return
        mark, waiting = log.high_watermark, state.uncommitted
        state.uncommitted = [entry for entry in waiting if entry[0] > mark]
        for offset, committed in waiting:
            if offset <= mark:
                committed.callback(mark)

    def _failed(self, failure: Failure, state: FlushState) -> None:
        self._ended(state)
        if self._states.get(state.log) is state:  # else it was deleted meanwhile
            error = failure.value
            if isinstance(error, StorageError) and not isinstance(error, LogOfflineError):
                self._retry(error, state)
            else:
                self._give_up(failure, state)
        self._tell_idle()

    def _retry(self, error: StorageError, state: FlushState) -> None:
        """Nothing failed but the attempt: retry it, unless the broker stops."""
        if self._idle:
            self._fail_waiting(state, error)
            return
        if self._rate.allow("retry") is not None:
            self._log.error(
                "flushing {partition} has to wait, and is tried again: {error}",
                partition=state.log.name,
                error=error,
            )
        self._start_at(state, self._clock.seconds() + RETRY_SECONDS)

    def _give_up(self, failure: Failure, state: FlushState) -> None:
        self._cancel_timer(state)
        state.again = False
        state.oldest = state.covered = 0.0
        self.failures += 1
        if not state.log.is_closed:  # closed: a delete came first, and took what was appended
            self._log.critical(
                "flushing {partition} failed: {error}; it takes no more messages until it has been "
                "re-opened and recovered",
                partition=state.log.name,
                error=failure.getErrorMessage(),
            )
        error = failure.value
        if not isinstance(error, StorageError):
            error = LogOfflineError(f"{state.log.name}: {failure.getErrorMessage()}")
        self._fail_waiting(state, error)

    @staticmethod
    def _fail_waiting(state: FlushState, error: Exception) -> None:
        waiting: list[tuple[int, Deferred[Any]]] = [*state.waiting, *state.uncommitted]
        state.waiting, state.uncommitted = [], []
        for _, waited in waiting:
            waited.errback(error)

    @staticmethod
    def _cancel_timer(state: FlushState) -> None:
        timer, state.timer = state.timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _tell_idle(self) -> None:
        if self._idle and not self._running:
            idle, self._idle = self._idle, []
            for stopped in idle:
                stopped.callback(None)
