"""What the tasks of a load read, by Spark's own connector for Kafka, where that may be used.

It reads in the JVM, and so in less time than any source in Python. The ranges are the plan's and
the rows those of `tasks`, so that whatever reads them, a load is the same. What the connector
can't do, skip damaged messages for instance, or ask as a user without showing the password, is left
to the source in Python, and so is a plan that has messages of 0.7.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.connector import connector_columns
from hermes.spark.identity import NOBODY
from hermes.spark.load.plans import Piece, Plan
from hermes.spark.load.tasks import as_read
from hermes.spark.offsets import Offsets, TopicPartition
from hermes.spark.options import SourceOptions
from hermes.spark.planning import check_available, check_planned

_log = logging.getLogger(__name__)

_FORMAT: Final = "kafka"

#: A read for each period would take longer to plan than it saves.
_MOST_READS: Final = 64


def reads_by_connector(spark: SparkSession, plan: Plan, options: SourceOptions) -> bool:
    """Whether a plan's messages can be read by it; says why not, if it was asked for."""
    if options.kafka is None:
        return False
    others = {each.partition.topic for each in plan.pieces} - plan.counting
    if others:
        why = f"topic {min(others)!r} is of 0.7's format"
    elif options.address.identity != NOBODY:
        why = "it would show who asks"
    elif not options.fail_on_data_loss:
        why = "it can't skip what is damaged"
    elif sum(1 for _ in _reads(plan, {})) > _MOST_READS:
        why = f"there are more than {_MOST_READS} periods to load"
    elif not _has_connector(spark):
        why = "its jar isn't there (spark-sql-kafka-0-10)"
    else:
        return True
    _log.info("Spark's connector for Kafka doesn't read this load: %s", why)
    return False


def connector_rows(
    spark: SparkSession, plan: Plan, options: SourceOptions, task_messages: int
) -> DataFrame:
    """The plan's messages, with the columns that its tasks have."""
    with ClusterReader(options.address, options.retries) as cluster:
        ends: Offsets = {each: end for each, (_, end) in plan.ranges.items()}
        unchanged = check_planned(cluster, ends, options)
        wanted = {each: plan.ranges[each][0] for each in unchanged}
        starts = check_available(cluster, wanted, options)
    wanted_columns = as_read(plan, options.extras._replace(timestamp=True))
    frames = []
    for pieces in _reads(plan, starts):
        first, counted = pieces[0], sum(each.end - each.start for each in pieces)
        found = _connected(spark, pieces, options, max(1, -(-counted // task_messages)))
        columns = {
            **connector_columns(),
            "broker": _home(sorted({each.partition for each in pieces})),
            "load": sf.lit(plan.number).cast("long"),
            "day": sf.lit(first.day),
            "hour": sf.lit(first.hour),
        }
        frames.append(
            found.select([columns[each.name].alias(each.name) for each in wanted_columns.fields])
        )
    return reduce(DataFrame.union, frames)


def _reads(plan: Plan, starts: Offsets) -> Iterator[Sequence[Piece]]:
    """The pieces that are read together: of one period, and one of each partition."""
    reads: dict[tuple[str, int], list[Piece]] = {}
    seen: dict[tuple[TopicPartition, str], int] = {}
    for piece in plan.pieces:
        start = max(piece.start, starts.get(piece.partition, piece.start))
        if start < piece.end:
            number = seen[piece.partition, piece.period] = (
                seen.get((piece.partition, piece.period), -1) + 1
            )
            reads.setdefault((piece.period, number), []).append(piece._replace(start=start))
    yield from reads.values()


def _connected(
    spark: SparkSession, pieces: Sequence[Piece], options: SourceOptions, tasks: int
) -> DataFrame:
    assigned: dict[str, list[int]] = {}
    offsets: tuple[dict[str, dict[str, int]], ...] = {}, {}
    for topic, _, number in (each.partition for each in pieces):
        assigned.setdefault(topic, []).append(number)
    for each in pieces:
        for found, offset in zip(offsets, (each.start, each.end), strict=True):
            found.setdefault(each.partition.topic, {})[str(each.partition.partition)] = offset
    return (
        spark.read.format(_FORMAT)
        .option("kafka.bootstrap.servers", str(options.kafka))
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.allow.auto.create.topics", "false")
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(offsets[0]))
        .option("endingOffsets", json.dumps(offsets[1]))
        .option("minPartitions", str(tasks))
        .option("includeHeaders", str(options.extras.headers).lower())
        .load()
    )


def _home(partitions: Sequence[TopicPartition]) -> Column:
    """The broker in the partition's name."""
    brokers = {each.broker_id for each in partitions}
    if len(brokers) == 1:
        return sf.lit(brokers.pop())
    found: Any = sf
    for each in partitions:
        is_it = (sf.col("topic") == each.topic) & (sf.col("partition") == each.partition)
        found = found.when(is_it, sf.lit(each.broker_id))
    home: Column = sf.coalesce(found, sf.lit(-1))
    return home


def _has_connector(spark: SparkSession) -> bool:
    try:
        session: Any = spark._jsparkSession
        datasources = spark._jvm.org.apache.spark.sql.execution.datasources  # type: ignore[union-attr]
        datasources.DataSource.lookupDataSource(_FORMAT, session.sessionState().conf())
    except (PySparkException, Py4JError, AttributeError):
        return False
    return True
