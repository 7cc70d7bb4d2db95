"""What filters leave of a batch: enough of it, and not much more."""

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from hermes.spark.options import SourceOptions
from hermes.spark.source import FilteringBatchReader
from hermes.testing import RunningBroker

Options = Callable[..., SourceOptions]
Send = Callable[..., None]
Row = dict[str, Any]

#: Of a message in these topics, its frame included.
LONGEST = 420


def read(options: SourceOptions, *filters: Any) -> list[Row]:
    """Plan and read as Spark does with these filters, which it would then evaluate again."""
    reader = FilteringBatchReader(options)
    assert list(reader.pushFilters(list(filters))) == list(filters)
    return [
        row
        for task in reader.partitions()
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]


@pytest.fixture
def filled(broker: RunningBroker, send: Send) -> RunningBroker:
    """Topics with 200 messages of several lengths in each of two partitions."""
    dice = random.Random(7)
    for topic in ("clicks", "views", "web-clicks"):
        send(broker, topic, [b"x" * dice.randrange(1, 400) for _ in range(400)])
    return broker


ALL = "clicks,views,web-clicks"


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([EqualTo(("topic",), "clicks")], {"clicks"}),
        ([EqualNullSafe(("topic",), "views")], {"views"}),
        ([In(("topic",), ("clicks", "views"))], {"clicks", "views"}),
        ([StringStartsWith(("topic",), "web")], {"web-clicks"}),
        ([StringEndsWith(("topic",), "clicks")], {"clicks", "web-clicks"}),
        ([StringContains(("topic",), "-")], {"web-clicks"}),
        ([GreaterThan(("topic",), "clicks"), LessThan(("topic",), "w")], {"views"}),
        ([EqualTo(("topic",), "nothing")], set()),
        ([IsNotNull(("topic",))], {"clicks", "views", "web-clicks"}),
        ([Not(EqualTo(("topic",), "clicks"))], {"clicks", "views", "web-clicks"}),
    ],
)
def test_topics_that_no_row_can_be_of_are_not_read(
    filled: RunningBroker, options: Options, filters: list[Any], left: set[str]
) -> None:
    rows = read(options(filled, subscribe=ALL), *filters)
    assert {row["topic"] for row in rows} == left
    assert len(rows) == 400 * len(left)


def test_partitions_and_brokers_that_no_row_can_be_of_are_not_read(
    filled: RunningBroker, options: Options
) -> None:
    given = options(filled, subscribe=ALL)
    assert {row["partition"] for row in read(given, EqualTo(("partition",), 1))} == {1}
    assert {row["partition"] for row in read(given, LessThanOrEqual(("partition",), 0))} == {0}
    assert read(given, EqualTo(("broker",), 5)) == []
    assert len(read(given, EqualTo(("broker",), 0))) == 1200


def test_offsets_leave_out_what_lies_before_and_after_to_the_message(
    filled: RunningBroker, options: Options
) -> None:
    given = options(filled, assign='{"clicks": ["0-0"]}')
    whole = read(given)
    dice = random.Random(11)
    for _ in range(40):
        low, high = sorted(dice.randrange(-10, whole[-1]["next_offset"] + 20) for _ in "ab")
        rows = read(given, GreaterThanOrEqual(("offset",), low), LessThanOrEqual(("offset",), high))
        wanted = [row for row in whole if low <= row["offset"] <= high]
        assert [row for row in rows if low <= row["offset"] <= high] == wanted
        # Some more at either end, up to the next boundaries that the broker was asked for.
        for row in rows:
            assert low - LONGEST <= row["offset"] <= high + 2 * LONGEST
    exact = whole[37]
    assert read(given, EqualTo(("offset",), exact["offset"]))[0] == exact
    some = In(("offset",), (exact["offset"], whole[39]["offset"]))
    assert read(given, some)[:3] == whole[37:40]
    assert len(read(given, GreaterThan(("offset",), 1.5))) == len(whole)  # not a whole number


def test_times_leave_out_what_is_known_to_be_older_or_newer(
    filled: RunningBroker, options: Options
) -> None:
    given = options(filled, subscribe=ALL, includeTimestamp="true")
    now = datetime.fromtimestamp(time.time(), UTC)
    day, minute = timedelta(days=1), timedelta(minutes=1)
    assert read(given, GreaterThan(("timestamp",), now + day)) == []
    assert read(given, LessThan(("timestamp",), now - day)) == []
    assert len(read(given, GreaterThan(("timestamp",), now - 5 * minute))) == 1200
    assert len(read(given, LessThan(("timestamp",), now + minute))) == 1200
    # Without a zone it may mean any.
    assert len(read(given, GreaterThan(("timestamp",), now.replace(tzinfo=None)))) == 1200
    some = read(given)[100]["timestamp"]
    assert any(row["timestamp"] == some for row in read(given, EqualTo(("timestamp",), some)))


def test_filters_of_other_columns_and_of_fields_narrow_nothing(
    filled: RunningBroker, options: Options
) -> None:
    given = options(filled, subscribe="clicks")
    filters = [EqualTo(("value",), b"x"), EqualTo(("topic", "x"), "y"), EqualTo(("index",), 7)]
    assert len(read(given, *filters)) == 400


def test_offsets_that_were_given_need_not_pass_the_filters(
    filled: RunningBroker, options: Options
) -> None:
    starting = '{"clicks": {"0-0": -2, "0-1": -2}}'
    given = options(filled, subscribe="clicks", startingOffsets=starting)
    assert {row["partition"] for row in read(given, EqualTo(("partition",), 0))} == {0}


def test_spark_takes_the_reader_for_one_that_does_not_override_the_method(
    filled: RunningBroker, options: Options
) -> None:
    reader = FilteringBatchReader(options(filled, subscribe="clicks"))
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters
