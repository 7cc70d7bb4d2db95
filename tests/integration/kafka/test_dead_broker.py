"""What commands show while a broker that was killed is still registered."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from hermes.client.kafka_asking import KafkaAsker
from hermes.client.kafka_groups import KafkaGroups
from hermes.coordination.group_state import store_offsets
from hermes.coordination.layout import BrokerPartition, broker_path, format_broker
from hermes.coordination.listeners import (
    BrokerListeners,
    ListenerNode,
    format_listeners,
    listeners_path,
)
from hermes.coordination.sessions import Session
from hermes.security import PLAIN
from hermes.testing import RunningKafka, running_kafka

_HERMES = str(Path(sys.executable).with_name("hermes"))
_DEADLINE_SECONDS = 120.0
_DEAD = 7
_GROUPS = [f"g{number}" for number in range(12)]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def kafka() -> Iterator[RunningKafka]:
    """A broker with groups, beside one that has died since: its port refuses."""
    settings = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}
    with running_kafka(settings=settings) as running, socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))  # and never listens
        host, port = dead.getsockname()
        here, _, number = running.bootstrap_servers.rpartition(":")
        session = Session(str(running.zookeeper_connect))
        session.start()
        try:
            client = AdminClient({"bootstrap.servers": running.bootstrap_servers, "log_level": 0})
            client.create_topics([NewTopic("clicks", 1)])["clicks"].result(_DEADLINE_SECONDS)
            with closing(KafkaGroups([(here, int(number))], 60, PLAIN)) as groups:
                for each in _GROUPS:
                    groups.store(each, {("clicks", 0): 0})
            place = BrokerPartition(_DEAD, 0), BrokerPartition(_DEAD, 1)
            store_offsets(session, "search", {("old", each): 17 for each in place})
            listener = ListenerNode("0", host, port, False, "none")
            listeners = BrokerListeners((listener,), (), (listener,))
            session.put(listeners_path(_DEAD), format_listeners(listeners))
            session.create_ephemeral(broker_path(_DEAD), format_broker(host, port, 1))
            _until(lambda: _DEAD in client.list_topics(timeout=60).brokers)
            client.create_topics([NewTopic("views", 4)])["views"].result(_DEADLINE_SECONDS)
            yield running
        finally:
            session.stop()


def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # a run that hangs is ended, and shows where
        pass


@pytest.fixture
def run(kafka: RunningKafka) -> Run:
    def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [_HERMES, *arguments, "-Z", str(kafka.zookeeper_connect)]
        return subprocess.run(line, capture_output=True, text=True, timeout=_DEADLINE_SECONDS)

    return run_command


def _homes(kafka: RunningKafka) -> dict[int, str]:
    """A group of each broker's."""
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    with KafkaAsker(host, int(port)) as asker:
        answer = asker.ask("FindCoordinator", 4, coordinator_keys=_GROUPS)
    return {each.node_id: each.key for each in answer.coordinators}


def _is_told_once(told: subprocess.CompletedProcess[str]) -> bool:
    return told.stderr.count(f"hermes: broker {_DEAD} does not answer: no connection to ") == 1


def test_groups_of_a_dead_coordinator_are_listed(run: Run) -> None:
    told = run("groups", "list", "--json")
    rows = [json.loads(each) for each in told.stdout.splitlines()]
    assert {"group": "search", "members": 0} in rows
    of_kafka = [each["group"] for each in rows if each.get("kind") == "kafka"]
    assert of_kafka == sorted(_GROUPS)
    assert told.returncode == 1
    assert _is_told_once(told)


def test_a_group_of_a_dead_coordinator_is_described_from_coordination(
    kafka: RunningKafka, run: Run
) -> None:
    told = run("groups", "describe", _homes(kafka)[_DEAD])
    assert told.stdout.splitlines()[1].split() == ["clicks", "0", "0", "0", "0", "-"]
    assert told.returncode == 1
    assert _is_told_once(told)
    assert "is shown as stored in coordination" in told.stderr


def test_ends_on_a_dead_broker_are_unknown(kafka: RunningKafka, run: Run) -> None:
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    group = _homes(kafka)[0]
    with closing(KafkaGroups([(host, int(port))], 60, PLAIN)) as groups:
        groups.store(group, {("views", number): 0 for number in range(4)})
    told = run("groups", "describe", group, "--json")
    rows = json.loads(told.stdout)["partitions"]
    lags = [each["lag"] for each in rows if each["topic"] == "views"]
    assert sorted(map(str, lags)) == ["0", "0", "None", "None"]
    assert told.returncode == 1
    assert _is_told_once(told)


def test_a_group_of_hermes_clients_is_described_without_them(run: Run) -> None:
    told = run("groups", "describe", "search")
    rows = [each.split() for each in told.stdout.splitlines()[1:]]
    assert rows == [["old", f"{_DEAD}-{n}", "17", "-", "-", "-", "-"] for n in range(2)]
    assert told.returncode == 1
    assert _is_told_once(told)


def test_top_shows_the_other_brokers(run: Run) -> None:
    told = run("top", "--once", "-i", "0.1", "--json")
    found = json.loads(told.stdout)
    assert [each["partitions"] for each in found["topics"] if each["topic"] == "clicks"] == [1]
    assert found["unanswered"] == [_DEAD]
    assert [f"hermes: {fault}" for fault in found["faults"]] == told.stderr.splitlines()
    assert told.returncode == 1
    assert _is_told_once(told)
