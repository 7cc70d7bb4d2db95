"""What a stream plans: offsets for micro-batches, as Spark asks for them."""

import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
)
from server_process import free_port

from hermes.client import SimpleConsumer
from hermes.coordination.group_state import read_group
from hermes.coordination.layout import (
    BrokerPartition,
    broker_path,
    format_broker,
    format_number,
    topic_path,
)
from hermes.coordination.sessions import Session
from hermes.errors import (
    BrokerUnavailableError,
    ConfigError,
    DataLossError,
    GroupActiveError,
    UnknownTopicError,
)
from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.micro_batches import HermesStreamReader
from hermes.spark.offsets import TopicPartition
from hermes.spark.options import ConnectionOptions, RetryOptions, SourceOptions
from hermes.testing import RunningBroker, running_broker

Options = Callable[..., SourceOptions]
Send = Callable[..., None]
Open = Callable[[SourceOptions], HermesStreamReader]

PAYLOADS = [b"message %d" % number for number in range(200)]
EVERYTHING = ReadAllAvailable()


@pytest.fixture
def open_stream() -> Iterator[Open]:
    readers: list[HermesStreamReader] = []

    def make(options: SourceOptions) -> HermesStreamReader:
        readers.append(HermesStreamReader(options))
        return readers[-1]

    yield make
    for reader in readers:
        reader.stop()


def begin(stream: HermesStreamReader) -> dict[str, Any]:
    """What Spark does for the first batch: it writes down where the stream begins."""
    start = stream.initialOffset()
    end = stream.latestOffset(start, EVERYTHING)
    assert end.items() < start.items()  # which is marked as initial
    for _ in range(2):
        assert stream.partitions(stream.initialOffset(), end) == []
        assert stream.partitions(start, end) == []
    return end


def batch(stream: HermesStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    ranges = stream.partitions(start, end)
    rows = [row for each in ranges for rows in stream.read(each) for row in rows.to_pylist()]
    return [row["value"] for row in rows]


def delete_clicks(broker: RunningBroker) -> None:
    with SimpleConsumer(broker.host, broker.port) as consumer:
        consumer.delete_topic("clicks")


def test_a_stream_starts_at_the_end_unless_told_otherwise(
    broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    send(broker, "clicks", PAYLOADS[:10])
    stream = open_stream(options(broker, "stream", subscribe="clicks"))
    start = begin(stream)
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
    found, start = [], begin(stream)
    while (end := stream.latestOffset(start, ReadMaxBytes(limit))) != start:
        size = sum(end["clicks"][name] - start["clicks"][name] for name in end["clicks"])
        assert size <= max(limit, 2 * 21)  # at least one message of each partition
        found += batch(stream, start, end)
        start = end
    assert sorted(found) == sorted(PAYLOADS)


def test_limits_in_messages_are_for_topics_whose_offsets_count_these(
    broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    with SimpleConsumer(broker.host, broker.port) as admin:
        admin.create_topic("carts", {"format": "kafka", "partitions": 2})
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 40, "minOffsetsPerTrigger": 30}
    stream = open_stream(options(broker, "stream", subscribe="carts", **given))
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(40)
    start = begin(stream)
    for payload in PAYLOADS[:10]:
        send(broker, "carts", [payload])
    end = stream.latestOffset(start, limit)
    found = batch(stream, start, end)  # the first one doesn't wait
    for payload in PAYLOADS[10:39]:
        send(broker, "carts", [payload])
    assert stream.latestOffset(end, limit) == end
    for payload in PAYLOADS[39:100]:
        send(broker, "carts", [payload])
    while (start := end) != (end := stream.latestOffset(start, limit)):
        size = sum(end["carts"][name] - start["carts"][name] for name in end["carts"])
        assert 30 <= size <= 40
        found += batch(stream, start, end)
    assert sorted(found) == sorted(PAYLOADS[: len(found)])
    assert 100 - len(found) < 30
    stream.prepareForTriggerAvailableNow()
    end = stream.latestOffset(start, limit)
    assert sorted(found + batch(stream, start, end)) == sorted(PAYLOADS[:100])

    send(broker, "clicks", PAYLOADS[:1])
    other = open_stream(options(broker, "stream", subscribe="clicks", **given))
    with pytest.raises(ConfigError, match="offsets of topic 'clicks' are bytes"):
        other.latestOffset(begin(other), limit)


def test_a_planned_batch_is_the_same_again(
    broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    """After a crash Spark asks a new reader for what the checkpoint has."""
    given = options(broker, "stream", subscribe="clicks", startingOffsets="earliest")
    send(broker, "clicks", PAYLOADS[:50])
    first = open_stream(given)
    start = begin(first)
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
    start = begin(stream)
    stream.prepareForTriggerAvailableNow()
    send(broker, "clicks", PAYLOADS[50:])
    found = follow(stream, start, stream.getDefaultReadLimit())
    assert sorted(found) == sorted(PAYLOADS[:50])


def test_available_now_reads_new_topics_of_its_start_and_none_that_come_later(
    broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    stream = open_stream(options(broker, "stream", subscribePattern="clicks.*"))
    start = begin(stream)
    send(broker, "clicks-a", PAYLOADS[:10])
    stream.prepareForTriggerAvailableNow()
    send(broker, "clicks-b", PAYLOADS[10:])
    assert sorted(follow(stream, start)) == sorted(PAYLOADS[:10])


@pytest.mark.parametrize("limit", [EVERYTHING, ReadMaxBytes(100)])
def test_available_now_notices_a_topic_that_is_gone(
    limit: ReadLimit, broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    given = {"subscribePattern": "clicks.*", "startingOffsets": "latest"}
    send(broker, "clicks", PAYLOADS)
    send(broker, "clicks.other", PAYLOADS[:1])
    start = begin(open_stream(options(broker, "stream", **given)))
    delete_clicks(broker)
    send(broker, "clicks.other", PAYLOADS[100:110])
    strict = open_stream(options(broker, "stream", **given))
    strict.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match=r"topic 'clicks' partition 0-\d: .*partition is gone"):
        strict.latestOffset(start, limit)
    lenient = open_stream(options(broker, "stream", **given, failOnDataLoss="false"))
    lenient.prepareForTriggerAvailableNow()
    assert sorted(follow(lenient, start, limit)) == sorted(PAYLOADS[100:110])


def test_available_now_does_not_take_an_unknown_topic_for_an_empty_one(
    broker: RunningBroker, options: Options, open_stream: Open
) -> None:
    stream = open_stream(options(broker, "stream", subscribe="klicks"))
    stream.prepareForTriggerAvailableNow()
    with pytest.raises(UnknownTopicError, match="no topic 'klicks'"):
        stream.latestOffset({}, EVERYTHING)


def test_topics_that_come_later_are_read_from_their_beginning(
    broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    send(broker, "clicks-a", PAYLOADS[:10])
    stream = open_stream(options(broker, "stream", subscribePattern="clicks-.*"))
    start = begin(stream)
    send(broker, "clicks-b", PAYLOADS[10:])
    found = follow(stream, start)
    assert sorted(found) == sorted(PAYLOADS[10:])


def follow(
    stream: HermesStreamReader, start: dict[str, Any], limit: ReadLimit = EVERYTHING
) -> list[bytes]:
    """Everything up to where nothing new comes."""
    found = []
    while (end := stream.latestOffset(start, limit)) != start:
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
        start = begin(stream)
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


def test_a_first_batch_that_is_repeated_begins_where_it_began(
    tmp_path: Path, zookeeper: str, options: Options, send: Send, open_stream: Open
) -> None:
    """Spark asks for the initial offsets again; by then a broker is away, and there is more."""
    given = {"zookeeper": zookeeper, "subscribe": "clicks", "startingOffsets": "earliest"}
    with registered(tmp_path, zookeeper, 1) as one:
        send(one, "clicks", PAYLOADS[:10])
        with registered(tmp_path, zookeeper, 2) as two:
            send(two, "clicks", PAYLOADS[10:20])
            first = open_stream(options(None, "stream", **given))
            end = first.latestOffset(first.initialOffset(), EVERYTHING)
        again = open_stream(options(None, "stream", **given))
        assert again.partitions(again.initialOffset(), end) == []
        with registered(tmp_path, zookeeper, 2):
            assert sorted(follow(again, end)) == sorted(PAYLOADS[:20])


def test_a_first_batch_that_its_sink_has_already_is_over(
    broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    """Spark asks where it starts, but doesn't plan it: a kill came between sink and checkpoint."""
    send(broker, "clicks", PAYLOADS)
    given = {"subscribe": "clicks", "startingOffsets": "earliest"}
    end = begin(open_stream(options(broker, "stream", **given)))
    again = open_stream(options(broker, "stream", **given))
    again.initialOffset()
    assert sorted(follow(again, end)) == sorted(PAYLOADS)


def test_topics_that_are_no_longer_subscribed_are_left_alone(
    broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    send(broker, "clicks", PAYLOADS[:10])
    send(broker, "views", PAYLOADS[10:20])
    given = {"startingOffsets": "earliest"}
    start = begin(open_stream(options(broker, "stream", subscribe="clicks,views", **given)))
    stream = open_stream(options(broker, "stream", subscribe="clicks", **given))
    end = stream.latestOffset(start, EVERYTHING)
    assert end["views"] == start["views"]
    assert sorted(batch(stream, start, end)) == sorted(PAYLOADS[:10])
    both = open_stream(options(broker, "stream", subscribe="clicks,views", **given))
    assert sorted(follow(both, end)) == sorted(PAYLOADS[10:20])


def test_available_now_does_without_a_topic_whose_brokers_are_all_away(
    tmp_path: Path, zookeeper: str, options: Options, send: Send, open_stream: Open
) -> None:
    given = {"zookeeper": zookeeper, "subscribe": "clicks,views", "startingOffsets": "earliest"}
    with registered(tmp_path, zookeeper, 1) as one:
        send(one, "views", PAYLOADS[:10])
        with registered(tmp_path, zookeeper, 2) as two:
            send(two, "clicks", PAYLOADS[10:20])
            start = begin(open_stream(options(None, "stream", **given)))
        stream = open_stream(options(None, "stream", **given))
        stream.prepareForTriggerAvailableNow()
        end = stream.latestOffset(start, EVERYTHING)
        assert end["clicks"] == start["clicks"]
        assert sorted(batch(stream, start, end)) == sorted(PAYLOADS[:10])
        with registered(tmp_path, zookeeper, 2):
            assert stream.latestOffset(end, EVERYTHING) == end, "it was not there at the start"
            again = open_stream(options(None, "stream", **given))
            again.prepareForTriggerAvailableNow()
            assert sorted(follow(again, end)) == sorted(PAYLOADS[10:20])


@contextmanager
def left_behind(zookeeper: str, broker_id: int) -> Iterator[None]:
    """What a broker that was killed leaves in ZooKeeper until its session times out."""
    session = Session(zookeeper)
    session.start()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen: nobody else gets the port
        port = silent.getsockname()[1]
        session.create_ephemeral(broker_path(broker_id), format_broker("127.0.0.1", port, 0))
        session.create_ephemeral(topic_path("clicks", broker_id), format_number(3))
        try:
            yield
        finally:
            session.stop()


def test_a_broker_that_was_killed_is_away_though_it_is_registered(
    tmp_path: Path,
    zookeeper: str,
    options: Options,
    send: Send,
    open_stream: Open,
    caplog: pytest.LogCaptureFixture,
) -> None:
    given: dict[str, Any] = {"subscribe": "clicks", "startingOffsets": "earliest"}
    given["fetchOffset.retryIntervalMs"] = 1
    stream = open_stream(options(None, "stream", zookeeper=zookeeper, **given))
    with registered(tmp_path, zookeeper, 1) as one:
        send(one, "clicks", PAYLOADS[:10])
        with registered(tmp_path, zookeeper, 2) as two:
            send(two, "clicks", PAYLOADS[10:20])
            start = begin(stream)
        with left_behind(zookeeper, 2):
            with caplog.at_level(logging.WARNING, "hermes.spark.cluster_reader"):
                end = stream.latestOffset(start, EVERYTHING)
            assert caplog.text.count("broker 2 is registered, but unavailable") == 1, (
                "for 3 partitions"
            )
            stays = {name: start["clicks"][name] for name in ("2-0", "2-1")}
            assert {name: end["clicks"].get(name) for name in ("2-0", "2-1", "2-2")} == {
                **stays,
                "2-2": None,
            }
            assert sorted(batch(stream, start, end)) == sorted(PAYLOADS[:10])
            stream.prepareForTriggerAvailableNow()
            assert stream.latestOffset(end, EVERYTHING) == end
        again = open_stream(options(None, "stream", zookeeper=zookeeper, **given))
        with registered(tmp_path, zookeeper, 2):
            assert sorted(follow(again, end)) == sorted(PAYLOADS[10:20])


def test_a_broker_of_a_list_is_needed() -> None:
    address = ConnectionOptions((("127.0.0.1", free_port()),))
    with (
        ClusterReader(address, RetryOptions(0, 0)) as cluster,
        pytest.raises(BrokerUnavailableError, match="refused"),
    ):
        cluster.bounds([TopicPartition("clicks", 0, 0)], may_lack=True)


def test_a_micro_batch_asks_for_all_partitions_at_once(
    options: Options, send: Send, open_stream: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_broker(settings={"topics": {"clicks": {"partitions": 300}}}) as broker:
        send(broker, "clicks", PAYLOADS[:1])
        stream = open_stream(options(broker, "stream", subscribe="clicks"))
        start = begin(stream)
        asked: list[str] = []
        for name in ("metadata", "get_offsets_before", "boundary_before"):
            method = getattr(SimpleConsumer, name)

            def noted(*args: Any, method: Any = method, name: str = name, **named: Any) -> Any:
                asked.append(name)
                return method(*args, **named)

            monkeypatch.setattr(SimpleConsumer, name, noted)
        end = stream.latestOffset(start, EVERYTHING)
        assert stream.partitions(start, end) == []
        assert sum(map(len, end.values())) == 300
        assert set(asked) == {"metadata"}
        assert len(asked) <= 3


@pytest.mark.parametrize("anew", [False, True])
def test_a_topic_that_was_deleted_or_made_anew_is_data_loss(
    anew: bool, broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    send(broker, "clicks", PAYLOADS)
    send(broker, "clicks.other", PAYLOADS[:1])
    given = {"subscribePattern": "clicks.*", "startingOffsets": "latest"}
    stream = open_stream(options(broker, "stream", **given))
    lenient = open_stream(options(broker, "stream", **given, failOnDataLoss="false"))
    start = begin(stream)
    delete_clicks(broker)
    if anew:
        send(broker, "clicks", PAYLOADS[:2])
    reason = "it ends at" if anew else "the partition is gone"
    with pytest.raises(DataLossError, match=rf"topic 'clicks' partition 0-\d: .*{reason}"):
        stream.latestOffset(start, EVERYTHING)
    send(broker, "clicks.other", PAYLOADS[100:110])
    left = PAYLOADS[:2] if anew else []
    assert sorted(follow(lenient, start)) == sorted(left + PAYLOADS[100:110])


@pytest.mark.parametrize("limit", [EVERYTHING, ReadMaxBytes(100)])
def test_a_topic_made_anew_is_read_from_its_beginning(
    limit: ReadLimit, broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    given = options(broker, "stream", subscribe="clicks", failOnDataLoss="false")
    send(broker, "clicks", PAYLOADS)
    stream = open_stream(given)
    start = begin(stream)
    delete_clicks(broker)
    send(broker, "clicks", PAYLOADS[:150])
    end = stream.latestOffset(start, limit)
    assert end == {"clicks": {"0-0": 0, "0-1": 0}}
    send(broker, "clicks", PAYLOADS[150:])
    for reader in (stream, open_stream(given)):
        assert reader.partitions(start, end) == [], "nothing, also when it is planned once more"
    assert sorted(follow(stream, end, limit)) == sorted(PAYLOADS)


@pytest.mark.parametrize("count", [0, 20])
def test_a_batch_that_was_planned_before_its_topic_was_made_anew(
    count: int, broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    """What the topic holds now belongs to later batches; read once, not twice."""
    given = {"subscribePattern": "clicks.*", "startingOffsets": "earliest"}
    send(broker, "clicks", PAYLOADS)
    send(broker, "clicks.other", PAYLOADS[:1])
    first = open_stream(options(broker, "stream", **given))
    start = begin(first)
    end = first.latestOffset(start, EVERYTHING)
    delete_clicks(broker)
    send(broker, "clicks", PAYLOADS[:count])
    strict = open_stream(options(broker, "stream", **given))
    there = r"it ends at \d+" if count else "the partition is gone"
    with pytest.raises(DataLossError, match=rf"offset \d+ was planned, but {there} \(re-created"):
        strict.partitions(start, end)
    lenient = open_stream(options(broker, "stream", **given, failOnDataLoss="false"))
    assert batch(lenient, start, end) == PAYLOADS[:1], "of the other topic"
    assert sorted(follow(lenient, end)) == sorted(PAYLOADS[:count])


def test_a_topic_that_was_gone_is_read_from_its_beginning_however_long_it_is(
    broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    given = options(broker, "stream", subscribe="clicks", failOnDataLoss="false")
    send(broker, "clicks", PAYLOADS[:50])
    stream = open_stream(given)
    start = begin(stream)
    delete_clicks(broker)
    gone = stream.latestOffset(start, EVERYTHING)
    assert stream.partitions(start, gone) == []
    assert stream.latestOffset(gone, ReadMaxBytes(100)) == gone
    send(broker, "clicks", PAYLOADS)
    assert sorted(follow(open_stream(given), gone)) == sorted(PAYLOADS)


def test_available_now_ends_between_messages_of_a_topic_made_anew(
    broker: RunningBroker, options: Options, send: Send, open_stream: Open
) -> None:
    given = options(broker, "stream", subscribe="clicks", failOnDataLoss="false")
    send(broker, "clicks", PAYLOADS[:50])
    stream = open_stream(given)
    stream.prepareForTriggerAvailableNow()
    start = {"clicks": {"0-0": 0, "0-1": 0}}
    delete_clicks(broker)
    longer = [payload + b" and more" for payload in PAYLOADS]
    send(broker, "clicks", longer)
    end = stream.latestOffset(start, EVERYTHING)
    found = batch(stream, start, end)
    assert 0 < len(found) < len(PAYLOADS)
    strict = open_stream(options(broker, "stream", subscribe="clicks"))
    assert sorted(found + follow(strict, end)) == sorted(longer)


# -- retention ----------------------------------------------------------------------------------


class Overtaken:
    """A broker that can be made to lose its oldest segments, at one address."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._settings = {"segment_bytes": 1000, "listen": "tcp:0:interface=127.0.0.1"}

    @contextmanager
    def running(self) -> Iterator[RunningBroker]:
        with running_broker(self._log_dir, self._settings) as broker:
            self._settings["listen"] = f"tcp:{broker.port}:interface=127.0.0.1"
            yield broker

    def lose(self, before: int) -> int:
        """Delete, while it is down, the segments that start before an offset; how many bytes."""
        logs = sorted((self._log_dir / "clicks-0").glob("*.kafka"))
        starts = [int(each.stem) for each in logs]
        for each, start in zip(logs, starts, strict=True):
            if start < before:
                each.unlink()
        return min(start for start in starts if start >= before)


@pytest.fixture
def overtaken(tmp_path: Path) -> Overtaken:
    return Overtaken(tmp_path / "log")


def send_singly(send: Send, broker: RunningBroker, payloads: list[bytes]) -> None:
    """In requests of their own, so that segments roll between them."""
    for payload in payloads:
        send(broker, "clicks", [payload])


def test_a_limited_stream_that_retention_has_overtaken(
    overtaken: Overtaken, options: Options, send: Send, open_stream: Open
) -> None:
    with overtaken.running() as broker:
        send_singly(send, broker, PAYLOADS)
    earliest = overtaken.lose(before=1)
    start = {"clicks": {"0-0": 0}}
    limit = ReadMaxBytes(100)
    with overtaken.running() as broker:
        strict = open_stream(options(broker, "stream", subscribe="clicks"))
        text = rf"topic 'clicks' partition 0-0: offset 0 was wanted, {earliest} to \d+ are availab"
        with pytest.raises(DataLossError, match=text):
            strict.latestOffset(start, limit)
        lenient = open_stream(options(broker, "stream", subscribe="clicks", failOnDataLoss="false"))
        first = lenient.latestOffset(start, limit)
        assert earliest < first["clicks"]["0-0"] <= earliest + 100
        found = follow(lenient, start, limit)
    assert 0 < len(found) < len(PAYLOADS)
    assert found == PAYLOADS[-len(found) :]


def test_available_now_ends_where_retention_has_overtaken_its_end(
    overtaken: Overtaken, options: Options, send: Send, open_stream: Open
) -> None:
    with overtaken.running() as broker:
        given = {"subscribe": "clicks", "startingOffsets": "earliest", "failOnDataLoss": "false"}
        stream = open_stream(options(broker, "stream", **given))
        send_singly(send, broker, PAYLOADS[:100])
        start = begin(stream)
        stream.prepareForTriggerAvailableNow()
        target = stream.latestOffset(start, EVERYTHING)["clicks"]["0-0"]
        send_singly(send, broker, PAYLOADS[100:])
    earliest = overtaken.lose(before=target + 1)
    with overtaken.running():
        end = stream.latestOffset(start, ReadMaxBytes(100))
        assert end == {"clicks": {"0-0": earliest}}
        assert stream.partitions(start, end) == []
        assert stream.latestOffset(end, ReadMaxBytes(100)) == end


# -- groups -------------------------------------------------------------------------------------


def test_progress_is_published_for_a_group(
    tmp_path: Path, zookeeper: str, options: Options, send: Send, open_stream: Open
) -> None:
    given = {"zookeeper": zookeeper, "subscribe": "clicks", "startingOffsets": "earliest"}
    with registered(tmp_path, zookeeper, 1) as broker:
        send(broker, "clicks", PAYLOADS)
        stream = open_stream(options(None, "stream", **given, groupId="watched"))
        start = begin(stream)
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
            begin(taken)
    finally:
        session.stop()


def test_progress_is_not_published_once_the_group_has_members(
    tmp_path: Path,
    zookeeper: str,
    options: Options,
    send: Send,
    open_stream: Open,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The offsets are those of the members then, who joined while the stream was running."""
    session = Session(zookeeper)
    session.start()
    try:
        with registered(tmp_path, zookeeper, 1) as broker:
            send(broker, "clicks", PAYLOADS)
            given = {"zookeeper": zookeeper, "subscribe": "clicks", "groupId": "watched"}
            stream = open_stream(options(None, "stream", **given))
            start = begin(stream)
            session.create_ephemeral("/consumers/watched/ids/somebody", b'{ "clicks": 1 }')
            with caplog.at_level(logging.WARNING, "hermes.spark.cluster_reader"):
                stream.commit(start)
        assert read_group(session, "watched").offsets == {}
    finally:
        session.stop()
    assert "of group 'watched' is not published: somebody has joined" in caplog.text


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
    start = begin(stream)
    assert json.loads(json.dumps(start)) == start == {}
