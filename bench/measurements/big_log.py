"""A large log against an empty one: throughput must not depend on what is stored already.

Opt-in, since it needs the disk. The large log is written by the bench itself, as a broker that
stopped cleanly would have left it; messages go in at its end and are fetched from there.
"""

import os
from pathlib import Path

from bench.support.load import (
    STORED_BYTES,
    TOPIC,
    Chunk,
    encoded_produces,
    fetch,
    make_payloads,
    produce,
    wait_until_visible,
)
from bench.support.report import Row, interleaved, ratio_row
from bench.support.servers import HermesBroker
from bench.support.settings import Settings
from hermes.protocol import encode_message_set

__all__ = ["measure"]

_TARGET = 0.9
_GIGABYTE = 1e9
_MILLION = 1e6
_FETCH_BYTES = 1_000_000
_LOG_MESSAGES = 1_000_000
_FETCHES_PER_ROUND = 3
_CLEAN_STOP = ".kafka_cleanshutdown"

#: A segment larger than this (`segment_bytes`, 1 GiB) is followed by a new one.
_SEGMENT_BYTES = 1 << 30


def measure(settings: Settings) -> list[Row]:
    """Write the large log, then load both brokers in turns."""
    with settings.workspace() as directory:
        end = _write_log(directory / "large" / "logs", settings.big_log_gigabytes)
        with (
            HermesBroker(directory / "large") as large,
            HermesBroker(directory / "empty") as empty,
        ):
            rows = [_measure_ingest(settings, large, empty)]
            appended = large.stored_bytes(TOPIC) - end
            wait_until_visible(large.address, end + appended)
            wait_until_visible(empty.address, appended)
            rows.append(_measure_fetch(settings, (large, end), (empty, 0)))
    return rows


def _measure_ingest(settings: Settings, large: HermesBroker, empty: HermesBroker) -> Row:
    chunk: Chunk = encoded_produces(50)
    runs = interleaved(
        settings.rounds,
        lambda: produce(large.address, chunk, _LOG_MESSAGES) / _MILLION,
        lambda: produce(empty.address, chunk, _LOG_MESSAGES) / _MILLION,
    )
    return _row(f"ingest, {settings.big_log_gigabytes:g} GB log", "M messages/s", runs)


def _measure_fetch(
    settings: Settings, large: tuple[HermesBroker, int], empty: tuple[HermesBroker, int]
) -> Row:
    def fetched_from(side: tuple[HermesBroker, int]) -> float:
        broker, first_offset = side
        rate = fetch(
            broker.address,
            log_bytes=_LOG_MESSAGES * STORED_BYTES,
            max_bytes=_FETCH_BYTES,
            in_flight=1,
            total_bytes=int(settings.fetch_gigabytes * _GIGABYTE),
            first_offset=first_offset,
        )
        return rate / _GIGABYTE

    runs = interleaved(
        2 * settings.rounds, lambda: fetched_from(large), lambda: fetched_from(empty)
    )
    return _row(f"fetch, {settings.big_log_gigabytes:g} GB log", "GB/s", runs)


def _row(measure: str, unit: str, runs: list[tuple[float, ...]]) -> Row:
    large_runs, empty_runs = runs
    name = "empty log"
    return ratio_row(measure, unit, large_runs, empty_runs, beside_name=name, at_least=_TARGET)


def _write_log(log_dir: Path, gigabytes: float) -> int:
    """Write full segments of real messages.

    Full ones: the broker's first append starts a new segment, as it does with an empty log.

    Returns:
        The offset behind the last message.
    """
    partition = log_dir / f"{TOPIC}-0"
    partition.mkdir(parents=True)
    messages = encode_message_set(make_payloads(5_000))
    repeats = _SEGMENT_BYTES // len(messages) + 1
    offset = 0
    while offset < gigabytes * _GIGABYTE:
        with (partition / f"{offset:020d}.kafka").open("wb") as segment:
            for _ in range(repeats):
                segment.write(messages)
            segment.flush()
            os.fsync(segment.fileno())
        offset += repeats * len(messages)
    (log_dir / _CLEAN_STOP).touch()
    return offset
