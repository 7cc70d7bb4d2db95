"""Plans the next load: from where the last one ended to where the logs end now.

Ranges are cut where the day, or the hour, of the broker's append time changes. The broker knows
that from its time index; no message is read for it.
"""

import logging
from collections.abc import Iterable, Iterator

from hermes.client import AppendTime, SimpleConsumer
from hermes.protocol import AppendTimesRequest
from hermes.spark.broker_metadata import EMPTY
from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.load.plans import (
    PERIOD_MS,
    Granularity,
    LoadCheckpoint,
    Piece,
    Plan,
    period_at,
)
from hermes.spark.offsets import Offsets, TopicPartition
from hermes.spark.options import SourceOptions
from hermes.spark.planning import check_available, selected_partitions
from hermes.spark.reading import data_lost

_log = logging.getLogger(__name__)


def make_plan(
    cluster: ClusterReader,
    last: LoadCheckpoint,
    options: SourceOptions,
    partition_by: Granularity,
    now_ms: int,
) -> Plan | None:
    """Plan the next load; None when there is nothing new. Messages of unknown time go by `now_ms`.

    Raises DataLossError: messages are gone that were never loaded, and that is to be an error;
    HermesError: a topic is unknown, or a broker can't be asked, also after the retries.
    """
    start, end, counting = _ranges(cluster, last.offsets, options)
    pieces = tuple(
        piece
        for each in sorted(end)
        if end[each] > start[each]
        for piece in _cut(cluster, each, start[each], end[each], partition_by, now_ms)
    )
    if not pieces:
        return None
    counting &= {each.partition.topic for each in pieces}
    return Plan(last.number + 1, now_ms, partition_by, pieces, {**last.offsets, **end}, counting)


def _ranges(
    cluster: ClusterReader, loaded: Offsets, options: SourceOptions
) -> tuple[Offsets, Offsets, frozenset[str]]:
    """Where each partition starts and ends; and the topics whose offsets count messages."""
    brokers = cluster.brokers()
    wanted = [each for each in loaded if options.selection.includes(each)]
    away = [each for each in wanted if cluster.leader(each) not in brokers]
    for each in away:
        _log.warning("%s: its broker is unavailable; the load continues without it", each)
    partitions = selected_partitions(cluster, options.selection, wanted)
    gone = []
    unlisted = sorted(set(wanted) - set(away) - set(partitions))
    held = cluster.bounds([*partitions, *unlisted])
    for each in unlisted:
        if held[each] is not None:
            partitions.append(each)  # its broker has just started, and is registering
        else:
            if loaded[each]:
                _report_loss(f"{each} was loaded up to offset {loaded[each]}, and is gone", options)
            gone.append(each)
    end = {each: (held[each] or EMPTY).latest for each in partitions}
    start = {}
    for each in partitions:
        earliest = (held[each] or EMPTY).earliest
        start[each] = loaded.get(each, earliest)
        if start[each] > end[each]:
            _report_loss(
                f"{each} was loaded up to offset {start[each]}, but ends at {end[each]}: was the "
                "topic re-created?",
                options,
            )
            start[each] = earliest
    # Should it come back, it will be another one.
    nothing = dict.fromkeys(gone, 0)
    counting = {each.topic for each in partitions if (held[each] or EMPTY).counts_messages}
    starts = {**check_available(cluster, start, options), **nothing}
    return starts, {**end, **nothing}, frozenset(counting)


def _report_loss(text: str, options: SourceOptions) -> None:
    advice = "; set failOnDataLoss to false to load what is left, or load into another directory"
    data_lost(_log, text, options.fail_on_data_loss, advice)


def _cut(
    cluster: ClusterReader,
    partition: TopicPartition,
    start: int,
    end: int,
    partition_by: Granularity,
    now_ms: int,
) -> list[Piece]:
    interval_ms = PERIOD_MS[partition_by]

    def ask(consumer: SimpleConsumer) -> list[AppendTime]:
        if not consumer.supports(AppendTimesRequest.TYPE):
            return [AppendTime(start, end, None)]
        return consumer.append_times(partition.topic, partition.partition, start, end, interval_ms)

    times = cluster.ask_leader(partition, ask)
    return list(_pieces(partition, times, partition_by, now_ms))


def _pieces(
    partition: TopicPartition,
    times: Iterable[AppendTime],
    partition_by: Granularity,
    now_ms: int,
) -> Iterator[Piece]:
    piece: Piece | None = None
    for stretch in times:
        time_ms = now_ms if stretch.time_ms is None else stretch.time_ms
        period = period_at(time_ms, partition_by)
        if piece is not None and piece.period == period:
            piece = piece._replace(end=stretch.end_offset)
            continue
        if piece is not None:
            yield piece
        piece = Piece(partition, stretch.start_offset, stretch.end_offset, period)
    if piece is not None:
        yield piece
