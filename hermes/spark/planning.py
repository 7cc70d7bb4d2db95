"""Which offsets a read covers, and how they are shared out to tasks. Reads no messages.

A partition's range [start, end) starts and ends at boundaries of messages. The high watermark is
one, and so is every offset that was planned before; the broker finds others, from its index.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final

from hermes.errors import ConfigError, OffsetOutOfRangeBrokerError, UnknownTopicError
from hermes.spark.broker_metadata import EMPTY, Bounds
from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.offsets import EARLIEST_OFFSET, LATEST_OFFSET, Offsets, TopicPartition
from hermes.spark.options import Selection, SourceOptions, StartingPoint
from hermes.spark.reading import ReadRange, ReadTask, data_lost

_log = logging.getLogger(__name__)

# Starting a task costs about as much as reading so much.
_TASK_BYTES: Final = 4 * 1024 * 1024


def selected_partitions(
    cluster: ClusterReader,
    selection: Selection,
    known: Collection[TopicPartition] = (),
    *,
    whole: bool = True,
) -> list[TopicPartition]:
    """The partitions that are read, as they exist now, sorted.

    A stream that has read `known` before decides what it means if these are missing; here that is
    no error. For `whole` see `ClusterReader.partitions`.

    Raises:
        RoutingError: brokers are missing from the list.
        UnknownTopicError: a topic that was named is on none of the brokers.
        ConfigError: a partition that was assigned doesn't exist.
    """
    found = _found(cluster, selection, whole=whole and not selection.partitions)
    known_topics = {each.topic for each in known}
    for topic, partitions in found.items():
        if not partitions and selection.pattern is None and topic not in known_topics:
            raise UnknownTopicError(_unknown_topic(cluster, topic))
    for each in selection.partitions:
        if each not in found[each.topic] and each not in known:
            names = ", ".join(other.name for other in found[each.topic])
            raise ConfigError("assign", f"there is no {each}; the topic has {names}")
    return _wanted(found, selection)


def present_partitions(cluster: ClusterReader, selection: Selection) -> list[TopicPartition]:
    """As `selected_partitions`; none at all is not an error."""
    return _wanted(_found(cluster, selection, whole=False), selection)


def _found(
    cluster: ClusterReader, selection: Selection, *, whole: bool
) -> dict[str, list[TopicPartition]]:
    if selection.pattern is not None:
        matches = selection.pattern.matches
        topics: Iterable[str] = [topic for topic in cluster.topics() if matches(topic)]
    else:
        topics = selection.topics or dict.fromkeys(each.topic for each in selection.partitions)
    return cluster.partitions(topics, whole=whole)


def _wanted(
    found: Mapping[str, list[TopicPartition]], selection: Selection
) -> list[TopicPartition]:
    existing = sorted(each for partitions in found.values() for each in partitions)
    if not selection.partitions:
        return existing
    return [each for each in existing if each in selection.partitions]


def starting_offsets(
    cluster: ClusterReader, partitions: Iterable[TopicPartition], options: SourceOptions
) -> Offsets:
    """Where reads start. ConfigError and DataLossError if the offsets given don't fit."""
    point, time_ms = options.starting, options.starting_ms
    return _offsets(cluster, partitions, point, time_ms, "startingOffsets", options)


def ending_offsets(
    cluster: ClusterReader, partitions: Iterable[TopicPartition], options: SourceOptions
) -> Offsets:
    """Where reads end; raises as `starting_offsets`."""
    point, time_ms = options.ending, options.ending_ms
    return _offsets(cluster, partitions, point, time_ms, "endingOffsets", options)


def _offsets(
    cluster: ClusterReader,
    partitions: Iterable[TopicPartition],
    point: StartingPoint,
    time_ms: int | Offsets | None,
    option: str,
    options: SourceOptions,
) -> Offsets:
    if isinstance(time_ms, Mapping):
        partitions = list(partitions)
        _check_complete(time_ms, partitions, f"{option}ByTimestamp")
        return {each: cluster.offset_at(each, time_ms[each]) for each in partitions}
    if time_ms is not None:
        return {each: cluster.offset_at(each, time_ms) for each in partitions}
    partitions = list(partitions)
    if not isinstance(point, str):
        _check_complete(point, partitions, option)
    bounds = cluster.bounds(partitions)
    held = {each: bounds[each] or EMPTY for each in partitions}
    if point == "earliest":
        return {each: held[each].earliest for each in partitions}
    if point == "latest":
        return {each: held[each].latest for each in partitions}
    assert not isinstance(point, str)
    return {
        each: _resolved(cluster, each, held[each], point[each], option, options)
        for each in partitions
    }


def _check_complete(given: Offsets, partitions: list[TopicPartition], option: str) -> None:
    if missing := [each for each in partitions if each not in given]:
        raise ConfigError(option, f"expected an offset for each partition; missing: {missing[0]}")
    if unread := sorted(set(given) - set(partitions)):
        raise ConfigError(option, f"{unread[0]} is not among the partitions that are read")


def _resolved(
    cluster: ClusterReader,
    partition: TopicPartition,
    held: Bounds,
    wanted: int,
    option: str,
    options: SourceOptions,
) -> int:
    if wanted == EARLIEST_OFFSET:
        return held.earliest
    if wanted == LATEST_OFFSET:
        return held.latest
    if not held.earliest <= wanted <= held.latest:
        _lost(partition, wanted, held, options, option)
        return min(max(wanted, held.earliest), held.latest)
    boundary = cluster.boundary(partition, wanted)
    if boundary not in (wanted, None):
        raise ConfigError(
            option,
            f"no message of {partition} starts at {wanted}; the last one before starts at "
            f"{boundary}",
        )
    return wanted


def check_available(
    cluster: ClusterReader, start: Mapping[TopicPartition, int], options: SourceOptions
) -> Offsets:
    """Compare where a read starts with what the partitions hold now.

    Where messages are gone, it starts at the earliest offset, unless that is a DataLossError.
    """
    checked = dict(start)
    bounds = cluster.bounds(start)
    for each, offset in start.items():
        held = bounds[each] or EMPTY
        if offset < held.earliest:
            _lost(each, offset, held, options)
            checked[each] = held.earliest
    return checked


def check_planned(
    cluster: ClusterReader, end: Mapping[TopicPartition, int], options: SourceOptions
) -> Offsets:
    """Compare where planned reads end with what the partitions hold now.

    Those of partitions that are gone or end before are left out, unless that is a DataLossError:
    these were re-created, and the next plan that notices it reads them from their beginning.
    """
    checked = {}
    bounds = cluster.bounds(end)
    for each, offset in end.items():
        held = bounds[each]
        if held is not None and held.latest >= offset:
            checked[each] = offset
            continue
        now = "the partition is gone" if held is None else f"it ends at {held.latest}"
        text = f"{each}: a read up to offset {offset} was planned, but {now} (re-created?)"
        advice = "; set failOnDataLoss to false to continue without it"
        data_lost(_log, text, options.fail_on_data_loss, advice)
    return checked


def _lost(
    partition: TopicPartition, wanted: int, held: Bounds, options: SourceOptions, option: str = ""
) -> None:
    text = (
        f"{option + ': ' if option else ''}{partition}: offset {wanted} was wanted, "
        f"{held.earliest} to {held.latest} are available"
    )
    data_lost(_log, text, options.fail_on_data_loss)


def capped(cluster: ClusterReader, start: Offsets, end: Offsets, max_bytes: int) -> Offsets:
    """Bring ends nearer until all ranges together have about this many bytes.

    Each partition gets a share by what it has, as in Kafka's connector, and at least one message.
    New ends are boundaries; brokers of Kafka 0.7 can't find any, and their ends stay.
    """
    total = sum(end[each] - start[each] for each in end)
    if total <= max_bytes:
        return dict(end)
    result = {}
    for each, last in end.items():
        share = max(1, (last - start[each]) * max_bytes // total)
        result[each] = boundary_after(cluster, each, start[each], share, last)
    return result


def boundary_after(
    cluster: ClusterReader, partition: TopicPartition, start: int, size: int, last: int
) -> int:
    """The last boundary within `size` bytes from `start`, but after the first message."""
    while start + size < last:
        try:
            boundary = cluster.boundary(partition, start + size)
        except OffsetOutOfRangeBrokerError:
            earliest = cluster.earliest(partition)
            if earliest <= start + size:
                return last  # it isn't retention: the partition ends earlier than was believed
            start = earliest  # retention was quicker; sharing out the tasks will report it
            continue
        if boundary is None:
            _log.warning("%s is on a broker of Kafka 0.7: no limit in bytes", partition)
            return last
        if boundary > start:
            return boundary
        size *= 2  # the first message is larger
    return last


def plan(
    cluster: ClusterReader, start: Offsets, end: Offsets, options: SourceOptions
) -> list[ReadTask]:
    """Make the tasks of a read, which cover everything once.

    Small ranges share a task, since starting one costs as much as reading some megabytes; but not
    so that there are fewer than `minPartitions`, for which ranges are split. There are never more
    tasks than `maxPartitions`.
    """
    sizes = {each: end[each] - start[each] for each in sorted(end) if end[each] > start[each]}
    least, most = options.min_partitions or 1, options.max_partitions
    counts = _pieces(sizes, least)
    if sizes:
        cluster.brokers()  # where they listen now
    ranges = []
    for each, count in counts.items():
        host, port = cluster.address(each)
        for first, last in pairwise(cuts(cluster, each, start[each], end[each], count)):
            ranges.append(ReadRange(each, host, port, first, last))
    size = _TASK_BYTES
    tasks = list(packed(ranges, size))
    while len(tasks) < min(least, len(ranges)):
        size //= 2
        tasks = list(packed(ranges, size))
    while most is not None and len(tasks) > most:
        size *= 2
        tasks = list(packed(ranges, size))
    return [ReadTask(each) for each in tasks]


def packed(ranges: Iterable[ReadRange], most_bytes: int) -> Iterator[tuple[ReadRange, ...]]:
    waiting: list[ReadRange] = []
    room = most_bytes
    for each in ranges:
        if waiting and each.size_bytes > room:
            yield tuple(waiting)
            waiting, room = [], most_bytes
        waiting.append(each)
        room -= each.size_bytes
    if waiting:
        yield tuple(waiting)


def _pieces(sizes: Mapping[TopicPartition, int], least: int) -> dict[TopicPartition, int]:
    total = sum(sizes.values())
    counts = {each: max(1, least * size // total) for each, size in sizes.items()}
    for _ in range(sum(counts.values()), least):
        largest = max(counts, key=lambda each: sizes[each] / counts[each], default=None)
        if largest is None:
            break
        counts[largest] += 1
    return counts


def cuts(
    cluster: ClusterReader, partition: TopicPartition, start: int, end: int, count: int
) -> list[int]:
    """Where a range can be cut into about equal pieces: boundaries in order, both ends included.

    There are fewer than `count` pieces when messages are larger than them; none when the range is
    empty. What retention has deleted is not cut: the task will report it.
    """
    if start >= end:
        return []
    found = {start, end}
    for number in range(1, count):
        try:
            boundary = cluster.boundary(partition, start + (end - start) * number // count)
        except OffsetOutOfRangeBrokerError:
            break
        if boundary is None:
            _log.warning("%s is on a broker of Kafka 0.7: it is not split", partition)
            break
        if start < boundary < end:
            found.add(boundary)
    return sorted(found)


_MANY: Final = 20


def _unknown_topic(cluster: ClusterReader, topic: str) -> str:
    topics = cluster.topics()
    names = ", ".join(topics[:_MANY]) + (", ..." if len(topics) > _MANY else "")
    text = f"there is no topic {topic!r} on the brokers; there are: {names or 'none'}"
    if cluster.are_listed:
        text += ". Only the brokers that are listed were asked"
    return text
