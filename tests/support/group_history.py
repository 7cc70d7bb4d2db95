"""What the members of a group did, by their own accounts, held against what a group promises.

Times are of the machine's monotonic clock, in ns, and so comparable among processes. A member's
account is made of lines:

    joined
    take PLACE TIME              it owns the partition; said a little after it took it
    give PLACE TIME              it is about to give the partition up
    lost TIME                    it heard that its session has expired
    PLACE OFFSET PAYLOAD TIME    it has a message in its hands

and of deeds, which its tormentor notes before it sends a signal. Who is killed can't say what it
has just taken, so whoever watches ZooKeeper may add what is registered.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = [
    "HandOut",
    "History",
    "disorder",
    "late_hand_outs",
    "repetitions",
    "unreleased_takes",
]

# A listener hears of a partition when it has been taken: by then its first messages may be out.
_SLACK_NS = 500_000_000

# So long after a hand-out the offset is committed: 100 ms by the members' settings, and what a
# rebalance on a busy machine takes, since the same thread does both.
_COMMITTED_NS = 2_500_000_000


class HandOut(NamedTuple):
    """A message that a member handed out."""

    place: str
    offset: int
    value: int
    time_ns: int


@dataclass
class History:
    """One member's account, and what was done to it.

    Attributes:
        lines: as above, in order; it may still grow.
        deeds: "kill", "stop", "resume" or "leave", and when.
        registered: what it was seen to own in ZooKeeper, and when that was first seen.
    """

    lines: list[str] = field(default_factory=list)
    deeds: list[tuple[str, int]] = field(default_factory=list)
    registered: list[tuple[str, int]] = field(default_factory=list)

    def messages(self) -> list[HandOut]:
        """What it handed out, in order."""
        split = [line.split() for line in list(self.lines)]
        return [HandOut(each[0], *map(int, each[1:])) for each in split if len(each) == 4]

    def takes(self) -> list[tuple[str, int]]:
        """When it got which partition.

        Who is stopped between taking and saying so says it when it is resumed, perhaps long after
        its session has ended: then ZooKeeper's account tells when it was.
        """
        return [(place, self._taken_at(place, said)) for place, said in self._changes("take")]

    def gives(self) -> list[tuple[str, int]]:
        """When it was about to give up which partition."""
        return self._changes("give")

    def own_takes(self, place: str) -> list[int]:
        """When it took a partition, by its own account or by ZooKeeper's."""
        return sorted(when for where, when in self.takes() + self.registered if where == place)

    def losses(self) -> list[int]:
        """When it heard that its session had expired."""
        split = [line.split() for line in list(self.lines)]
        return [int(each[1]) for each in split if each[0] == "lost"]

    def breaks(self) -> list[int]:
        """When it was killed, stopped, or heard of its session's end."""
        done = [when for deed, when in self.deeds if deed in ("kill", "stop")]
        return sorted(done + self.losses())

    def _taken_at(self, place: str, said: int) -> int:
        stopped = 0
        for deed, when in self.deeds:
            if deed == "stop":
                stopped = when
            elif deed == "resume" and when <= said <= when + _SLACK_NS:
                for where, seen in self.registered:
                    if where == place and stopped - _SLACK_NS <= seen <= when:
                        return seen
        return said

    def _changes(self, kind: str) -> list[tuple[str, int]]:
        split = [line.split() for line in list(self.lines)]
        return [(each[1], int(each[2])) for each in split if each[0] == kind]


def late_hand_outs(members: Sequence[History]) -> dict[tuple[int, str, int], int]:
    """Count messages that members handed out after another had taken the partition.

    Returns:
        How many, by member, partition, and the time at which the other took it.
    """
    takes = _takes_by_place(members)
    counts: defaultdict[tuple[int, str, int], int] = defaultdict(int)
    for number, member in enumerate(members):
        own_takes = {place: member.own_takes(place) for place in takes}
        for each in member.messages():
            own = [t for t in own_takes[each.place] if t < each.time_ns + _SLACK_NS]
            others = [t for t, who in takes[each.place] if who != number and t < each.time_ns]
            if others and max(others) > max(own, default=0):
                counts[number, each.place, max(others)] += 1
    return counts


def unreleased_takes(members: Sequence[History]) -> list[str]:
    """Find partitions that were taken while another was registered as their owner.

    Before a partition is taken, the owner before must have given it up, or its session must have
    ended: it was killed, stopped, or heard of that itself, if only later.
    """
    gives = [_by_place(member.gives()) for member in members]
    found = []
    for place, takes in _takes_by_place(members).items():
        for (t1, before), (t2, after) in itertools.pairwise(sorted(takes)):
            given = any(t1 <= t <= t2 for t in gives[before][place])
            ended = any(t1 - _SLACK_NS <= t <= t2 + _COMMITTED_NS for t in members[before].breaks())
            if before != after and not given and not ended:
                found.append(f"{place}: taken by {after} at {t2}, {before} has had it since {t1}")
    return found


def disorder(members: Sequence[History]) -> list[str]:
    """Find messages that came out of order.

    Within a partition, what was sent later stands behind; and a member goes back only when it has
    taken the partition anew.
    """
    found = []
    values: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for number, member in enumerate(members):
        own_takes: dict[str, list[int]] = {}
        last: dict[str, HandOut] = {}
        for each in member.messages():
            before = last.get(each.place)
            last[each.place] = each
            if values[each.place].setdefault(each.offset, each.value) != each.value:
                found.append(f"two messages at offset {each.offset} of {each.place}")
            if before is None or each.offset > before.offset:
                continue
            takes = own_takes.setdefault(each.place, member.own_takes(each.place))
            if not any(before.time_ns - _SLACK_NS < t < each.time_ns + _SLACK_NS for t in takes):
                found.append(f"{number} went back from {before} to {each}")
    for place, by_offset in values.items():
        ordered = [by_offset[offset] for offset in sorted(by_offset)]
        if ordered != sorted(ordered):
            found.append(f"{place} is not in the order of sending")
    return found


def repetitions(members: Sequence[History]) -> tuple[Counter[str], list[str]]:
    """Count messages that came more than once, and find those that no kill explains.

    A message may come again when whoever had it first was killed or stopped, or its session
    expired, so soon afterwards that its offset may not have been committed; or when it comes
    again from such a member, as the one that was on its way.

    Returns:
        How many times messages came again, by what explains it; and what nothing explains.
    """
    causes: Counter[str] = Counter()
    unexplained = []
    for (place, offset), owners in sorted(_deliveries(members).items()):
        for (first_time, first), (time, second) in itertools.pairwise(sorted(owners)):
            cause = _why_again(members, place, (first_time, first), (time, second))
            if cause is None:
                unexplained.append(f"{place} {offset}: {first} at {first_time}, {second} at {time}")
            else:
                causes[cause] += 1
    return causes, unexplained


def _why_again(
    members: Sequence[History], place: str, first: tuple[int, int], second: tuple[int, int]
) -> str | None:
    (first_time, earlier), (time, later) = first, second
    deeds = [("expiry", when) for when in members[earlier].losses()] + members[earlier].deeds
    for deed, when in sorted(deeds, key=lambda each: each[1]):
        soon = first_time - _SLACK_NS <= when <= first_time + _COMMITTED_NS
        # What it had in its hands when it was stopped, it says when it is resumed.
        if deed != "leave" and soon and when <= time + _SLACK_NS:
            return "stop" if deed == "resume" else deed
    taken = max(
        (t for where, t in members[later].takes() if where == place and t < time), default=0
    )
    if any(taken < when < time for when in members[later].breaks()):
        return "late"
    return None


def _deliveries(members: Sequence[History]) -> dict[tuple[str, int], list[tuple[int, int]]]:
    found: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for number, member in enumerate(members):
        for each in member.messages():
            found[each.place, each.offset].append((each.time_ns, number))
    return found


def _takes_by_place(members: Sequence[History]) -> dict[str, list[tuple[int, int]]]:
    takes: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, member in enumerate(members):
        for place, when in member.takes():
            takes[place].append((when, number))
    return takes


def _by_place(changes: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for place, when in changes:
        found[place].append(when)
    return found
