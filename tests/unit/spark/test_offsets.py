import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.spark.offsets import (
    Offsets,
    TopicPartition,
    format_offsets,
    nested,
    parse_offsets,
    parse_partitions,
    unnested,
)

PARTITIONS = st.builds(
    TopicPartition, st.text(min_size=1), st.integers(0, 1 << 30), st.integers(0, 1 << 30)
)
OFFSETS = st.dictionaries(PARTITIONS, st.integers(-2, (1 << 63) - 1), max_size=6)


def test_offsets_are_written_by_topic_and_partition() -> None:
    offsets = {
        TopicPartition("views", 1, 0): -1,
        TopicPartition("clicks", 0, 10): 5,
        TopicPartition("clicks", 0, 2): 7,
    }
    assert format_offsets(offsets) == '{"clicks": {"0-2": 7, "0-10": 5}, "views": {"1-0": -1}}'


@given(OFFSETS)
def test_what_was_written_is_read(offsets: Offsets) -> None:
    assert parse_offsets(format_offsets(offsets)) == offsets
    assert unnested(json.loads(json.dumps(nested(offsets)))) == offsets


def test_partitions_are_sorted_and_there_once() -> None:
    assert parse_partitions('{"b": ["1-0"], "a": ["0-10", "0-2", "0-2"]}') == (
        TopicPartition("a", 0, 2),
        TopicPartition("a", 0, 10),
        TopicPartition("b", 1, 0),
    )


@pytest.mark.parametrize(
    "text",
    ["", "[]", "7", '{"a": 5}', '{"a": {"0-0": 1.5}}', '{"a": {"0-0": true}}', '{"a": {"x": 1}}'],
)
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_offsets(text)


def test_a_partition_reads_like_a_sentence() -> None:
    assert str(TopicPartition("clicks", 3, 1)) == "topic 'clicks' partition 3-1"
