"""A whole data directory on every file layer: the operating system's, and the tests' in memory."""

from collections.abc import Callable
from errno import EIO
from pathlib import Path

import pytest
from file_places import PLACES, Place
from kafka_logs import append_values, read_records
from storage_logs import NOW_MS, append, message, read_all, settings

from hermes.errors import (
    CorruptEntriesError,
    DataDirectoryLockedError,
    LogOfflineError,
    StorageError,
)
from hermes.storage import (
    CLEAN_SHUTDOWN_MARKER,
    DataDirectory,
    Log,
    LogSettings,
    OpenReport,
)
from hermes.storage.producer_ids import FIRST_PRODUCER_ID
from hermes.storage.topic_entries import TopicEntries

CLUSTER_ID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def settings_of(topic: str) -> LogSettings:
    """Segments of a few messages; topics that begin with k have Kafka's format."""
    return settings(150, format="kafka" if topic.startswith("k") else "0.7")


class Broker:
    """What a broker does with its directory, from one start to the next."""

    def __init__(self, place: Place, broker_id: int | None = None) -> None:
        self.entries: TopicEntries = {}
        self.directory = DataDirectory(
            place.path("logs"), settings_of, place.files, take_entries=self._take
        )
        self.report = self.directory.open(NOW_MS, broker_id=broker_id)

    def _take(self, entries: TopicEntries) -> None:
        self.entries = entries

    def log(self, topic: str, partition: int = 0) -> Log:
        return self.directory.create(topic, partition)

    def append(self, topic: str, *values: bytes, partition: int = 0) -> Log:
        log = self.log(topic, partition)
        for value in values:
            append_values(log, value) if log.counts_messages else append(log, message(value))
        return log

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        log = self.directory.get(topic, partition)
        assert log is not None
        if log.counts_messages:
            return [each.value for each in read_records(log)]
        data = read_all(log)
        return [data[at + 10 : at + 12] for at in range(0, len(data), 12)]


def segments(place: Place, topic: str) -> list[str]:
    directory = f"logs/{topic}-0"
    names = place.names(directory)
    return [f"{directory}/{name}" for name in names if name.endswith((".log", ".kafka"))]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return PLACES[request.param](tmp_path)


@pytest.fixture(params=["k", "o"], ids=["Kafka's format", "0.7's"])
def topic(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_a_missing_directory_is_made_with_its_parents(place: Place) -> None:
    directory = DataDirectory(place.path("a/b/c"), settings_of, place.files)
    assert directory.open(NOW_MS) == OpenReport(was_clean=False)
    assert place.names("a/b/c") == [".hermes_lock"]
    assert directory.close()


def test_what_stands_in_its_place_is_named(place: Place) -> None:
    place.write("logs", b"a file")
    with pytest.raises(StorageError, match=r"open data directory .*/logs: File exists"):
        Broker(place)
    assert place.read("logs") == b"a file"


def test_what_was_flushed_is_there_after_a_clean_stop_and_after_a_kill(
    place: Place, topic: str
) -> None:
    values = [b"%02d" % number for number in range(12)]
    broker = Broker(place)
    broker.append(topic, *values[:4])
    assert broker.directory.close()
    assert CLEAN_SHUTDOWN_MARKER in place.names("logs")

    broker = Broker(place)
    assert broker.report == OpenReport(was_clean=True)
    assert CLEAN_SHUTDOWN_MARKER not in place.names("logs")
    broker.append(topic, *values[4:8]).flush()
    broker.append(topic, *values[8:])
    assert broker.values(topic) == values[:8]
    place.kill()

    broker = Broker(place)
    assert not broker.report.was_clean
    assert broker.report.recovered.keys() == {(topic, 0)}
    assert broker.values(topic) == values  # a kill takes nothing that was written
    assert broker.directory.close()


def test_a_torn_end_is_cut_off_and_told(place: Place, topic: str) -> None:
    broker = Broker(place)
    log = broker.append(topic, b"00")
    log.flush()
    place.kill()
    (segment,) = segments(place, topic)
    place.write(segment, place.read(segment) + b"torn")
    broker = Broker(place)
    assert broker.report.dropped_bytes == 4
    assert broker.values(topic) == [b"00"]
    broker.directory.close()


def test_one_process_at_a_time(place: Place) -> None:
    broker = Broker(place)
    broker.append("o", b"00")
    before = place.names("logs")
    with pytest.raises(DataDirectoryLockedError, match="logs is in use by process"):
        Broker(place)
    assert place.names("logs") == before
    assert broker.directory.close()
    Broker(place)
    place.kill()
    assert Broker(place).directory.close()


@pytest.mark.parametrize("was_clean", [False, True])
def test_a_start_that_fails_writes_no_marker_and_keeps_the_one_that_was_there(
    place: Place, was_clean: bool
) -> None:
    Broker(place).directory.close(clean=was_clean)
    broker = Broker(place)
    assert broker.report.was_clean is was_clean
    assert broker.directory.close(clean=False) is was_clean
    assert Broker(place).report.was_clean is was_clean


def test_a_deleted_topic_is_gone_and_another_of_its_name_is_another(
    place: Place, topic: str
) -> None:
    broker = Broker(place)
    for number in range(2):
        broker.append(topic, b"00", b"01", partition=number).flush()
    broker.append(f"{topic}-more", b"02").flush()
    broker.log(topic).delete_oldest(100)
    old_id = broker.log(topic).topic_id
    assert broker.directory.delete_topic(topic) > 0
    assert broker.directory.delete_topic(topic) == 0
    assert [name for name in place.names("logs") if name[0] != "."] == [f"{topic}-more-0"]
    place.kill()

    broker = Broker(place)
    assert list(broker.directory.logs) == [(f"{topic}-more", 0)]
    log = broker.append(topic, b"03")
    assert log.flush() == log.end_offset
    assert (broker.values(topic), log.earliest) == ([b"03"], 0)
    assert (old_id is None) is (topic == "o")
    assert old_id is None or log.topic_id != old_id
    assert broker.directory.close()


@pytest.mark.parametrize(
    "left",
    [
        {"00000000000000000010.snapshot": b"\0\1...", "leader-epoch-checkpoint": b"0\n0\n"},
        {"00000000000000000010.unflushed": b"bytes", "partition.metadata": bytes(43)},
        {"00000000000000000000.log": b"", "partition.metadata": b""},
        {"leader-epoch-checkpoint": b"0\n1\n0 0\n"},
        {"leader-epoch-checkpoint.new": b"0\n", "00000000000000000010.unflushed": b"bytes"},
    ],
    ids=["of a deletion", "of a roll", "of a creation", "of a deletion's end", "of a draft"],
)
def test_what_the_power_has_left_of_a_partition_without_messages_is_begun_again(
    place: Place, left: dict[str, bytes]
) -> None:
    for directory in ("logs", "logs/k-0", "logs/k-1"):
        place.files.mkdir(place.path(directory))
    for name, data in left.items():
        for number in range(2):
            place.write(f"logs/k-{number}/{name}", data)
    broker = Broker(place)
    assert dict(broker.directory.logs) == {}
    assert broker.report.strange == ()
    broker.append("k", b"00").flush()
    assert broker.values("k") == [b"00"]
    broker.directory.delete_topic("k")
    assert [name for name in place.names("logs") if name[0] != "."] == []
    assert broker.directory.close()


@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "00000000000000000010.snapshot", "partition.metadata"]
)
def test_what_is_left_of_kafkas_format_is_no_topic_of_0_7(place: Place, name: str) -> None:
    """Of a topic that Kafka has made, no setting says which format it had."""
    for directory in ("logs", "logs/o-0", "logs/o-1"):
        place.files.mkdir(place.path(directory))
    place.write(f"logs/o-0/{name}", b"left")
    place.write(f"logs/o-1/{name}", b"left")
    broker = Broker(place)
    assert (dict(broker.directory.logs), broker.report.strange) == ({}, ())
    broker.append("o", b"00").flush()
    assert broker.values("o") == [b"00"]
    assert place.names("logs/o-0") == [
        "00000000000000000000.kafka",
        "00000000000000000000.timeindex",
    ]
    broker.directory.delete_topic("o")
    assert [each for each in place.names("logs") if each[0] != "."] == []
    assert broker.directory.close()


def test_a_partition_of_which_only_our_record_is_left_tells_what_it_has_lost(place: Place) -> None:
    broker = Broker(place)
    broker.append("k", b"00", b"01").flush()
    topic_id = broker.log("k").topic_id
    place.kill()
    for each in place.names("logs/k-0"):
        if each != "partition.hermes":
            place.files.unlink(place.path(f"logs/k-0/{each}"))
    broker = Broker(place)
    assert "ended at 2 before" in broker.report.lost["k", 0]
    assert broker.log("k").topic_id == topic_id
    assert broker.directory.close()


def test_what_retention_has_deleted_stays_deleted(place: Place, topic: str) -> None:
    values = [b"%02d" % number for number in range(20)]
    broker = Broker(place)
    log = broker.append(topic, *values)
    log.flush()
    assert log.delete_oldest(1) > 0
    kept, earliest = broker.values(topic), log.earliest
    assert 0 < len(kept) < 20
    if topic == "k":
        earliest = log.delete_records(earliest + 1)
        del kept[0]
    place.kill()
    broker = Broker(place)
    assert (broker.values(topic), broker.log(topic).earliest) == (kept, earliest)
    broker.log(topic).delete_oldest(100)
    end = broker.log(topic).end_offset
    assert broker.directory.close()
    broker = Broker(place)
    assert broker.values(topic) == []
    assert broker.append(topic, b"20").flush() > end
    assert broker.values(topic) == [b"20"]
    broker.directory.close()


def test_an_offline_log_comes_back(place: Place, topic: str) -> None:
    broker = Broker(place)
    log = broker.append(topic, b"00")
    log.flush()
    broker.append(topic, b"01")
    fdatasync = place.files.fdatasync

    def fail(descriptor: int) -> None:
        raise OSError(EIO, "Input/output error")

    place.files.fdatasync = fail  # type: ignore[method-assign,assignment]
    with pytest.raises(LogOfflineError):
        log.flush()
    assert not broker.directory.close()
    place.files.fdatasync = fdatasync  # type: ignore[method-assign]

    broker = Broker(place)
    log = broker.log(topic)
    log.state.go_offline("its disk failed")
    assert broker.directory.reopen(log, NOW_MS).dropped_bytes == 0
    broker.append(topic, b"02").flush()
    assert broker.values(topic) == [b"00", b"01", b"02"]
    assert broker.directory.close()


def test_a_directory_that_was_put_in_its_place_is_left_alone(place: Place) -> None:
    broker = Broker(place)
    log = broker.append("o", b"00")
    log.flush()
    place.files.rename(place.path("logs"), place.path("away"))
    for refused in (
        lambda: broker.log("p"),
        lambda: broker.directory.write_entries({"p": {}}),
        lambda: broker.directory.claim_producer_ids(1),
        lambda: broker.directory.reopen(log, NOW_MS),
    ):
        with pytest.raises(StorageError, match="was removed, replaced or unmounted"):
            refused()
    place.files.mkdir(place.path("logs"))
    with pytest.raises(StorageError, match="was removed, replaced or unmounted"):
        broker.log("p")
    assert not broker.directory.close()
    assert place.names("logs") == []


def test_what_is_no_log_is_reported_and_left_alone(place: Place) -> None:
    place.files.mkdir(place.path("logs"))
    for name in ("lost+found", "o-0", "t-01"):
        place.files.mkdir(place.path(f"logs/{name}"))
        place.write(f"logs/{name}/inside", b"precious")
    place.write("logs/o-1", b"precious")
    broker = Broker(place)
    assert broker.report.strange == ("lost+found", "o-0", "o-1", "t-01")
    assert dict(broker.directory.logs) == {}
    assert broker.directory.close()
    assert place.read("logs/o-1") == place.read("logs/o-0/inside") == b"precious"


def test_a_partition_that_does_not_fit_together_stays_out_of_service(
    place: Place, topic: str
) -> None:
    broker = Broker(place)
    broker.append(topic, *[b"%02d" % number for number in range(40)]).flush()
    broker.append("other", b"00").flush()
    place.kill()
    _, middle, *_, _ = segments(place, topic)
    place.files.unlink(place.path(middle))
    broker = Broker(place)
    assert broker.report.offline.keys() == {(topic, 0)}
    assert broker.values("other") == [b"00"]
    with pytest.raises(LogOfflineError):
        broker.append(topic, b"20")
    assert not broker.directory.close()


def test_another_brokers_directory_is_refused(place: Place) -> None:
    broker = Broker(place, broker_id=3)
    broker.directory.keep_owner()
    assert broker.directory.close()
    before = place.names("logs")
    with pytest.raises(StorageError, match="is the data directory of broker 3"):
        Broker(place, broker_id=4)
    assert place.names("logs") == before
    assert Broker(place, broker_id=3).report == OpenReport(was_clean=True)


def test_what_is_set_and_given_once_is_kept(place: Place) -> None:
    entries = {"clicks": {"partitions": "8"}}
    broker = Broker(place, broker_id=1)
    broker.directory.write_entries(entries)
    assert broker.directory.cluster_id(lambda: CLUSTER_ID) == CLUSTER_ID
    assert broker.directory.claim_producer_ids(10) == FIRST_PRODUCER_ID
    place.kill()
    broker = Broker(place, broker_id=1)
    assert broker.entries == entries
    assert broker.directory.cluster_id(pytest.fail) == CLUSTER_ID
    assert broker.directory.claim_producer_ids(10) == FIRST_PRODUCER_ID + 10
    assert broker.directory.close()


def _damage_id(place: Place) -> None:
    place.write("logs/.hermes_cluster_id", b"something else\n")


def _damage_entries(place: Place) -> None:
    place.write("logs/.hermes_topics", b"something else\n")


@pytest.mark.parametrize("damage", [_damage_id, _damage_entries])
def test_damaged_small_files_are_mended_by_their_copy_or_refused(
    place: Place, damage: Callable[[Place], None]
) -> None:
    broker = Broker(place, broker_id=1)
    broker.directory.cluster_id(lambda: CLUSTER_ID)
    broker.directory.write_entries({"clicks": {}})
    broker.directory.close()
    damage(place)
    if damage is _damage_entries:
        with pytest.raises(CorruptEntriesError):
            Broker(place, broker_id=1)
        return
    broker = Broker(place, broker_id=1)
    assert broker.report.healed == (f".hermes_cluster_id, which was damaged: it says {CLUSTER_ID}",)
    assert broker.directory.cluster_id(pytest.fail) == CLUSTER_ID
    broker.directory.close()
