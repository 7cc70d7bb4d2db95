"""Consumers of a Kafka group without a network: they do what real ones do, one step at a time."""

import struct
from dataclasses import dataclass, field
from itertools import count

from hermes.groups.group import Group, Stored
from hermes.groups.offsets import GroupRecord
from hermes.groups.values import (
    GroupSettings,
    Join,
    JoinResponse,
    Leaving,
    Protocol,
    State,
    Sync,
    SyncResponse,
)
from hermes.protocol.kafka_errors import Code

SESSION_MS, REBALANCE_MS = 10_000, 30_000


def subscription(*topics: str) -> bytes:
    """What a consumer says that wants topics."""
    named = b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics)
    return struct.pack(">hi", 1, len(topics)) + named + b"\xff\xff\xff\xff"


def protocols(*names: str, topics: tuple[str, ...] = ("clicks",)) -> tuple[Protocol, ...]:
    """The assignors of a consumer, best first."""
    return tuple(Protocol(name, subscription(*topics)) for name in names)


def a_join(member_id: str = "", instance_id: str | None = None, **changes: object) -> Join:
    """A JoinGroup of a usual consumer."""
    join = Join(
        member_id,
        instance_id,
        "client",
        "/127.0.0.1",
        "consumer",
        protocols("range"),
        SESSION_MS,
        REBALANCE_MS,
    )
    return join._replace(**changes)  # type: ignore[arg-type]


class SimulatedGroup:
    """A group, its clock, and a store that is as slow as a test wants.

    Attributes:
        group: the group.
        now: the time in seconds.
        disk: what is on it; None before there is anything.
        unstored: what is on its way there, and who wants to hear of it.
        stores_at_once: whether nothing waits for the disk.
    """

    def __init__(self, settings: GroupSettings | None = None) -> None:
        ids = count(1)
        self.now = 1000.0
        self.disk: GroupRecord | None = None
        self.unstored: list[tuple[GroupRecord, Stored]] = []
        self.stores_at_once = True
        bounds = settings or GroupSettings()
        self._begin = lambda **known: Group(
            "g", lambda: bounds, self._store, lambda: f"id{next(ids)}", **known
        )
        self.group = self._begin()

    def _store(self, group: Group, then: Stored) -> None:
        since = 0 if group.state is State.EMPTY else -1
        kind = group.protocol_type or ""
        self.unstored.append((GroupRecord(group.generation, kind, since, group.membership), then))
        if self.stores_at_once:
            self.finish_storing()

    def finish_storing(self, code: Code = Code.NONE) -> None:
        """Let the disk be done with the earliest that it has."""
        record, then = self.unstored.pop(0)
        if code is Code.NONE:
            self.disk = record
        then(code, self.now)

    def crash(self) -> None:
        """Be another coordinator that knows what is on the disk, and nothing else."""
        self.unstored.clear()
        if self.disk is None:
            self.group = self._begin()
            return
        generation, kind, _, membership = self.disk
        self.group = self._begin(generation=generation, protocol_type=kind or None)
        self.group.restore(membership, self.now)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, as the reactor's timer would."""
        end = self.now + seconds
        while (due := self.group.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.group.advance(self.now)
        self.now = end

    def join(self, join: Join) -> list[JoinResponse]:
        """Join; the answer is put into the list, at once or later."""
        answers: list[JoinResponse] = []
        self.group.join(join, self.now, answers.append)
        return answers

    def sync(self, sync: Sync) -> list[SyncResponse]:
        """Sync; the answer is put into the list, at once or later."""
        answers: list[SyncResponse] = []
        self.group.sync(sync, self.now, answers.append)
        return answers


@dataclass
class Consumer:
    """One consumer: `step` sends its next request, once the last one was answered.

    Attributes:
        world: its group.
        number: tells it from others.
        instance_id: of a static one.
        can: its assignors.
        member_id, generation: as it was told.
        owned: the partitions that it has, of 12; None while it has none for certain.
        answers: what waits for an answer, or was answered and not looked at.
        is_alive: whether it does anything.
    """

    world: SimulatedGroup
    number: int
    instance_id: str | None = None
    can: tuple[str, ...] = ("range", "roundrobin")
    member_id: str = ""
    generation: int = -1
    owned: bytes | None = None
    answers: list[JoinResponse] | list[SyncResponse] | None = None
    is_alive: bool = True
    has_joined: bool = False
    wants: dict[str, bytes] = field(default_factory=dict)

    @property
    def is_waiting(self) -> bool:
        return self.answers is not None and not self.answers

    def step(self) -> None:
        """Do what is next: look at an answer, join, sync, or send a heartbeat."""
        if not self.is_alive or self.is_waiting:
            return
        if self.answers:
            assert len(self.answers) == 1, "answered twice"
            answer, self.answers = self.answers[0], None
            if isinstance(answer, JoinResponse):
                self._joined(answer)
            else:
                self._synced(answer)
        elif not self.has_joined:
            join = a_join(self.member_id, self.instance_id, protocols=protocols(*self.can))
            self.answers = self.world.join(join)
        elif self.owned is None:
            sync = Sync(self.member_id, self.instance_id, self.generation, self.wants)
            self.answers = self.world.sync(sync)
        else:
            self._heard(
                self.world.group.heartbeat(
                    self.member_id, self.instance_id, self.generation, self.world.now
                )
            )

    def leave(self) -> None:
        """Leave the group in good order; an answer that is still to come isn't waited for."""
        self.world.group.leave([Leaving(self.member_id, self.instance_id)], self.world.now)
        self.die()

    def die(self) -> None:
        """Send nothing any more."""
        self.is_alive, self.owned, self.has_joined = False, None, False

    def restart(self) -> None:
        """Come back, knowing nothing."""
        self.is_alive, self.answers = True, None
        self._forget()

    def lose_connection(self) -> None:
        """Ask again what has not been answered."""
        if self.is_waiting:
            self.answers = None

    def _forget(self) -> None:
        self.member_id, self.generation = "", -1
        self.owned, self.has_joined = None, False

    def _joined(self, answer: JoinResponse) -> None:
        if answer.code is Code.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.code is Code.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation
            self.has_joined, self.owned = True, None
            self.wants = {}
            if answer.members and not answer.skip_assignment:
                ids = [each.member_id for each in answer.members]
                self.wants = {
                    each: bytes(range(12)[place :: len(ids)]) for place, each in enumerate(ids)
                }
        else:
            self._refused(answer.code)

    def _synced(self, answer: SyncResponse) -> None:
        if answer.code is Code.NONE:
            self.owned = answer.assignment
        else:
            self._refused(answer.code)

    def _heard(self, code: Code) -> None:
        if code is not Code.NONE:
            self._refused(code)

    def _refused(self, code: Code) -> None:
        if code is Code.REBALANCE_IN_PROGRESS:
            self.has_joined, self.owned = False, None
        else:
            # None is fenced, as each instance id is that of one only.
            assert code in (
                Code.UNKNOWN_MEMBER_ID,
                Code.ILLEGAL_GENERATION,
                Code.COORDINATOR_NOT_AVAILABLE,
                Code.NOT_COORDINATOR,
            ), code
            self._forget()


def settle(world: SimulatedGroup, consumers: list[Consumer], seconds: float = 400.0) -> None:
    """Let all do what they do, each once a second, until nothing has changed for a while."""
    for _ in range(int(seconds)):
        for each in consumers:
            each.step()
            each.step()
        while world.unstored:
            world.finish_storing()
        world.pass_time(1.0)
        alive = [each for each in consumers if each.is_alive]
        wanted = State.STABLE if alive else State.EMPTY
        has_settled = world.group.state is wanted and len(world.group.members) == len(alive)
        if has_settled and all(each.owned is not None for each in alive):
            return
