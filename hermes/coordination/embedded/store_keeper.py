"""Opens the server's file, reopens it after failures, checks it, copies it.

A file that is damaged, or that can't be written, takes coordination out of service and nothing
else: no response is better than a wrong one. It is retried at growing intervals, so that an
operator who restores the file or frees the disk need not restart anything. One line says what is
wrong and what to do, another one that it is over.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, Final, Generic, TypeVar

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.python.failure import Failure

from hermes.backoff import growing_pause
from hermes.coordination.embedded.database import Stored
from hermes.coordination.embedded.snapshots import condition_of, snapshot_path
from hermes.coordination.embedded.store import CoordinationStore
from hermes.coordination.embedded.tree_changes import Change
from hermes.coordination.embedded.zookeeper_errors import DamagedError, OutOfServiceError
from hermes.errors import StorageError
from hermes.logs import ModuleLogger
from hermes.reactors import OwnThread

#: How often the file is checked to be in its place.
CHECK_SECONDS: Final = 5.0

#: How often a snapshot is taken, if anything has changed; the first one sooner.
SNAPSHOT_SECONDS: Final = 600.0
_FIRST_SNAPSHOT_SECONDS: Final = 60.0

# How long to wait before the file is tried again, at first and at last.
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 15.0

_Prepared = TypeVar("_Prepared")

# After serving for this long there is no trouble any more.
_SOUND_SECONDS: Final = 60.0


class StoreKeeper(Generic[_Prepared]):
    """Keeps one file; lives in the reactor's thread, and works in a thread of its own.

    Args:
        prepare: builds what can be served from what is stored; called in the file's thread (but at
            the start in the caller's), as it may take long.
        begin: called with the result whenever it can be served.
        end: called when it can't be served any more: all clients are to be cut off.
        now_ms: the wall clock, in ms since 1970; for stamps only.
    """

    _log = ModuleLogger()

    def __init__(
        self,
        reactor: Any,
        path: str | Path,
        prepare: Callable[[Stored], _Prepared],
        begin: Callable[[_Prepared], None],
        end: Callable[[], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.store = CoordinationStore(path)
        self._reactor = reactor
        self._prepare = prepare
        self._begin = begin
        self._end = end
        self._now_ms = now_ms
        self._thread: OwnThread | None = None
        self._call: Any = None  # the next check, or the next retry
        self._is_stopping = False
        self._problem = ""  # why it is out of service; empty while it serves
        self._attempts = 0
        self._since = 0.0  # when it began to serve, or to be out of service
        self._next_snapshot = 0.0
        self._put_back = 0

    # -- start and stop ---------------------------------------------------------------------------

    def start(self, *, is_new: bool) -> None:
        """Open the file; blocks. If it is damaged that is logged, and it will be retried.

        `is_new`: whether it is normal that there is no file yet. Raises StorageError if it can't be
        used at all, or another process uses it.
        """
        self._is_stopping = False
        self._thread = OwnThread(self._reactor, "hermes-coordination")
        try:
            prepared = self._open(may_create=True)
        except OutOfServiceError as error:
            self._out_of_service(error, _advice(self.store.path, error, self._now_ms()))
            return
        if self.store.was_created and not is_new:
            self._log.warn(
                "there was no coordination file {path}, though the data directory is not new: "
                "groups have no offsets there. If there should be one, stop the broker and restore "
                "it: hermes coordination restore --from BACKUP {directory}",
                path=str(self.store.path),
                directory=quote(str(self.store.path.parent)),
            )
        self._serve(prepared)

    @inlineCallbacks
    def stop(self) -> "Any":
        """Take a last snapshot and close the file; the Deferred fires when that is done."""
        if self._thread is None:
            return
        self._is_stopping = True
        self._cancel()
        try:
            if not self._problem:
                yield self.in_thread(self.store.snapshot, self._now_ms())
        except StorageError as error:
            self._log.warn("there is no new snapshot of coordination: {error}", error=error)
        yield self.in_thread(self.store.close)
        self.abandon()

    def abandon(self) -> None:
        self._is_stopping = True
        self._cancel()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
        self.store.close()

    def in_thread(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        assert self._thread is not None
        return self._thread.call(function, *args)

    # -- writing ----------------------------------------------------------------------------------

    def write(self, then: Callable[[Any], object], changes: Sequence[Change], zxid: int) -> None:
        """Write in the file's thread; `then` is called with a Failure, or else when it is done."""
        assert self._thread is not None
        self._thread.call_then(then, self.store.write, changes, zxid)

    def failed(self, failure: Failure) -> None:
        """A write has failed: what is served may be more than what is stored."""
        if self._problem or self._is_stopping:
            return
        if not isinstance(failure.value, StorageError):
            self._log.failure("coordination fails", failure)
        error: Any = failure.value
        self._out_of_service(error, "Its clients are cut off; it is tried again")
        self._end()

    # -- serving and not --------------------------------------------------------------------------

    def _open(self, *, may_create: bool) -> _Prepared:
        return self._prepare(self.store.open(may_create))

    def _serve(self, prepared: _Prepared) -> None:
        now = self._reactor.seconds()
        self._problem, self._since = "", now
        self._next_snapshot = now + _FIRST_SNAPSHOT_SECONDS
        self._begin(prepared)
        self._later(CHECK_SECONDS, self._check)

    def _out_of_service(self, error: BaseException, advice: str) -> None:
        if not self._problem:
            self._since = self._reactor.seconds()
        if str(error) != self._problem:
            self._log.critical(
                "coordination is out of service, messages are served: {problem}. {advice}",
                problem=str(error),
                advice=advice,
            )
        self._problem = str(error) or repr(error)
        pause = growing_pause(_FIRST_PAUSE_SECONDS, self._attempts, _LONGEST_PAUSE_SECONDS)
        self._attempts += 1
        self._later(pause, self._try_again)

    def _try_again(self) -> None:
        def again(prepared: _Prepared) -> None:
            if not self._is_stopping:
                seconds = round(self._reactor.seconds() - self._since)
                self._serve(prepared)
                self._log.info("coordination serves again, after {seconds} s", seconds=seconds)

        def still(failure: Failure) -> None:
            if self._is_stopping:
                return
            error: Any = failure.value
            if str(error) == self._problem:
                self._out_of_service(error, "")
            else:
                advice = self.in_thread(_advice, self.store.path, error, self._now_ms())
                advice.addCallback(lambda text: self._out_of_service(error, text))

        self.in_thread(partial(self._open, may_create=False)).addCallbacks(again, still)

    # -- checks -----------------------------------------------------------------------------------

    def _check(self) -> None:
        now = self._reactor.seconds()
        if now - self._since >= _SOUND_SECONDS:
            self._attempts = 0
        is_due = now >= self._next_snapshot
        if is_due:
            self._next_snapshot = now + SNAPSHOT_SECONDS
        self.in_thread(self._check_in_thread, is_due).addCallbacks(self._checked, self.failed)

    def _check_in_thread(self, is_snapshot_due: bool) -> str:
        """In the file's thread; returns why there is no snapshot, if there should be one."""
        self.store.put_back_if_deleted()
        try:
            if is_snapshot_due:
                self.store.snapshot(self._now_ms())
        except StorageError as error:
            return str(error)
        return ""

    def _checked(self, problem: str) -> None:
        if problem:
            self._log.warn("there is no new snapshot of coordination: {problem}", problem=problem)
        if self.store.times_put_back > self._put_back:
            self._put_back = self.store.times_put_back
            self._log.error(
                "somebody deleted {path} or its -wal under the running broker; it has been written "
                "again, and nothing is lost",
                path=str(self.store.path),
            )
        if not self._problem:
            self._later(CHECK_SECONDS, self._check)

    def _later(self, seconds: float, function: Callable[[], None]) -> None:
        self._cancel()
        if not self._is_stopping:
            self._call = self._reactor.callLater(seconds, function)

    def _cancel(self) -> None:
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None


def _advice(path: Path, error: BaseException, now_ms: int) -> str:
    """What an operator can do; reads the snapshot and so blocks."""
    if not isinstance(error, DamagedError):
        return "It is tried again"
    command = f"hermes coordination restore {quote(str(path.parent))}"
    try:
        taken_ms = condition_of(snapshot_path(path)).taken_ms or 0
    except StorageError:
        return (
            f"There is no snapshot. Restore a copy with: {command} --from COPY; or move the file "
            "away and restart, so that groups begin without offsets"
        )
    try:
        taken = datetime.fromtimestamp(taken_ms / 1000, UTC).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):  # the one number that no digest is about
        return f"Restore its snapshot, of an unknown time, with: {command}"
    age = max(0, now_ms - taken_ms) // 60_000
    return f"Restore its snapshot of {taken}, {age} minutes old, with: {command}"
