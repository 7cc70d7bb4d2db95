"""Ingest: unanswered produces of 200-byte messages, against the bare Twisted sink."""

from pathlib import Path

from bench.support.load import STORED_BYTES, TOPIC, Chunk, encoded_produces, produce
from bench.support.report import Row, interleaved, ratio_row
from bench.support.servers import Baseline, HermesBroker
from bench.support.settings import Settings

__all__ = ["measure"]

_BATCHES = (50, 1)
_TARGET = 0.7
_MILLION = 1e6


def measure(settings: Settings) -> list[Row]:
    """Produce to both in turns, and check on disk that every byte was appended."""
    rows = []
    for batch in _BATCHES:
        with settings.workspace() as directory:
            rows.append(_measure_batch(settings, directory, batch))
    return rows


def _measure_batch(settings: Settings, directory: Path, batch: int) -> Row:
    chunk = encoded_produces(batch)
    messages = int(settings.messages * _MILLION)
    sink_directory = directory / "sink"
    with (
        HermesBroker(directory / "hermes") as broker,
        Baseline("sink", directory=sink_directory, file=sink_directory / "sink.kafka") as sink,
    ):

        def to_hermes() -> float:
            before = broker.stored_bytes(TOPIC)
            rate = produce(broker.address, chunk, messages)
            _check_stored(broker.stored_bytes(TOPIC) - before, chunk, messages)
            return rate / _MILLION

        def to_sink() -> float:
            rate = produce(sink.address, chunk, messages)
            _check_stored(sink.file.stat().st_size, chunk, messages)
            return rate / _MILLION

        hermes_runs, sink_runs = interleaved(settings.rounds, to_hermes, to_sink)
    return ratio_row(
        f"ingest, {batch} a request",
        "M messages/s",
        hermes_runs,
        sink_runs,
        beside_name="Twisted sink",
        at_least=_TARGET,
    )


def _check_stored(stored_bytes: int, chunk: Chunk, messages: int) -> None:
    """A server that was fast because it lost something has measured nothing."""
    sent = -(-messages // chunk.messages) * chunk.messages * STORED_BYTES
    if stored_bytes != sent:
        raise RuntimeError(f"{sent} bytes were sent and {stored_bytes} are in the log")
