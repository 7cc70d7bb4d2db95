"""What a batch plans and reads."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from hermes.client import FetchRequest, SimpleConsumer
from hermes.client.connection import BrokerConnection
from hermes.errors import (
    BrokerUnavailableError,
    ConfigError,
    DataLossError,
    InvalidMessageError,
    RoutingError,
    UnknownTopicError,
)
from hermes.spark.micro_batches import HermesStreamReader
from hermes.spark.options import SourceOptions
from hermes.spark.source import HermesBatchReader
from hermes.testing import RunningBroker, running_broker

Options = Callable[..., SourceOptions]
ReadAll = Callable[[SourceOptions], list[dict[str, Any]]]
Send = Callable[..., None]

PAYLOADS = [b"message %d" % number for number in range(200)]


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["topic"], row["broker"], row["partition"], row["offset"], row["index"]


def values(rows: list[dict[str, Any]]) -> list[bytes]:
    return [row["value"] for row in rows]


def test_every_message_is_read_once_with_its_place(
    broker: RunningBroker, options: Options, read_all: ReadAll, send: Send
) -> None:
    send(broker, "clicks", PAYLOADS)
    rows = read_all(options(broker, subscribe="clicks"))
    assert sorted(values(rows)) == sorted(PAYLOADS)
    assert len({key(row) for row in rows}) == len(rows)
    with SimpleConsumer(broker.host, broker.port) as consumer:
        for number in (0, 1):
            stored = consumer.fetch(FetchRequest("clicks", number, 0, 1 << 20))
            read = [row for row in rows if row["partition"] == number]
            assert [(row["value"], row["next_offset"]) for row in read] == [
                (message.payload, next_offset) for message, next_offset in stored
            ]
            assert read[0]["offset"] == 0


def test_messages_of_a_compressed_set_share_its_offsets(
    broker: RunningBroker, options: Options, read_all: ReadAll, send: Send
) -> None:
    send(broker, "zipped", PAYLOADS, compression="gzip", producer_type="async", batch_size=20)
    rows = read_all(options(broker, subscribe="zipped"))
    assert sorted(values(rows)) == sorted(PAYLOADS)
    assert len({key(row) for row in rows}) == len(rows)
    assert any(row["index"] > 0 for row in rows)
    first = [row for row in rows if (row["partition"], row["offset"]) == (0, 0)]
    assert [row["index"] for row in first] == list(range(len(first)))
    (behind,) = {row["next_offset"] for row in first}
    start = json.dumps({"zipped": {"0-0": behind, "0-1": 0}})
    rest = read_all(options(broker, subscribe="zipped", startingOffsets=start))
    assert sorted(values(first + rest)) == sorted(PAYLOADS)


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 50])
def test_min_partitions_splits_at_boundaries(
    tasks: int, broker: RunningBroker, options: Options, read_all: ReadAll, send: Send
) -> None:
    send(broker, "clicks", PAYLOADS)
    given = options(broker, subscribe="clicks", minPartitions=tasks)
    assert len(HermesBatchReader(given).partitions()) == tasks
    assert sorted(values(read_all(given))) == sorted(PAYLOADS)


def test_a_split_finer_than_the_messages_gives_one_task_each(
    broker: RunningBroker, options: Options, read_all: ReadAll, send: Send
) -> None:
    send(broker, "clicks", PAYLOADS[:4])
    given = options(broker, subscribe="clicks", minPartitions=100)
    assert len(HermesBatchReader(given).partitions()) <= 4
    assert sorted(values(read_all(given))) == sorted(PAYLOADS[:4])


def test_planning_reads_no_data(
    broker: RunningBroker, options: Options, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, "clicks", PAYLOADS)

    def refuse(*_: object) -> None:
        raise AssertionError("planning fetched messages")

    for name in ("fetch", "multifetch", "fetch_waiting"):
        monkeypatch.setattr(SimpleConsumer, name, refuse)
    assert (
        len(HermesBatchReader(options(broker, subscribe="clicks", minPartitions=5)).partitions())
        == 5
    )


def test_planning_asks_as_often_however_many_partitions_there_are(
    start_running: Callable[..., RunningBroker],
    options: Options,
    send: Send,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a batch, for the next offsets of a stream, and for its micro-batch."""
    asked: list[int] = []
    call = BrokerConnection.call

    def counted(self: BrokerConnection, *arguments: Any, **named: Any) -> Any:
        asked.append(1)
        return call(self, *arguments, **named)

    counts = []
    for broker_id, partitions in ((0, 2), (1, 150)):
        broker = start_running(broker_id=broker_id, num_partitions=partitions)
        send(broker, "clicks", [b"x"] * partitions)
        with monkeypatch.context() as patch:
            patch.setattr(BrokerConnection, "call", counted)
            asked.clear()
            (task,) = HermesBatchReader(options(broker, subscribe="clicks")).partitions()
            assert len(task.ranges) == partitions
            stream = HermesStreamReader(options(broker, "stream", subscribe="clicks"))
            start = {"clicks": {f"{broker_id}-{number}": 0 for number in range(partitions)}}
            end = stream.latestOffset(start, ReadAllAvailable())
            (task,) = stream.partitions(start, end)
            stream.stop()
            assert len(task.ranges) == partitions
            counts.append(len(asked))
    assert counts[0] == counts[1]


def test_offsets_choose_a_part(
    broker: RunningBroker, options: Options, read_all: ReadAll, send: Send
) -> None:
    send(broker, "clicks", PAYLOADS)
    rows = [row for row in read_all(options(broker, subscribe="clicks")) if row["partition"] == 0]
    start, end = rows[3]["offset"], rows[7]["offset"]
    part = read_all(
        options(
            broker,
            subscribe="clicks",
            startingOffsets=json.dumps({"clicks": {"0-0": start, "0-1": -2}}),
            endingOffsets=json.dumps({"clicks": {"0-0": end, "0-1": 0}}),
        )
    )
    assert part == rows[3:7]


def test_assigned_partitions_and_patterns(
    broker: RunningBroker, options: Options, read_all: ReadAll, send: Send
) -> None:
    send(broker, "clicks", PAYLOADS)
    send(broker, "clicks.old", [b"old"])
    send(broker, "views", [b"view"])
    assigned = read_all(options(broker, assign=json.dumps({"clicks": ["0-1"]})))
    assert {(row["topic"], row["partition"]) for row in assigned} == {("clicks", 1)}
    matched = read_all(options(broker, subscribePattern=r"clicks(\.\w+)?"))
    assert sorted(values(matched)) == sorted([*PAYLOADS, b"old"])
    both = read_all(options(broker, subscribe=" views, clicks.old "))
    assert sorted(values(both)) == [b"old", b"view"]
    assert read_all(options(broker, subscribePattern="nothing.*")) == []


def test_times_choose_a_part(
    broker: RunningBroker, options: Options, read_all: ReadAll, send: Send
) -> None:
    send(broker, "clicks", PAYLOADS[:10])
    first = max(row["timestamp"] for row in timed(broker, options, read_all))
    while int(time.time() * 1000) <= (cut := int(first.timestamp() * 1000) + 1):
        pass  # the clock has to move on by a millisecond or two
    send(broker, "clicks", PAYLOADS[10:])
    later = read_all(options(broker, subscribe="clicks", startingTimestamp=cut))
    assert sorted(values(later)) == sorted(PAYLOADS[10:])
    before = read_all(options(broker, subscribe="clicks", endingTimestamp=cut))
    assert sorted(values(before)) == sorted(PAYLOADS[:10])


@pytest.mark.parametrize("time_ms", [0, 1])
def test_times_before_everything(
    time_ms: int, broker: RunningBroker, options: Options, read_all: ReadAll, send: Send
) -> None:
    """The times right before these are the protocol's words for the latest, and so on."""
    send(broker, "clicks", PAYLOADS)
    rows = read_all(options(broker, subscribe="clicks", startingTimestamp=time_ms))
    assert sorted(values(rows)) == sorted(PAYLOADS)
    assert read_all(options(broker, subscribe="clicks", endingTimestamp=time_ms)) == []


def test_a_time_for_each_partition(
    broker: RunningBroker, options: Options, read_all: ReadAll, send: Send
) -> None:
    send(broker, "clicks", PAYLOADS)
    future = int(time.time() * 1000) + 10**9
    times = json.dumps({"clicks": {"0-0": 0, "0-1": future}})
    first = read_all(options(broker, subscribe="clicks", startingOffsetsByTimestamp=times))
    second = read_all(options(broker, subscribe="clicks", endingOffsetsByTimestamp=times))
    assert {row["partition"] for row in first} == {0}
    assert {row["partition"] for row in second} == {1}
    assert sorted(values([*first, *second])) == sorted(PAYLOADS)
    wanted = json.dumps({"clicks": {"0-0": 0}})
    with pytest.raises(ConfigError, match="startingOffsetsByTimestamp: expected an offset for e"):
        read_all(options(broker, subscribe="clicks", startingOffsetsByTimestamp=wanted))


def timed(broker: RunningBroker, options: Options, read_all: ReadAll) -> list[dict[str, Any]]:
    return read_all(options(broker, subscribe="clicks", includeTimestamp="true"))


def test_the_timestamp_is_the_brokers(
    broker: RunningBroker, options: Options, read_all: ReadAll, send: Send
) -> None:
    before = int(time.time() * 1000)
    send(broker, "clicks", PAYLOADS)
    after = int(time.time() * 1000)
    rows = timed(broker, options, read_all)
    assert sorted(values(rows)) == sorted(PAYLOADS)
    assert all(before <= row["timestamp"].timestamp() * 1000 <= after for row in rows)
    for number in (0, 1):
        times = [row["timestamp"] for row in rows if row["partition"] == number]
        assert times == sorted(times)


def test_a_time_that_is_not_known_is_null(
    tmp_path: Path, options: Options, read_all: ReadAll, send: Send
) -> None:
    """As in a log that Kafka wrote: the index is missing."""
    with running_broker(tmp_path / "log") as broker:
        send(broker, "clicks", PAYLOADS[:5])
    for index in (tmp_path / "log").rglob("*.timeindex"):
        index.unlink()
    with running_broker(tmp_path / "log") as broker:
        send(broker, "clicks", PAYLOADS[5:10])
        rows = timed(broker, options, read_all)
    assert [row["timestamp"] is None for row in rows] == [True] * 5 + [False] * 5


def test_brokers_and_partitions_come_from_zookeeper(
    zookeeper: str,
    start_running: Callable[..., RunningBroker],
    options: Options,
    read_all: ReadAll,
    send: Send,
) -> None:
    registered = {"coordination": "zookeeper", "zookeeper_connect": zookeeper}
    brokers = [start_running(broker_id=number, **registered) for number in (1, 2)]
    for number, broker in enumerate(brokers):
        send(broker, "clicks", PAYLOADS[number::2])
    with SimpleConsumer(brokers[0].host, brokers[0].port) as admin:
        admin.create_topic("carts", {"format": "kafka"})
    send(brokers[0], "carts", [b"a record"])
    rows = read_all(options(zookeeper=zookeeper, subscribePattern="c.*"))
    assert sorted(values(rows)) == sorted([*PAYLOADS, b"a record"])
    assert {row["broker"] for row in rows} == {1, 2}


# -- what goes wrong ----------------------------------------------------------------------------


@pytest.fixture
def shortened(tmp_path: Path, send: Send) -> Callable[[], Any]:
    """A broker whose first segment retention has deleted; gives it as a context."""
    settings = {"segment_bytes": 1000}
    with running_broker(tmp_path / "log", settings) as broker:
        for payload in PAYLOADS:
            send(broker, "clicks", [payload])
    first, *others = sorted((tmp_path / "log" / "clicks-0").glob("*.kafka"))
    assert others
    first.unlink()
    return lambda: running_broker(tmp_path / "log", settings)


def test_offsets_that_are_gone_are_an_error_that_names_them(
    shortened: Callable[[], Any], options: Options, read_all: ReadAll
) -> None:
    start = json.dumps({"clicks": {"0-0": 0}})
    with shortened() as broker:
        with pytest.raises(DataLossError) as caught:
            read_all(options(broker, subscribe="clicks", startingOffsets=start))
        rows = read_all(
            options(broker, subscribe="clicks", startingOffsets=start, failOnDataLoss="false")
        )
        earliest = rows[0]["offset"]
    text = str(caught.value)
    assert "topic 'clicks' partition 0-0: offset 0 was wanted" in text
    assert f"{earliest} to {rows[-1]['next_offset']} are available" in text
    assert "failOnDataLoss" in text
    assert 0 < len(rows) < len(PAYLOADS)
    assert values(rows) == PAYLOADS[-len(rows) :]


def test_what_goes_between_planning_and_reading(
    tmp_path: Path, options: Options, send: Send
) -> None:
    settings = {"segment_bytes": 1000, "listen": "tcp:0:interface=127.0.0.1"}
    with running_broker(tmp_path / "log", settings) as broker:
        for payload in PAYLOADS:
            send(broker, "clicks", [payload])
        given = options(broker, subscribe="clicks", **{"fetchOffset.retryIntervalMs": 1})
        lenient = options(broker, subscribe="clicks", failOnDataLoss="false")
        (planned,) = HermesBatchReader(given).partitions()
        port = broker.port
    sorted((tmp_path / "log" / "clicks-0").glob("*.kafka"))[0].unlink()
    settings["listen"] = f"tcp:{port}:interface=127.0.0.1"
    with running_broker(tmp_path / "log", settings):
        with pytest.raises(DataLossError, match="offset 0 was wanted"):
            list(HermesBatchReader(given).read(planned))
        left = [
            row for each in HermesBatchReader(lenient).read(planned) for row in each.to_pylist()
        ]
    assert 0 < len(left) < len(PAYLOADS)
    assert values(left) == PAYLOADS[-len(left) :]


def test_damage_is_an_error_or_stepped_over(
    tmp_path: Path, options: Options, read_all: ReadAll, send: Send
) -> None:
    with running_broker(tmp_path / "log") as broker:
        send(broker, "clicks", PAYLOADS)
    log = tmp_path / "log" / "clicks-0" / f"{0:020d}.kafka"
    data = bytearray(log.read_bytes())
    place = data.index(PAYLOADS[50])
    data[place] ^= 1
    log.write_bytes(data)
    with running_broker(tmp_path / "log") as broker:
        with pytest.raises(InvalidMessageError, match=f"offset {place - 10}"):
            read_all(options(broker, subscribe="clicks"))
        rows = read_all(options(broker, subscribe="clicks", failOnDataLoss="false"))
    assert values(rows) == PAYLOADS[:50] + PAYLOADS[51:]


def test_a_damaged_length_does_not_lead_out_of_the_range(
    tmp_path: Path, options: Options, read_all: ReadAll, send: Send
) -> None:
    with running_broker(tmp_path / "log") as broker:
        send(broker, "clicks", PAYLOADS)
        rows = read_all(options(broker, subscribe="clicks"))
    log = tmp_path / "log" / "clicks-0" / f"{0:020d}.kafka"
    data = bytearray(log.read_bytes())
    data[rows[49]["offset"] + 2] ^= 1  # 256 bytes longer
    log.write_bytes(data)
    ends = json.dumps({"clicks": {"0-0": rows[55]["offset"]}})
    with running_broker(tmp_path / "log") as broker:
        part = read_all(
            options(broker, subscribe="clicks", endingOffsets=ends, failOnDataLoss="false")
        )
    assert values(part) == PAYLOADS[:49] + PAYLOADS[50:55]


def test_an_offset_within_a_message_is_refused(
    broker: RunningBroker, options: Options, read_all: ReadAll, send: Send
) -> None:
    send(broker, "clicks", PAYLOADS)
    start = json.dumps({"clicks": {"0-0": 5, "0-1": 0}})
    with pytest.raises(ConfigError, match="the last one before starts at 0"):
        read_all(options(broker, subscribe="clicks", startingOffsets=start))


BEGINNING = json.dumps({"clicks": {"0-0": 0, "0-1": 0}})
SECOND = json.dumps({"clicks": {"0-0": 20, "0-1": 0}})
FUTURE = str(1 << 50)


@pytest.mark.parametrize(
    ("starting", "ending"),
    [
        ({"startingOffsets": SECOND}, {"endingOffsets": BEGINNING}),
        ({"startingOffsets": SECOND}, {"endingTimestamp": "1"}),
        ({"startingTimestamp": FUTURE}, {"endingOffsets": BEGINNING}),
    ],
)
def test_options_that_would_end_before_the_start_are_refused_by_name(
    starting: dict[str, str],
    ending: dict[str, str],
    broker: RunningBroker,
    options: Options,
    read_all: ReadAll,
    send: Send,
) -> None:
    send(broker, "clicks", [b"ten bytes."] * 8)
    (first,), (last,) = starting, ending
    text = rf"^{last}: topic 'clicks' partition 0-0 would end at 0, before \d+, where {first} "
    with pytest.raises(ConfigError, match=text):
        read_all(options(broker, subscribe="clicks", **starting, **ending))


def test_a_time_to_come_is_no_contradiction(
    broker: RunningBroker, options: Options, read_all: ReadAll, send: Send
) -> None:
    send(broker, "clicks", PAYLOADS)
    assert read_all(options(broker, subscribe="clicks", startingTimestamp=FUTURE)) == []


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"subscribe": "klicks"}, "no topic 'klicks' on the brokers; there are: clicks"),
        (
            {"assign": '{"clicks": ["0-7"]}'},
            "no topic 'clicks' partition 0-7; the topic has 0-0, 0-1",
        ),
        (
            {"subscribe": "clicks", "startingOffsets": '{"clicks": {"0-0": 0}}'},
            "startingOffsets: expected an offset for each partition; missing: topic 'clicks' "
            "partition 0-1",
        ),
        (
            {"assign": '{"clicks": ["0-0"]}', "endingOffsets": '{"clicks": {"0-0": 0, "0-1": 0}}'},
            "endingOffsets: topic 'clicks' partition 0-1 is not among the partitions",
        ),
    ],
)
def test_what_is_not_there_is_named(
    given: dict[str, str],
    text: str,
    broker: RunningBroker,
    options: Options,
    read_all: ReadAll,
    send: Send,
) -> None:
    send(broker, "clicks", PAYLOADS)
    with pytest.raises((ConfigError, UnknownTopicError), match=re.escape(text)):
        read_all(options(broker, **given))


def test_no_broker_is_an_error_after_the_retries(options: Options, read_all: ReadAll) -> None:
    with running_broker() as broker:
        address = f"{broker.host}:{broker.port}"
    given = {"hermes.bootstrap.servers": address, "fetchOffset.retryIntervalMs": "1"}
    with pytest.raises(BrokerUnavailableError, match=address):
        read_all(options(subscribe="clicks", **given))


def test_two_servers_with_the_same_id_are_refused(
    tmp_path: Path, options: Options, read_all: ReadAll
) -> None:
    with running_broker(tmp_path / "a") as one, running_broker(tmp_path / "b") as other:
        servers = ",".join(f"{each.host}:{each.port}" for each in (one, other))
        with pytest.raises(RoutingError, match="both say that they are broker 0"):
            read_all(options(subscribe="clicks", **{"hermes.bootstrap.servers": servers}))
