"""Kafka 0.7's files: they open here as they are, and what we write opens there."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from storage_logs import (
    NOW_MS,
    all_files,
    append,
    kafka_files,
    message,
    open_log,
    read_all,
    settings,
)

from hermes.protocol import MessageSet
from hermes.storage import CLEAN_SHUTDOWN_MARKER, DataDirectory, Log

Recording = dict[str, Any]


@pytest.fixture
def kafka_disk(kafka_vectors: Recording) -> dict[str, bytes]:
    """The files that a Kafka 0.7.2 broker left behind, by path relative to log.dir."""
    return {
        name.removeprefix("disk/"): bytes.fromhex(vector["hex"])
        for name, vector in kafka_vectors["vectors"].items()
        if name.startswith("disk/")
    }


@pytest.fixture
def behaviours(kafka_vectors: Recording) -> dict[str, Any]:
    return {each["name"]: each for each in kafka_vectors["behaviours"]}


@pytest.fixture
def log_dir(tmp_path: Path, kafka_disk: dict[str, bytes]) -> Path:
    path = tmp_path / "kafka-logs"
    for name, data in kafka_disk.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def opened(log_dir: Path, segment_bytes: int = 1 << 30) -> DataDirectory:
    directory = DataDirectory(log_dir, lambda topic: settings(segment_bytes))
    directory.open(NOW_MS)
    return directory


def logs_of(directory: DataDirectory) -> dict[str, Log]:
    return {log.name: log for log in directory.logs.values()}


@pytest.mark.parametrize("was_clean", [False, True])
def test_every_recorded_log_opens_and_reads_back(
    log_dir: Path, kafka_disk: dict[str, bytes], was_clean: bool
) -> None:
    if was_clean:
        (log_dir / CLEAN_SHUTDOWN_MARKER).touch()
    directory = opened(log_dir)
    logs = logs_of(directory)
    expected: dict[str, bytes] = {}
    for name, data in sorted(kafka_disk.items()):
        partition = name.partition("/")[0]
        expected[partition] = expected.get(partition, b"") + data
    assert sorted(logs) == sorted(expected)
    for name, data in expected.items():
        assert read_all(logs[name]) == data
        assert logs[name].high_watermark == len(data)
    assert {name: data for name, data in all_files(log_dir).items() if name in kafka_disk} == (
        kafka_disk
    )
    directory.close()


def test_appends_continue_kafkas_last_segment(log_dir: Path, kafka_disk: dict[str, bytes]) -> None:
    directory = opened(log_dir, segment_bytes=100)
    roll = logs_of(directory)["roll-0"]
    assert append(roll, message("x" * 28)) == 532
    assert append(roll, message("y" * 28)) == 570
    roll.flush()
    last = kafka_disk["roll-0/00000000000000000456.kafka"]
    files = kafka_files(log_dir / "roll-0")
    assert files["00000000000000000456.kafka"] == last + message("x" * 28)
    assert files["00000000000000000570.kafka"] == message("y" * 28)
    directory.close()


def test_what_we_add_is_invisible_to_kafka(log_dir: Path, kafka_disk: dict[str, bytes]) -> None:
    """0.7 dies on strange directories in log.dir and reads every *.kafka in a partition."""
    before = {path.relative_to(log_dir) for path in log_dir.rglob("*") if path.is_dir()}
    directory = opened(log_dir, segment_bytes=100)
    for log in directory.logs.values():
        append(log, message("x" * 200))
        append(log, message("y" * 200))
        log.flush()
    directory.logs["roll", 0].delete_oldest(2)
    directory.close()
    assert {path.relative_to(log_dir) for path in log_dir.rglob("*") if path.is_dir()} == before
    for path in log_dir.rglob("*"):
        if path.is_file() and path.parent != log_dir:
            assert path.suffix in (".kafka", ".timeindex")
    assert (log_dir / CLEAN_SHUTDOWN_MARKER).read_bytes() == b""


def test_the_way_back_a_copy_of_the_kafka_files_is_the_whole_log(
    log_dir: Path, tmp_path: Path
) -> None:
    directory = opened(log_dir, segment_bytes=100)
    log = directory.logs["roll", 0]
    for number in range(20):
        append(log, message(f"number {number}"))
    expected = 532 + 20 * 19 - 10
    log.flush()
    everything = read_all(log)
    assert len(everything) == log.high_watermark == expected
    copy = tmp_path / "roll-0"
    copy.mkdir()
    for name, data in kafka_files(log_dir / "roll-0").items():
        (copy / name).write_bytes(data)
    directory.close()

    # What 0.7 checks when it opens: each segment starts where the one before ends.
    end = 0
    for name, data in kafka_files(copy).items():
        assert int(name.removesuffix(".kafka")) == end
        end += len(data)
    assert [bytes(m.payload) for m, _ in MessageSet(everything)][-1] == b"number 19"
    again = open_log(copy, clean=True)
    assert read_all(again) == everything
    append(again, message("and on"))
    again.flush()
    assert read_all(again) == everything + message("and on")


def test_kafka_may_write_in_between(log_dir: Path) -> None:
    """Hermes, then Kafka (which knows nothing of the index), then Hermes again."""
    directory = opened(log_dir)
    log = directory.logs["t1", 0]
    append(log, message("ours"), now_ms=NOW_MS)
    log.flush()
    directory.close()
    segment = log_dir / "t1-0" / "00000000000000000000.kafka"
    segment.write_bytes(segment.read_bytes() + message("theirs"))

    for was_clean in (True, False):
        if not was_clean:
            (log_dir / CLEAN_SHUTDOWN_MARKER).unlink()
        directory = opened(log_dir)
        log = directory.logs["t1", 0]
        assert read_all(log) == segment.read_bytes()
        assert read_all(log).endswith(message("ours") + message("theirs"))
        directory.close()


# -- the recorded behaviours --------------------------------------------------------------------


def test_recorded_no_recovery_after_a_clean_shutdown(
    log_dir: Path, behaviours: dict[str, Any]
) -> None:
    name = "9 bytes of garbage added after a CLEAN shutdown: file size after restart (no recovery)"
    assert behaviours[name]["observed"] == [39, 30]
    segment = log_dir / "tpart-0" / "00000000000000000000.kafka"
    segment.write_bytes(segment.read_bytes() + b"GARBAGE!!")
    (log_dir / CLEAN_SHUTDOWN_MARKER).touch()

    directory = opened(log_dir)

    log = directory.logs["tpart", 0]
    append(log, message("after"))
    log.flush()
    served = behaviours["fetch-garbage"]["response"]
    with log.read(30, 1000) as part:
        assert part.length == 24
    assert read_all(log, 30) == bytes.fromhex(served)[6:]
    directory.close()


def test_recorded_garbage_at_the_end_after_a_kill(
    log_dir: Path, behaviours: dict[str, Any]
) -> None:
    name = (
        "garbage in mid-log + kill -9: file size after recovery "
        "(truncated at the first bad message)"
    )
    size = behaviours[name]["observed"][0]
    segment = log_dir / "tpart-0" / "00000000000000000000.kafka"
    segment.write_bytes(segment.read_bytes() + b"GARBAGE!!")

    directory = opened(log_dir)

    assert segment.stat().st_size == size == 30
    directory.close()


def test_recorded_a_corrupted_first_message_of_the_last_segment(
    log_dir: Path, behaviours: dict[str, Any]
) -> None:
    """0.7 cuts the whole segment off; here what follows the bad message is kept."""
    name = "first message of the last segment corrupted + kill -9: size after recovery"
    assert behaviours[name]["observed"] == [0, 68]
    segment = log_dir / "t1-0" / "00000000000000000000.kafka"
    data = bytearray(segment.read_bytes())
    data[12] ^= 0xFF
    segment.write_bytes(data)

    directory = DataDirectory(log_dir, lambda topic: settings())
    report = directory.open(NOW_MS)

    assert segment.read_bytes() == data
    assert report.recovered["t1", 0].bad_ranges == ((0, 15),)
    assert report.dropped_bytes == 0
    directory.close()


def test_recorded_only_the_last_segment_is_checked(
    log_dir: Path, behaviours: dict[str, Any]
) -> None:
    served = bytes.fromhex(behaviours["fetch-corrupt-segment"]["response"])[6:]
    (log_dir / "roll-0" / "00000000000000000000.kafka").write_bytes(served)
    directory = opened(log_dir)
    log = directory.logs["roll", 0]
    with log.read(0, 1000) as part:
        assert part.length == 114
    assert read_all(log)[:114] == served
    directory.close()


def test_recorded_an_empty_directory_gets_a_segment(
    log_dir: Path, behaviours: dict[str, Any]
) -> None:
    (log_dir / "wide-0").mkdir()
    directory = opened(log_dir)
    observed = behaviours["an empty directory wide-0 gets a segment at start"]["observed"]
    assert [path.name for path in (log_dir / "wide-0").iterdir()] == observed
    assert directory.logs["wide", 0].high_watermark == 0
    directory.close()


def test_recorded_marker(log_dir: Path, behaviours: dict[str, Any]) -> None:
    marker = log_dir / CLEAN_SHUTDOWN_MARKER
    directory = opened(log_dir)
    assert not marker.exists()
    directory.close()
    (name, size) = behaviours["clean shutdown leaves a marker file"]["observed"].popitem()
    assert (marker.name, marker.stat().st_size) == (name, size)
    directory = opened(log_dir)
    assert marker.exists() is behaviours["marker file still there once started"]["observed"]
    directory.close()


def test_recorded_a_missing_middle_segment_is_that_partitions_trouble(
    log_dir: Path, behaviours: dict[str, Any]
) -> None:
    assert "a middle segment file missing" in behaviours
    (log_dir / "roll-0" / "00000000000000000114.kafka").unlink()
    before = all_files(log_dir / "roll-0")

    directory = DataDirectory(log_dir, lambda topic: settings())
    report = directory.open(NOW_MS)

    assert list(report.offline) == [("roll", 0)]
    assert "ends at offset 114, but the next segment starts at 228" in report.offline["roll", 0]
    assert directory.logs["roll", 0].is_offline
    assert read_all(directory.logs["t1", 0])
    assert directory.close() is False
    assert all_files(log_dir / "roll-0") == before
    assert not (log_dir / CLEAN_SHUTDOWN_MARKER).exists()


def test_a_partition_whose_files_were_put_right_comes_back_without_a_restart(
    log_dir: Path, tmp_path: Path
) -> None:
    middle = log_dir / "roll-0" / "00000000000000000114.kafka"
    shutil.move(middle, tmp_path / "middle")
    directory = opened(log_dir)
    log = directory.logs["roll", 0]
    assert log.is_offline
    shutil.move(tmp_path / "middle", middle)
    log.reopen(NOW_MS)
    assert len(read_all(log)) == 532
    directory.close()
