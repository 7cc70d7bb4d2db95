"""One thread that reads the registry's topic into a copy, and appends to it if this one leads.

It uses one connection to the home after the other. On each it first checks that the topic is the
one that the copy has read so far, then reads to its end; from then on a follower waits for more,
and a leader has a `Writer` and appends what that decides: all that has queued up meanwhile in one
message set, so that a flush carries many.

The outcome of an append is known from the topic alone. If a connection breaks before the response,
the next one reads on: an event that is there has been decided. One that isn't may still arrive, but
by then it follows a state that is gone, and is void (see `log_records`).
"""

import logging
import math
import threading
import time
from typing import Final

from hermes.backoff import growing_pause
from hermes.config.topic import SCHEMAS_TOPIC
from hermes.errors import BrokerError, BrokerStoppingError, HermesError, OutcomeUnknownError
from hermes.registry.append_queue import AppendQueue, dropped
from hermes.registry.election import Election
from hermes.registry.errors import FAILED, UNAVAILABLE, RegistryError
from hermes.registry.home import HomeBroker, HomeLocator
from hermes.registry.home_topic import HomeTopic, TopicMessage, WrongTopicError
from hermes.registry.replica import Replica
from hermes.registry.snapshot import SnapshotFile, Snapshots
from hermes.registry.writer import Writer

_log = logging.getLogger(__name__)

#: How long the home may be gone before calls fail, and another that reaches it may lead.
PATIENCE_SECONDS: Final = 5.0

# How long one wait for more takes: after it, a follower that was elected begins to lead.
_WAIT_MS: Final = 250
# How often a leader to whom nobody comes looks whether another has written.
_IDLE_SECONDS: Final = 1.0
# How often to check that the home is still the recorded one.
_HOME_SECONDS: Final = 5.0
# How long a stop lets the last append take.
_LAST_SECONDS: Final = 2.0
# How long a problem lasts before it is logged.
_SILENT_SECONDS: Final = 1.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0

_CONFLICT: Final = "another registry has written to the topic at the same moment; try again"


class TopicLog:
    """The registry's topic as this process sees it. Threads may share it.

    Args:
        snapshot: keeps the state beside the topic; None to read all of it at each start.

    Attributes:
        changed: notified when something below, or the copy's mark, has changed.
        is_readable: whether the copy has ever been at the topic's end, or comes from a snapshot.
        problem: why nothing can be read or written now; empty if all is well.
        home: the broker with the topic; None while there is none.
        writer: decides changes; None unless this one leads.
        appends: message sets written; `appended`: events in them.
        conflicts: appends that another registry's writes came in between of.
    """

    def __init__(
        self, homes: HomeLocator, election: Election, snapshot: SnapshotFile | None = None
    ) -> None:
        self._homes = homes
        self._election = election
        self.replica = Replica()
        self._snapshots = Snapshots(snapshot, self.replica)
        self.changed = threading.Condition()
        self.is_readable = False
        self.problem = "the registry's topic has not been read yet"
        self.home: HomeBroker | None = None
        self.writer: Writer | None = None
        self.appends = self.appended = self.conflicts = 0
        self._topic: HomeTopic | None = None
        self._appends = AppendQueue(self.changed)
        self._lost_since: float | None = time.monotonic()
        self._is_refreshing = False
        self._logged = ""  # the problem that was logged
        self._was_at_end = self._stopping = False
        self._thread = threading.Thread(target=self._run, name="hermes-registry", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Append nothing more, and write a snapshot. Idempotent."""
        with self.changed:
            self._stopping = True
            self.changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(_LAST_SECONDS)  # a last append ends well, unless the home hangs
        topic = self._topic
        if topic is not None:
            topic.close()
        if self._thread.is_alive():
            self._thread.join()

    def notify(self) -> None:
        """Wake the threads: what the election, or coordination, says may have changed."""
        with self.changed:
            self.changed.notify_all()

    @property
    def is_lost(self) -> bool:
        """Whether the topic has been out of reach for so long that callers aren't kept waiting."""
        since = self._lost_since
        return since is not None and time.monotonic() - since > PATIENCE_SECONDS

    def may_lead(self) -> bool:
        """Whether this copy could decide: it is at the topic's end, or was a moment ago."""
        return self._was_at_end and not (self.is_lost or self._stopping)

    def refresh(self, timeout_seconds: float) -> bool:
        """Read to where the topic ends now. Blocks: each of two waits may take `timeout_seconds`.

        Returns whether something may exist that didn't a moment ago.
        """
        if self.writer is not None and self._election.is_leading:
            return False
        try:
            if self._topic is None and self._homes.find() is None:
                return False
            with self.changed:
                self._is_refreshing = True  # ends a pause between two attempts to connect
                self.changed.notify_all()
                self.changed.wait_for(lambda: self._topic or self._stopping, timeout_seconds)
            topic = self._topic
            end = 0 if topic is None else topic.end()
        except HermesError:
            return True
        with self.changed:
            self.changed.wait_for(
                lambda: self.replica.mark.position >= end or self._stopping, timeout_seconds
            )
        return True

    # -- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        found = self._snapshots.load()
        if found is not None:
            self._homes.remember(found)
            self.is_readable = True
            self.notify()
        failures = 0
        while not self._stopping:
            before = self.replica.mark, self._lost_since is None
            try:
                self._follow_home()
                failures = 0
            except Exception as error:
                if self._stopping:
                    break
                if not isinstance(error, HermesError) and str(error) != self.problem:
                    _log.exception("a fault of the registry's, which tries again")
                failures = 0 if before[1] else failures + 1
                self._failed(error)
                with self.changed:
                    pause = growing_pause(_FIRST_PAUSE, failures, _LONGEST_PAUSE)
                    self._is_refreshing = False
                    self.changed.wait_for(lambda: self._stopping or self._is_refreshing, pause)
        self._give_up("the registry is being stopped")
        self._snapshots.write(self.home)

    def _follow_home(self) -> None:
        home = self._find()
        if home is None:
            self._at_end()
            with self.changed:
                if not (self._appends.are_queued or self._stopping):
                    self.changed.wait(_IDLE_SECONDS)  # also for the news that there is one
            return
        with HomeTopic(home) as topic:
            topic.check_follows(self.replica.mark, self._snapshots.file)
            self._appends.max_message_bytes = topic.max_message_bytes()
            self.home, self._topic = home, topic
            self.notify()
            try:
                until = time.monotonic() + _HOME_SECONDS
                while not self._stopping:
                    self._step(topic)
                    if time.monotonic() > until:
                        if self._find() != home:
                            return
                        until = time.monotonic() + _HOME_SECONDS
            finally:
                self._topic = None

    def _find(self) -> HomeBroker | None:
        """The home; the known one as long as coordination doesn't answer."""
        try:
            home = self._homes.find()
            if home is None and (self._appends.are_queued or self.replica.mark.events):
                if self.home is not None and self.replica.mark.events:
                    self._homes.remember(self.home.broker_id)  # coordination has lost it
                home = self._homes.choose()
        except HermesError:
            if self.home is None or self._lost_since is not None:
                raise
            home = self.home
        return home

    def _step(self, topic: HomeTopic) -> None:
        leads = self._election.is_leading
        waits = not (leads or self._appends.are_outstanding or self._lost_since is not None)
        found = topic.read(self.replica.mark.position, _WAIT_MS if waits else 0)
        for stored in found:
            self._apply(stored)
        if found:
            self.notify()
            return
        self._at_end()
        while self._election.is_leading and self._await_events(_IDLE_SECONDS):
            if not self._append(topic):
                return
            self._make_writer()
        self._snapshots.write_if_due(self.home)

    def _apply(self, stored: TopicMessage) -> None:
        applied = self.replica.read_message(*stored)
        if applied is None:
            return
        if self._appends.settle(applied):
            self.appended += 1
        elif self.writer is not None:
            # What was decided meanwhile doesn't follow this one; sent as if it did, it would count.
            self.conflicts += self._appends.are_outstanding
            self._give_up(_CONFLICT)

    def _at_end(self) -> None:
        if self._appends.are_outstanding:
            self.conflicts += 1
            self._give_up(_CONFLICT)
        if self._lost_since is not None:
            if self._logged:
                _log.warning("the registry reads %s again", SCHEMAS_TOPIC)
                self._logged = ""
            self._was_at_end = self.is_readable = True
            self._lost_since, self.problem = None, ""
            self._election.recheck()
            self.notify()
        if self._election.is_leading:
            self._make_writer()
        elif self.writer is not None or self._appends.are_queued:
            self._give_up("another registry leads now; try again")

    def _make_writer(self) -> None:
        """Begin to decide, once nothing of an earlier writer is under way."""
        if self._appends.are_queued or self._appends.are_outstanding:
            return
        if self.writer is None or self.writer.failed:
            self.writer = Writer(self.replica.copy(), self._appends.for_new_writer())
            self.notify()

    def _await_events(self, seconds: float) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self._appends.are_queued or self._stopping, seconds)
        return self._appends.are_queued and not self._stopping

    def _append(self, topic: HomeTopic) -> bool:
        position = self.replica.mark.position
        try:
            stored = topic.append(self._appends.next_batch(self.replica.mark))
        except OutcomeUnknownError:
            raise
        except BrokerError as error:  # a full disk, say: nothing was appended
            reason = f"the registry's home, {topic.home}, refuses to store it: {error}"
            is_passing = isinstance(error, BrokerStoppingError)
            self._give_up(reason, UNAVAILABLE if is_passing else FAILED)
            return False
        self.appends += 1
        if stored[0].offset != position:
            return False
        for each in stored:
            self._apply(each)
        self.notify()
        return True

    def _failed(self, error: Exception) -> None:
        """Remember why the topic can't be used; callers hear of it once it has lasted."""
        if self._lost_since is None:
            self._lost_since = time.monotonic()
        if isinstance(error, WrongTopicError):
            self._lost_since = -math.inf  # waiting changes nothing
        self.problem = str(error)
        # Not at a start, or when the home is only restarted.
        if time.monotonic() - self._lost_since > _SILENT_SECONDS and self.problem != self._logged:
            _log.warning("the registry can't use its topic: %s", error)
            self._logged = self.problem
        if self.is_lost:
            self._give_up(f"{error}; what was read before is still served")

    def _give_up(self, reason: str, code: int = UNAVAILABLE) -> None:
        """Decide nothing more for now, and fail what waits."""
        self.writer = None
        self._appends.give_up(
            dropped(reason) if code == UNAVAILABLE else RegistryError(code, reason)
        )
        self.notify()
