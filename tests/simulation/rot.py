"""Bits that disks lose, or don't give back, of what is committed and another copy in sync has.

One fault more than copies are for would be another story: so what was lost and isn't found yet
comes back once no other copy in sync has it. Nothing is lost above what a broker has on its disk as
committed: after a kill that can't be told from a write that was cut short.
"""

from functools import lru_cache
from random import Random
from typing import NamedTuple, Protocol

from brokers import SimulatedBroker
from invariants_today import Partition
from memory_files import MemoryFiles
from world import World

from hermes.protocol.record_batches import HEADER_BYTES, is_intact, next_in
from hermes.replication.state import PartitionState
from hermes.storage.watermarks import Watermarks

_LOGS = "/data/logs"

#: How often something is lost, in a second: one of them.
_RATES = 3.0, 12.0

#: Of a batch what no checksum covers: its offset, and its leader's epoch.
LEADER_EPOCH = range(12, 16)
_UNCOVERED = (*range(8), *LEADER_EPOCH)


class Scene(Protocol):
    """The scene of copies."""

    world: World
    brokers: dict[int, SimulatedBroker]
    states: dict[Partition, PartitionState]
    directories: dict[Partition, str]

    def sound_copies(self, partition: Partition, but: int) -> set[int]:
        """The others in sync whose disks have all of a partition that must be kept."""

    def is_gone(self, partition: Partition) -> bool:
        """Whether the topic is deleted, or is to be."""


class _Batch(NamedTuple):
    path: str
    position: int
    data: bytes
    end_offset: int


class _Lost(NamedTuple):
    """Attributes:
    place, mask: which bits of which byte of the file; none: all of the batch can't be read.
    data: the batch, as it is now.
    """

    broker_id: int
    partition: Partition
    batch: _Batch
    place: int
    mask: int
    data: bytes


class Rot:
    def __init__(self, scene: Scene, chance: Random) -> None:
        self.is_over = False
        self._scene = scene
        self._chance = chance
        self._rate = chance.choice(_RATES)
        self._lost: list[_Lost] = []

    def plan(self) -> None:
        self._scene.world.at(int(self._chance.expovariate(self._rate) * 1e6), self._come)

    def _come(self) -> None:
        if self.is_over:
            return
        self.plan()
        scene, chance = self._scene, self._chance
        broker = chance.choice(list(scene.brokers.values()))
        partition = chance.choice(list(scene.states))
        which, where, mask = chance.random(), chance.random(), 1 << chance.randrange(10) & 0xFF
        if scene.world.fault(f"rot of {broker.machine}"):
            self._lose(broker, partition, which, where, mask)

    def _lose(
        self, broker: SimulatedBroker, partition: Partition, which: float, where: float, mask: int
    ) -> None:
        scene = self._scene
        is_wanted = broker.id in scene.states[partition].replicas and not scene.is_gone(partition)
        if not is_wanted or not scene.sound_copies(partition, but=broker.id):
            return
        files, directory = broker.disk.files, scene.directories[partition]
        mark = committed_end(broker, directory)
        batches = [each for each in _batches(files, directory) if each.end_offset <= mark]
        if not batches:
            return
        batch = batches[int(which * len(batches))]
        covered = [each for each in range(len(batch.data)) if each not in _UNCOVERED]
        place = batch.position + covered[int(where * len(covered))]
        if mask:
            files.rot(batch.path, place, mask)
        else:
            files.fail_reads(batch.path, batch.position, batch.position + len(batch.data))
        data = files.durable(batch.path)[batch.position :][: len(batch.data)]
        self._lost.append(_Lost(broker.id, partition, batch, place, mask, data))
        scene.world.note(broker.machine, f"{directory} loses what is at {batch.end_offset - 1}")

    def look(self, partition: Partition) -> None:
        """Give back what no other copy in sync has."""
        for lost in [each for each in self._lost if each.partition == partition]:
            if not self._is_there(lost):
                self._lost.remove(lost)
            elif not self._scene.sound_copies(partition, but=lost.broker_id):
                broker = self._scene.brokers[lost.broker_id]
                files, (path, start, data, _) = broker.disk.files, lost.batch
                files.rot(path, lost.place, lost.mask)
                files.allow_reads(path, start, start + len(data))
                self._lost.remove(lost)
                self._scene.world.note(broker.machine, f"{lost.batch.path} has its bits again")

    def _is_there(self, lost: _Lost) -> bool:
        files = self._scene.brokers[lost.broker_id].disk.files
        position = lost.batch.position
        try:
            return files.durable(lost.batch.path)[position:][: len(lost.data)] == lost.data
        except OSError:  # the segment is gone
            return False

    def intact_end(self, broker: SimulatedBroker, directory: str) -> int:
        """Up to where a disk has a log without any damage; -1 for no log at all."""
        end = -1
        for batch in _batches(broker.disk.files, directory):
            end = batch.end_offset
        return end


def committed_end(broker: SimulatedBroker, directory: str) -> int:
    """Up to where a broker has a partition on its disk as committed."""
    marks = Watermarks(_LOGS, broker.disk.files)
    marks.load()
    topic, _, number = directory.rpartition("-")
    return marks.committed(topic, int(number)) or 0


def _batches(files: MemoryFiles, directory: str) -> list[_Batch]:
    """What a disk has of a log, up to where something is damaged."""
    found: list[_Batch] = []
    try:
        names = sorted(files.listdir(f"{_LOGS}/{directory}"))
    except OSError:
        return found
    for name in names:
        if not name.endswith(".log"):
            continue
        path = f"{_LOGS}/{directory}/{name}"
        batches, is_whole = _walked(files.durable(path))
        found += [_Batch(path, *each) for each in batches]
        if not is_whole:
            return found
    return found


@lru_cache(maxsize=64)
def _walked(data: bytes) -> tuple[list[tuple[int, bytes, int]], bool]:
    """What a segment has, up to where something is damaged, and whether nothing is."""
    found, position = list[tuple[int, bytes, int]](), 0
    while position <= len(data) - HEADER_BYTES:
        header = next_in(data, position)
        batch = b"" if header is None else data[position : position + header.size_bytes]
        if header is None or not is_intact(batch):
            break
        found.append((position, batch, header.last_offset + 1))
        position += header.size_bytes
    return found, position == len(data)
