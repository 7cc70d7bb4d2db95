"""Fetch: 1 MB and 200 KB, 1 and 4 in flight, against a raw sendfile loop over the same file."""

from pathlib import Path

from bench.support.load import (
    STORED_BYTES,
    TOPIC,
    encoded_produces,
    fetch,
    produce,
    wait_until_visible,
)
from bench.support.report import Row, interleaved, ratio_row
from bench.support.servers import Baseline, HermesBroker
from bench.support.settings import Settings

__all__ = ["measure"]

_SIZES = (("1 MB", 1_000_000), ("200 KB", 200_000))
_IN_FLIGHT = (1, 4)
_TARGET = 0.7
_GIGABYTE = 1e9

#: A run takes a fraction of a second: many short ones, so that noise meets both sides alike.
_RUNS_PER_ROUND = 3

#: 210 MB, which stays in the page cache and in one segment.
_LOG_MESSAGES = 1_000_000


def measure(settings: Settings) -> list[Row]:
    """Fill a log, then fetch it from the broker and from the loop in turns."""
    with settings.workspace() as directory, HermesBroker(directory / "hermes") as broker:
        log_bytes = _LOG_MESSAGES * STORED_BYTES
        produce(broker.address, encoded_produces(50), _LOG_MESSAGES)
        wait_until_visible(broker.address, log_bytes)
        segment = broker.first_segment(TOPIC)
        return [
            _measure_size(settings, directory, broker, segment, size, in_flight)
            for size in _SIZES
            for in_flight in _IN_FLIGHT
        ]


def _measure_size(
    settings: Settings,
    directory: Path,
    broker: HermesBroker,
    segment: Path,
    size: tuple[str, int],
    in_flight: int,
) -> Row:
    size_name, max_bytes = size

    def fetched_from(server: HermesBroker | Baseline) -> float:
        rate = fetch(
            server.address,
            log_bytes=_LOG_MESSAGES * STORED_BYTES,
            max_bytes=max_bytes,
            in_flight=in_flight,
            total_bytes=int(settings.fetch_gigabytes * _GIGABYTE),
        )
        return rate / _GIGABYTE

    with Baseline("sendfile_server", directory=directory / "loop", file=segment) as loop:
        hermes_runs, loop_runs = interleaved(
            settings.rounds * _RUNS_PER_ROUND,
            lambda: fetched_from(broker),
            lambda: fetched_from(loop),
        )
    return ratio_row(
        f"fetch, {size_name}, {in_flight} in flight",
        "GB/s",
        hermes_runs,
        loop_runs,
        beside_name="sendfile loop",
        at_least=_TARGET,
    )
