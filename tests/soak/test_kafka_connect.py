"""Kafka Connect brings the lines of a file exactly once; its worker and its brokers are killed."""

import json
import os
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path
from random import Random

import pytest
from java_application import JavaApplication, kill_some
from kafka_4 import java_command
from killed_brokers import KilledBrokers
from server_process import free_port
from soak import report, seed, times

pytestmark = pytest.mark.soak

TOPIC = "lines"

WORKER = {
    "group.id": "connect",
    "exactly.once.source.support": "enabled",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "plugin.discovery": "only_scan",
    "scheduled.rebalance.max.delay.ms": 0,
    "session.timeout.ms": 6000,
    **{f"{kept}.storage.topic": f"connect-{kept}" for kept in ("config", "offset", "status")},
}


class Worker(JavaApplication):
    """A worker of Connect, with a connector for one file.

    Args:
        brokers: what it connects to.
        directory: for the file and the worker's settings.
    """

    def __init__(self, brokers: KilledBrokers, directory: Path) -> None:
        super().__init__(brokers.servers, TOPIC, 1, directory / "worker.log")
        self._rest = free_port()
        self._settings = directory / "worker.properties"
        own = {
            "bootstrap.servers": brokers.servers,
            "listeners": f"http://127.0.0.1:{self._rest}",
            **{
                f"{kept}.storage.replication.factor": brokers.copies
                for kept in ("config", "offset", "status")
            },
        }
        lines = [f"{name}={value}\n" for name, value in {**WORKER, **own}.items()]
        self._settings.write_text("".join(lines))
        self.file = directory / "lines.txt"
        self.file.touch()

    def start(self) -> None:
        jars = Path(os.environ["HERMES_CONNECT_JARS"])
        program = "org.apache.kafka.connect.cli.ConnectDistributed"
        self.launch(java_command(program, str(self._settings), jars=jars))

    def create_connector(self) -> None:
        connector = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "exactly.once.support": "required",
            "file": str(self.file),
            "topic": TOPIC,
        }
        self.read_until(lambda: self._has_put("/connectors/file/config", connector))

    def _has_put(self, path: str, what: dict[str, str]) -> bool:
        connection = HTTPConnection("127.0.0.1", self._rest)
        try:
            connection.request("PUT", path, json.dumps(what), {"Content-Type": "application/json"})
            return connection.getresponse().status == 201
        except OSError:
            return False  # it doesn't serve yet
        finally:
            connection.close()


def test_a_file_is_brought_exactly_once(brokers: KilledBrokers, tmp_path: Path) -> None:
    number, rounds = seed(), times(20)
    random = Random(f"{number} {brokers.copies}")
    brokers.create_topic(TOPIC, 1)
    worker = Worker(brokers, tmp_path)
    written, killed = 0, Counter[str]()
    try:
        worker.start()
        worker.create_connector()
        for _ in range(rounds):
            with worker.file.open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in range(written, written + 500))
            written += 500
            worker.read_some(random.randrange(1, 400))
            killed[kill_some(random, worker, brokers)] += 1
        worker.read_until(lambda: len(worker.messages) >= written)
        worker.end(kill=False)
        assert [value for _, value in worker.messages] == [b"%d" % line for line in range(written)]
    finally:
        worker.close()
    report("Connect, exactly once", seed=number, of=brokers.copies, lines=written, **killed)
