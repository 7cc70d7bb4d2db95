"""The audit of what Spark has: loads, micro-batches of streams, or any DataFrame of values.

Messages are counted in the workers, by window and by the process that stamped them; the driver adds
up and reports. A load or a micro-batch is a range of its own, its number, so that it counts once
however often it is counted or repeated. docs/audit.md tells what is compared.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StringType, StructType

from hermes.audit.counting import DEFAULT_WINDOW_MS, TierCounter
from hermes.audit.events import Tallies
from hermes.audit.publishing import Publisher
from hermes.audit.record_counting import count_one_by_one
from hermes.client import ProducerConfig
from hermes.errors import ClientError
from hermes.protocol import core, encode_message_set
from hermes.protocol.records import Record
from hermes.protocol.stamps import STAMP, STAMP_START, read_stamp
from hermes.spark.load.load_target import LoadTarget
from hermes.spark.load.loaded import read_loaded
from hermes.spark.starting import prepared
from hermes.spark.stores import open_store

# How long before its function is called the end of a micro-batch was chosen, at most.
_PLANNED_BEFORE_MS: Final = 30_000

# What records have beside their values, and by which they are told from messages of 0.7.
_OF_RECORDS: Final = ("offset", "next_offset", "key", "headers", "timestamp")

_TALLIES: Final = (
    StructType()
    .add("topic", StringType())
    .add("load", LongType())
    .add("window", LongType())
    .add("process", StringType())
    .add("count", LongType())
    .add("sum", StringType())
)


def tally_values(
    rows: DataFrame, *, window_ms: int = DEFAULT_WINDOW_MS
) -> dict[tuple[str, int], Tallies]:
    """Count messages as all tiers do: by topic, and number of the load; 0 without that column.

    Those of Kafka's format need the columns `key`, `headers` and `timestamp`, unless their values
    are stamped.
    """
    load = sf.col("load") if "load" in rows.columns else sf.lit(0).cast("long").alias("load")
    chosen = rows.select("topic", load, "value", *(n for n in _OF_RECORDS if n in rows.columns))

    def tally(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _tallied(batch, window_ms)

    found: dict[tuple[str, int], Tallies] = {}
    for row in chosen.mapInArrow(tally, _TALLIES).toLocalIterator():
        tallies = found.setdefault((row["topic"], row["load"]), {})
        key = row["window"], int(row["process"], 16)
        count, total = tallies.get(key, (0, 0))
        tallies[key] = count + row["count"], (total + int(row["sum"], 16)) % (1 << 64)
    return found


def without_stamps(rows: DataFrame, column: str = "value") -> DataFrame:
    """Take the stamps of audited producers off a column of values; others stay as they are.

    Runs inside the JVM.

    Example:
        clicks = without_stamps(spark.read.format("hermes").options(**options).load())
    """
    value = sf.col(column)
    host_bytes = sf.conv(sf.hex(sf.substring(value, 6, 1)), 16, 10).cast("int")
    is_stamped = (
        (sf.substring(value, 1, len(STAMP_START)) == sf.lit(STAMP_START))
        & (sf.substring(value, 7, 2) == sf.lit(bytes(2)))  # the time, below its limit
        & (sf.substring(value, 15, 8) != sf.lit(bytes(8)))  # the process
        & (sf.length(value) >= host_bytes + STAMP.size)
    )
    rest = sf.substring(value, host_bytes + STAMP.size + 1, sf.length(value))
    return prepared(rows).withColumn(column, sf.when(is_stamped, rest).otherwise(value))


def audit_loads(
    spark: SparkSession,
    target: str | Path,
    name: str,
    audit_to: ProducerConfig,
    *,
    loads: int | range | None = None,
    window_ms: int = DEFAULT_WINDOW_MS,
    storage: Mapping[str, str] | None = None,
) -> int:
    """Count loads that are committed, and report them as the tier `spark:NAME`.

    Example:
        result = load(spark, "/data/clicks", options)
        audit_loads(spark, "/data/clicks", "clicks", config, loads=result.number)

    Args:
        spark: the session to read with.
        target: the directory of the loads, or its address.
        name: what the audit calls it; the same for all loads of a target.
        audit_to: the cluster that the reports go to.
        loads: which; None for all. One that was reported before changes nothing.
        window_ms: how long windows are; the same in all tiers.
        storage: as for `load`.

    Returns:
        How many messages they have.

    Raises:
        LoadTargetError: the directory isn't a target of loads, or is damaged.
        ClientError: the reports could not be stored; call it again.
    """
    rows = read_loaded(spark, target, storage=storage)
    if isinstance(loads, int):
        rows = rows.where(sf.col("load") == loads)
    elif loads is not None:
        rows = rows.where(sf.col("load").between(loads.start, loads.stop - 1))
    found = tally_values(rows, window_ms=window_ms)
    opened = LoadTarget.find(open_store(target, spark, storage))
    assert opened is not None  # its rows were read
    planned: dict[int, int] = {}
    for number in {number for _, number in found}:
        plan = opened.plan(number)
        if plan is not None:  # everything that had been appended by then is in it, or in others
            planned[number] = plan.planned_ms
    return _report(name, "load", found, planned, audit_to, window_ms)


def audited_batches(
    function: Callable[[DataFrame, int], Any],
    name: str,
    audit_to: ProducerConfig,
    *,
    window_ms: int = DEFAULT_WINDOW_MS,
) -> Callable[[DataFrame, int], None]:
    """Wrap the function of `foreachBatch` so that each micro-batch is counted after it.

    A batch that Spark repeats after a crash has the same number and the same messages, and counts
    once. A new checkpoint starts its numbers over: give the stream another name then.

    Example:
        stream.writeStream.foreachBatch(audited_batches(write, "clicks", config)).start()

    Args:
        function: what handles a micro-batch; it gets the values as they are.
        name: the stream's; the tier is `spark:NAME`.
        audit_to, window_ms: as for `audit_loads`.

    Returns:
        A function of the micro-batch and its number. It raises ClientError when the report could
        not be stored; Spark then fails the query, and repeats the batch when it is started again.
    """

    def handle(batch: DataFrame, number: int) -> None:
        planned = {number: int(time.time() * 1000) - _PLANNED_BEFORE_MS}
        batch.persist()
        try:
            function(batch, number)
            tallied = tally_values(batch, window_ms=window_ms)
            found = {(topic, number): tallies for (topic, _), tallies in tallied.items()}
            _report(name, "stream", found, planned, audit_to, window_ms)
        finally:
            batch.unpersist()

    return handle


def _report(
    name: str,
    log: str,
    found: Mapping[tuple[str, int], Tallies],
    planned: Mapping[int, int],
    audit_to: ProducerConfig,
    window_ms: int,
) -> int:
    publisher = Publisher(audit_to)
    counter = TierCounter(f"spark:{name}", publisher, window_ms=window_ms)
    try:
        for (topic, number), tallies in sorted(found.items()):
            # A log for each, so that numbers may have gaps: not every load has every topic.
            each = f"{log}-{number}"
            counter.add_tallies(topic, tallies, log=each, start=0, end=1)
            if number in planned:
                now_ms = int(time.time() * 1000)
                counter.reached(topic, each, ago_ms=max(now_ms - planned[number], 0))
        if not counter.close():
            raise ClientError(f"the counts of {name} could not be stored for the audit")
    finally:
        publisher.close()
    return sum(count for tallies in found.values() for count, _ in tallies.values())


def _tallied(batch: pa.RecordBatch, window_ms: int) -> pa.RecordBatch:
    values: dict[tuple[str, int], list[bytes]] = {}
    records: dict[tuple[str, int], list[Record]] = {}
    columns = (batch.column(name).to_pylist() for name in ("topic", "load", "value"))
    places = zip(*columns, _records(batch), strict=True)
    for topic, load, value, record in places:
        if record is not None:
            some = records.setdefault((topic, load), [])
            some.append(record._replace(offset=len(some)))
        elif value is not None:
            values.setdefault((topic, load), []).append(value)
    found: dict[tuple[str, int], Tallies] = {
        place: count_one_by_one(some, window_ms) for place, some in records.items()
    }
    for place, payloads in values.items():
        core.tally(encode_message_set(payloads), 0, window_ms, found.setdefault(place, {}))
    rows = [
        (topic, load, window, f"{process:x}", count, f"{total:x}")
        for (topic, load), tallies in found.items()
        for (window, process), (count, total) in tallies.items()
    ]
    arrays = list(zip(*rows, strict=True)) or [()] * len(_TALLIES.fields)
    kinds = (pa.string(), pa.int64(), pa.int64(), pa.string(), pa.int64(), pa.string())
    return pa.RecordBatch.from_arrays(
        [pa.array(each, kind) for each, kind in zip(arrays, kinds, strict=True)],
        names=_TALLIES.names,
    )


def _records(batch: pa.RecordBatch) -> list[Record | None]:
    """Those rows that are records of Kafka's format: their offsets count records, not bytes."""
    names = set(batch.schema.names)
    if not names >= {"offset", "next_offset"}:
        return [None] * batch.num_rows
    starts, ends = batch.column("offset").to_pylist(), batch.column("next_offset").to_pylist()
    others = {
        name: batch.column(name).to_pylist() if name in names else [None] * batch.num_rows
        for name in ("key", "headers", "value")
    }
    times: list[int | None] = [None] * batch.num_rows
    if "timestamp" in names:
        times = (
            batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        )
    is_whole = names >= {"key", "headers", "timestamp"}
    found: list[Record | None] = []
    for start, end, key, headers, value, time_us in zip(
        starts, ends, *others.values(), times, strict=True
    ):
        if end - start != 1:
            found.append(None)
            continue
        if not is_whole and read_stamp(value or b"")[0] is None:
            raise ClientError(
                "messages of Kafka's format are counted by key, headers and timestamp: read them "
                "with includeKey, includeHeaders and includeTimestamp"
            )
        time_ms = -1 if time_us is None else time_us // 1000
        pairs = tuple((each["key"], each["value"]) for each in headers or ())
        found.append(Record(start, time_ms, key, value, pairs))
    return found
