from pathlib import Path

import pytest

from hermes.errors import ConfigError
from hermes.spark.offsets import TopicPartition
from hermes.spark.options import SOURCE_OPTIONS, Option, SourceOptions
from hermes.spark.sink_options import SINK_OPTIONS

ADDRESS = {"hermes.bootstrap.servers": "localhost:9092"}
LEAST = {**ADDRESS, "subscribe": "clicks"}


def test_what_stands_for_what_was_not_said() -> None:
    batch = SourceOptions.parse(LEAST, "batch")
    assert batch.address.bootstrap == (("localhost", 9092),)
    assert batch.selection.topics == ("clicks",)
    assert (batch.starting, batch.ending) == ("earliest", "latest")
    assert batch.fail_on_data_loss
    assert not batch.extras.timestamp
    assert (batch.max_bytes, batch.min_partitions, batch.group) == (None, None, None)
    assert SourceOptions.parse(LEAST, "stream").starting == "latest"


def test_names_have_no_case() -> None:
    """Spark hands them over in lower case."""
    lower = {name.lower(): text for name, text in LEAST.items()}
    assert SourceOptions.parse(lower, "batch") == SourceOptions.parse(LEAST, "batch")


def test_every_option_is_read() -> None:
    parsed = SourceOptions.parse(
        {
            "hermes.zookeeper": "zk1:2181,zk2:2181/hermes",
            "subscribePattern": "clicks.*",
            "startingOffsets": '{"clicks": {"0-1": -2}}',
            "maxBytesPerTrigger": "64MiB",
            "minPartitions": "8",
            "failOnDataLoss": "FALSE",
            "groupId": "watched",
            "includeTimestamp": "True",
            "fetchOffset.numRetries": "0",
            "fetchOffset.retryIntervalMs": "250",
            "maxFetchBytes": "1000000",
        },
        "stream",
    )
    assert parsed.address.zookeeper == "zk1:2181,zk2:2181/hermes"
    assert parsed.selection.pattern is not None
    assert parsed.selection.pattern.matches("clicks-eu")
    assert parsed.starting == {TopicPartition("clicks", 0, 1): -2}
    assert (parsed.max_bytes, parsed.min_partitions) == (64 * 1024 * 1024, 8)
    assert not parsed.fail_on_data_loss
    assert (parsed.group, parsed.extras.timestamp) == ("watched", True)
    assert parsed.retries == (0, 0.25)
    assert parsed.max_fetch_bytes == 1_000_000


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "hermes.bootstrap.servers: expected exactly one: this or hermes.zookeeper"),
        ({**LEAST, "hermes.zookeeper": "zk:2181"}, "expected exactly one"),
        (ADDRESS, "subscribe: expected exactly one: this, subscribePattern or assign"),
        ({**LEAST, "subscribePattern": "c.*"}, "subscribe: expected exactly one"),
        ({**LEAST, "subscribe": " , "}, "subscribe: expected names of topics"),
        ({**LEAST, "hermes.bootstrap.servers": "a:b:1"}, "expected HOST:PORT such as"),
        ({**LEAST, "hermes.bootstrap.servers": "h:99999"}, "a port is a number from 1 to 65535"),
        ({**ADDRESS, "subscribePattern": "("}, "subscribePattern: .*can't be used"),
        ({**ADDRESS, "subscribePattern": r"\p{L}"}, "Java's alone"),
        ({**ADDRESS, "assign": "clicks"}, r"assign: expected \{"),
        ({**ADDRESS, "assign": '{"clicks": 0}'}, "assign: clicks: expected a list"),
        ({**ADDRESS, "assign": '{"clicks": ["0"]}'}, "expected <broker>-<partition>, got '0'"),
        ({**LEAST, "startingOffsets": "first"}, "startingOffsets: expected earliest or latest"),
        ({**LEAST, "startingOffsets": "latest"}, "a batch that starts at the latest"),
        ({**LEAST, "startingOffsets": '{"clicks": {"0-0": -3}}'}, "clicks 0-0: expected an offset"),
        ({**LEAST, "startingOffsets": '{"clicks": {"0-0": "7"}}'}, "clicks 0-0: expected an offs"),
        ({**LEAST, "startingOffsets": "{"}, "startingOffsets: expected"),
        ({**LEAST, "endingOffsets": "earliest"}, "endingOffsets: expected latest"),
        ({**LEAST, "startingTimestamp": "yesterday"}, "startingTimestamp: expected a whole number"),
        (
            {**LEAST, "startingTimestamp": "1", "startingOffsets": "earliest"},
            "expected at most one",
        ),
        ({**LEAST, "endingTimestamp": "1", "endingoffsets": "latest"}, "expected at most one"),
        (
            {**LEAST, "startingTimestamp": "8", "endingTimestamp": "7"},
            "endingTimestamp: it is before startingTimestamp, 8",
        ),
        ({**LEAST, "minPartitions": "0"}, "minPartitions: expected a whole number >= 1"),
        ({**LEAST, "failOnDataLoss": "no"}, "failOnDataLoss: expected true or false, got 'no'"),
        ({**LEAST, "maxFetchBytes": "64k"}, "maxFetchBytes: expected a size"),
        ({**LEAST, "maxFetchBytes": "0"}, "maxFetchBytes: expected more than 0"),
        ({**LEAST, "maxBytesPerTrigger": "1MB"}, "maxBytesPerTrigger: has no meaning for a batch"),
        ({**LEAST, "groupId": "g"}, "groupId: has no meaning for a batch"),
        ({**LEAST, "subscribed": "x"}, "subscribed: there is no such option; there are hermes.boo"),
        (
            {**LEAST, "kafka.bootstrap.servers": "x:1"},
            "has no meaning for a batch: beside hermes.bootstrap.servers",
        ),
        (
            {**LEAST, "maxOffsetsPerTrigger": "9"},
            "maxOffsetsPerTrigger: has no meaning for a batch",
        ),
        (
            {**LEAST, "startingOffsetsByTimestamp": '{"t": {"0-0": -1}}'},
            "startingOffsetsByTimestamp: expected times in ms since 1970",
        ),
        (
            {**LEAST, "startingOffsetsByTimestamp": '{"t": {"0-0": 1}}', "startingTimestamp": "1"},
            "startingOffsetsByTimestamp: expected at most one: this or startingTimestamp",
        ),
        ({**LEAST, "path": "/clicks"}, "not by a path"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        SourceOptions.parse(given, "batch")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"maxOffsetsPerTrigger": "9", "maxBytesPerTrigger": "1MB"},
            "maxOffsetsPerTrigger: expected at most one",
        ),
        (
            {"maxOffsetsPerTrigger": "9", "minOffsetsPerTrigger": "10"},
            "minOffsetsPerTrigger: it is more than maxOffsetsPerTrigger",
        ),
        ({"minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"}, "maxTriggerDelay: "),
    ],
)
def test_what_is_wrong_with_a_streams_limits_is_named(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        SourceOptions.parse({**LEAST, **given}, "stream")


def test_a_use_that_is_not_known_yet_leaves_its_checks_for_later() -> None:
    assert SourceOptions.parse({**LEAST, "maxBytesPerTrigger": "1MB"}, None).max_bytes == 1_000_000


def test_the_table_has_every_option_once_and_says_what_it_means() -> None:
    names = [option.name.lower() for option in SOURCE_OPTIONS]
    assert len(set(names)) == len(names)
    assert all(option.doc and option.uses for option in SOURCE_OPTIONS)


@pytest.mark.parametrize("option", [*SOURCE_OPTIONS, *SINK_OPTIONS], ids=lambda each: each.name)
def test_the_guide_has_every_option_with_its_meaning(option: Option) -> None:
    guide = Path(__file__).parents[3] / "docs" / "spark-options.md"
    rows = [
        line for line in guide.read_text().splitlines() if line.startswith(f"| `{option.name}`")
    ]
    assert any(line.endswith(f"| {option.doc} |") for line in rows)
