"""What must hold of a replicated partition, after each step: spec in docs, checks here.

It stands outside of all brokers and keeps what each log has, as batches (base offset, the next one,
epoch, CRC), told by whoever appends and cuts, and read from the files whenever a log is opened.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from world import BrokenError, World

from hermes.coordination.replicas import replicas_path
from hermes.protocol import NOBODY
from hermes.protocol.record_batches import BatchHeader, next_in
from hermes.replication.following import Cut
from hermes.replication.state import PartitionState, parse_replicas

if TYPE_CHECKING:
    from replicas import ReplicaBroker

__all__ = ["Batch", "Copy", "Invariants"]


class Batch(NamedTuple):
    base: int
    end: int
    epoch: int
    crc: int

    @classmethod
    def of(cls, header: BatchHeader) -> "Batch":
        return cls(header.base_offset, header.next_offset, header.leader_epoch, header.crc)


class Copy:
    """What one broker's disk has.

    Attributes:
        batches: in order.
        flushed: up to where they survive everything but the loss of the disk.
        is_lost: whether the disk is another one, and nobody was told yet.
    """

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.start = self.flushed = 0
        self.is_lost = self.is_being_cut = False


class Invariants:
    """Attributes:
    shown: what was ever shown by anybody, in order.
    deleted_end: up to where that may be gone, since somebody wanted it.
    lost: what was shown and may be gone, since an operator had a copy lead that lacks it.
    is_settling: whether such a copy was chosen and doesn't lead yet: what it lacks by then is lost.
    elections, cuts, changes: how many there were.
    """

    def __init__(self, world: World, nodes: Mapping[str, Any], topic: str) -> None:
        self.world = world
        self.copies: dict[int, Copy] = {}
        self.shown: list[Batch] = []
        self.lost: set[Batch] = set()
        self.is_settling = False
        self.deleted_end = 0
        self.elections = self.cut_count = self.change_count = 0
        self.state: PartitionState | None = None
        self.state_since_us = 0
        self._nodes = nodes
        self._path = replicas_path(topic)
        self._value = b""
        self._history: dict[tuple[int, int], Batch] = {}
        self._before: dict[tuple[int, int], tuple[int, int]] = {}
        self._leaders: dict[int, tuple[Any, ...]] = {}
        self._is_dirty = True
        world.after_each.append(self.check)

    @property
    def is_excused(self) -> bool:
        """Whether an operator has ever had anybody lead, whatever that one lacked."""
        return self.state is not None and self.state.unclean_epoch >= 0

    @property
    def shown_end(self) -> int:
        return self.shown[-1].end if self.shown else 0

    # -- what happens -----------------------------------------------------------------------------

    def opened(self, broker: "ReplicaBroker") -> None:
        """A log was opened, or opened again: what it has is what its files have."""
        copy = self.copies[broker.broker_id]
        found = batches_of(broker)
        kept = [each for each in copy.batches if each.end <= copy.flushed]
        if not copy.is_lost:
            kept = [each for each in kept if each.end > broker.log.earliest]
            if found[: len(kept)] != kept:
                self.world.breaks(
                    f"storage: {broker.process} has {found[: len(kept)]} where {kept} was flushed"
                )
        copy.batches, copy.start, copy.is_being_cut = found, broker.log.earliest, False
        copy.flushed = int(broker.log.flushed_end)
        self._is_dirty = True

    def placed(
        self, broker: "ReplicaBroker", headers: Sequence[BatchHeader], last_epoch: int
    ) -> None:
        """Batches were appended."""
        copy = self.copies[broker.broker_id]
        for header in headers:
            batch = Batch.of(header)
            key = batch.epoch, batch.base
            known = self._history.setdefault(key, batch)
            if known != batch:
                self.world.breaks(f"two batches of one name: {known} and {batch}")
            if copy.batches:
                last = copy.batches[-1]
                before = self._before.setdefault(key, (last.epoch, last.base))
                if before != (last.epoch, last.base):
                    self.world.breaks(f"{batch} comes after {before}, and after {last}")
            copy.batches.append(batch)

    def flushed(self, broker: "ReplicaBroker") -> None:
        """More of a log is on its disk, maybe: it is before anybody is called."""
        copy = self.copies[broker.broker_id]
        if copy.is_being_cut:
            return
        copy.flushed = max(copy.flushed, int(broker.log.flushed_end))
        if broker.log.earliest > copy.start:
            copy.start = broker.log.earliest
            copy.batches = [each for each in copy.batches if each.end > copy.start]

    def cuts(self, broker: "ReplicaBroker", command: Any) -> None:
        """A cut begins: from now on nothing beyond it is certain."""
        self.cut_count += 1
        copy = self.copies[broker.broker_id]
        copy.is_being_cut = True
        self.world.note(broker.process, f"{command} of {copy.batches[-3:]}")
        if isinstance(command, Cut):
            copy.flushed = min(copy.flushed, command.offset)
        else:
            copy.flushed = copy.start = command.offset
            copy.batches = []
        self._is_dirty = True

    def was_cut(self, broker: "ReplicaBroker") -> None:
        if not broker.log.is_offline:
            self.opened(broker)

    def leads(self, broker: "ReplicaBroker", epoch: int) -> None:
        """An epoch belongs to one life of one broker, and one opening of its log."""
        self.world.note(broker.process, f"leads epoch {epoch} from {broker.log.end_offset}")
        me = broker.broker_id, broker.replica.life, broker.process.number, broker.log.openings
        if self._leaders.setdefault(epoch, me) != me:
            self.world.breaks(f"epoch {epoch} is led by {self._leaders[epoch]} and {me}")
        self.elections += 1
        if self.is_settling and self.state is not None and epoch >= self.state.unclean_epoch:
            self.is_settling = False
            self._excuse(self.copies[broker.broker_id])

    def shows(self, broker: "ReplicaBroker") -> None:
        """A broker shows more: what it shows was shown before, or is from now on."""
        self.flushed(broker)
        copy, mark = self.copies[broker.broker_id], int(broker.log.high_watermark)
        visible = [each for each in copy.batches if each.end <= mark]
        self.world.note(broker.process, f"shows up to {mark}")
        if self._has_not_heard(broker, copy):
            self.lost.update(each for each in visible if each not in self.shown)
            return
        for each in visible:
            if each.base >= self.shown_end:
                self.shown.append(each)
                self.lost.discard(each)
                self._check_disks(broker, each)
                self._is_dirty = True
        if self.shown_end < mark:
            self.world.breaks(f"{broker.process} shows up to {mark} without having that")
        if not self._is_prefix(copy, visible):
            self.world.breaks(f"{broker.process} shows {visible[-5:]}, not what was shown")

    def _has_not_heard(self, broker: "ReplicaBroker", copy: Copy) -> bool:
        """Whether it has what was before an unclean election, and goes on with that."""
        unclean_epoch = -1 if self.state is None else self.state.unclean_epoch
        if broker.replica.leading is not None:
            return broker.replica.leading.epoch < unclean_epoch
        return bool(copy.batches) and copy.batches[-1].epoch < unclean_epoch

    def _check_disks(self, broker: "ReplicaBroker", batch: Batch) -> None:
        """What is shown first is on as many disks as it was to be, or was."""
        leading, state = broker.replica.leading, self.state
        if leading is None or state is None or leading.state.replicas != state.replicas:
            return  # who had it may have no copy any more
        least = min(leading.settings.min_insync, len(state.had))
        having = [
            number
            for number, copy in self.copies.items()
            if copy.is_lost
            or (copy.flushed >= batch.end and batch in copy.batches)
            or copy.start >= batch.end  # deleted, before an unclean election of who hadn't heard
        ]
        if len(having) < least:
            self.world.breaks(f"{broker.process} shows {batch}, which only {having} have")

    def _is_prefix(self, copy: Copy, visible: list[Batch]) -> bool:
        shown = self._shown_from(copy.start)
        return visible == shown[: len(visible)]

    def _shown_from(self, start: int) -> list[Batch]:
        return self.shown if start == 0 else [each for each in self.shown if each.end > start]

    def changes(self, broker: "ReplicaBroker", change: Any) -> None:
        self.world.note(broker.process, f"wants to {change.what}, {sorted(change.isr)}")

    def changed(
        self, broker: "ReplicaBroker", change: Any, state: PartitionState, *, is_done: bool
    ) -> None:
        self.change_count += is_done
        if change.what == "forfeit" and is_done:
            self.copies[broker.broker_id].is_lost = False
            self._is_dirty = True
        self.world.note(broker.process, f"{change.what} ended, {is_done}: {_text(state)}")

    def deletes(self, broker: "ReplicaBroker") -> None:
        """A copy is deleted, on purpose."""
        self.world.note(broker.process, "deletes its copy")
        copy = self.copies[broker.broker_id]
        copy.batches, copy.start, copy.flushed = [], 0, 0
        self._is_dirty = True

    def lost_disk(self, broker_id: int) -> None:
        copy = self.copies[broker_id]
        copy.batches, copy.start, copy.flushed, copy.is_lost = [], 0, 0, True

    def acknowledged(self, broker: "ReplicaBroker", batch: Batch) -> None:
        """Somebody is told that a batch is kept."""
        if batch not in self.shown[-50:] and batch not in self.shown and batch not in self.lost:
            self.world.breaks(f"{broker.process} acknowledges {batch}, which was not shown")

    # -- what must hold ---------------------------------------------------------------------------

    def check(self) -> None:
        """After each event."""
        node = self._nodes.get(self._path)
        value = b"" if node is None else node.data or b""
        if value is not self._value:
            self._value = value
            self._learn(value)
        if self._is_dirty and self.state is not None and not self.is_settling:
            self._is_dirty = False
            self._check_isr(self.state)

    def _learn(self, value: bytes) -> None:
        if not value:
            return
        state = parse_replicas(self._path, value).partitions[0]  # refuses what must not be
        assert state is not None
        before = self.state
        if before is not None and state.epoch < before.epoch:
            self.world.breaks(f"the epoch falls: {before} to {state}")
        if before is None or (state.leader, state.epoch) != (before.leader, before.epoch):
            self.state_since_us = self.world.now_us
        if before is not None and state.unclean_epoch > before.unclean_epoch:
            self.is_settling = True
        if state != before:
            self.world.note("node", _text(state))
        self.state = state
        self._is_dirty = True

    def _excuse(self, copy: Copy) -> None:
        """A copy leads that was chosen: what it has not on its disk is lost, and nothing else."""
        flushed = [each for each in copy.batches if each.end <= copy.flushed]
        kept = sum(each.end <= copy.start for each in self.shown)
        for shown, own in zip(self.shown[kept:], flushed, strict=False):
            if shown != own:
                break
            kept += 1
        self.lost.update(self.shown[kept:])
        del self.shown[kept:]

    def _check_isr(self, state: PartitionState) -> None:
        """Each in-sync replica has on its disk what was ever shown."""
        end = self.shown_end
        for each in sorted(state.isr):
            copy = self.copies[each]
            if copy.is_lost:
                continue  # it knows, and leads nobody
            if copy.start > self.deleted_end:
                self.world.breaks(
                    f"broker {each} is in sync from {copy.start} on: {self.deleted_end} is deleted"
                )
            shown = self._shown_from(copy.start)
            if copy.flushed < end or copy.batches[: len(shown)] != shown:
                self.world.breaks(
                    f"broker {each} is in sync with {copy.flushed} on its disk of {end} shown: "
                    f"{copy.batches[-4:]}, not {shown[-4:]}"
                )


def _text(state: PartitionState) -> str:
    leader = "nobody" if state.leader == NOBODY else f"{state.leader} ({state.life:x})"
    return f"epoch {state.epoch}, led by {leader}, in sync {sorted(state.isr)} of {state.replicas}"


def batches_of(broker: "ReplicaBroker") -> list[Batch]:
    """Read all that a broker's log has."""
    log, found = broker.log, []
    offset = log.earliest
    while offset < log.end_offset:
        with log.replica.read_appended(offset, 1 << 20) as part:
            if not part.length:
                raise BrokenError(f"{broker.process}: nothing at {offset} of {broker.ends()}")
            data = broker.files.pread(part.fileno(), part.length, part.position)
        position = 0
        while (header := next_in(data, position)) is not None:
            found.append(Batch.of(header))
            position += header.size_bytes
            offset = header.next_offset
        if not position:
            break
    return found
