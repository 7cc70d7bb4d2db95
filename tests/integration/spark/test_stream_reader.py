"""What a stream plans: offsets for micro-batches, as Spark asks for them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from hermes.client import SimpleConsumer
from hermes.coordination.group_state import read_group
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.errors import ConfigError, DataLossError, GroupActiveError
from hermes.spark.options import SourceOptions
from hermes.spark.stream import StreamReader
from hermes.testing import RunningBroker, running_broker

Options = Callable[..., SourceOptions]
Send = Callable[..., None]
Open = Callable[[SourceOptions], StreamReader]

PAYLOADS = [b"message %d" % number for number in range(200)]
EVERYTHING = ReadAllAvailable()


@pytest.fixture
def open_stream() -> Iterator[Open]:
    readers: list[StreamReader] = []

    def make(options: SourceOptions) -> StreamReader:
        readers.append(StreamReader(options))
        return readers[-1]

    yield make
    for reader in readers:
        reader.stop()


def batch(stream: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    ranges = stream.partitions(start, end)
    rows = [row for each in ranges for rows in stream.read(each) for row in rows.to_pylist()]
    return [row["value"] for row in rows]


def test_a_stream_starts_at_the_end_unless_told_otherwise(
    broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    send(broker, "clicks", PAYLOADS[:10])
    stream = open_stream(options(broker, "stream", subscribe="clicks"))
    start = stream.initialOffset()
    send(broker, "clicks", PAYLOADS[10:])
    end = stream.latestOffset(start, EVERYTHING)
    assert sorted(batch(stream, start, end)) == sorted(PAYLOADS[10:])
    assert stream.latestOffset(end, EVERYTHING) == end
    assert stream.partitions(end, end) == []


@pytest.mark.parametrize("limit", [1, 100, 1000, 1 << 20])
def test_a_limit_in_bytes_moves_on_by_whole_messages(
    limit: int, broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    send(broker, "clicks", PAYLOADS)
    given = {"subscribe": "clicks", "startingOffsets": "earliest", "maxBytesPerTrigger": limit}
    stream = open_stream(options(broker, "stream", **given))
    assert stream.getDefaultReadLimit() == ReadMaxBytes(limit)
    found, start = [], stream.initialOffset()
    while (end := stream.latestOffset(start, ReadMaxBytes(limit))) != start:
        size = sum(end["clicks"][name] - start["clicks"][name] for name in end["clicks"])
        assert size <= max(limit, 2 * 21)  # at least one message of each partition
        found += batch(stream, start, end)
        start = end
    assert sorted(found) == sorted(PAYLOADS)


def test_a_planned_batch_is_the_same_again(
    broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    """After a crash Spark asks a new reader for what the checkpoint has."""
    given = options(broker, "stream", subscribe="clicks", startingOffsets="earliest")
    send(broker, "clicks", PAYLOADS[:50])
    first = open_stream(given)
    start = first.initialOffset()
    end = first.latestOffset(start, EVERYTHING)
    read = batch(first, start, end)
    send(broker, "clicks", PAYLOADS[50:])
    assert batch(open_stream(given), start, end) == read


def test_available_now_ends_where_it_stood_at_the_start(
    broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    send(broker, "clicks", PAYLOADS[:50])
    given = {"subscribe": "clicks", "startingOffsets": "earliest", "maxBytesPerTrigger": 200}
    stream = open_stream(options(broker, "stream", **given))
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    send(broker, "clicks", PAYLOADS[50:])
    found = []
    while (end := stream.latestOffset(start, stream.getDefaultReadLimit())) != start:
        found += batch(stream, start, end)
        start = end
    assert sorted(found) == sorted(PAYLOADS[:50])


def test_topics_that_come_later_are_read_from_their_beginning(
    broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    send(broker, "clicks-a", PAYLOADS[:10])
    stream = open_stream(options(broker, "stream", subscribePattern="clicks-.*"))
    start = stream.initialOffset()
    send(broker, "clicks-b", PAYLOADS[10:])
    found = follow(stream, start)
    assert sorted(found) == sorted(PAYLOADS[10:])


def follow(stream: StreamReader, start: dict[str, Any]) -> list[bytes]:
    """Everything up to where nothing new comes."""
    found = []
    while (end := stream.latestOffset(start, EVERYTHING)) != start:
        found += batch(stream, start, end)
        start = end
    return found


@contextmanager
def registered(tmp_path: Path, zookeeper: str, broker_id: int) -> Iterator[RunningBroker]:
    settings = {
        "broker_id": broker_id,
        "coordination": "zookeeper",
        "zookeeper_connect": zookeeper,
        "num_partitions": 2,
    }
    with running_broker(tmp_path / f"log-{broker_id}", settings) as broker:
        yield broker


def test_brokers_come_and_go_while_it_runs(
    tmp_path: Path, zookeeper: str, options: Options, send: Send, open_stream: Open
) -> None:
    given = {"zookeeper": zookeeper, "subscribe": "clicks", "startingOffsets": "earliest"}
    stream = open_stream(options(None, "stream", **given))
    with registered(tmp_path, zookeeper, 1) as one:
        send(one, "clicks", PAYLOADS[:10])
        start = stream.initialOffset()
        with registered(tmp_path, zookeeper, 2) as two:
            send(two, "clicks", PAYLOADS[10:20])
            new = stream.latestOffset(start, EVERYTHING)
            assert new["clicks"]["2-0"] == 0, "a new partition enters with nothing to read"
            end = stream.latestOffset(new, EVERYTHING)
            assert sorted(batch(stream, start, new) + batch(stream, new, end)) == sorted(
                PAYLOADS[:20]
            )
            send(two, "clicks", PAYLOADS[20:30])
        send(one, "clicks", PAYLOADS[30:40])
        away = stream.latestOffset(end, EVERYTHING)
        assert sorted(batch(stream, end, away)) == sorted(PAYLOADS[30:40])
        with registered(tmp_path, zookeeper, 2):
            back = stream.latestOffset(away, EVERYTHING)
            assert sorted(batch(stream, away, back)) == sorted(PAYLOADS[20:30])


@pytest.mark.parametrize("anew", [False, True])
def test_a_topic_that_was_deleted_or_made_anew_is_data_loss(
    anew: bool, broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    send(broker, "clicks", PAYLOADS)
    send(broker, "clicks.other", PAYLOADS[:1])
    given = {"subscribePattern": "clicks.*", "startingOffsets": "latest"}
    stream = open_stream(options(broker, "stream", **given))
    lenient = open_stream(options(broker, "stream", **given, failOnDataLoss="false"))
    start = stream.initialOffset()
    with SimpleConsumer(broker.host, broker.port) as consumer:
        consumer.delete_topic("clicks")
    if anew:
        send(broker, "clicks", PAYLOADS[:2])
    reason = "it ends at" if anew else "the partition is gone"
    with pytest.raises(DataLossError, match=rf"topic 'clicks' partition 0-\d: .*{reason}"):
        stream.latestOffset(start, EVERYTHING)
    send(broker, "clicks.other", PAYLOADS[100:110])
    assert sorted(follow(lenient, start)) == sorted(PAYLOADS[100:110])


def test_progress_is_published_for_a_group(
    tmp_path: Path, zookeeper: str, options: Options, send: Send, open_stream: Open
) -> None:
    given = {"zookeeper": zookeeper, "subscribe": "clicks", "startingOffsets": "earliest"}
    with registered(tmp_path, zookeeper, 1) as broker:
        send(broker, "clicks", PAYLOADS)
        stream = open_stream(options(None, "stream", **given, groupId="watched"))
        start = stream.initialOffset()
        end = stream.latestOffset(start, EVERYTHING)
        stream.commit(end)
    session = Session(zookeeper)
    session.start()
    try:
        offsets = read_group(session, "watched").offsets
        assert offsets == {
            ("clicks", BrokerPartition(1, number)): end["clicks"][f"1-{number}"]
            for number in (0, 1)
        }
        session.create_ephemeral("/consumers/taken/ids/somebody", b'{ "clicks": 1 }')
        taken = open_stream(options(None, "stream", **given, groupId="taken"))
        with pytest.raises(GroupActiveError, match="group 'taken' has members"):
            taken.initialOffset()
    finally:
        session.stop()


def test_wrong_options_for_a_stream(options: Options, broker: RunningBroker) -> None:
    with pytest.raises(ConfigError, match="endingOffsets: has no meaning for a stream"):
        options(broker, "stream", subscribe="clicks", endingOffsets="latest")
    with pytest.raises(ConfigError, match=r"groupId: .*give hermes.zookeeper"):
        options(broker, "stream", subscribe="clicks", groupId="watched")


def test_offsets_are_json(broker: RunningBroker, options: Options, open_stream: Open) -> None:
    """Spark writes them to the checkpoint."""
    with SimpleConsumer(broker.host, broker.port) as consumer:
        consumer.metadata(["clicks"])
    stream = open_stream(options(broker, "stream", subscribePattern=".*"))
    start = stream.initialOffset()
    assert json.loads(json.dumps(start)) == start == {}
