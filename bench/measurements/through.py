"""Resident memory while gigabytes go in and out: it must not follow the data."""

import threading

from bench.support.consumer import WaitingConsumer
from bench.support.load import STORED_BYTES, TOPIC, connect, encoded_produces, produce
from bench.support.report import Row, bound_row
from bench.support.servers import Address, HermesBroker
from bench.support.settings import Settings
from bench.support.usage import MEGABYTE, PeakMemory

__all__ = ["measure"]

_TARGET_MEGABYTES = 50
_GIGABYTE = 1e9
_BATCH = 50


def measure(settings: Settings) -> list[Row]:
    """Produce as fast as the broker takes it while a consumer follows, and watch the broker."""
    chunk = encoded_produces(_BATCH)
    chunk_bytes = chunk.messages * STORED_BYTES
    chunks = max(1, round(settings.through_gigabytes * _GIGABYTE / chunk_bytes))
    failures: list[BaseException] = []

    def consume(address: Address) -> None:
        try:
            _follow(address, chunks * chunk_bytes)
        except BaseException as error:  # raised again by the main thread
            failures.append(error)

    with settings.workspace() as directory, HermesBroker(directory / "hermes") as broker:
        consumer = threading.Thread(target=consume, args=(broker.address,), daemon=True)
        with PeakMemory(broker.pid) as memory:
            consumer.start()
            produce(broker.address, chunk, chunks * chunk.messages)
            consumer.join()
    if failures:
        raise failures[0]
    name = f"{settings.through_gigabytes:g} GB in and out"
    note = (
        f"{memory.before_bytes / MEGABYTE:.0f} MB when idle, "
        f"{memory.peak_bytes / MEGABYTE:.0f} MB at most"
    )
    growth = memory.growth_bytes / MEGABYTE
    return [bound_row(name, "MB more", growth, below=_TARGET_MEGABYTES, note=note)]


def _follow(address: Address, end_offset: int) -> None:
    """Fetch everything up to `end_offset`, waiting at the end of what is visible."""
    with connect(address) as connection:
        consumer = WaitingConsumer(connection, TOPIC)
        while consumer.offset < end_offset:
            consumer.request()
            consumer.skip()
