"""When ranges of a log were appended, as far as the time indexes know, without reading the log.

The answer is a sequence of *runs*: stretches of the log with one append time each, rounded down to
a multiple of an interval. The bytes between two entries of an index were appended at the later
one's time. Unknown is the time of:

- segments that Kafka wrote, or whose index is gone, and the bytes after the last entry;
- gaps: what a gap entry or damaged entries speak of. Its time lies between those of the good
  entries around it, so it is known after all where both are the same when rounded.

That last rule also bounds the work: the walk jumps from each run's first entry to its last one, and
costs the logarithm of a run's length for each run.

Blocks on the disk, a little; for worker threads.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from hermes.protocol import AppendRun
from hermes.storage.index_entries import IndexEntry, IndexReader
from hermes.storage.segment import LogView

#: How many runs are found at once: 64 KiB on the wire.
MAX_RUNS = 4096
#: How many segments are looked at at once.
MAX_SEGMENTS = 1024

_TIME, _END = 0, 1


def believed_ms(time_ms: int, now_ms: int, bound_ms: int) -> int:
    """Believe no time in the future: `bound_ms` is the latest that it can have been."""
    return time_ms if time_ms <= now_ms else bound_ms


def append_runs(
    view: LogView,
    start: int,
    end: int,
    interval_ms: int,
    max_runs: int,
    open_index: Callable[[int], AbstractContextManager[IndexReader]],
) -> list[AppendRun]:
    """Find when a range of a log was appended.

    Args:
        start: the range's first offset, from the earliest to the high watermark.
        end: the offset after its last byte, up to the high watermark.
        interval_ms: what times are rounded down to multiples of, >= 1.
        max_runs: how many runs to find at most, >= 1.
        open_index: opens the time index of the segment at a place in the view.

    Returns:
        Runs without holes, whose neighbours differ in time. The last ends at `end`, or earlier when
        there are more runs; it is never empty unless the range is.

    Raises:
        OSError: something can't be opened now.
        SegmentRetiredError: a segment was deleted meanwhile.
    """
    runs: list[AppendRun] = []
    first = view.position_of(start)
    for position in range(first, min(first + MAX_SEGMENTS, len(view.bases))):
        if start >= end:
            break
        base, stop = view.bases[position], view.visible_end_of(position)
        with open_index(position) as reader:
            for run in _runs_of_segment(reader, base, start, stop, interval_ms):
                start = min(run.end_offset, end)
                if runs and runs[-1].time_ms == run.time_ms:
                    runs.pop()
                elif len(runs) == max_runs:
                    return runs
                runs.append(AppendRun(start, run.time_ms))
                if start == end:
                    return runs
    return runs


def _runs_of_segment(
    reader: IndexReader, base_offset: int, start: int, stop: int, interval_ms: int
) -> Iterator[AppendRun]:
    """Yield the runs of one segment, up to the end of its visible part; neighbours may be alike."""
    before = reader.last_not_above(_END, start)
    position = start
    while position < stop:
        following = reader.good_at_or_after(before[0] + 1 if before else 0)
        if following is None:
            yield AppendRun(stop, None)
            return
        time_ms = _time_before(before, following, interval_ms)
        if time_ms is None:
            before = following
        else:
            before = reader.last_not_above(_TIME, time_ms + interval_ms - 1, following[0])
            before = before or following
        if before[1].end_offset > position:
            position = min(before[1].end_offset, stop)
            yield AppendRun(position, time_ms)


def _time_before(
    before: tuple[int, IndexEntry] | None, following: tuple[int, IndexEntry], interval_ms: int
) -> int | None:
    number, entry = following
    time_ms = entry.time_ms - entry.time_ms % interval_ms
    expected = 0 if before is None else before[0] + 1
    if number == expected and not entry.is_gap:
        return time_ms
    if before is not None and before[1].time_ms >= time_ms:
        return time_ms
    return None
