"""The broker that clients of Kafka's are tested on: Hermes, or Kafka itself to test the tests.

`HERMES_TESTS_ON=kafka` runs these tests on a real Kafka 4.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from kafka_4 import KafkaProcess
from kafka_clients import CLIENTS, KafkaClient

from hermes.testing import running_broker

SETTINGS = {"kafka_listen": "tcp:0:interface=127.0.0.1", "group_initial_rebalance_delay": "0s"}
ON_KAFKA = os.environ.get("HERMES_TESTS_ON") == "kafka"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the broker of a module's tests is, for `bootstrap.servers`."""
    if ON_KAFKA:
        kafka = KafkaProcess(tmp_path_factory.mktemp("kafka"))
        kafka.start()
        yield kafka.address
        kafka.kill()
    else:
        # Not `running_kafka`, whose requests may have to fail, and so are all decoded.
        with running_broker(settings=SETTINGS) as running:
            assert running.bootstrap_servers is not None
            yield running.bootstrap_servers


@pytest.fixture(scope="module")
def client_named() -> Iterator[Callable[[str], KafkaClient]]:
    """A client by its name; Java's starts once."""
    with ExitStack() as stack:

        @cache
        def made(name: str) -> KafkaClient:
            client = next(each for each in CLIENTS if each.name == name)()
            stack.callback(client.close)
            return client

        yield made
