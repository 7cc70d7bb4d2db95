"""What a table of Spark's catalog keeps of its options, and what it refuses."""

import pytest

from hermes.errors import ConfigError
from hermes.spark import SCHEMA, HermesDataSource
from hermes.spark.catalog import (
    new_table_options,
    options_of,
    to_read,
    to_write,
    with_options,
    without_options,
)
from hermes.spark.columns import nullable

GIVEN = {"hermes.bootstrap.servers": "localhost:1", "subscribe": "clicks"}


def created(options: dict[str, str]) -> dict[str, str]:
    """What Spark hands over when a table is created."""
    return {
        **options,
        **{f"option.{name}": text for name, text in options.items()},
        "owner": "me",
        "provider": "hermes",
        "comment": "of the shop",
        "a property": "of the table",
    }


def test_a_new_table_keeps_its_options_and_nothing_of_sparks() -> None:
    schema = HermesDataSource(created(GIVEN)).schema()
    assert schema != SCHEMA
    assert without_options(schema) == nullable(SCHEMA)
    assert options_of(schema) == GIVEN


def test_any_other_use_keeps_nothing() -> None:
    assert new_table_options(GIVEN) is None
    assert HermesDataSource(GIVEN).schema() == SCHEMA
    assert options_of(SCHEMA) == {}


def test_a_table_is_read_with_its_options_and_those_of_the_query() -> None:
    schema = with_options(SCHEMA, {**GIVEN, "minPartitions": "4", "acks": "written"})
    options, rows = HermesDataSource({"minpartitions": "8"})._checked("batch", schema)
    assert all(field.nullable for field in rows)
    assert options.selection.topics == ("clicks",)
    assert options.min_partitions == 8


def test_rows_go_to_the_topic_that_the_table_reads() -> None:
    assert to_write(GIVEN)["topic"] == "clicks"
    assert to_write({**GIVEN, "topic": "other"})["topic"] == "other"
    several = {**GIVEN, "subscribe": "clicks,views"}
    assert "topic" not in to_write(several)
    assert "acks" not in to_read({**GIVEN, "acks": "written"})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({**GIVEN, "subscrib": "x"}, "subscrib: there is no such option"),
        ({"subscribe": "clicks"}, "expected exactly one"),
        ({**GIVEN, "acks": "none"}, "acks: expected flushed or written"),
    ],
)
def test_a_table_with_wrong_options_is_not_created(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        HermesDataSource(created(options)).schema()


def test_a_table_without_options_says_how_to_create_one() -> None:
    source = HermesDataSource({})
    for use in (source.reader, lambda schema: source.writer(schema, False)):
        with pytest.raises(ConfigError, match="without columns, then INSERT INTO"):
            use(SCHEMA)
