"""Outcomes of sends reach whoever awaits them, whatever an event handler raises."""

import asyncio

from zope.interface import implementer

from hermes.aio import Producer
from hermes.client import ProducerConfig
from hermes.errors import ClientError
from hermes.interfaces import IEventHandler


@implementer(IEventHandler)
class Exhausted:
    def handle(self, batch: object, default: object) -> object:
        return next(iter(()))

    def close(self) -> None:
        """There is nothing to close."""


def test_of_a_stop_iteration() -> None:
    async def run() -> None:
        config = ProducerConfig(broker_list="0:127.0.0.1:1", event_handler=Exhausted())
        async with Producer(config) as producer:
            sends = [producer.send("clicks", b"x") for _ in range(2)]
            async with asyncio.timeout(10):
                outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(each) for each in outcomes] == [ClientError] * 2

    asyncio.run(run())
