"""Brokers, producers and consumers of groups in one tree, for tests."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from hermes.client import Producer, ProducerConfig
from hermes.client.groups import Connector, Consumer, ConsumerConfig
from hermes.testing import RunningBroker, running_broker

__all__ = ["Cluster"]


class Cluster:
    """Brokers of 4 partitions a topic, and producers and consumers for them."""

    def __init__(self, connect: str, stack: ExitStack) -> None:
        self.connect = connect
        self._stack = stack
        self._producer: Producer | None = None

    def broker(self, broker_id: int = 0) -> RunningBroker:
        settings = {
            "broker_id": broker_id,
            "num_partitions": 4,
            "coordination": "zookeeper",
            "zookeeper_connect": self.connect,
            "flush_interval": "2ms",
        }
        return self._stack.enter_context(running_broker(None, settings))

    def send(self, topic: str, values: Sequence[int], key: str | None = None) -> None:
        if self._producer is None:
            config = ProducerConfig(
                zookeeper_connect=self.connect,
                acks="flushed",
                encoder="json",
                partitioner="round-robin",
            )
            self._producer = self._stack.enter_context(Producer(config))
        for each in values:
            self._producer.send(topic, [each])

    def consumer(self, listener: Any = None, **settings: Any) -> Connector:
        config = ConsumerConfig(
            **{
                "group": "g",
                "zookeeper_connect": self.connect,
                "decoder": "json",
                "consumer_timeout": "60s",
                "fetch_wait": "50ms",
                **settings,
            }
        )
        return self._stack.enter_context(Consumer.create(config, listener))
