"""What is said of a file's columns: true of every row, and nothing where it isn't known."""

import datetime
import io
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hermes.spark.parquet_statistics import file_statistics

TIME = datetime.datetime(2025, 11, 26, 1, 2, 3, 4)
LARGEST = chr(0x10FFFF)


def statistics(columns: dict[str, Any], **written: Any) -> dict[str, Any]:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **{"row_group_size": 2, **written})
    file.seek(0)
    found: dict[str, Any] = json.loads(json.dumps(file_statistics(pq.read_metadata(file))))
    return found


@pytest.mark.parametrize(
    ("values", "smallest", "largest"),
    [
        ([3, None, 1], 1, 3),
        (["b", "a", None], "a", "b"),
        (["a" * 40, "z" * 40, "m"], "a" * 32, "z" * 32 + LARGEST),
        ([datetime.date(1, 1, 1), datetime.date(9999, 12, 31)], "0001-01-01", "9999-12-31"),
        ([TIME], "2025-11-26T01:02:03.000004", "2025-11-26T01:02:03.000004"),
        (
            [TIME.replace(tzinfo=datetime.UTC)],
            "2025-11-26T01:02:03.000004Z",
            "2025-11-26T01:02:03.000004Z",
        ),
    ],
    ids=str,
)
def test_values_lie_between_these(values: list[Any], smallest: object, largest: object) -> None:
    found = statistics({"a": values, "rest": pa.nulls(len(values), pa.int32())})
    assert found["numRecords"] == len(values)
    assert found["nullCount"] == {"a": values.count(None), "rest": len(values)}
    assert (found["minValues"], found["maxValues"]) == ({"a": smallest}, {"a": largest})


@pytest.mark.parametrize(
    "values",
    [
        [1.5, math.nan],
        [True, False],
        [b"x"],
        [Decimal("1.5")],
        ["a", "z" * 32 + LARGEST],
        pa.array([1 << 62], pa.timestamp("us")),  # after the year 9999
        pa.nulls(3, pa.int64()),
    ],
    ids=str,
)
def test_what_readers_could_take_wrongly_is_left_out(values: Any) -> None:
    found = statistics({"a": values})
    assert "minValues" not in found
    assert "a" in found["nullCount"]


def test_fields_of_structs_have_their_places() -> None:
    found = statistics(
        {
            "list": [[1], [2]],
            "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
            "struct": [{"x.y": 1, "inner": {"z": "t"}}, None],
            "last": [7, 8],
        }
    )
    assert found["minValues"] == {"struct": {"x.y": 1, "inner": {"z": "t"}}, "last": 7}
    assert found["nullCount"] == {"struct": {"x.y": 1, "inner": {"z": 1}}, "last": 0}


def test_a_file_that_says_nothing_has_a_number_of_rows() -> None:
    assert statistics({"a": [1, 2, 3]}, write_statistics=False) == {"numRecords": 3}
    assert statistics({"a": pa.nulls(0, pa.int32())}) == {"numRecords": 0}
