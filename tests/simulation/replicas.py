"""One broker's copy of a partition, driven: it carries out what `hermes.replication` decides.

Nothing is decided here. It tells a `Replica` what happens, to its log, its session with
coordination and its fetches, and does what that gives: on a real `Log`, over a simulated network.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from math import inf
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from coordination import Coordination, SimulatedSession
from disks import Disk, ProcessFiles
from invariants import Invariants
from machines import Machine, Process
from network import Connection, Network
from rot import LEADER_EPOCH
from twisted.python.failure import Failure
from world import World

from hermes.coordination.kafka_topics import KAFKA_CHANGES
from hermes.coordination.layout import BROKER_IDS, broker_path, parse_broker_id
from hermes.coordination.nodes import TreeSession
from hermes.coordination.replicas import ReplicaTree, as_life
from hermes.errors import (
    CoordinationUnavailableError,
    DiskFullError,
    InvalidBatchError,
    LogOfflineError,
    OffsetOutOfRangeError,
    ProducerStateError,
    StorageError,
    WrongStateError,
)
from hermes.partition.batch_appends import AppendedBatches, check_and_append
from hermes.protocol.kafka_errors import Code
from hermes.protocol.record_batches import BatchRules, check_batches, next_in
from hermes.replication import following
from hermes.replication.awaiting import Awaiting
from hermes.replication.electing import Refusals
from hermes.replication.following import Append, Cut, Following, Rest, Restart
from hermes.replication.leading import LeaderSettings
from hermes.replication.messages import LogEnds, Refused, ReplicaFetch
from hermes.replication.replica import (
    BeginEpoch,
    Change,
    EndEpoch,
    Fetch,
    LogFacts,
    Replica,
    Role,
)
from hermes.replication.state import PartitionState
from hermes.storage import Log, LogSettings
from hermes.storage.checkpoints import read_offsets
from hermes.storage.kafka_format import KAFKA
from hermes.storage.whole_files import read_whole, replace_whole

__all__ = ["SESSION_SECONDS", "TOPIC", "TOPIC_ID", "Cluster", "ReplicaBroker"]

TOPIC = "t"
TOPIC_ID = UUID(int=7)

#: Short, so that sessions end within a schedule.
SESSION_SECONDS = 1.0

_DIRECTORY_NAME = "directory.id"
_WATERMARKS_NAME = "high-watermarks"

_TICK, _REST, _LOOK, _REOPEN = 0.1, 0.05, 1.0, 0.3
_CHECKPOINT, _FETCH_WAIT, _FETCH_BYTES = 2.0, 0.25, 4096


class Cluster(NamedTuple):
    """What brokers share. `brokers`: by id, as they live now; `address`: where each lives."""

    world: World
    network: Network
    coordination: Coordination
    invariants: Invariants
    settings: LeaderSettings
    log_settings: LogSettings
    machines: dict[int, Machine]
    disks: dict[int, Disk]
    brokers: "dict[int, ReplicaBroker]"
    tokens: Iterator[int]
    chance: Random

    def is_doubled(self, what: str) -> bool:
        """Whether something arrives once more, whatever carries it."""
        doubled = self.network.doubled
        return self.chance.random() < doubled and self.world.fault(f"{what} is doubled")

    def is_damaged(self) -> bool:
        damaged = self.network.lost / 2
        return self.chance.random() < damaged and self.world.fault("an answer is damaged")

    def late_us(self) -> int:
        return int(2_000_000 * self.chance.random() ** 3)

    def start(self, broker_id: int) -> None:
        machine = self.machines[broker_id]
        if not machine.is_up:
            process = machine.start()
            broker = ReplicaBroker(self, broker_id, process)
            self.brokers[broker_id] = broker
            process.run(process.start_with, broker.begin)


class _OutOfStep(NamedTuple):
    """A producer that waits for whether it really is; `asked_at`: since when."""

    asked_at: float
    answer: Callable[[Code], None]


class _Held(NamedTuple):
    """A fetch that waits for something to send."""

    connection: Connection
    fetch: ReplicaFetch
    until: float


class ReplicaBroker:
    """One life of a broker.

    Attributes:
        log: its copy; offline before it was opened.
        is_stopping: whether it is being stopped in an orderly way.
    """

    def __init__(self, cluster: Cluster, broker_id: int, process: Process) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.process = process
        self.clock = process.clock
        self.files: ProcessFiles = cluster.disks[broker_id].mount(process)
        self.refusals = Refusals()
        self.replica = Replica(broker_id, cluster.settings, cluster.tokens, self.refusals)
        self.awaiting: Awaiting[int] = Awaiting()
        self.answers: dict[int, Callable[[Code], None]] = {}
        self.session: SimulatedSession = cluster.coordination.session(
            process, self._look, SESSION_SECONDS
        )
        self.tree = ReplicaTree(self.session)
        self.log = self._new_log()
        self.is_stopping = False
        self._root = cluster.disks[broker_id].root
        self._keys = count()
        self._writing: Following | None = None
        self._connection: Connection | None = None
        self._connected_to = -1
        self._held: list[_Held] = []
        self._out_of_step: list[_OutOfStep] = []
        self._answered_at: dict[Connection, float] = {}
        self._last_tokens: dict[int, int] = {}
        self._told_watermark = self._told_start = 0
        self._is_flushing = self._is_looking = self._must_look = self._is_full = False
        self._is_leaving = self._is_gone = self._is_deleting = False
        self._rest_until = 0.0
        self._checkpointed = 0
        self._next_look = 0.0
        self._directory: UUID | None = None

    # -- start ------------------------------------------------------------------------------------

    def _new_log(self) -> Log:
        path = os.path.join(self.cluster.disks[self.broker_id].root, f"{TOPIC}-0")
        log = Log(
            TOPIC,
            0,
            path,
            self.cluster.log_settings,
            self.files,
            log_format=KAFKA,
            topic_id=TOPIC_ID,
        )
        log.is_sole_copy = False
        return log

    def begin(self) -> bool:
        """In the main thread: find the directory's id and the log, and begin a session."""
        is_whole = self._open()
        while True:
            with suppress(CoordinationUnavailableError):
                self.session.start()
                break
            self.process.wait(500_000, "coordination")
        if is_whole:
            is_whole = self._is_known_directory()
        self.cluster.invariants.opened(self)
        self.replica.opened(is_whole=is_whole)
        self.process.at(1, self._look)
        self.process.at(1, self._tick)
        self.process.at(1, self._checkpoint)
        return True

    def _open(self) -> bool:
        """Open the log; whether it has what its checkpoint says was committed."""
        self._directory = self._directory_id()
        while True:
            with suppress(StorageError, OSError):
                with suppress(FileExistsError):
                    self.files.mkdir(self.log.directory)
                self.log.open(clean=False, now_ms=self.clock.now_ms(), is_new_directory=True)
                break
            self.process.wait(300_000, "a disk")
        offsets = read_offsets(os.path.join(self._root, _WATERMARKS_NAME), self.files)
        watermark = self._checkpointed = offsets.get((TOPIC, 0), 0)
        self.log.commit(watermark)
        return watermark <= self.log.end_offset

    def _directory_id(self) -> UUID:
        path = os.path.join(self._root, _DIRECTORY_NAME)
        while True:
            with suppress(OSError, StorageError):
                found = read_whole(path, 100, self.files)
                if found is not None:
                    self.files.fsync_directory(self._root)  # an earlier try may have failed to
                    return UUID(found.decode())
                made = UUID(int=self.cluster.world.random.getrandbits(128))
                replace_whole(path, str(made).encode(), self.files)
                return made
            self.process.wait(300_000, "a disk")

    def _is_known_directory(self) -> bool:
        while True:
            with suppress(CoordinationUnavailableError):
                known = self.tree.directory(self.broker_id)
                if known is None:
                    self.tree.keep_directory(self.broker_id, self._certain_directory())
                return known is None or known == self._directory
            self.process.wait(200_000, "coordination")

    def _certain_directory(self) -> UUID:
        assert self._directory is not None
        return self._directory

    # -- what goes on -----------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.clock.seconds()

    def ends(self) -> LogEnds:
        log = self.log
        start = 0 if not log.earliest or log.is_offline else log.replica.first_base()
        return LogEnds(start, int(log.flushed_end), log.end_offset, log.earliest)

    def _in_thread(
        self, then: Callable[[Any], object], function: Callable[..., Any], *arguments: Any
    ) -> None:
        def failed(failure: Failure) -> None:
            self.cluster.world.breaks(failure.getTraceback())

        self.process.in_thread(function, *arguments).addCallback(then).addErrback(failed)

    def turn(self) -> None:
        """Do what is due by now: after everything that happens."""
        log, replica = self.log, self.replica
        self.cluster.invariants.flushed(self)
        ends = self.ends()
        facts = LogFacts(ends, log.replica.epoch_before(ends.end), int(log.high_watermark))
        for command in replica.due(facts, self.now):
            if isinstance(command, EndEpoch):
                self._end_epoch()
            elif isinstance(command, BeginEpoch):
                log.replica.begin_epoch(command.epoch)
                self._told_watermark = self._told_start = 0
                self.cluster.invariants.leads(self, command.epoch)
            elif isinstance(command, Fetch):
                self._fetch(command)
            else:
                self._change(command)
        self._advance()
        if replica.role is Role.LEAVING and not self._is_leaving:
            self._is_leaving = True
            self._in_thread(self._dismissed, self._dismiss)
        if replica.leading is None and self.awaiting:
            self.cluster.world.breaks(f"{self.process} leads no more, and somebody waits")

    def _tick(self) -> None:
        self.process.at(int(_TICK * 1e6), self._tick)
        if self.now >= self._next_look:
            self._look()
        self._answer_held()
        self.turn()

    def _advance(self) -> None:
        """Commit what may be by now, and tell who waits for it."""
        leading = self.replica.leading
        if leading is None:
            self._commit(min(self._told_watermark, int(self.log.flushed_end)))
            return
        before = leading.high_watermark
        after = leading.advance(int(self.log.flushed_end), self.replica.lives, self.now)
        self._commit(after)
        if after > before:
            self._answer_held()
        for key in self.awaiting.reached(after):
            self.answers.pop(key)(Code.NONE)
        waiting, self._out_of_step = self._out_of_step, []
        for each in waiting:
            if leading.led_at(each.asked_at):
                each.answer(Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
            else:
                self._out_of_step.append(each)

    def _commit(self, offset: int) -> None:
        is_deleted = self._is_deleting or self.log.is_closed
        if offset > self.log.high_watermark and not is_deleted:
            self.log.commit(offset)
            self.cluster.invariants.shows(self)

    def _end_epoch(self) -> None:
        for key in self.awaiting.ended():
            self.answers.pop(key)(Code.NOT_LEADER_OR_FOLLOWER)
        waiting, self._out_of_step = self._out_of_step, []
        for one in waiting:
            one.answer(Code.NOT_LEADER_OR_FOLLOWER)
        held, self._held = self._held, []
        for each in held:
            each.connection.to_client(self._no_leader, each.fetch.token)

    # -- coordination -----------------------------------------------------------------------------

    def _look(self) -> None:
        if self._is_looking:
            self._must_look = True
            return
        self._is_looking, self._next_look = True, self.now + _LOOK
        self._in_thread(self._looked, self._read)

    def _read(self) -> Any:
        """In a thread: what stands in coordination, with this broker registered in it."""
        with suppress(CoordinationUnavailableError):
            return self._read_tree()
        return None

    def _read_tree(self) -> Any:
        session, me = self.session, self.broker_id
        life = session.session_id
        if life is None:
            return None
        session.get(KAFKA_CHANGES, watch=True)
        if session.create_ephemeral(broker_path(me), b"h-1:h:1") is not None:
            return None  # its former life's; it goes with that one's session
        node = self.tree.read([TOPIC]).get(TOPIC)
        lives = lives_of(session, watch=True)
        if lives.get(me) != life:
            return None
        return life, lives, node

    def _looked(self, found: Any) -> None:
        self._is_looking = False
        if found is not None:
            life, lives, node = found
            self.replica.registered(life)
            state = None if node is None else node.state_of(0)
            if state is not None:
                if self._is_gone and self.broker_id in state.replicas:
                    self._begin_anew(is_whole=True)
                self.replica.learned(state, node.version, lives)
            self.turn()
        if self._must_look:
            self._must_look = False
            self._look()

    def _change(self, change: Change) -> None:
        self.cluster.invariants.changes(self, change)
        self._in_thread(partial(self._changed, change), self._write, change)

    def _write(self, change: Change) -> tuple[PartitionState, int, bool]:
        """In a thread: change the node; if nobody knows whether that was done, find out."""
        with suppress(WrongStateError, CoordinationUnavailableError):
            state, version = self.tree.change(TOPIC, 0, change.make)
            if change.what == "forfeit":
                self.tree.keep_directory(self.broker_id, self._certain_directory())
            return state, version, True
        while True:
            with suppress(CoordinationUnavailableError):
                node = self.tree.read_certainly(TOPIC)
                state = None if node is None else node.state_of(0)
                assert node is not None
                assert state is not None
                return state, node.version, False
            self.process.wait(200_000, "coordination")

    def _changed(self, change: Change, found: tuple[PartitionState, int, bool]) -> None:
        state, version, is_done = found
        self.cluster.invariants.changed(self, change, state, is_done=is_done)
        self.replica.change_ended(state, version, is_done=is_done)
        self.turn()

    def _dismiss(self) -> bool:
        """In a thread: delete a copy that isn't wanted any more, once that is certain."""
        while True:
            with suppress(CoordinationUnavailableError):
                node = self.tree.read_certainly(TOPIC)
                state = None if node is None else node.state_of(0)
                if state is not None and self.broker_id in state.replicas:
                    return False
                break
            self.process.wait(200_000, "coordination")
        self._delete_copy()
        return True

    def _delete_copy(self) -> None:
        """In a thread."""
        self._is_deleting = True
        self.cluster.invariants.deletes(self)
        while True:
            with suppress(StorageError, OSError):
                self.log.delete()
                self.files.fsync_directory(self._root)
                self.cluster.invariants.deletes(self)  # what was flushed until then went, too
                self._is_deleting = False
                return
            self.process.wait(200_000, "a disk")

    def _dismissed(self, is_deleted: bool) -> None:
        if is_deleted:
            self._is_gone = True
        else:
            self._begin_anew(is_whole=bool(self.replica.is_whole) and not self.log.is_offline)
        self._look()

    def _begin_anew(self, *, is_whole: bool) -> None:
        """As a replica that is named again."""
        life = self.replica.life
        self.replica = Replica(
            self.broker_id,
            self.cluster.settings,
            self.cluster.tokens,
            self.refusals,
            self.replica.version,
        )
        self.replica.registered(life)
        self._told_watermark = self._told_start = 0
        if self._is_gone:
            self.log = self._new_log()
            self._reopen()
        else:
            self.replica.opened(is_whole=is_whole)
        self._is_leaving = self._is_gone = False

    # -- following --------------------------------------------------------------------------------

    def _fetch(self, command: Fetch) -> None:
        token = command.fetch.token
        if self.now < self._rest_until:
            self.process.at(int(_REST * 1e6), self._break_off, token)
            return
        connection = self._connected(command.to)
        if connection is None:
            self._rest()
            self.process.at(int(_REST * 1e6), self._break_off, token)
            return
        to = self.cluster.brokers[command.to]
        connection.to_server(to.serve, connection, command.fetch)
        if self.cluster.is_doubled("a fetch"):
            self.cluster.world.at(
                self.cluster.late_us(), to.process.run, to.serve, connection, command.fetch
            )
        self.process.at(int(3 * _FETCH_WAIT * 1e6), self._time_out, token, connection)

    def _rest(self) -> None:
        self._rest_until = self.now + _REST

    def _connected(self, leader: int) -> Connection | None:
        known = self._connection
        if known is not None and not known.is_lost and self._connected_to == leader:
            return known
        network, machine = self.cluster.network, self.cluster.machines[leader]
        made = network.connect(self.process, machine, self._lost_connection)
        if made is None and not machine.is_up and not network.is_cut(self.process.machine, machine):
            self.refusals.refused(leader, self.now)
        if made is not None:
            self.refusals.answered(leader)
        self._connection, self._connected_to = made, leader
        return made

    def _lost_connection(self) -> None:
        if self._connection is not None and self._connection.is_lost:
            self._break_off(None)

    def _time_out(self, token: int, connection: Connection) -> None:
        if self.replica.following is not None and self.replica.following.is_awaited(token):
            connection.lose()
            self._break_off(token)

    def _break_off(self, token: int | None) -> None:
        known = self.replica.following
        if known is not None and (token is None or known.is_awaited(token)):
            known.broken_off()
            self.turn()

    def _no_leader(self, token: int) -> None:
        self.answered(token, Refused(Code.NOT_LEADER_OR_FOLLOWER), b"")

    def answered(self, token: int, answer: Any, data: bytes) -> None:
        """A fetch of this broker's was answered."""
        known = self.replica.following
        if known is None:
            return
        command = self.replica.answered(token, answer, self.ends(), self.log.replica)
        if isinstance(command, Append):
            self._append(command, known, data)
        elif isinstance(command, Cut | Restart):
            self.cluster.invariants.cuts(self, command)
            self._in_thread(self._was_cut, self._cut, command)
        elif isinstance(command, Rest):
            self._rest()
            known.rested()
            self._look()
            self.turn()

    def _append(self, command: Append, known: Following, data: bytes) -> None:
        log, self._writing = self.log, known
        end = log.end_offset
        last_epoch = log.replica.epoch_before(end)
        try:
            headers = following.check_batches(data, end, last_epoch, known.epoch)
            if headers:
                size = sum(each.size_bytes for each in headers)
                log.replica.append_placed([data[:size]], headers, self.clock.now_ms())
                self.cluster.invariants.placed(self, headers, last_epoch)
        except InvalidBatchError:
            self._writing = None
            known.written()
            if self._connection is not None:
                self._connection.lose()
            self.turn()
            return
        except DiskFullError:
            self._is_full = True
            self._lose()
            return
        except StorageError:
            self._lose()
            return
        self._told_watermark, self._told_start = command.high_watermark, command.start
        if headers or log.earliest < command.start <= log.flushed_end:
            self._flush()
        else:
            self._written()

    def _written(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.written()
        self.turn()

    def _cut(self, command: Cut | Restart) -> bool:
        """In a thread: whether the log is in service after that."""
        is_cut = isinstance(command, Cut)
        if command.offset < (self.log.earliest if is_cut else self.log.end_offset):
            self._delete_copy()
            return False
        try:
            if isinstance(command, Cut):
                now_ms = self.clock.now_ms()
                self.log.replica.cut_to(command.offset, now_ms, is_forced=command.is_forced)
            else:
                self.log.replica.restart_at(command.offset)
        except LogOfflineError:
            return False
        except StorageError:
            return True  # the next fetch says it again
        return True

    def _was_cut(self, is_done: bool) -> None:
        self.cluster.invariants.was_cut(self)
        self._told_watermark = 0
        self.replica.cut()
        if self.log.is_closed:
            self.log = self._new_log()
        if not is_done:
            self._lose()
        self.turn()

    # -- leading ----------------------------------------------------------------------------------

    def serve(self, connection: Connection, fetch: ReplicaFetch) -> None:
        """Take a follower's fetch."""
        leading, log = self.replica.leading, self.log
        if leading is None or log.is_offline:
            self._refuse(connection, fetch)
            return
        life = self.replica.lives.get(fetch.broker_id)
        verdict = leading.judge(fetch, life, self.ends(), log.replica)
        if verdict is not None:
            self._answer(connection, fetch, verdict, b"")
            return
        answered_at = -inf
        if fetch.token > self._last_tokens.get(fetch.broker_id, -1):  # else it is doubled
            self._last_tokens[fetch.broker_id] = fetch.token
            answered_at = self._answered_at.pop(connection, -inf)
        leading.fetched(fetch, log.end_offset, self.now, answered_at)
        self._held.append(_Held(connection, fetch, self.now + _FETCH_WAIT))
        self._answer_held()
        self.turn()

    def _refuse(self, connection: Connection, fetch: ReplicaFetch) -> None:
        self._answer(connection, fetch, Refused(Code.NOT_LEADER_OR_FOLLOWER), b"")

    def _answer(
        self, connection: Connection, fetch: ReplicaFetch, answer: Any, data: bytes
    ) -> None:
        to = self.cluster.brokers[fetch.broker_id]
        if data and self.cluster.is_damaged():
            place = _checked(data, self.cluster.chance.randrange(len(data)))
            data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        connection.to_client(to.answered, fetch.token, answer, data)
        if fetch.token >= self._last_tokens.get(fetch.broker_id, -1):  # else it came once more
            self._answered_at[connection] = self.now
        if self.cluster.is_doubled("an answer"):
            late_us = self.cluster.late_us()
            self.cluster.world.at(late_us, to.process.run, to.answered, fetch.token, answer, data)

    def _answer_held(self) -> None:
        """Answer fetches for which there is something, or which have waited long enough."""
        held, self._held = self._held, []
        for each in held:
            leading, fetch = self.replica.leading, each.fetch
            if leading is None or leading.epoch != fetch.epoch or self.log.is_offline:
                self._refuse(each.connection, fetch)
                continue
            is_news = fetch.offset < self.log.end_offset
            is_news |= fetch.high_watermark < leading.high_watermark
            is_news |= fetch.earliest < self.log.earliest
            if is_news or self.now >= each.until:
                data = self._bytes(fetch.offset)
                self._answer(each.connection, fetch, leading.records(self.log.earliest), data)
            else:
                self._held.append(each)

    def _bytes(self, offset: int) -> bytes:
        log = self.log
        offset = max(offset, log.earliest)
        if offset >= log.end_offset:
            return b""
        with log.replica.read_appended(offset, _FETCH_BYTES, whole_first=True) as found:
            return bytes(self.files.pread(found.fileno(), found.length, found.position))

    def takes(self) -> bool:
        """Whether it takes a produce now."""
        leading = self.replica.leading
        return (
            leading is not None
            and self.replica.takes_appends
            and leading.has_enough
            and leading.is_confirmed(self.now, has_lease=self._has_lease())
        )

    def _has_lease(self) -> bool:
        session = self.session
        heard = (self.cluster.world.now_us - session._heard_us) / 1e6
        is_its = session.session_id == self.replica.life
        return is_its and heard < session.timeout_seconds * 2 / 3

    def end_for_readers(self) -> int | None:
        """What a reader who asks for the end is told; None: to ask again, or another broker."""
        leading = self.replica.leading
        if leading is None or not leading.is_end_known:
            return None
        is_confirmed = leading.is_confirmed(self.now, has_lease=self._has_lease())
        return int(self.log.high_watermark) if is_confirmed else None

    def shows(self, offset: int) -> bool:
        """Whether a reader who asks for an offset is answered."""
        leading, log = self.replica.leading, self.log
        if leading is None or log.is_offline or not log.earliest <= offset <= log.high_watermark:
            return False
        return leading.is_confirmed(self.now, has_lease=self._has_lease())

    def produce(self, batch: bytes, answer: Callable[[Code], None]) -> AppendedBatches | None:
        """Append what a producer sends; None where it wasn't.

        The answer comes once it is committed; that the producer is out of step, once it is certain
        that nobody else leads.
        """
        if not self.takes() or self.log.is_offline:
            answer(Code.NOT_LEADER_OR_FOLLOWER)
            return None
        log = self.log
        headers = check_batches(batch, BatchRules(1 << 20))
        last_epoch = log.replica.epoch_before(log.end_offset)
        try:
            done = check_and_append(log, headers, batch, self.clock.now_ms())
        except ProducerStateError:
            self._out_of_step.append(_OutOfStep(self.now, answer))
            self.turn()
            return None
        except StorageError as error:
            answer(Code.NOT_LEADER_OR_FOLLOWER)
            if not isinstance(error, DiskFullError):
                self._lose()
            return None
        if not done.is_duplicate:
            placed = {"base_offset": done.base_offset, "leader_epoch": log.leader_epoch}
            self.cluster.invariants.placed(self, [headers[0]._replace(**placed)], last_epoch)
        key = next(self._keys)
        self.answers[key] = answer
        self.awaiting.add(done.end_offset, key)
        self._flush()
        self._answer_held()
        return done

    def delete(self, offset: int) -> None:
        """Let the log begin later, as an administrator wants, or retention."""
        if self.takes() and not self.log.is_offline and offset <= self.log.high_watermark:
            invariants = self.cluster.invariants
            invariants.deleted_end = max(invariants.deleted_end, offset)
            self._in_thread(self._deleted, self._delete, offset)

    def _delete(self, offset: int) -> None:
        with suppress(StorageError, OffsetOutOfRangeError):
            self.log.delete_records(offset)

    def _deleted(self, _: None) -> None:
        self.cluster.invariants.flushed(self)
        self.turn()

    # -- the disk ---------------------------------------------------------------------------------

    def _flush(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._in_thread(self._flushed, self._flush_once)

    def _flush_once(self) -> bool:
        try:
            self.log.flush()
            start = self._told_start
            if self.replica.leading is None and self.log.earliest < start <= self.log.flushed_end:
                self.log.commit(min(self._told_watermark, int(self.log.flushed_end)))
                self.log.delete_records(start)
        except StorageError:
            return False
        return True

    def _flushed(self, is_done: bool) -> None:
        self._is_flushing = False
        self.cluster.invariants.flushed(self)
        if not is_done:
            self._lose()
            return
        if self.log.flushed_end < self.log.end_offset:
            self._flush()
        self._written()

    def _lose(self) -> None:
        """The log is out of service, or has no room: try again soon."""
        self.replica.lost()
        self.turn()
        self.process.at(int(_REOPEN * 1e6), self._reopen)

    def _reopen(self) -> None:
        self._in_thread(self._reopened, self._reopen_once)

    def _reopen_once(self) -> bool:
        if self._is_full and self.cluster.disks[self.broker_id].is_full:
            return False
        try:
            with suppress(FileExistsError):
                self.files.mkdir(self.log.directory)
            self.log.reopen(self.clock.now_ms())
        except (StorageError, OSError):
            return False
        return True

    def _reopened(self, is_done: bool) -> None:
        if self.log.is_closed:
            return  # it was deleted meanwhile
        if not is_done:
            self.process.at(int(_REOPEN * 1e6), self._reopen)
            return
        self._is_full = False
        self.cluster.invariants.opened(self)
        self.replica.opened(is_whole=True)
        self.turn()

    def _checkpoint(self) -> None:
        self.process.at(int(_CHECKPOINT * 1e6), self._checkpoint)
        watermark = int(self.log.high_watermark)
        if watermark != self._checkpointed:
            self._checkpointed = watermark
            self._in_thread(lambda none: None, self._write_checkpoint, watermark)

    def _write_checkpoint(self, watermark: int) -> None:
        path = os.path.join(self._root, _WATERMARKS_NAME)
        with suppress(StorageError, OSError):
            replace_whole(path, f"0\n1\n{TOPIC} 0 {watermark}\n".encode(), self.files)

    # -- an orderly stop --------------------------------------------------------------------------

    def leave(self) -> None:
        """As where a disk has no room: it takes itself out, and comes back."""
        self._lose()

    def stop(self) -> None:
        self.is_stopping = True
        self.replica.stopping(self.now)
        self.turn()


def lives_of(session: TreeSession, *, watch: bool = False) -> dict[int, int]:
    """The registered brokers, each with its session."""
    names = session.children(BROKER_IDS, watch=watch)
    paths = [f"{BROKER_IDS}/{name}" for name in names]
    found = zip(paths, names, session.get_all(paths), strict=True)
    return {
        parse_broker_id(path, name): as_life(node.owner)
        for path, name, node in found
        if node is not None
    }


def _checked(data: bytes, place: int) -> int:
    """The place or, in a batch's leader epoch, which no checksum covers, one behind that."""
    begin = 0
    while (header := next_in(data, begin)) is not None and begin + header.size_bytes <= place:
        begin += header.size_bytes
    is_epoch = header is not None and place - begin in LEADER_EPOCH
    return place + len(LEADER_EPOCH) if is_epoch else place
