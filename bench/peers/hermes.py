"""Hermes as a user's client sees it: every message is encoded and decoded one by one, in Python."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.system import Meter
from bench.support.load import (
    MESSAGE_BYTES,
    STORED_BYTES,
    connect,
    latest_offset,
    make_payloads,
    read_answer,
    wait_until_visible,
)
from bench.support.servers import Address, HermesBroker
from hermes.protocol import FetchRequest, MessageSet, ProduceRequest, encode_message_set

__all__ = ["running"]

_TOPIC = "figures"
_FETCH_BYTES = 200_000
_DISTINCT_PAYLOADS = 1_000


@contextmanager
def running(directory: Path) -> Iterator["_Hermes"]:
    """Run a broker with its default settings."""
    with HermesBroker(directory / "hermes") as broker:
        yield _Hermes(broker.address)


class _Hermes:
    """A `System`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._published = 0

    def publish(self, meter: Meter, batch: int) -> None:
        payloads = make_payloads(_DISTINCT_PAYLOADS)
        batches = [payloads[start : start + batch] for start in range(0, len(payloads), batch)]
        with connect(self._address) as connection:
            for number in range(meter.messages // batch):
                message_set = encode_message_set(batches[number % len(batches)])
                connection.sendall(ProduceRequest(_TOPIC, 0, message_set).encode())
                meter.advance(batch)
            latest_offset(connection, _TOPIC)
        meter.finish()
        self._published += meter.messages // batch * batch
        wait_until_visible(self._address, self._published * STORED_BYTES, topic=_TOPIC)

    def consume(self, meter: Meter) -> None:
        offset = consumed = 0
        with connect(self._address) as connection:
            while consumed < meter.messages:
                connection.sendall(FetchRequest(_TOPIC, 0, offset, _FETCH_BYTES).encode())
                count = 0
                for message, next_offset in MessageSet(read_answer(connection), offset):
                    count += len(message.payload) // MESSAGE_BYTES  # an application's work
                    offset = next_offset
                consumed += count
                meter.advance(count)
        meter.finish()
