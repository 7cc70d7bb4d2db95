"""What a log has of mirrors' sources, taken over by a copy of it: wherever that ends, the same."""

import random
from errno import ENOSPC
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_logs import TOPIC_ID, batches_in, open_kafka_log, sent
from memory_files import MemoryFiles
from storage_fakes import FaultyFiles
from storage_logs import NOW_MS, settings

from hermes.errors import DiskFullError, StorageError
from hermes.protocol import SourceFlags
from hermes.protocol.record_batches import BatchRules, check_batches, placed
from hermes.storage import FileLayer, Log, SourceRange, ToldSources
from hermes.storage.kafka_format import KAFKA

V = int(SourceFlags.VERBATIM)
#: Where each source begins.
BEGIN = 100
PLACE = "/data/numbers-0"


class Step(NamedTuple):
    """What a leader appends: batches of some messages each.

    `skipped`: how much of the source isn't there before them; then there is one batch only.
    """

    source: str
    skipped: int
    sizes: tuple[int, ...]


SOURCES = st.sampled_from(["a", "b", ""])
SIZES = st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple)
STEPS = st.one_of(
    st.builds(Step, SOURCES, st.just(0), SIZES),
    st.builds(Step, SOURCES, st.integers(1, 5), st.tuples(st.integers(1, 3))),
)


class Leader:
    """A log, and what its positions were at the end of each batch."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.positions: dict[str, int] = {}
        self.history: dict[int, dict[str, int]] = {log.end_offset: {}}

    def append(self, step: Step) -> None:
        data = b"".join(sent([b"x"] * size) for size in step.sizes)
        headers, log = check_batches(data, BatchRules(1 << 30)), self.log
        end, count = log.end_offset, sum(step.sizes)
        buffers = placed(data, headers, end, log.leader_epoch)
        if step.source:
            begin = self.positions.get(step.source, BEGIN)
            flags = 0 if step.skipped else V
            span = SourceRange(step.source, begin, begin + step.skipped + count, flags)
            log.sources.append_range(span, buffers, len(data), count, NOW_MS)
        else:
            log.append(buffers, len(data), count, NOW_MS)
        for size in step.sizes:
            end += size
            if step.source:
                begin = self.positions.get(step.source, BEGIN)
                self.positions[step.source] = begin + step.skipped + size
            self.history[end] = dict(self.positions)


def opened(files: FileLayer | None = None) -> Log:
    """A log with other copies, in memory."""
    layer = files or MemoryFiles(PLACE)
    log = Log("numbers", 0, PLACE, settings(400), layer, log_format=KAFKA, topic_id=TOPIC_ID)
    log.open(clean=False, now_ms=NOW_MS)
    log.is_sole_copy = False
    return log


def positions(log: Log) -> dict[str, int]:
    _, told = log.sources.positions(0, 99)
    return {each.source: each.position for each in told if each.position >= 0}


def known(log: Log) -> dict[str, int]:
    """Of the sources that it has something of."""
    return {name: position for name, position in positions(log).items() if position > BEGIN}


def fetch(leader: Log, follower: Log, *, spans: int = 99, batches: int = 1) -> None:
    """Copy so many batches, or as far as what is told of sources reaches."""
    offset = follower.end_offset
    is_empty = follower.earliest == offset
    told = leader.sources.told(offset, spans, with_positions=is_empty)
    if told is not None and not follower.sources.takes_ranges:
        follower.sources.begin()
    with leader.replica.read_appended(offset, 1 << 20) as part:
        data = leader.files.pread(part.fileno(), part.length, part.position)
    found = batches_in(data)[:batches]
    if told is not None:
        found = [each for each in found if each[0].next_offset <= told.until]
    assert found
    size = sum(len(each) for _, each in found)
    follower.replica.append_placed([data[:size]], [each for each, _ in found], NOW_MS, told)


def led(steps: list[Step]) -> Leader:
    leader = Leader(opened())
    leader.log.sources.begin()
    for each in steps:
        leader.append(each)
    return leader


def caught_up(leader: Leader) -> Log:
    follower = opened()
    while follower.end_offset < leader.log.end_offset:
        fetch(leader.log, follower)
    return follower


@given(st.lists(STEPS, min_size=1, max_size=12), st.integers(1, 3), st.integers(1, 3))
def test_a_copy_knows_at_each_of_its_ends_what_the_leader_knew_there(
    steps: list[Step], spans: int, batches: int
) -> None:
    leader, follower = led(steps), opened()
    while follower.end_offset < leader.log.end_offset:
        fetch(leader.log, follower, spans=spans, batches=batches)
        assert known(follower) == leader.history[follower.end_offset]
        if follower.end_offset % 2:
            follower.flush()
    assert follower.sources.spans(0, 999) == leader.log.sources.spans(0, 999)


@given(st.lists(STEPS, min_size=1, max_size=12), st.data())
def test_a_copy_that_is_cut_knows_what_the_leader_knew_there(
    steps: list[Step], data: st.DataObject
) -> None:
    leader = led(steps)
    follower = caught_up(leader)
    follower.flush()
    end = data.draw(st.sampled_from(sorted(leader.history)))

    follower.replica.cut_to(end, NOW_MS)

    assert known(follower) == leader.history[end]
    while follower.end_offset < leader.log.end_offset:
        fetch(leader.log, follower)
    assert positions(follower) == leader.positions


@given(st.lists(STEPS, min_size=1, max_size=12), st.data())
def test_a_copy_that_begins_later_knows_what_was_before(
    steps: list[Step], data: st.DataObject
) -> None:
    leader = led(steps)
    leader.log.flush()
    leader.log.commit(leader.log.end_offset)
    start = data.draw(st.sampled_from(sorted(leader.history)))
    follower = opened()
    follower.replica.restart_at(start)
    leader.log.delete_records(start)

    told = leader.log.sources.told(start, 99, with_positions=True)
    assert told is not None
    follower.sources.begin()
    follower.replica.note_sources(told, NOW_MS)

    assert known(follower) == leader.history[start]
    while follower.end_offset < leader.log.end_offset:
        fetch(leader.log, follower)
    assert positions(follower) == leader.positions


@given(st.lists(STEPS, min_size=2, max_size=12), st.randoms(use_true_random=False))
def test_a_loss_of_power_leaves_a_copy_that_knows_what_it_has(
    steps: list[Step], chance: random.Random
) -> None:
    files = MemoryFiles(PLACE)
    leader, follower = led(steps), opened(files)
    while follower.end_offset < leader.log.end_offset:
        fetch(leader.log, follower)
        if chance.random() < 0.5:
            follower.flush()

    after = opened(files.after_power_loss(chance))

    assert after.end_offset >= follower.flushed_end
    assert known(after) == leader.history[after.end_offset]


def test_what_is_not_told_is_not_copied() -> None:
    leader, follower = led([Step("a", 1, (1,))] * 3), opened()
    fetch(leader.log, follower, spans=2, batches=3)
    assert follower.end_offset == 2


def test_a_disk_without_room_takes_neither(tmp_path: Path) -> None:
    leader = led([Step("a", 0, (2,)), Step("a", 0, (1,))])
    files = FaultyFiles(None, ENOSPC, only=("pwrite", "pwritev"), path_part=".log")
    follower, _ = open_kafka_log(tmp_path / "numbers-0", files)
    fetch(leader.log, follower)
    files.fail_at = files.counted
    with pytest.raises(DiskFullError):
        fetch(leader.log, follower)
    assert positions(follower) == leader.history[2]
    fetch(leader.log, follower)
    assert positions(follower) == leader.positions


def test_a_log_that_is_not_ready_takes_nothing() -> None:
    leader, follower = led([Step("a", 0, (1,))]), opened()
    told = leader.log.sources.told(0, 9, with_positions=True)
    assert told is not None
    with pytest.raises(StorageError, match="not ready"):
        follower.replica.note_sources(told, NOW_MS)
    assert leader.log.sources.told(0, 9, with_positions=False) == ToldSources(
        [told.positions[0]._replace(position=-1)], told.spans, 1
    )
    assert follower.sources.told(0, 9, with_positions=True) is None
