"""What a disk may hold after a power loss, rebuilt from a trace of a process's calls.

Nothing is taken for granted but what POSIX says: the bytes that a call wrote are on the disk once
an fdatasync or fsync of that file has returned that began after the call had returned, and a name
once an fsync of its directory has. Of all else the disk may hold any part: each sector of a file as
it stood at some time since, a length of any time since, and any of the changes of names, whatever
their order was.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from traced_files import Change, Node, Trace

__all__ = ["MODES", "build_state"]

#: What a disk writes as a whole, and what a kernel does.
_UNIT_BYTES = (512, 4096)

#: How many of so many unconfirmed changes have reached the disk.
_Reached = Callable[[random.Random, int], int]


def _none(chance: random.Random, count: int) -> int:
    return 0


def _all(chance: random.Random, count: int) -> int:
    return count


def _any(chance: random.Random, count: int) -> int:
    return chance.randint(0, count)


def _hardly(chance: random.Random, count: int) -> int:
    return count if chance.random() < 0.1 else 0


def _mostly(chance: random.Random, count: int) -> int:
    return 0 if chance.random() < 0.1 else count


#: How a state is chosen: what has reached the disk of a file's bytes, and of a directory's names.
MODES: dict[str, tuple[_Reached, _Reached]] = {
    "all lost": (_none, _none),
    "all kept": (_all, _all),
    "any lost": (_any, _any),
    "names lost": (_all, _none),
    "bytes lost": (_none, _all),
    "few kept": (_hardly, _hardly),
    "few lost": (_mostly, _mostly),
    "bytes torn": (_any, _all),
}


def build_state(
    trace: Trace,
    moment: int,
    mode: str,
    chance: random.Random,
    target: Path,
    *,
    believe_syncs: bool = True,
) -> None:
    """Write into a new directory what a disk may hold.

    Args:
        trace: what the process did.
        moment: when the power went.
        mode: one of `MODES`.
        chance: decides what the mode leaves open.
        target: the directory; it must not exist yet.
        believe_syncs: False for a disk that lies about them.
    """
    _Builder(moment, mode, chance, believe_syncs).write(trace.root, target)


class _Builder:
    def __init__(self, moment: int, mode: str, chance: random.Random, believe_syncs: bool) -> None:
        self._moment = moment
        self._bytes_reached, self._names_reached = MODES[mode]
        self._chance = chance
        self._believe_syncs = believe_syncs
        self._unit_bytes = chance.choice(_UNIT_BYTES)

    def write(self, node: Node, path: Path) -> None:
        if not node.is_directory:
            path.write_bytes(self._content(node))
            return
        path.mkdir()
        confirmed, pending = self._split(node)
        names: dict[str, Node | None] = {}
        for change in confirmed:
            names.update(change.names)
        for change in pending:
            if self._names_reached(self._chance, 1):
                names.update(change.names)
        for name, child in names.items():
            if child is not None:
                self.write(child, path / name)

    def _content(self, node: Node) -> bytes:
        confirmed, pending = self._split(node)
        content = bytearray()
        size = 0
        for change in confirmed:
            size = _new_size(change, size)
            _apply(content, change, change.data or b"", change.position)
        sizes = [size]
        for change in pending:
            sizes.append(_new_size(change, sizes[-1]))
        reached: defaultdict[int, int] = defaultdict(
            lambda: self._bytes_reached(self._chance, len(pending))
        )
        for number, change in enumerate(pending):
            for position, part in self._units(change):
                if number < reached[position // self._unit_bytes]:
                    _apply(content, change, part, position)
        size = sizes[self._bytes_reached(self._chance, len(pending))]
        return bytes(content[:size].ljust(size, b"\0"))

    def _split(self, node: Node) -> tuple[list[Change], list[Change]]:
        """The changes that a sync has confirmed, and the others that had begun."""
        syncs = [begin for begin, end in node.syncs if end < self._moment and self._believe_syncs]
        confirmed = max(syncs, default=-1)
        begun = [change for change in node.changes if change.begin < self._moment]
        return (
            [change for change in begun if change.end < confirmed],
            [change for change in begun if change.end >= confirmed],
        )

    def _units(self, change: Change) -> Iterator[tuple[int, bytes]]:
        """What a change wrote, cut where the disk's units end."""
        if change.data is None:
            yield change.position, b""
            return
        data, start = change.data, 0
        while start < len(data):
            end = start + self._unit_bytes - (change.position + start) % self._unit_bytes
            yield change.position + start, data[start:end]
            start = end


def _apply(content: bytearray, change: Change, data: bytes, position: int) -> None:
    if change.data is None:
        del content[change.position :]
        return
    content.extend(bytes(max(0, position + len(data) - len(content))))
    content[position : position + len(data)] = data


def _new_size(change: Change, size: int) -> int:
    if change.data is None:
        return change.position
    return max(size, change.position + len(change.data))
