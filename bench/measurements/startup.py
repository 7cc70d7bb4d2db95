"""Start-up after a clean stop, with thousands of partitions."""

import statistics

from bench.support.load import connect, latest_offset, make_payloads
from bench.support.report import Row, bound_row
from bench.support.servers import HermesBroker
from bench.support.settings import Settings
from hermes.protocol import ProduceRequest, encode_message_set

__all__ = ["measure"]

_TARGET_SECONDS = 5
_ROUNDS = 3
_TOPIC = "many"
_CLEAN_STOP = ".kafka_cleanshutdown"


def measure(settings: Settings) -> list[Row]:
    """Write a message to every partition, stop, and start again."""
    partitions = settings.partitions
    topics = {_TOPIC: {"partitions": partitions}}
    with settings.workspace() as directory:
        with HermesBroker(directory / "hermes", topics=topics) as broker:
            _write_to_all(broker, partitions)
        full, empty = [], []
        for number in range(_ROUNDS):
            if not (broker.log_dir / _CLEAN_STOP).exists():
                raise RuntimeError("the broker did not stop cleanly")
            with HermesBroker(directory / "hermes", topics=topics) as broker:
                full.append(broker.start_seconds)
            with HermesBroker(directory / f"empty-{number}") as nothing:
                empty.append(nothing.start_seconds)
    return [
        bound_row(
            f"start-up, {partitions:,} partitions",
            "s",
            statistics.median(full),
            below=_TARGET_SECONDS,
            beside=statistics.median(empty),
            beside_name="empty broker",
        )
    ]


def _write_to_all(broker: HermesBroker, partitions: int) -> None:
    message_set = encode_message_set(make_payloads(1))
    with connect(broker.address) as connection:
        for partition in range(partitions):
            connection.sendall(ProduceRequest(_TOPIC, partition, message_set).encode())
        latest_offset(connection, _TOPIC)
    written = sum(broker.stored_bytes(_TOPIC, partition) > 0 for partition in range(partitions))
    if written != partitions:
        raise RuntimeError(f"only {written} of {partitions} partitions were written to")
