"""Ingest: unanswered produces of 200-byte messages, against the bare Twisted sink.

Every run has a fresh server with an empty log, whose bytes are removed afterwards. So both sides
write into the same recycled memory: on a virtual machine pages that were never used before cost
more than everything that is measured here.
"""

from pathlib import Path

from bench.support.load import (
    STORED_BYTES,
    TOPIC,
    Chunk,
    Opens,
    connect,
    encoded_produces,
    produce,
)
from bench.support.report import Row, interleaved, ratio_row
from bench.support.servers import Address, Baseline, HermesBroker, log_bytes
from bench.support.settings import Settings

__all__ = ["appended_rate", "measure"]

_BATCHES = (50, 1)
_TARGET = 0.7
_MILLION = 1e6
_WARM_UP_MESSAGES = 100_000


def measure(settings: Settings) -> list[Row]:
    """Produce to both in turns, and check on disk that every byte was appended."""
    return [_measure_batch(settings, batch) for batch in _BATCHES]


def _measure_batch(settings: Settings, batch: int) -> Row:
    chunk = encoded_produces(batch)
    hermes_runs, sink_runs = interleaved(
        settings.rounds,
        lambda: _to_hermes(settings, chunk),
        lambda: _to_sink(settings, chunk),
    )
    return ratio_row(
        f"ingest, {batch} a request",
        "M messages/s",
        hermes_runs,
        sink_runs,
        beside_name="Twisted sink",
        at_least=_TARGET,
    )


def _to_hermes(settings: Settings, chunk: Chunk) -> float:
    with settings.workspace() as directory, HermesBroker(directory) as broker:
        return appended_rate(settings, chunk, broker.address, broker.log_dir / f"{TOPIC}-0")


def _to_sink(settings: Settings, chunk: Chunk) -> float:
    with settings.workspace() as directory:
        file = directory / "sink.kafka"
        with Baseline("sink", directory=directory, file=file) as sink:
            return appended_rate(settings, chunk, sink.address, directory)


def appended_rate(
    settings: Settings,
    chunk: Chunk,
    address: Address,
    log: Path,
    opens: Opens = connect,
) -> float:
    """Produce, and see to it that the log has grown by exactly what was sent.

    A server that was fast because it lost something has measured nothing.

    Args:
        settings: how much.
        chunk: what.
        address: where.
        log: the directory of the log's files.
        opens: makes the client's connection.

    Returns:
        Millions of messages per second.
    """
    produce(address, chunk, _WARM_UP_MESSAGES, opens=opens)
    before = log_bytes(log)
    messages = int(settings.messages * _MILLION)
    rate = produce(address, chunk, messages, opens=opens)
    sent = -(-messages // chunk.messages) * chunk.messages * STORED_BYTES
    if log_bytes(log) - before != sent:
        raise RuntimeError(f"{sent} bytes were sent, the log grew by {log_bytes(log) - before}")
    return rate / _MILLION
