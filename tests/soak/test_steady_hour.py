"""An hour at 50,000 messages of 1 KB a second: how long they take, and that nothing grows."""

import os
import time
from pathlib import Path

import pytest
from soak import report, times
from steady_hour import Samples, TailReader

from bench.support import kafka_frames
from bench.support.driver import Driven, Load, build_driver, drive
from bench.support.servers import HermesBroker

_RATE = 50_000
_MESSAGE_BYTES = 1_000
#: What clients collect in five milliseconds for each of ten partitions.
_BATCH = 25
_PARTITIONS = 10
_CONNECTIONS = 20
_IN_FLIGHT = 5
_TOPIC = "steady"
#: A partition gets 5 MB a second: retention deletes from the first half minute on.
_SETTINGS = {
    "segment_bytes": "32MiB",
    "retention_bytes": "128MiB",
    "retention_check_interval": "5s",
}
_WARM_UP_SECONDS = 60
_MOST_LOG_BYTES = _PARTITIONS * 256 * 1024 * 1024

# Flat is what is not larger in the last tenth of the time than in the first one, by the medians,
# but for this: of the allocator; and a segment a partition, with its indexes, that comes and goes.
_FLAT_BYTES = 8_000_000
_FLAT_DESCRIPTORS = 3 * _PARTITIONS


@pytest.mark.soak
def test_an_hour_leaves_memory_and_descriptors_flat(tmp_path: Path) -> None:
    seconds = times(3_600)
    driver = build_driver(tmp_path)
    topics = {_TOPIC: {"format": "kafka", "partitions": _PARTITIONS}}
    listen = "tcp:0:interface=127.0.0.1"
    with HermesBroker(
        tmp_path / "broker", kafka_listen=listen, topics=topics, **_SETTINGS
    ) as broker:
        assert broker.kafka_address is not None
        load = Load(
            broker.kafka_address,
            _frames(),
            kafka_frames.produce_error_at(_TOPIC),
            _CONNECTIONS,
            _RATE / _BATCH,
            _IN_FLIGHT,
            seconds,
            _WARM_UP_SECONDS,
        )
        with (
            TailReader(broker.kafka_address, _TOPIC, _PARTITIONS) as reader,
            Samples(broker.pid, broker.log_dir, _WARM_UP_SECONDS) as samples,
        ):
            (driven,) = drive(driver, [load], {"broker": broker.pid})
            reader.wait_for(driven.all_answers * _BATCH)
    _report(driven, samples, seconds)
    assert not reader.wrong
    due = _RATE / _BATCH * (_WARM_UP_SECONDS + seconds)
    assert driven.all_answers >= due - 1, "the rate was not kept: requests are unanswered"
    first, last = samples.tenth(0), samples.tenth(9)
    assert last.resident_bytes - first.resident_bytes < _FLAT_BYTES
    assert last.descriptors - first.descriptors < _FLAT_DESCRIPTORS
    assert max(sample.log_bytes for sample in samples.seen) < _MOST_LOG_BYTES


def _frames() -> list[bytes]:
    """A batch for each partition."""
    values = [os.urandom(_MESSAGE_BYTES) for _ in range(_BATCH)]
    now_ms = time.time_ns() // 1_000_000
    return [
        kafka_frames.produce_frame(_TOPIC, values, acks=-1, partition=number, timestamp_ms=now_ms)
        for number in range(_PARTITIONS)
    ]


def _report(driven: Driven, samples: Samples, seconds: int) -> None:
    tenths = [samples.tenth(number) for number in range(10)]
    count = len(driven.latencies)
    parts = [
        Driven(latencies=driven.latencies[number * count // 10 : (number + 1) * count // 10])
        for number in range(10)
    ]
    report(
        "a steady hour",
        seconds=seconds,
        messages=driven.answers * _BATCH,
        rate=round(driven.rate * _BATCH),
        p50_ms=driven.ms(0.5),
        p99_ms=driven.ms(0.99),
        p999_ms=driven.ms(0.999),
        most_ms=driven.ms(1),
        p999_of_tenths_ms=[part.ms(0.999) for part in parts],
        resident_mb=[each.resident_bytes // 1_000_000 for each in tenths],
        descriptors=[each.descriptors for each in tenths],
        most_log_mb=max(each.log_bytes for each in samples.seen) // 1_000_000,
        broker_cores=round(driven.cores("broker"), 2),
        driver_cores=round(driven.driver_cores, 2),
    )
