"""What the members of a group of consumers were told, and say that they have."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from offset_nodes import offset_node_path
from world import World

if TYPE_CHECKING:
    from members import Member

__all__ = ["CLOCKS", "REBALANCE_MS", "SESSION_MS", "Ledger", "Place"]

#: After how long a member that isn't heard of is dead, and how long a rebalance waits for it.
SESSION_MS, REBALANCE_MS = 3_000, 5_000

#: A coordinator's clock may be so much faster than the world's.
CLOCKS = 0.9


class Place(NamedTuple):
    """A partition of a topic, by its name and its id."""

    name: str
    topic_id: Any
    number: int


class Ledger:
    """What the members of one group were told, and say that they have.

    Attributes:
        members: those that were ever there.
        commits, takes: how many there were.
    """

    def __init__(self, world: World, group: str) -> None:
        self.world = world
        self.group = group
        self.members: list[Member] = []
        self.commits = self.takes = 0
        self._committed: dict[tuple[Any, int], int] = {}

    def take(self, member: "Member", place: Place) -> None:
        """A member reads a partition from now on. Nobody else may who is in the group for sure.

        That is, by the word of the same coordinator: one that was replaced may not know it for as
        long as coordination doesn't answer it, and goes on to answer heartbeats meanwhile. What is
        committed there is refused, and so its members hear of it. And a member that was told to
        give partitions up may be out before it has said that it did: its time for that begins when
        the coordinator first tells it, and the first answers may be lost.
        """
        self.takes += 1
        world = self.world
        if world.is_traced:
            world.note(member, f"takes {place.name}-{place.number}")
        for other in self.members:
            silent_ms = (world.now_us - other.heard_us) / 1000
            if other is member or place not in other.owned or not other.is_alive:
                continue
            if other.heard_by != member.heard_by or other.is_revoking:
                continue
            if silent_ms < min(SESSION_MS, REBALANCE_MS) * CLOCKS:
                world.fail(
                    f"{self.group}: {member} takes {place.name}-{place.number}, which {other} has, "
                    f"and was in the group {silent_ms:.0f} ms ago"
                )

    def floor(self, place: Place) -> int:
        """What was committed for certain by now: who asks from now on is told no less."""
        return self._committed.get(place[1:], 0)

    def committed(self, place: Place, offset: int, floor: int) -> None:
        """A commit was taken, which was sent when `floor` was committed already."""
        self.commits += 1
        if offset < floor:
            self.world.fail(
                f"{self.group}: {offset} was committed of {place.name}-{place.number} after {floor}"
            )
        key = place[1:]
        self._committed[key] = max(self._committed.get(key, 0), offset)

    def check_stored(self, nodes: Mapping[str, bytes]) -> None:
        """Hold what stands in coordination, below the group's node, against what was committed."""
        known = {each for member in self.members for each in member.places}
        for place in sorted(known):
            floor = self.floor(place)
            node = nodes.get(offset_node_path(self.group, place.name, place.number))
            stored = -1 if node is None else json.loads(node)["offset"]
            if floor and stored < floor:
                self.world.fail(
                    f"{self.group}: {stored} is stored of {place.name}-{place.number}, after "
                    f"{floor} was committed"
                )

    def told(self, place: Place, offset: int, floor: int) -> None:
        if offset < floor:
            self.world.fail(
                f"{self.group}: {place.name}-{place.number} is told to be at {offset}; committed "
                f"was {floor}"
            )
