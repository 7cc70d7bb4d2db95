"""Brokers as processes, each with a registry, on one coordination server; and kills among them."""

import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple

from hermes_testkit import BrokerProcess

__all__ = [
    "Answer",
    "RegistryCluster",
    "call",
    "http_port",
    "kill_registries",
    "schema",
    "until",
]

_DEADLINE_SECONDS = 240.0


class Answer(NamedTuple):
    """What a registry answered."""

    status: int
    value: Any


def schema(name: str) -> str:
    """A record's schema as a client sends it."""
    return json.dumps({"type": "record", "name": name, "fields": []})


def until(is_so: Callable[[], bool], what: str = "it") -> None:
    """Wait for a condition that nothing announces."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not come to be"
        time.sleep(0.02)  # between two looks


class RegistryCluster:
    """Three brokers unless told otherwise.

    Attributes:
        brokers: each of them.
        http_ports: where each serves HTTP, or did when it was killed.
    """

    def __init__(self, directory: Path, zookeeper: str, count: int = 3, **more: Any) -> None:
        self._directory = directory
        settings = {
            "coordination": "zookeeper",
            "zookeeper_connect": zookeeper,
            "zookeeper_session_timeout": "1s",
            "http_listen": "tcp:0:interface=127.0.0.1",
            **more,
        }
        self.brokers: list[BrokerProcess] = []
        for number in range(count):
            mine = {**settings, "broker_id": number, "log_dir": str(directory / f"log-{number}")}
            self.brokers.append(BrokerProcess(directory / f"broker-{number}", mine))
        self.http_ports = [http_port(broker) for broker in self.brokers]

    def stop(self) -> None:
        """Stop those that run."""
        for broker in self.brokers:
            broker.stop()

    def start(self, number: int) -> None:
        """Start a broker again."""
        self.brokers[number].start()
        self.http_ports[number] = http_port(self.brokers[number])

    def call(self, number: int, method: str, path: str, body: Any = None) -> Answer:
        """Ask a broker's registry; raises OSError or HTTPException when nobody answers."""
        return call(self.http_ports[number], method, path, body)

    def register(self, number: int, subject: str, name: str) -> Answer:
        """Register a record's schema."""
        return self.call(number, "POST", f"subjects/{subject}/versions", {"schema": schema(name)})

    def registered(self, number: int, subject: str, name: str) -> Answer:
        """Register a record's schema; again, while nothing can be changed.

        Short sessions end also on a machine that is busy enough, and a broker hears of others' ends
        and returns in its own time.
        """
        answer: list[Answer] = []

        def is_taken() -> bool:
            answer[:] = [self.register(number, subject, name)]
            return answer[0].status != 500 or answer[0].value["error_code"] != 50003

        try:
            until(is_taken, f"a registration by broker {number}")
        except AssertionError as error:
            error.add_note(f"the last answer: {answer}")
            raise
        return answer[0]

    def metric(self, number: int, name: str) -> float:
        """A number of `/metrics`."""
        connection = HTTPConnection("127.0.0.1", self.http_ports[number], timeout=_DEADLINE_SECONDS)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        return float(next(each.split()[1] for each in text.splitlines() if each.split()[0] == name))

    def leader(self) -> int | None:
        """The number of the broker whose registry says that it leads."""
        leaders = [
            number
            for number, broker in enumerate(self.brokers)
            if broker.process.poll() is None and self.metric(number, "hermes_registry_leader")
        ]
        return leaders[0] if leaders else None

    def home(self) -> int:
        """The number of the broker that has events of the topic."""
        (home,) = (
            number
            for number, broker in enumerate(self.brokers)
            if any(path.stat().st_size for path in broker.log_dir.glob("hermes-schemas-0/*.kafka"))
        )
        return home


def call(port: int, method: str, path: str, body: Any = None) -> Answer:
    """Ask a registry that is served below `/registry`."""
    connection = HTTPConnection("127.0.0.1", port, timeout=_DEADLINE_SECONDS)
    try:
        connection.request(method, f"/registry/{path}", None if body is None else json.dumps(body))
        response = connection.getresponse()
        return Answer(response.status, json.loads(response.read()))
    finally:
        connection.close()


def http_port(broker: BrokerProcess) -> int:
    """Where a broker serves HTTP."""
    found = re.search(r"HTTP on 127.0.0.1:(\d+)", broker.wait_for_line("is ready"))
    assert found is not None
    return int(found[1])


class _Writer:
    """Registers schemas, some of its own and some that all register, and remembers the ids."""

    def __init__(self, name: str, cluster: RegistryCluster, seed: int) -> None:
        self.given: dict[str, int] = {}  # by the record's name
        self.outcomes: Counter[object] = Counter()
        self._name, self._cluster, self._chance = name, cluster, random.Random(seed)
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            number += 1
            is_shared = self._chance.random() < 0.5
            record = f"Shared{number}" if is_shared else f"{self._name}{number}"
            subject = f"{record}-{self._name}" if self._chance.random() < 0.3 else record
            place = self._chance.randrange(len(self._cluster.brokers))
            try:
                answer = self._cluster.register(place, subject, record)
            except (OSError, HTTPException):
                self.outcomes["no answer"] += 1
                self.stopping.wait(0.01)
                continue
            self.outcomes[answer.status] += 1
            if answer.status == 200:
                known = self.given.setdefault(record, answer.value["id"])
                assert known == answer.value["id"]
            else:
                assert answer.status == 500, answer
                assert answer.value["error_code"] == 50003, answer


def kill_registries(
    cluster: RegistryCluster, kills: int, seed: int, writers: int = 4
) -> dict[str, int]:
    """Kill brokers with their registries while schemas are registered, and check every id.

    Of the kills a third hits the leader, a third the home of the topic, a third anybody.

    Returns:
        Figures of the run.
    """
    chance = random.Random(seed)
    assert cluster.register(0, "first", "First").status == 200
    at_work = [_Writer(f"W{number}x", cluster, seed + number) for number in range(writers)]
    try:
        for number in range(kills):
            before = sum(len(each.given) for each in at_work)
            until(lambda least=before: sum(len(w.given) for w in at_work) > least + 5)  # type: ignore[misc]
            whom = chance.randrange(len(cluster.brokers))
            if number % 3 == 0:
                leader = cluster.leader()
                whom = whom if leader is None else leader
            elif number % 3 == 1:
                whom = cluster.home()
            cluster.brokers[whom].kill()
            cluster.start(whom)
        before = sum(len(each.given) for each in at_work)
        until(lambda: sum(len(each.given) for each in at_work) > before + 5)
    finally:
        for each in at_work:
            each.stopping.set()
        for each in at_work:
            each.thread.join()
    return _check(cluster, at_work)


def _check(cluster: RegistryCluster, writers: list[_Writer]) -> dict[str, int]:
    given: dict[str, int] = {}
    for writer in writers:
        for record, schema_id in writer.given.items():
            assert given.setdefault(record, schema_id) == schema_id, f"{record} has two ids"
    assert len(set(given.values())) == len(given), "an id was given out twice"
    for number in range(len(cluster.brokers)):
        for record, schema_id in given.items():
            answer = cluster.call(number, "GET", f"schemas/ids/{schema_id}")
            assert answer.status == 200, (number, record, answer)
            assert json.loads(answer.value["schema"])["name"] == record
    outcomes: Counter[object] = Counter()
    for writer in writers:
        outcomes += writer.outcomes
    return {
        "ids": len(given),
        "answered": outcomes[200],
        "refused": outcomes[500],
        "unanswered": outcomes["no answer"],
    }
