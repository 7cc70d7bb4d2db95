"""Hermes through its public client: what an application in Python gets, broker included."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.system import Meter
from bench.support.load import STORED_BYTES, make_payloads, wait_until_visible
from bench.support.servers import Address, HermesBroker
from hermes import FetchRequest, Producer, ProducerConfig, SimpleConsumer

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
    """A `System`. A batch is a call of `send` with a list of so many messages."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._published = 0

    def publish(self, meter: Meter, batch: int) -> None:
        host, port = self._address
        payloads = make_payloads(_DISTINCT_PAYLOADS)
        batches = [payloads[start : start + batch] for start in range(0, len(payloads), batch)]
        with Producer(ProducerConfig(broker_list=f"0:{host}:{port}", acks="none")) as producer:
            for number in range(meter.messages // batch):
                producer.send(_TOPIC, batches[number % len(batches)])
                meter.advance(batch)
        self._published += meter.messages // batch * batch
        wait_until_visible(self._address, self._published * STORED_BYTES, topic=_TOPIC)
        meter.finish()

    def consume(self, meter: Meter) -> None:
        offset = consumed = 0
        with SimpleConsumer(*self._address) as consumer:
            while consumed < meter.messages:
                before = consumed
                for _message, next_offset in consumer.fetch(
                    FetchRequest(_TOPIC, 0, offset, _FETCH_BYTES)
                ):
                    consumed += 1
                    offset = next_offset
                meter.advance(consumed - before)
        meter.finish()
