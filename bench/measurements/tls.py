"""TLS with AES-GCM: ingest against a bare Twisted TLS sink, ingest and fetches against plain.

The client encrypts and decrypts as well, on the other core. So what is compared is the servers'
processor time too, which the notes show, with OpenSSL's share: decrypting the same bytes from
memory, called as Twisted calls it, and nothing else.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.measurements.ingest import appended_rate
from bench.support.load import (
    STORED_BYTES,
    TOPIC,
    Chunk,
    Opens,
    connect,
    encoded_produces,
    fetch,
    produce,
    wait_until_visible,
)
from bench.support.report import Row, interleaved, ratio_row
from bench.support.servers import Baseline, HermesBroker, log_bytes
from bench.support.settings import Settings
from bench.support.tls import OwnCertificate, decryption_seconds
from bench.support.usage import cpu_seconds

__all__ = ["measure"]

_BATCHES = (50, 1)
_TARGET = 0.6
_FETCH_BYTES = 1_000_000
_IN_FLIGHT = 4
_LOG_MESSAGES = 1_000_000
_LOG_BYTES = _LOG_MESSAGES * STORED_BYTES
_GIGABYTE = 1e9
_OPENSSL_MEGABYTES = 400


class _Costs:
    """Processor time of servers, by what they are called."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._megabytes: Counter[str] = Counter()

    def add(self, name: str, seconds: float, megabytes: float) -> None:
        self._seconds[name] += round(seconds * 1e6)
        self._megabytes[name] += round(megabytes * 1e3)

    def us_per_megabyte(self, name: str) -> float:
        return 1e3 * self._seconds[name] / self._megabytes[name]

    def note(self) -> str:
        each = (f"{name} {self.us_per_megabyte(name):.0f} us" for name in self._seconds)
        return f"processor time per MB: {', '.join(each)}"


def measure(settings: Settings) -> list[Row]:
    """Measure everything with one certificate."""
    with settings.workspace() as directory:
        own = OwnCertificate.write(directory)
        both = directory / "both.pem"  # as Twisted reads it
        both.write_bytes(own.certificate.read_bytes() + own.key.read_bytes())
        openssl = decryption_seconds(own, _OPENSSL_MEGABYTES) * 1e6
        rows = [
            row for batch in _BATCHES for row in _ingest_rows(settings, own, both, batch, openssl)
        ]
        return [*rows, _fetch_row(settings, own)]


def _ingest_rows(
    settings: Settings, own: OwnCertificate, both: Path, batch: int, openssl_us: float
) -> list[Row]:
    chunk, costs = encoded_produces(batch), _Costs()
    by_tls = partial(connect, tls=own.client)

    def hermes(name: str, opens: Opens, **options: Any) -> float:
        with settings.workspace() as directory, HermesBroker(directory, **options) as broker:
            log = broker.log_dir / f"{TOPIC}-0"
            return _measured(settings, chunk, broker, log, opens, costs, name)

    def sink() -> float:
        with settings.workspace() as directory:
            arguments = ("--certificate", str(both))
            file = directory / "sink.kafka"
            with Baseline("sink", directory=directory, file=file, arguments=arguments) as server:
                return _measured(settings, chunk, server, directory, by_tls, costs, "TLS sink")

    over_tls, beside_sink, plain = interleaved(
        settings.rounds,
        lambda: hermes("Hermes over TLS", by_tls, listen=[own.listener()]),
        sink,
        lambda: hermes("Hermes", connect),
    )
    note = f"{costs.note()}, of which decrypting takes {openssl_us:.0f} us"
    unit = "M messages/s"
    return [
        ratio_row(
            f"ingest over TLS, {batch} a request", unit, over_tls, beside_sink,
            beside_name="Twisted TLS sink", at_least=_TARGET, note=note,
        ),
        ratio_row(
            f"... beside plain, {batch} a request", unit, over_tls, plain,
            beside_name="without TLS", at_least=None,
        ),
    ]  # fmt: skip


def _measured(
    settings: Settings,
    chunk: Chunk,
    server: HermesBroker | Baseline,
    log: Path,
    opens: Opens,
    costs: _Costs,
    name: str,
) -> float:
    before = cpu_seconds(server.pid)
    rate = appended_rate(settings, chunk, server.address, log, opens)
    costs.add(name, cpu_seconds(server.pid) - before, log_bytes(log) / 1e6)
    return rate


def _fetch_row(settings: Settings, own: OwnCertificate) -> Row:
    by_tls: Opens = partial(connect, tls=own.client)
    costs, total = _Costs(), int(settings.fetch_gigabytes * _GIGABYTE)

    def run(name: str, broker: HermesBroker, opens: Opens) -> float:
        before = cpu_seconds(broker.pid)
        rate = fetch(
            broker.address,
            log_bytes=_LOG_BYTES,
            max_bytes=_FETCH_BYTES,
            in_flight=_IN_FLIGHT,
            total_bytes=total,
            opens=opens,
        )
        costs.add(name, cpu_seconds(broker.pid) - before, total / 1e6)
        return rate / _GIGABYTE

    with (
        settings.workspace() as directory,
        HermesBroker(directory / "plain") as plain,
        HermesBroker(directory / "tls", listen=[own.listener()]) as over_tls,
    ):
        for broker, opens in ((plain, connect), (over_tls, by_tls)):
            produce(broker.address, encoded_produces(50), _LOG_MESSAGES, opens=opens)
            wait_until_visible(broker.address, _LOG_BYTES, opens=opens)
        runs: list[Callable[[], float]] = [
            lambda: run("over TLS", over_tls, by_tls),
            lambda: run("without", plain, connect),
        ]
        tls_runs, plain_runs = interleaved(settings.rounds, *runs)
    return ratio_row(
        f"fetch over TLS, 1 MB, {_IN_FLIGHT} in flight",
        "GB/s",
        tls_runs,
        plain_runs,
        beside_name="without TLS",
        at_least=None,
        note=costs.note(),
    )
