"""Copies' logs on this broker's disk: made where coordination wants a copy, deleted where not.

A log is made, or looked at, once it is known whether this data directory is the one that the broker
had before: what others count on in another one is gone. It is deleted once coordination was asked
for certain.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.cluster.shared import Shared
from hermes.coordination.replicas import ReplicaTree
from hermes.errors import HermesError, StorageError
from hermes.kafka.replicas.surroundings import OwnCopy
from hermes.kafka.replicas.timers import Timers
from hermes.limited_log import LimitedLog
from hermes.storage import Log

#: How soon what failed is tried again: a log that couldn't be made, coordination that was away.
_RETRY_SECONDS: Final = 1.0

#: How often watermarks are written down.
_KEEP_SECONDS: Final = 5.0


class CopyLogs:
    """Lives in the reactor's thread.

    Args:
        tree: coordination's; raises CoordinationUnavailableError before it was reached.
        copies: those that the broker is to have.
        on_deleted: called with a copy that is to be here no more, before its log is deleted.
        look: reads coordination again.
    """

    def __init__(
        self,
        shared: Shared,
        tree: Callable[[], ReplicaTree],
        timers: Timers,
        lines: LimitedLog,
        copies: Callable[[], Collection[OwnCopy]],
        on_deleted: Callable[[OwnCopy], None],
        look: Callable[[], None],
    ) -> None:
        self._shared = shared
        self._broker_id = shared.config.broker_id
        self._tree = tree
        self._timers = timers
        self._lines = lines
        self._copies = copies
        self._on_deleted = on_deleted
        self._look = look
        self._making: set[OwnCopy] = set()
        # Whether the data directory is the one that coordination knows; None until that was asked.
        self._is_same_directory: bool | None = None
        self._is_asking = False
        self._kept: dict[tuple[str, int], int] = {}

    # -- making -----------------------------------------------------------------------------------

    def make(self, copy: OwnCopy, seconds: float = 0.0) -> None:
        """Make a copy's log, or look at the one that there is, and tell the copy."""
        self._making.add(copy)
        self._timers.once(seconds, self._make_all)

    def forget(self, copy: OwnCopy) -> None:
        self._making.discard(copy)

    def _make_all(self) -> None:
        if self._is_same_directory is None:
            self._ask_directory()
            return
        for copy in list(self._making):
            try:
                self._make(copy)
            except HermesError as error:
                self._lines.warn(
                    "not made",
                    "{copy} can't be copied now: {error}",
                    copy=copy.name,
                    error=error,
                )
        if self._making:
            self._timers.once(_RETRY_SECONDS, self._make_all)

    def _make(self, copy: OwnCopy) -> None:
        directory, name, number = self._shared.directory, copy.topic, copy.number
        log = directory.get(name, number)
        if log is None:
            # Also where a mark says so: the power may have taken the one that there was.
            topics = self._shared.topics
            log = topics.create_numbered(name, number, copy.topic_id, is_sole_copy=False)
        log.adopt_topic_id(copy.topic_id)
        if not (log.counts_messages or log.end_offset or log.is_offline):
            # A start has taken a directory that the power left empty for one of 0.7's format.
            self._making.discard(copy)
            self.remake(copy, log)
            return
        if log.topic_id != copy.topic_id or not log.counts_messages:
            raise StorageError(f"{log.name} is of another topic; move its directory away")
        log.check_online()
        mark = directory.watermarks.get(name, number)
        state = copy.replica.state
        if mark is not None:
            log.commit(mark)
            is_whole = mark <= log.end_offset
        else:
            # Up to now it was the only copy, or it is new. If others count on it, it has lost what
            # said how much of it is committed.
            is_alone = state is not None and state.isr == {self._broker_id}
            is_whole = is_alone or not log.end_offset
            mark = log.flushed_end if is_alone else log.earliest
            log.replica.become_copy(mark)
        self._making.discard(copy)
        is_whole = is_whole and self._is_same_directory is True and not log.sources.is_damaged
        kept = self._shared.in_thread(directory.watermarks.keep, {(name, number): mark})
        kept.addCallback(lambda _: self._opened(copy, log, is_whole))
        kept.addErrback(self._not_kept, copy)

    def _opened(self, copy: OwnCopy, log: Log, is_whole: bool) -> None:
        if not copy.is_gone:
            copy.opened(self._shared.partitions.of(log), is_whole=is_whole)

    def _not_kept(self, failure: Failure, copy: OwnCopy) -> None:
        failure.trap(HermesError)  # type: ignore[no-untyped-call]
        if not copy.is_gone:
            self.make(copy, _RETRY_SECONDS)

    # -- deleting ---------------------------------------------------------------------------------

    def dismissed(self, copy: OwnCopy) -> None:
        """Coordination names this broker no more: delete the copy, once that is certain."""
        reading = self._shared.in_thread(self._names_us, copy)
        reading.addCallback(self._delete, copy).addErrback(self._not_deleted, copy)

    def _names_us(self, copy: OwnCopy) -> bool:
        """In a thread: whether this broker is to have the copy, for certain."""
        node = self._tree().read_certainly(copy.topic)
        if node is None or node.id != copy.topic_id:
            return False
        state = node.state_of(copy.number)
        return state is not None and self._broker_id in state.replicas

    def _delete(self, names_us: bool, copy: OwnCopy) -> "Deferred[None] | None":
        if copy.is_gone or self._timers.is_stopped:
            return None
        if names_us:
            copy.begin_anew()
            self._look()
            return None
        self._on_deleted(copy)
        self._lines.info(
            "deleted copy", "{copy} is to have no copy here any more: it is deleted", copy=copy.name
        )
        return self._delete_log(copy, copy.log)

    def _delete_log(
        self, copy: OwnCopy, log: Log, *, keeps_damaged: bool = False
    ) -> "Deferred[Any]":
        shared = self._shared
        shared.topics.forget_copy(copy.topic, copy.number)
        shared.flusher.forget(log)
        shared.partitions.forget(log)
        delete = partial(shared.directory.delete_copy, keeps_damaged=keeps_damaged)
        return shared.in_thread(delete, copy.topic, copy.number)

    def _not_deleted(self, failure: Failure, copy: OwnCopy) -> None:
        failure.trap(HermesError)  # type: ignore[no-untyped-call]
        if copy.is_gone:
            self._lines.error(
                "not deleted",
                "the copy of {copy} is not deleted: {error}",
                copy=copy.name,
                error=failure.value,
            )
            self._timers.later(_RETRY_SECONDS, self._delete_left, copy)
        else:
            self._timers.later(_RETRY_SECONDS, self.dismissed, copy)

    def _delete_left(self, copy: OwnCopy) -> None:
        left = self._shared.in_thread(self._shared.directory.delete_left, copy.topic)
        left.addErrback(self._not_deleted, copy)

    def remake(self, copy: OwnCopy, log: Log) -> None:
        """Delete a copy's log, and make another."""

        def deleted(_: Any) -> None:
            if not copy.is_gone:
                self.make(copy)

        def failed(failure: Failure) -> None:
            failure.trap(HermesError)  # type: ignore[no-untyped-call]
            self._timers.later(_RETRY_SECONDS, self.remake, copy, log)

        self._delete_log(copy, log, keeps_damaged=True).addCallbacks(deleted, failed)

    # -- whose directory it is --------------------------------------------------------------------

    def _ask_directory(self) -> None:
        if self._is_asking:
            return
        self._is_asking = True

        def asked(found: bool) -> None:
            self._is_asking, self._is_same_directory = False, found
            if not found:
                self._lines.error(
                    "directory",
                    "the data directory isn't the one that broker {broker_id} had before: its "
                    "copies leave the in-sync replicas, and are made anew",
                    broker_id=self._broker_id,
                )
            self._make_all()

        def failed(failure: Failure) -> None:
            failure.trap(HermesError)  # type: ignore[no-untyped-call]
            self._is_asking = False
            self._timers.once(_RETRY_SECONDS, self._make_all)

        self._shared.in_thread(self._is_known_directory).addCallbacks(asked, failed)

    def _is_known_directory(self) -> bool:
        """In a thread."""
        tree, own = self._tree(), self._shared.directory.own_id()
        known = tree.directory(self._broker_id)
        if known is None:
            tree.keep_directory(self._broker_id, own)
        return known in (None, own)

    def keep_directory(self) -> None:
        """Once no copy is counted on that this directory lacks, it is the broker's."""
        if self._is_same_directory is not False or self._making:
            return
        if all(copy.replica.is_whole for copy in self._copies()):
            self._is_same_directory = True
            self._shared.in_thread(self._say_directory).addErrback(self._not_said)

    def _say_directory(self) -> None:
        """In a thread."""
        self._tree().keep_directory(self._broker_id, self._shared.directory.own_id())

    def _not_said(self, failure: Failure) -> None:
        failure.trap(HermesError)  # type: ignore[no-untyped-call]
        self._is_same_directory = False

    # -- watermarks -------------------------------------------------------------------------------

    def keep_watermarks(self) -> None:
        """Write down what is committed, from now on and again."""
        self._timers.once(_KEEP_SECONDS, self._keep)

    def _keep(self) -> None:
        marks = self._marks()
        if marks == self._kept:
            self.keep_watermarks()
            return
        kept = self._shared.in_thread(self._shared.directory.watermarks.keep, marks)

        def done(result: Any) -> None:
            if isinstance(result, Failure):
                result.trap(StorageError)  # type: ignore[no-untyped-call]
            else:
                self._kept = marks
            self.keep_watermarks()

        kept.addBoth(done)

    def _marks(self) -> dict[tuple[str, int], int]:
        return {
            (copy.topic, copy.number): copy.log.high_watermark
            for copy in self._copies()
            if copy.partition is not None and not copy.is_gone
        }

    def keep_now(self) -> "Deferred[Any] | None":
        """Fires when watermarks are kept; None where there are none."""
        marks = self._marks()
        if not marks:
            return None
        return self._shared.in_thread(self._shared.directory.watermarks.keep, marks)
