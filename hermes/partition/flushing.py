"""When logs are flushed and committed, and who is notified: group commit over threads of its own.

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

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from hermes.announcement import Announcement
from hermes.errors import EpochEndedError, LogOfflineError, StorageError
from hermes.logs import ModuleLogger
from hermes.metrics import Histogram
from hermes.partition.flush_queue import FlushPolicy, FlushQueue, FlushState, FlushWaiter
from hermes.partition.flush_threads import FlushOutcome, FlushThreads
from hermes.rate_limit import RateLimit
from hermes.storage import FlushedEnd, Log

#: The least time between the starts of two flushes of one log that nobody waits for.
GROUP_WINDOW_SECONDS = 0.003

#: How many flushes are handed to each thread: it need not wait for a reactor that is busy.
_AHEAD = 2

#: The pause before a flush for which there was no file descriptor is tried again.
RETRY_SECONDS = 0.2


class FlushScheduler:
    """Schedules the flushes of all logs of one broker; lives in the reactor's thread.

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
        threads: FlushThreads,
        policy_for: Callable[[str], FlushPolicy],
    ) -> None:
        self._clock = clock
        self._threads = threads
        threads.report = self.report
        self._policy_for = policy_for
        self._states: dict[Log, FlushState] = {}
        self._committed: list[Callable[[Log], None]] = []
        self._flushed: list[Callable[[Log], None]] = []
        self._running: set[FlushState] = set()
        self._queue = FlushQueue(_AHEAD * threads.count)
        self._first = FlushQueue(1)
        self._rate = RateLimit(clock.seconds, allowed=1, period=60.0)
        self._idle = Announcement[None]()
        self._is_stopping = False
        #: Calls what settles the outcomes of one report; see `FairScheduler.together`.
        self.together: Callable[..., None] = lambda settle, *args: settle(*args)
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

    @property
    def busy(self) -> int:
        """How many threads flush now."""
        return max(self._queue.running + self._first.running - self._threads.waiting, 0)

    def is_flushing(self, log: Log) -> bool:
        """Whether a log's flush has begun, or somebody waits for one; until they were told."""
        state = self._states.get(log)
        return state is not None and (state.running or bool(state.waiting))

    def use_threads(self, count: int) -> None:
        self._threads.use(count)
        self._queue.most = _AHEAD * count

    @property
    def queued(self) -> int:
        """How many logs wait for their first flush."""
        return len(self._first)

    def on_committed(self, observer: Callable[[Log], None]) -> None:
        """Have `observer` called in the reactor whenever a log's high watermark may have moved."""
        self._committed.append(observer)

    def on_flushed(self, observer: Callable[[Log], None]) -> None:
        """Have `observer` called of a log with other copies, once a flush has ended or failed."""
        self._flushed.append(observer)

    def begin_epoch(self, log: Log) -> None:
        """This broker leads a log from now on, perhaps again."""
        if (state := self._states.get(log)) is not None:
            state.over = None

    def end_epoch(self, log: Log) -> None:
        """This broker leads a log no more: nobody knows what becomes of what waits here, or will.

        Much is appended in several turns: some of it may be waited for only after that.
        """
        over = EpochEndedError(f"{log.name} is led by another broker now")
        if (state := self._states.get(log)) is not None:
            state.over = over
        self._will_not_commit(log, over)
        self._tell_committed(log)  # whoever waits for messages is to wait elsewhere

    def not_enough(self, log: Log) -> None:
        """Too few copies are in sync for what waits to be committed; it may be, later."""
        self._will_not_commit(log, StorageError(f"too few copies of {log.name} are in sync"))

    def _will_not_commit(self, log: Log, error: StorageError) -> None:
        state = self._states.get(log)
        if state is not None and (state.waiting or state.uncommitted):
            ended = [*(each for each in state.waiting if not each[2]), *state.uncommitted]
            state.waiting, state.uncommitted = [each for each in state.waiting if each[2]], []
            if log.end_offset > log.flushed_end:  # which nobody else may have had scheduled
                self.appended(log)
            self._notify(ended, error)

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
        elif log.state.tail.messages >= state.policy.messages:
            if state.timer is None or state.timer_due > state.last_start + GROUP_WINDOW_SECONDS:
                self._start_at(state, state.last_start + GROUP_WINDOW_SECONDS)
        elif state.timer is None:
            self._start_at(state, self._clock.seconds() + state.policy.interval_ms / 1000)

    def when_committed(
        self,
        log: Log,
        notify: Callable[[StorageError | None], None],
        urgent: bool = True,
        is_flush_enough: bool = False,
    ) -> None:
        """Start a group commit of all that was appended; an urgent one before those due by policy.

        `notify` is called once, perhaps at once: with None when all of it is committed, or is on
        this disk where that is enough; or with why its flush failed, and the log is offline.
        """
        found = log.state
        end, view = found.tail.end, found.view
        is_flushed = view.flushed_end >= end
        if is_flushed and (is_flush_enough or found.is_sole_copy or view.high_watermark >= end):
            notify(None)
            return
        if found.offline_reason is not None:
            notify(LogOfflineError(f"{log.topic}-{log.partition} is offline"))
            return
        state = self._states.get(log) or self._state(log)
        if state.over is not None and not is_flush_enough:
            notify(state.over)
            return
        (state.uncommitted if is_flushed else state.waiting).append((end, notify, is_flush_enough))
        if is_flushed:
            return
        if not state.running:
            self._start(state, urgent)
        elif not state.queued:
            state.urgent = state.urgent or urgent
        elif urgent and not state.urgent and state.queue is not None:
            state.queue.promote(state)

    def flush_now(self, log: Log, urgent: bool = True) -> "Deferred[FlushedEnd]":
        """Flush all that was appended: the flushed end, or the StorageError of its flush."""
        flushed: Deferred[FlushedEnd] = Deferred()

        def notify(error: StorageError | None) -> None:
            if error is None:
                flushed.callback(log.flushed_end)
            else:
                flushed.errback(error)

        self.when_committed(log, notify, urgent, is_flush_enough=True)
        return flushed

    def policy_changed(self, log: Log) -> None:
        state = self._states.get(log)
        if state is not None:
            state.policy = self._policy_for(log.topic)
            if state.timer is not None and not state.waiting:  # perhaps later than it allows
                state.cancel_timer()
                self.appended(log)

    def forget(self, log: Log) -> None:
        """A log was deleted: drop its timers, fail what waits for it."""
        state = self._states.pop(log, None)
        if state is None:
            return
        state.cancel_timer()
        self._fail_waiting(state, LogOfflineError(f"{log.topic}-{log.partition} was deleted"))

    def stop(self) -> "Deferred[None]":
        """Stop scheduling; fires when no flush is running any more.

        What is unflushed then stays so: closing the data directory flushes it. A disk that hangs
        keeps it from firing; `flushing` says which logs are waited for.
        """
        self._is_stopping = True
        for state in self._states.values():
            state.cancel_timer()
        stopped = self._idle.wait()
        self._tell_idle()
        return stopped

    def _state(self, log: Log) -> FlushState:
        state = self._states[log] = FlushState(log, self._policy_for(log.topic))
        return state

    def _start_at(self, state: FlushState, due: float) -> None:
        if state.timer is not None:
            state.cancel_timer()
        if (delay := due - self._clock.seconds()) <= 0:
            self._start(state)
            return
        state.timer_due = due
        state.timer = self._clock.callLater(delay, self._start_due, state)

    def _start_due(self, state: FlushState) -> None:
        state.timer = None
        self._start(state)

    def _start(self, state: FlushState, urgent: bool = False) -> None:
        if state.timer is not None:
            state.cancel_timer()
        state.running, state.urgent = True, urgent
        state.last_start = self._clock.seconds()
        state.oldest = state.oldest or state.last_start
        self._running.add(state)
        has_been = state.queue is self._queue or state.log.flushed_end
        if (self._queue if has_been else self._first).add(state):
            self._run(state)

    def _run(self, state: FlushState) -> None:
        state.again = state.urgent = False
        state.covered, state.oldest = state.covered or state.oldest, 0.0
        self.flushes += 1
        self._threads.submit(state)

    def _run_next(self, queue: FlushQueue) -> None:
        while (state := queue.take()) is not None:
            self._run(state)

    # -- what threads report ----------------------------------------------------------------------

    def report(self, outcomes: Sequence[FlushOutcome]) -> None:
        """Flushes have ended: let the next ones begin, then tell everybody."""
        for state, _, _ in outcomes:
            queue = state.queue
            assert queue is not None
            queue.running -= 1
            if queue.urgent or queue.others:
                self._run_next(queue)
        self.together(self._settle, outcomes)

    def _settle(self, outcomes: Sequence[FlushOutcome]) -> None:
        for state, flushed_end, error in outcomes:
            state.running = False
            self._running.discard(state)
            try:
                if flushed_end is not None:
                    self._done(state, flushed_end)
                elif error is not None and self._states.get(state.log) is state:  # else deleted
                    self._failed(state, error)
            except Exception:
                self._log.failure("telling who waits failed")
        if self._is_stopping:
            self._tell_idle()

    def _done(self, state: FlushState, flushed_end: FlushedEnd) -> None:
        log, now = state.log, self._clock.seconds()
        self.seconds.observe(now - state.last_start)
        mark = log.state.view.high_watermark
        if state.covered:
            if mark >= flushed_end:
                self.visible_seconds.observe(now - state.covered)
            state.covered = 0.0
        if state.oldest and flushed_end >= log.state.tail.end:
            state.oldest = 0.0  # it had been appended before the flush looked what there is
            state.again = False
        if mark >= flushed_end:
            for observer in self._committed:
                observer(log)
            if state.uncommitted:
                self._tell_uncommitted(state, mark)
        ready = state.waiting
        if ready:
            if ready[-1][0] <= flushed_end <= mark:
                state.waiting = []
            else:
                ready = state.ready(flushed_end, mark)
            self._notify(ready, None)
        if mark < flushed_end:
            for observer in self._flushed:
                observer(log)
        if state.running or self._states.get(log) is not state:
            return
        if state.waiting:
            self._start(state, state.urgent)
        elif state.again and not self._is_stopping:
            state.again = False
            self.appended(log)

    def _notify(self, waiters: Sequence[FlushWaiter], error: StorageError | None) -> None:
        for _, notify, _ in waiters:
            try:
                notify(error)
            except Exception:
                self._log.failure("telling who waits failed")

    def _tell_committed(self, log: Log) -> None:
        for observer in self._committed:
            observer(log)
        state = self._states.get(log)
        if state is not None and state.uncommitted:
            self._tell_uncommitted(state, log.high_watermark)

    def _tell_uncommitted(self, state: FlushState, mark: int) -> None:
        waiting = state.uncommitted
        state.uncommitted = [waiter for waiter in waiting if waiter[0] > mark]
        self._notify([waiter for waiter in waiting if waiter[0] <= mark], None)

    def _failed(self, state: FlushState, error: BaseException) -> None:
        if isinstance(error, StorageError) and not isinstance(error, LogOfflineError):
            self._retry(error, state)
        else:
            self._give_up(error, state)

    def _retry(self, error: StorageError, state: FlushState) -> None:
        if self._is_stopping:
            self._fail_waiting(state, error)
            return
        if self._rate.allow("retry") is not None:
            self._log.error(
                "flushing {partition} has to wait, and is tried again: {error}",
                partition=state.log.name,
                error=error,
            )
        self._start_at(state, self._clock.seconds() + RETRY_SECONDS)

    def _give_up(self, error: BaseException, state: FlushState) -> None:
        state.cancel_timer()
        state.again = False
        state.oldest = state.covered = 0.0
        self.failures += 1
        if not state.log.is_closed:  # closed: a delete came first, and took what was appended
            self._log.critical(
                "flushing {partition} failed: {error}; it takes no more messages until it has been "
                "re-opened and recovered",
                partition=state.log.name,
                error=error,
            )
        if not isinstance(error, StorageError):
            error = LogOfflineError(f"{state.log.name}: {error}")
        self._fail_waiting(state, error)
        if not state.log.is_sole_copy:
            for observer in self._flushed:
                observer(state.log)

    def _fail_waiting(self, state: FlushState, error: StorageError) -> None:
        waiting = [*state.waiting, *state.uncommitted]
        state.waiting, state.uncommitted = [], []
        self._notify(waiting, error)

    def _tell_idle(self) -> None:
        if not self._running:
            self._idle.tell(None)
