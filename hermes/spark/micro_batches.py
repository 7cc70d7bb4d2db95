"""`spark.readStream.format("hermes")`: offsets for Spark's micro-batches.

Spark keeps the offsets: it writes the end of a batch to its checkpoint before the batch runs, and
after a crash asks for the same (start, end) again. So an end that was handed out is final. What
this object remembers is only for convenience; a new one, made from the checkpoint, does as well.

The checkpoint holds only ends: to repeat the first batch Spark asks for the initial offsets again,
which may have changed by then. So the first batch is empty, and its end says where the stream
begins. Initial offsets bear a mark that the end lacks: so a batch is known as the first one by its
start alone, also if Spark doesn't plan it, as when the sink says that it has it. Likewise for
partitions, which come and go: a new one enters an `end` at its earliest offset, where it has
nothing to read; only the next batch reads it. Thus the start of every range is in the checkpoint,
and a repeated batch reads exactly what it read before. With `failOnDataLoss=false` a partition that
was re-created enters in the same way, and one that is gone enters at 0: its `end` lies before its
start, and nothing is read between these. A partition whose broker is unavailable keeps its offset,
and is read from there when the broker is back.
"""

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from hermes.errors import ConfigError, OffsetOutOfRangeBrokerError
from hermes.spark.broker_metadata import EMPTY, Bounds
from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.offsets import Offsets, TopicPartition, nested, unnested
from hermes.spark.options import SourceOptions
from hermes.spark.plain_errors import plain_errors
from hermes.spark.planning import (
    capped,
    check_available,
    check_planned,
    plan,
    present_partitions,
    selected_partitions,
    starting_offsets,
)
from hermes.spark.reading import ReadTask, data_lost, read_ranges

_log = logging.getLogger(__name__)


# The mark of initial offsets: no topic has such a name.
_INITIAL: Final[dict[str, Any]] = {"(initial)": {}}


class HermesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, rows: pa.Schema | None = None) -> None:
        self._options = options
        self._rows = rows
        self._cluster: ClusterReader | None = None
        self._target: Offsets | None = None
        self._seen: Offsets = {}
        self._planned_at = -math.inf

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cluster": None}

    # -- offsets, beside the driver -------------------------------------------------------------

    @plain_errors
    def initialOffset(self) -> dict[str, Any]:
        """Where a query starts whose checkpoint has no completed batch; marked as such."""
        cluster = self._connected()
        partitions = selected_partitions(cluster, self._options.selection)
        return nested(starting_offsets(cluster, partitions, self._options)) | _INITIAL

    def getDefaultReadLimit(self) -> ReadLimit:
        limit, most = self._options.max_bytes, self._options.limits.most
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    @plain_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if _is_initial(start):
            return {topic: ends for topic, ends in start.items() if topic not in _INITIAL}
        begun = unnested(start)
        held, gone = self._available(begun)
        available = {each: bounds.latest for each, bounds in held.items()}
        self._seen = available
        ends: Offsets = dict.fromkeys(gone, 0)
        entering = []  # these start with nothing, see the module's description
        for each, offset in available.items():
            if each not in begun:
                if self._target is None or each in self._target:
                    entering.append(each)
            elif offset < begun[each]:
                self._report_loss(each, begun[each], offset)
                entering.append(each)
            else:
                ends[each] = max(begun[each], self._end_before_target(each, offset))
        if self._waits_for_more(begun, ends, held):
            return start
        if isinstance(limit, ReadMaxBytes):
            ends |= self._capped(begun, ends, limit.max_bytes)
        elif isinstance(limit, ReadMaxRows):
            ends |= self._capped(begun, ends, limit.max_rows)
        return nested({**begun, **ends, **{each: held[each].earliest for each in entering}})

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return nested(self._seen) or None

    @plain_errors
    def prepareForTriggerAvailableNow(self) -> None:
        cluster = self._connected()
        partitions = present_partitions(cluster, self._options.selection)
        held = cluster.bounds(partitions, may_lack=True)
        self._target = {each: (bounds or EMPTY).latest for each, bounds in held.items()}

    @plain_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if _is_initial(start):
            return []
        cluster = self._connected()
        first, last = unnested(start), unnested(end)
        ends = {each: last[each] for each in first if last.get(each, 0) > first[each]}
        ends = check_planned(cluster, ends, self._options)
        begun = check_available(cluster, {each: first[each] for each in ends}, self._options)
        return list(plan(cluster, begun, ends, self._options))

    @plain_errors
    def commit(self, end: dict[str, Any]) -> None:
        """Publish, for monitoring, that everything before `end` was processed."""
        if self._options.group is not None:
            self._connected().publish(self._options.group, unnested(end))

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    # -- messages, in the workers ---------------------------------------------------------------

    @plain_errors
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ReadTask):
            return iter(())
        return read_ranges(partition.ranges, self._options, self._rows)

    # -- within ---------------------------------------------------------------------------------

    def _connected(self) -> ClusterReader:
        if self._cluster is None:
            options = self._options
            cluster = ClusterReader(options.address, options.retries)
            if options.group is not None:
                try:
                    cluster.check_group(options.group)
                except BaseException:
                    cluster.close()
                    raise
            self._cluster = cluster
        return self._cluster

    def _available(
        self, begun: Offsets
    ) -> tuple[dict[TopicPartition, Bounds], list[TopicPartition]]:
        """What those hold that exist and whose brokers answer; those of `begun` that are gone."""
        cluster = self._connected()
        brokers = cluster.brokers()
        selection = self._options.selection
        # Of a topic that grows, one broker knows before another: not a reason to end.
        listed = selected_partitions(cluster, selection, begun, whole=False)
        wanted = [each for each in begun if selection.includes(each)]
        missing = {each for each in wanted if cluster.leader(each) in brokers}.difference(listed)
        found = cluster.bounds([*listed, *sorted(missing)], may_lack=True)
        gone = []
        for each in wanted:
            if each not in found:
                _log.warning("%s: its broker is unavailable; the stream continues without it", each)
            elif found[each] is None:
                self._report_loss(each, begun[each], None)
                gone.append(each)
        return {each: held for each, held in found.items() if held is not None}, gone

    def _end_before_target(self, partition: TopicPartition, end: int) -> int:
        if self._target is None:
            return end
        target = self._target.get(partition, 0)
        if not 0 < target < end:
            return min(target, end)
        # In a topic that was re-created meanwhile a message may start elsewhere.
        try:
            boundary = self._connected().boundary(partition, target)
        except OffsetOutOfRangeBrokerError:
            return target  # everything before it is gone, and there is nothing to read
        return target if boundary is None else boundary

    def _waits_for_more(
        self, begun: Offsets, ends: Offsets, held: Mapping[TopicPartition, Bounds]
    ) -> bool:
        limits = self._options.limits
        if limits.most is None and limits.fewest is None:
            return False
        for each, bounds in held.items():
            if bounds.latest and not bounds.counts_messages:
                name = "maxOffsetsPerTrigger" if limits.most else "minOffsetsPerTrigger"
                text = f"offsets of topic {each.topic!r} are bytes: use maxBytesPerTrigger"
                raise ConfigError(name, text)
        now = time.monotonic()
        new = sum(max(0, end - begun[each]) for each, end in ends.items())
        is_late = now - self._planned_at > limits.delay_seconds
        if self._target is None and not is_late and new < (limits.fewest or 0):
            return True
        self._planned_at = now
        return False

    def _capped(self, begun: Offsets, ends: Offsets, max_bytes: int) -> Offsets:
        """Bring ends nearer, counting from the first messages that retention has left."""
        cluster = self._connected()
        starts = {each: begun[each] for each, end in ends.items() if end > begun[each]}
        starts = check_available(cluster, starts, self._options)
        ends = {each: max(start, ends[each]) for each, start in starts.items()}
        return capped(cluster, starts, ends, max_bytes)

    def _report_loss(self, partition: TopicPartition, wanted: int, end: int | None) -> None:
        now = "the partition is gone" if end is None else f"it ends at {end}"
        text = f"{partition}: offset {wanted} was wanted, but {now}: was the topic re-created?"
        fail = self._options.fail_on_data_loss
        if fail or wanted:  # else it was reported when it went
            advice = " Start the query with a new checkpoint, or set failOnDataLoss to false"
            data_lost(_log, text, fail, advice)


def _is_initial(start: dict[str, Any]) -> bool:
    """Whether a batch that starts there is the first one, which is empty."""
    return start.keys() >= _INITIAL.keys()
