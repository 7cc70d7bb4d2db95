"""Copies' logs on this broker's disk: made where coordination wants a copy, deleted where not.

A log is deleted once coordination was asked for certain. It is made, or looked at, once
coordination knows this data directory for the broker's. What others count on in another one isn't
here, and so:

    Of each copy that coordination names the broker for, the directory that it knows for the
    broker's has a whole log or the mark LACKING, on disk.

Such a copy leaves the in-sync replicas before anything else, and leads nothing until it has. So a
directory that isn't known yet gets its marks, for all copies that are named then, and only then
becomes the broker's. A crash in between leaves it unknown: the next start marks all again. But what
this process has made there as the only copy lacks nothing, if it still is the only one. Whatever
is named later, to the broker registered by then, was never kept in another directory. Each mark
stays, through restarts and whatever is deleted here, until coordination has it that the copy
starts over. So a restart doubts those only that nobody has been told of, not what it has since got.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from hermes.cluster.shared import Shared
from hermes.coordination.replicas import ReplicaTree
from hermes.errors import CoordinationUnavailableError, HermesError, StorageError
from hermes.kafka.replicas.surroundings import OwnCopy
from hermes.kafka.replicas.timers import Timers
from hermes.limited_log import LimitedLog
from hermes.protocol import NOBODY
from hermes.replication.state import TopicReplicas
from hermes.storage import Log
from hermes.storage.watermarks import LACKING

#: How soon what failed is tried again: a log that couldn't be made, coordination that was away.
_RETRY_SECONDS: Final = 1.0

#: How often a log that can't be opened is tried again, before its copy is made anew.
_UNREADABLE_TRIES: Final = 10

#: How often watermarks are written down; and how soon, where copies lack nothing any more.
_KEEP_SECONDS: Final = 5.0
_KEEP_SOON_SECONDS: Final = 0.05


class CopyLogs:
    """Lives in the reactor's thread.

    Args:
        tree: coordination's; raises CoordinationUnavailableError before it was reached.
        copies: those that the broker is to have.
        is_registered: whether the broker is, in this process.
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
        is_registered: Callable[[], bool],
        on_deleted: Callable[[OwnCopy], None],
        look: Callable[[], None],
    ) -> None:
        self._shared = shared
        self._broker_id = shared.config.broker_id
        self._tree = tree
        self._timers = timers
        self._lines = lines
        self._copies = copies
        self._is_registered = is_registered
        self._on_deleted = on_deleted
        self._look = look
        self._making: dict[OwnCopy, int] = {}  # how often each was tried
        self._is_known = self._is_asking = False  # whether coordination knows the directory
        self._is_doubted, self._doubts = False, 0  # whether that is being asked again; how often
        self._kept: dict[tuple[str, int], int] = {}
        self._deleting: set[tuple[str, int]] = set()  # what a thread deletes, or is to

    # -- making -----------------------------------------------------------------------------------

    def make(self, copy: OwnCopy, seconds: float = 0.0) -> None:
        """Make a copy's log, or look at the one that there is, and tell the copy."""
        self._making.setdefault(copy, 0)
        self._timers.once(seconds, self._make_all)

    def unreadable(self, copy: OwnCopy) -> None:
        """The log of a copy in service can't be opened again: see whether it may be made anew."""
        if copy not in self._making:
            self.make(copy, _RETRY_SECONDS)

    def forget(self, copy: OwnCopy) -> None:
        self._making.pop(copy, None)

    def _make_all(self) -> None:
        if not self._is_known:
            self._ask_directory()
            return
        if self._is_doubted:
            self._timers.once(_RETRY_SECONDS, self._make_all)
            return
        for copy, tries in list(self._making.items()):
            if copy not in self._making:
                continue  # it has gone with one before it
            self._making[copy] = tries + 1
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
        if (name, number) in self._deleting:
            raise StorageError(f"an earlier copy of {copy.name} is being deleted")
        log = directory.get(name, number)
        if log is None:
            # Also where a mark says so: the power may have taken the one that there was.
            topics = self._shared.topics
            log = topics.create_numbered(name, number, copy.topic_id, is_sole_copy=False)
        if log.replica.is_unreadable and self._is_dispensable(copy):
            self._lines.error(
                "unreadable",
                "{copy} is made anew, and its segments are kept beside its directory: {reason}",
                copy=copy.name,
                reason=log.offline_reason,
            )
            del self._making[copy]
            if copy.log is log:
                copy.begin_log_anew()
            else:
                self.remake(copy, log)
            return
        if log.is_offline and copy.log is None:
            copy.cannot_open()
        log.check_online()
        if copy.log is log:
            del self._making[copy]  # it could be opened again after all
            return
        log.adopt_topic_id(copy.topic_id)
        if log.replica.may_be_mistaken:
            self._making.pop(copy, None)
            self.remake(copy, log)
            return
        if log.topic_id != copy.topic_id or not log.counts_messages:
            raise StorageError(f"{log.name} is of another topic; move its directory away")
        mark, state = directory.watermarks.get(name, number), copy.replica.state
        if mark is None and state is not None and state.isr == {self._broker_id}:
            mark = log.flushed_end  # up to now it was the only copy
            log.replica.become_copy(mark)
        elif mark in (None, LACKING):
            # It is new. Or if others count on it, what said how much of it is committed is lost.
            mark = LACKING if mark or log.end_offset else 0
            log.replica.become_copy(log.earliest)
        else:
            log.commit(mark)
        self._making.pop(copy, None)
        is_whole = mark <= log.end_offset and not log.sources.is_damaged
        kept, doubts = self._keep_marks({(name, number): mark}), self._doubts
        kept.addCallback(lambda _: self._opened(copy, log, is_whole, doubts))
        kept.addErrback(self._not_kept, copy)

    def _is_dispensable(self, copy: OwnCopy) -> bool:
        """Whether others lead, nobody counts on this copy, and it was tried often enough."""
        state, is_tried = copy.replica.state, self._making[copy] > _UNREADABLE_TRIES
        is_led = state is not None and state.leader != NOBODY
        return is_tried and is_led and copy.is_behind(self._broker_id)

    def _opened(self, copy: OwnCopy, log: Log, is_whole: bool, doubts: int) -> None:
        if copy.is_gone:
            return
        if doubts != self._doubts:  # it may be marked since then
            self.make(copy)
        else:
            copy.opened(self._shared.partitions.of(log), is_whole=is_whole)

    def _not_kept(self, failure: Failure, copy: OwnCopy) -> None:
        failure.trap(HermesError)  # type: ignore[no-untyped-call]
        if not copy.is_gone:
            self.make(copy, _RETRY_SECONDS)

    # -- deleting ---------------------------------------------------------------------------------

    def dismissed(self, copy: OwnCopy) -> None:
        """Coordination names this broker no more: delete the copy, once that is certain."""
        reading = self._shared.in_thread(self._read_certainly, copy)
        reading.addCallback(self._delete, copy).addErrback(self._not_deleted, copy)

    def _read_certainly(self, copy: OwnCopy) -> TopicReplicas | None:
        """In a thread: what stands there of the copy's topic; None where that is gone."""
        node = self._tree().read_certainly(copy.topic)
        return None if node is None or node.id != copy.topic_id else node

    def _delete(self, node: TopicReplicas | None, copy: OwnCopy) -> "Deferred[None] | None":
        if copy.is_gone or self._timers.is_stopped:
            return None
        if node is not None and node.version < copy.replica.version:
            self.dismissed(copy)  # it was changed since, and is known to be
            return None
        state = None if node is None else node.state_of(copy.number)
        if state is not None and self._broker_id in state.replicas:
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
        place = copy.topic, copy.number
        self._deleting.add(place)
        return shared.in_thread(delete, *place).addBoth(self._was_deleted, place)

    def _was_deleted(self, result: Any, place: tuple[str, int]) -> Any:
        self._deleting.discard(place)
        return result

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

        def asked(is_other: bool | None) -> None:
            self._is_asking = False
            if is_other is None:
                self._timers.once(_RETRY_SECONDS, self._make_all)
                return
            self._is_known = True
            if is_other:
                self._lines.error(
                    "directory",
                    "the data directory isn't the one that broker {broker_id} had before: its "
                    "copies leave the in-sync replicas, and are made anew",
                    broker_id=self._broker_id,
                )
            self._make_all()

        def failed(failure: Failure) -> None:
            self._is_asking = False
            failure.trap(HermesError)  # type: ignore[no-untyped-call]
            if not isinstance(failure.value, CoordinationUnavailableError):
                self._lines.warn(
                    "directory",
                    "nothing is copied, since it isn't known what this data directory lacks: "
                    "{error}",
                    error=failure.value,
                )
            self._timers.once(_RETRY_SECONDS, self._make_all)

        taking = self._shared.in_thread(self._take_directory, self._is_registered())
        taking.addCallbacks(asked, failed)

    def ask_again(self) -> "Deferred[Any]":
        """Whether another directory has been the broker's since; None where that isn't known.

        False as long as nothing was asked: then nothing is known to be whole yet. Until it is known
        no watermarks are kept: they would overwrite the marks of what is lacking.
        """
        if not self._is_known:
            return succeed(False)
        self._is_doubted, self._doubts = True, self._doubts + 1

        def asked(is_other: bool | None) -> bool | None:
            self._is_doubted = is_other is None
            return is_other

        def failed(failure: Failure) -> None:
            failure.trap(HermesError)  # type: ignore[no-untyped-call]

        return self._shared.in_thread(self._take_directory, True).addCallbacks(asked, failed)

    def is_lacking(self, copy: OwnCopy) -> bool:
        """Whether a copy is marked so: perhaps by an earlier question, whose answer was lost."""
        return self._shared.directory.watermarks.get(copy.topic, copy.number) == LACKING

    def _take_directory(self, is_registered: bool) -> bool | None:
        """In a thread: have this be the broker's data directory; whether another one was.

        None: it was, and the broker isn't registered. An earlier process of its, with that
        directory, might get further copies.
        """
        directory, tree = self._shared.directory, self._tree()
        own, known = directory.own_id(), tree.directory(self._broker_id)
        if known == own:
            return False
        if known is not None:
            if not is_registered:
                return None
            lacking = {
                place: LACKING
                for place, (topic_id, state) in tree.copies_of(self._broker_id).items()
                if not (state.isr == {self._broker_id} and directory.made_alone(*place, topic_id))
            }
            directory.watermarks.keep(lacking)
        tree.keep_directory(self._broker_id, own)
        return known is not None

    # -- watermarks -------------------------------------------------------------------------------

    def keep_watermarks(self) -> None:
        """Write down what is committed, from now on and again."""
        self._timers.once(_KEEP_SECONDS, self._keep)

    def now_whole(self) -> None:
        """A copy lacks nothing any more that others count on: write that down."""
        self._timers.once(_KEEP_SOON_SECONDS, self._keep_soon)

    def _keep_soon(self) -> None:
        kept = self.keep_now()
        if kept is not None:
            kept.addErrback(self._not_kept_now)

    def _not_kept_now(self, failure: Failure) -> None:
        """It is tried again by `_keep`."""
        failure.trap(StorageError)  # type: ignore[no-untyped-call]

    def _keep(self) -> None:
        marks = self._marks()
        if marks == self._kept:
            self.keep_watermarks()
            return
        kept = self._keep_marks(marks)

        def done(result: Any) -> None:
            if isinstance(result, Failure):
                result.trap(StorageError)  # type: ignore[no-untyped-call]
            else:
                self._kept = marks
            self.keep_watermarks()

        kept.addBoth(done)

    def _keep_marks(self, marks: Mapping[tuple[str, int], int]) -> "Deferred[Any]":
        doubts = self._doubts
        keep = self._shared.directory.watermarks.keep
        return self._shared.in_thread(keep, marks, lambda: doubts == self._doubts)

    def _marks(self) -> dict[tuple[str, int], int]:
        """What is committed; what lacks something keeps the mark that says so."""
        if self._is_doubted:
            return {}
        return {
            (copy.topic, copy.number): copy.log.high_watermark
            for copy in self._copies()
            if copy.partition is not None and copy.replica.is_whole and not copy.is_gone
        }

    def keep_now(self) -> "Deferred[Any] | None":
        """Fires when watermarks are kept; None where there are none."""
        marks = self._marks()
        if not marks:
            return None
        return self._keep_marks(marks)
