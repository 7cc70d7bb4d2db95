"""The network among machines: messages that are late, lost, doubled, or cut off in one direction.

`Network.send` is one message by itself. `Connection` is what TCP makes of them: in order, each
once, until the connection is lost, of which both ends hear, though not at once; what was under way
then may have arrived or not.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from machines import Machine, Process
from world import World

#: How long a message is under way in µs: at the least, usually at the most, and at times.
_LEAST_US, _MOST_US, _LATE_US = 50, 1_500, 400_000

#: How often a connection sends again what didn't get through.
_AGAIN_US = 100_000

_Message: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]


class Network:
    """Attributes:
    late, lost, doubled: how often a message is late, lost (a connection then), doubled.
    """

    def __init__(
        self, world: World, *, late: float = 0.02, lost: float = 0.0, doubled: float = 0.0
    ) -> None:
        self.world = world
        self.late, self.lost, self.doubled = late, lost, doubled
        self._chance = world.child("network")
        self._cuts: dict[tuple[str, str], int] = {}

    # -- cuts -----------------------------------------------------------------------------------

    def cut(self, source: Machine, target: Machine) -> None:
        """Let nothing through from one machine to another, until `heal` as often."""
        key = source.name, target.name
        self._cuts[key] = self._cuts.get(key, 0) + 1
        self.world.note("network", f"{source} is cut off to {target}")

    def heal(self, source: Machine, target: Machine) -> None:
        key = source.name, target.name
        left = self._cuts.pop(key, 0) - 1
        if left > 0:
            self._cuts[key] = left
        self.world.note("network", f"{source} reaches {target} again")

    def is_cut(self, source: Machine, target: Machine) -> bool:
        return (source.name, target.name) in self._cuts

    # -- single messages ------------------------------------------------------------------------

    def delay_us(self) -> int:
        chance = self._chance
        most = _LATE_US if chance.random() < self.late else _MOST_US
        return _LEAST_US + int(most * chance.random() ** 3)

    def send(
        self, source: Process, target: Machine, deliver: Callable[..., Any], *message: Any
    ) -> bool:
        """Have something called in whatever lives on a machine when the message arrives.

        Returns whether it is under way at all; nobody tells the sender.
        """
        if source.is_dead or self.is_cut(source.machine, target):
            return False
        if self._chance.random() < self.lost and self.world.fault("a message is lost"):
            return False
        copies = 1
        if self._chance.random() < self.doubled and self.world.fault("a message is doubled"):
            copies = 2
        for _ in range(copies):
            self.world.at(self.delay_us(), self._arrive, source, target, deliver, message)
        return True

    def _arrive(
        self, source: Process, target: Machine, deliver: Callable[..., Any], message: Any
    ) -> None:
        process = target.process
        if process is not None and not self.is_cut(source.machine, target):
            process.run(deliver, *message)

    def connect(
        self, source: Process, target: Machine, on_lost: Callable[[], None] = lambda: None
    ) -> "Connection | None":
        """Connect to what lives on a machine; None: refused, or not answered.

        That takes no time; what is sent on it does. `on_lost` is called in `source`.
        """
        if not target.is_up or self.is_cut(source.machine, target):
            return None
        if self.is_cut(target, source.machine):
            return None
        assert target.process is not None
        return Connection(self, source, target.process, on_lost)


class Connection:
    """A connection between two processes, which may be on one machine.

    Attributes:
        client, server: its ends.
        is_lost: whether it carries nothing any more.
        on_lost_at_server: called in `server` when it hears that it is lost.
    """

    def __init__(
        self, network: Network, client: Process, server: Process, on_lost: Callable[[], None]
    ) -> None:
        self.client, self.server = client, server
        self.is_lost = False
        self.on_lost_at_server: Callable[[], None] = lambda: None
        self._on_lost = on_lost
        self._network = network
        # By who gets it, and in order, whatever is under way.
        self._under_way: dict[Process, deque[_Message]] = {client: deque(), server: deque()}
        self._last_us = {client: 0, server: 0}
        client.on_end.append(self.lose)
        server.on_end.append(self.lose)

    def to_server(self, deliver: Callable[..., Any], *message: Any) -> None:
        self._send(self.client, self.server, deliver, message)

    def to_client(self, deliver: Callable[..., Any], *message: Any) -> None:
        self._send(self.server, self.client, deliver, message)

    def _send(
        self, source: Process, target: Process, deliver: Callable[..., Any], message: Any
    ) -> None:
        if self.is_lost or source.is_dead:
            return
        network, world = self._network, self._network.world
        due_us = max(world.now_us + network.delay_us(), self._last_us[target])
        self._last_us[target] = due_us
        is_lost = network._chance.random() < network.lost and world.fault("a connection is lost")
        if is_lost and network._chance.random() < 0.5:
            self.lose()
            return
        self._under_way[target].append((deliver, message))
        world.at(due_us - world.now_us, self._arrive, source, target)
        if is_lost:  # after this message has arrived, but before the answer has
            world.at(due_us - world.now_us, self.lose)

    def _arrive(self, source: Process, target: Process) -> None:
        """The next message has arrived, unless nothing gets through: then it is sent again."""
        if self.is_lost:
            return
        world = self._network.world
        if self._network.is_cut(source.machine, target.machine):
            world.at(_AGAIN_US, self._arrive, source, target)
            self._last_us[target] = max(self._last_us[target], world.now_us + _AGAIN_US)
            return
        deliver, message = self._under_way[target].popleft()
        target.run(deliver, *message)

    def lose(self) -> None:
        """Lose it: each end hears of it that can."""
        if self.is_lost:
            return
        self.is_lost = True
        network = self._network
        for end, told in ((self.client, self._on_lost), (self.server, self.on_lost_at_server)):
            network.world.at(network.delay_us(), end.run, told)
