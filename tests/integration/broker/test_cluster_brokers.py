"""A broker tells of the others' listeners, from what each has registered."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes import SimpleConsumer, aio
from hermes.protocol import ClusterBroker
from hermes.testing import running_broker

LOOPBACK = "tcp:0:interface=127.0.0.1"


def eventually(found: Callable[[], Any], wanted: Any) -> None:
    deadline = time.monotonic() + 60
    while found() != wanted:
        assert time.monotonic() < deadline, found()
        time.sleep(0.05)  # between two looks; nothing tells


def test_without_coordination_a_broker_tells_itself() -> None:
    with running_broker() as broker, SimpleConsumer(broker.host, broker.port) as consumer:
        assert consumer.brokers() == [(0, broker.host, broker.port)]


def test_brokers_of_a_cluster_tell_each_other(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    first_settings = {
        "coordination": "embedded",
        "listen": [LOOPBACK, {"endpoint": LOOPBACK, "name": "second", "advertised": "far.away:7"}],
        "http_listen": LOOPBACK,
        "ready_file": str(ready),
    }
    with running_broker(settings=first_settings) as first:
        told = json.loads(ready.read_text())
        assert [(each["name"], each["tls"]) for each in told["listen"]] == [
            ("0", False),
            ("second", False),
        ]
        assert [each["authentication"] for each in told["http_listen"]] == ["none"]
        others = {"broker_id": 7, "coordination": "zookeeper"}
        others["zookeeper_connect"] = first.zookeeper_connect
        with running_broker(settings=others) as second:
            both = [(0, first.host, first.port), (7, second.host, second.port)]
            for broker in (first, second):
                with SimpleConsumer(broker.host, broker.port) as consumer:
                    eventually(consumer.brokers, both)
            named = told["listen"][1]["port"]
            with SimpleConsumer(first.host, named) as consumer:
                # Its own by name; the other's, which has no such name, by its rules.
                eventually(consumer.brokers, [(0, "far.away", 7), both[1]])

            async def ask() -> list[ClusterBroker]:
                async with aio.SimpleConsumer(first.host, first.port) as consumer:
                    return await consumer.brokers()

            assert asyncio.run(ask()) == both
        with SimpleConsumer(first.host, first.port) as consumer:
            eventually(consumer.brokers, both[:1])
