"""From rows to messages, and ids in their envelopes, without Spark."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from hermes.client import Keys, RecordData
from hermes.errors import ConfigError, EncodingError, InvalidTopicError
from hermes.spark.envelope import add_ids
from hermes.spark.sink_options import SinkOptions
from hermes.spark.sink_rows import RowEncoder, TopicMessages


def options(**given: str) -> SinkOptions:
    return SinkOptions.parse({"hermes.bootstrap.servers": "broker:9092", **given}, stream=False)


def schema(**columns: DataType) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made = made.add(name, kind)
    return made


VALUE = {"value": StringType()}
KEYED = {"topic": StringType(), "key": StringType(), "value": BinaryType()}


def outgoing(
    rows: dict[str, Any], columns: dict[str, DataType], **given: str
) -> list[TopicMessages]:
    return list(
        RowEncoder(schema(**columns), options(**given)).of(pa.RecordBatch.from_pydict(rows))
    )


def refused(columns: dict[str, DataType], **given: str) -> str:
    with pytest.raises(ConfigError) as caught:
        RowEncoder(schema(**columns), options(**given))
    return str(caught.value)


# -- messages -----------------------------------------------------------------------------------


def test_text_becomes_utf8() -> None:
    assert outgoing({"value": ["é", ""]}, VALUE, topic="clicks") == [
        TopicMessages("clicks", [b"\xc3\xa9", b""], None)
    ]


def test_large_types_are_taken_too() -> None:
    rows = {"value": pa.array(["a"], pa.large_string())}
    assert outgoing(rows, VALUE, topic="clicks") == [TopicMessages("clicks", [b"a"], None)]


def test_no_rows_are_no_messages() -> None:
    rows = {"value": pa.array([], pa.string())}
    assert outgoing(rows, VALUE, topic="clicks") == []


def test_messages_without_a_key_are_spread_in_lists_of_the_batch_size() -> None:
    parts = outgoing({"value": list("abcde")}, VALUE, topic="clicks", batchSize="2")
    assert [each.messages for each in parts] == [[b"a", b"b"], [b"c", b"d"], [b"e"]]


def test_rows_are_put_together_by_topic_in_their_order_with_a_key_for_each() -> None:
    rows = {
        "topic": ["b", "a", "b", "a", "b", "a"],
        "key": ["1", "1", "2", None, "1", "1"],
        "value": [b"0", b"1", b"2", b"3", b"4", b"5"],
    }
    assert sorted(outgoing(rows, KEYED), key=lambda each: each.messages) == [
        TopicMessages("b", [b"0", b"2", b"4"], Keys(["1", "2", "1"])),
        TopicMessages("a", [b"1", b"5"], Keys(["1", "1"])),
        TopicMessages("a", [b"3"], None),
    ]


def test_messages_with_keys_leave_together_whatever_the_batch_size() -> None:
    rows = {"topic": ["a"] * 3, "key": ["1"] * 3, "value": [b"0", b"1", b"2"]}
    messages, keys = [b"0", b"1", b"2"], Keys(["1", "1", "1"])
    assert outgoing(rows, KEYED, batchSize="1") == [TopicMessages("a", messages, keys)]


def test_the_option_is_the_topic_of_all_rows() -> None:
    rows = {"topic": ["a", None], "key": [None, None], "value": [b"0", b"1"]}
    rows["key"] = pa.array(rows["key"], pa.string())
    assert outgoing(rows, KEYED, topic="all") == [TopicMessages("all", [b"0", b"1"], None)]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (StringType(), pa.array(["k"])),
        (BinaryType(), pa.array([b"k"])),
        (ShortType(), pa.array([-3], pa.int16())),
        (IntegerType(), pa.array([7], pa.int32())),
        (LongType(), pa.array([2**40])),
    ],
)
def test_keys_keep_their_type(kind: DataType, keys: pa.Array) -> None:
    rows = {"value": ["v"], "key": keys}
    (only,) = outgoing(rows, VALUE | {"key": kind}, topic="clicks")
    assert only.keys == Keys([keys[0].as_py()])
    assert type(only.keys[0]) is type(keys[0].as_py())


def test_names_of_columns_are_the_same_in_any_case() -> None:
    rows = {"Value": ["v"], "TOPIC": ["clicks"]}
    kinds: dict[str, DataType] = {"Value": StringType(), "TOPIC": StringType()}
    assert outgoing(rows, kinds) == [TopicMessages("clicks", [b"v"], None)]


keyed_rows = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from([None, "1", "2", ""]), st.binary(max_size=3))
)


@given(keyed_rows)
def test_every_row_is_sent_once_and_in_order_within_its_key(
    rows: list[tuple[str, str | None, bytes]],
) -> None:
    topics, keys, values = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {
        "topic": pa.array(topics, pa.string()),
        "key": pa.array(keys, pa.string()),
        "value": pa.array(values, pa.binary()),
    }
    sent: dict[tuple[str, str | None], list[bytes]] = {}
    for each in outgoing(columns, KEYED, batchSize="2"):
        keys_of = [None] * len(each.messages) if each.keys is None else each.keys
        for key, message in zip(keys_of, each.messages, strict=True):
            sent.setdefault((each.topic, key), []).append(message)
    wanted: dict[tuple[str, str | None], list[bytes]] = {}
    for topic, key, value in rows:
        wanted.setdefault((topic, key), []).append(value)
    assert sent == wanted


# -- columns that don't fit ---------------------------------------------------------------------


def test_unknown_columns_are_named() -> None:
    said = refused(VALUE | {"offset": LongType()}, topic="clicks")
    assert "column 'offset': has no meaning here: leave it out; the columns are value" in said


def test_a_column_must_not_be_there_twice() -> None:
    said = refused(VALUE | {"VALUE": StringType()}, topic="clicks")
    assert "column 'VALUE': appears twice" in said


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": LongType()}, "column 'value': expected string or binary, got bigint"),
        (VALUE | {"key": DoubleType()}, "column 'key': expected string, binary or an integer"),
        (VALUE | {"topic": BinaryType()}, "column 'topic': expected string, got binary"),
        (VALUE | {"id": BooleanType()}, "column 'id': expected string or binary, got boolean"),
    ],
)
def test_types_that_do_not_fit_are_named(columns: dict[str, DataType], said: str) -> None:
    assert said in refused({"id": StringType()} | columns, topic="clicks", idColumn="id")


def test_there_must_be_a_value() -> None:
    assert "column 'value': is missing" in refused({"key": StringType()}, topic="clicks")


def test_there_must_be_a_topic() -> None:
    assert "topic: no topic to write to: give this option, or a column topic" in refused(VALUE)


def test_there_must_be_the_column_of_ids() -> None:
    assert "idColumn: there is no column 'uuid'" in refused(VALUE, topic="a", idColumn="uuid")


# -- rows that don't fit ------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["value", "topic", "uuid"])
def test_null_where_something_is_needed_is_an_error(column: str) -> None:
    rows = {"value": ["a", "b", "c"], "topic": ["a", "b", "c"], "uuid": ["1", "2", "3"]}
    rows[column] = ["a", None, None]
    kinds = VALUE | {"topic": StringType(), "uuid": StringType()}
    with pytest.raises(EncodingError, match=f"column '{column}' is null in 2 of 3 rows"):
        outgoing(rows, kinds, idColumn="uuid")


def test_a_key_without_a_value_is_a_tombstone() -> None:
    rows = {"topic": ["a"] * 3, "key": ["x", "y", None], "value": [b"1", None, b"3"]}
    without, keyed = outgoing(rows, KEYED)
    assert (without.messages, without.keys) == ([b"3"], None)
    assert keyed.messages == [RecordData(b"1"), RecordData(None)]
    assert list(keyed.keys or ()) == ["x", "y"]
    rows["value"][2] = None
    with pytest.raises(EncodingError, match=r"'value' is null in 1 of 1 rows.* is a tombstone"):
        outgoing(rows, KEYED)
    rows["key"][2] = "z"
    with pytest.raises(EncodingError, match=r"'value' is null in 2 of 3 rows"):
        outgoing({**rows, "id": ["1", "2", "3"]}, KEYED | {"id": StringType()}, idColumn="id")


def test_a_name_that_no_topic_can_have_is_an_error() -> None:
    with pytest.raises(InvalidTopicError):
        outgoing({"value": ["a"], "topic": ["a/b"]}, VALUE | {"topic": StringType()})


def test_a_message_that_is_too_large_is_an_error_before_anything_is_sent() -> None:
    rows = {"value": ["small", "x" * 11]}
    messages = RowEncoder(schema(**VALUE), options(topic="a", maxMessageBytes="10")).of(
        pa.RecordBatch.from_pydict(rows)
    )
    with pytest.raises(ConfigError, match="maxMessageBytes: a message has 11 bytes, more than 10"):
        next(messages)


def test_the_id_counts_for_the_size() -> None:
    rows = {"value": ["x"], "id": ["1"]}
    with pytest.raises(ConfigError, match="a message has 14 bytes, more than 13"):
        outgoing(rows, VALUE | {"id": StringType()}, topic="a", idColumn="id", maxMessageBytes="13")


# -- ids ----------------------------------------------------------------------------------------


def test_the_envelope_to_the_byte() -> None:
    made = add_ids(pa.array([b"id-1", b""]), pa.array([b"value", b""]))
    assert made.to_pylist() == [
        bytes.fromhex("c1 4865726d6573 01 00000004") + b"id-1" + b"value",
        bytes.fromhex("c1 4865726d6573 01 00000000"),
    ]


def test_slices_and_large_types_have_envelopes_too() -> None:
    ids = pa.array([b"0", b"1", b"2"], pa.large_binary())[1:]
    values = pa.array([b"a", b"b", b"c"], pa.large_binary())[1:]
    head = bytes.fromhex("c1 4865726d6573 01 00000001")
    assert add_ids(ids, values).to_pylist() == [head + b"1b", head + b"2c"]


def test_ids_travel_inside_the_values() -> None:
    rows = {"value": ["a"], "uuid": ["u"]}
    (only,) = outgoing(rows, VALUE | {"uuid": StringType()}, topic="clicks", idColumn="uuid")
    assert only.messages == [bytes.fromhex("c1 4865726d6573 01 00000001") + b"ua"]


def test_the_key_may_be_the_id_as_well() -> None:
    rows = {"value": ["a"], "key": ["u"]}
    (only,) = outgoing(rows, VALUE | {"key": StringType()}, topic="clicks", idColumn="key")
    assert (only.keys, only.messages[0][-2:]) == (["u"], b"ua")
