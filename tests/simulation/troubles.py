"""What befalls machines, disks, the network and coordination while a schedule runs, by chance.

How often each kind comes is drawn for each seed, from not at all to several times a second: where
everything fails all the time nothing gets far enough to go wrong.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from coordination import Coordination
from disks import Disk
from machines import Machine
from network import Network
from world import World

#: How often each kind comes to the whole world in a second, at a rate of 1.
_USUAL: dict[str, float] = {
    "stop": 0.06,
    "kill": 0.10,
    "power": 0.15,
    "wipe": 0.02,
    "pause": 0.20,
    "cut": 0.10,
    "one-way cut": 0.10,
    "cut from coordination": 0.15,
    "expire": 0.10,
    "slow disk": 0.10,
    "full disk": 0.06,
    "failing sync": 0.06,
    "clock": 0.05,
}

_WILDNESS = (0.0, 0.1, 0.3, 1.0, 2.0, 4.0)


@dataclass
class Rates:
    """How often what fails, as a seed has it.

    Attributes:
        wildness: 0 for a quiet world; 1 as usual; more for a wild one.
        of: how often each kind of trouble comes, in a second.
        lost, doubled, late: of messages.
        unanswered, lagging: of coordination's calls, and reads.
        drift: by how much clocks go wrong.
        kinds: those that may come at all.
    """

    wildness: float = 0.0
    of: dict[str, float] = field(default_factory=dict)
    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.01
    unanswered: float = 0.0
    lagging: float = 0.0
    drift: float = 0.0

    @classmethod
    def drawn(cls, world: World, kinds: Sequence[str] = tuple(_USUAL)) -> "Rates":
        chance = world.child("rates")
        wildness = chance.choice(_WILDNESS)
        # Half of the kinds don't come at all: what comes from two of them is clearer without more.
        of = {
            kind: _USUAL[kind] * wildness * chance.expovariate(1.0)
            for kind in kinds
            if chance.random() < 0.5
        }
        part = min(wildness, 2.0)
        return cls(
            wildness,
            of,
            lost=chance.choice((0.0, 0.002, 0.01)) * part,
            doubled=chance.choice((0.0, 0.01, 0.05)) * part,
            late=chance.choice((0.005, 0.03, 0.2)),
            unanswered=chance.choice((0.0, 0.005, 0.03)) * part,
            lagging=chance.choice((0.0, 0.0, 0.2, 0.6)),
            drift=chance.choice((0.0, 0.001, 0.1)),
        )


class Troubles:
    """Brings them, until `stop`; then all is well again, soon.

    Args:
        restart: starts what lives on a machine again; called outside of any process.
        stop: has what lives on a machine stop by itself, and start again.
        on_wiped: told of a machine before it starts with an empty disk.
        may_wipe: whether what is on a machine's disk is elsewhere, too; else it is only killed.
    """

    def __init__(
        self,
        world: World,
        rates: Rates,
        network: Network,
        coordination: Coordination,
        disks: dict[str, Disk],
        restart: Callable[[Machine], None],
        on_wiped: Callable[[Machine], None] = lambda machine: None,
        stop: Callable[[Machine], None] = lambda machine: None,
        may_wipe: Callable[[Machine], bool] = lambda machine: False,
    ) -> None:
        self._world = world
        self._rates = rates
        self._network = network
        self._coordination = coordination
        self._disks = disks
        self._restart = restart
        self._on_wiped = on_wiped
        self._stop = stop
        self._may_wipe = may_wipe
        self._chance = world.child("troubles")
        self._is_stopped = False
        self._undo: dict[int, Callable[[], None]] = {}  # what still lasts
        self._numbers = 0

    def start(self) -> None:
        for kind, rate in self._rates.of.items():
            if rate > 0:
                self._plan(kind, rate)

    def stop(self) -> None:
        """Let everything be well: cuts heal, who is down starts, who sleeps wakes."""
        self._is_stopped = True
        for undo in list(self._undo.values()):
            undo()
        self._undo.clear()

    def _plan(self, kind: str, rate: float) -> None:
        self._world.at(int(self._chance.expovariate(rate) * 1e6), self._come, kind, rate)

    def _come(self, kind: str, rate: float) -> None:
        if self._is_stopped:
            return
        self._plan(kind, rate)
        disk = self._chance.choice(list(self._disks.values()))
        lasts_us = int(1e6 * self._chance.choice((0.05, 0.5, 3.0, 14.0)) * self._chance.random())
        number = self._chance.random()  # drawn in any case, so that others don't shift
        if self._world.fault(f"{kind} of {disk.machine}"):
            self._bring(kind, disk, lasts_us, number)

    def _bring(self, kind: str, disk: Disk, lasts_us: int, number: float) -> None:
        machine = disk.machine
        other = list(self._disks.values())[int(number * len(self._disks))].machine
        server = self._coordination.machine
        if kind in ("kill", "power", "wipe"):
            self._take_down(kind, disk, lasts_us)
        elif kind == "stop":
            self._stop(machine)
        elif kind == "pause":
            self._pause(machine, lasts_us)
        elif kind in ("cut", "one-way cut") and other is not machine:
            self._cut(machine, other, lasts_us)
            if kind == "cut":
                self._cut(other, machine, lasts_us)
        elif kind == "cut from coordination":
            self._cut(machine, server, lasts_us)
        elif kind == "expire":
            sessions = [
                each for each in self._coordination.sessions if each.process.machine is machine
            ]
            if sessions:
                sessions[int(number * len(sessions))].expire()
        elif kind == "slow disk":
            disk.slowness = 1 + 200 * number
            self._later(lasts_us, lambda: setattr(disk, "slowness", 1.0))
        elif kind == "full disk":
            disk.is_full = True
            self._later(lasts_us, lambda: setattr(disk, "is_full", False))
        elif kind == "failing sync":
            disk.failing += 1
            self._later(lasts_us, lambda: setattr(disk, "failing", 0))
        elif kind == "clock" and machine.process is not None:
            machine.wall_ms += int((number - 0.5) * 100_000)
            machine.process.clock.wall_ms = machine.wall_ms

    def _later(self, us: int, undo: Callable[[], None]) -> None:
        """Have something undone after so long, or when all is to be well."""
        self._numbers += 1
        number = self._numbers
        self._undo[number] = undo
        self._world.at(us, self._undo_one, number)

    def _undo_one(self, number: int) -> None:
        undo = self._undo.pop(number, None)
        if undo is not None:  # else all was undone meanwhile
            undo()

    def _take_down(self, kind: str, disk: Disk, lasts_us: int) -> None:
        machine = disk.machine
        if not machine.is_up:
            return
        if kind == "wipe" and not self._may_wipe(machine):
            kind = "kill"
        machine.kill()
        if kind == "power":
            disk.lose_power()
        elif kind == "wipe":
            disk.wipe()
            self._on_wiped(machine)
        self._later(lasts_us, lambda: self._restart(machine))

    def _pause(self, machine: Machine, lasts_us: int) -> None:
        process = machine.process
        if process is None or process.is_dead or process.is_paused:
            return
        process.pause()
        self._later(lasts_us, process.resume)

    def _cut(self, source: Machine, target: Machine, lasts_us: int) -> None:
        self._network.cut(source, target)
        self._later(lasts_us, lambda: self._network.heal(source, target))
