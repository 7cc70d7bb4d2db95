"""`hermes replicas` on a broker by itself: what there is, and what is refused with what to do."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from hermes.testing import RunningKafka, running_kafka

_HERMES = str(Path(sys.executable).with_name("hermes"))
_DEADLINE_SECONDS = 60.0

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningKafka]:
    settings = {
        "topics": {"old": {"format": "0.7"}},
        "coordination": "embedded",
        "coordination_listen": "tcp:0:interface=127.0.0.1",
    }
    with running_kafka(settings=settings) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("clicks", 2)])["clicks"].result(_DEADLINE_SECONDS)
        yield kafka


@pytest.fixture(params=["-k", pytest.param("-Z", marks=pytest.mark.nightly)])
def run(request: pytest.FixtureRequest, broker: RunningKafka) -> Run:
    places = {"-k": broker.bootstrap_servers, "-Z": broker.zookeeper_connect}
    where = [request.param, str(places[request.param])]

    def run_command(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        line = [_HERMES, "replicas", name, *where, *arguments]
        return subprocess.run(line, capture_output=True, text=True, timeout=_DEADLINE_SECONDS)

    return run_command


def said(ran: subprocess.CompletedProcess[str]) -> str:
    assert ran.returncode == 1, ran
    return ran.stderr


def test_single_copies_are_listed_and_in_sync(run: Run) -> None:
    assert run("list", "clicks").stdout == (
        "TOPIC   PARTITION  LEADER  EPOCH  REPLICAS  IN_SYNC  LAG  WHY\n"
        "clicks          0       0      1  0         0        -    -\n"
        "clicks          1       0      1  0         0        -    -\n"
    )
    rows = [json.loads(each) for each in run("list", "--json", "clicks").stdout.splitlines()]
    assert rows[1]["replicas"] == rows[1]["in_sync"] == [0]
    assert run("list", "--problems").stdout.splitlines()[1:] == []
    assert "there is no such" in said(run("list", "nowhere"))
    assert run("wait", "--in-sync", "--within", "0").returncode == 0


def test_what_cannot_be_moved_is_refused_with_what_to_do(run: Run) -> None:
    assert run("move", "clicks:0", "0").stdout == "moves clicks:0 from 0 to 0\n"
    assert "clicks:0: The manual" in said(run("move", "clicks:0", "0,7"))
    assert "has no partition 9" in said(run("move", "clicks:9", "0"))
    assert "No partition reassignment" in said(run("move", "clicks:0", "--cancel"))
    more = ("--topics", "clicks,old", "--replicas", "2")
    assert "add brokers first" in said(run("move", *more))
    assert "no topic 'nowhere'" in said(run("move", "--topics", "nowhere", "--replicas", "1"))
    assert "Kafka 0.7's format" in said(run("move", "old:0", "0"))
    for wrong in (("clicks:0",), ("clicks", "0"), ("clicks:0", "a"), ("--replicas", "2"), ()):
        assert run("move", *wrong).returncode == 2


def test_brokers_come_and_go_only_where_there_are_others(run: Run) -> None:
    added = run("add-broker", "0")
    assert (added.returncode, added.stdout) == (0, ""), "it has everything already"
    assert "start it" in said(run("add-broker", "7"))
    assert "there are 0 other brokers" in said(run("drain", "0"))
    assert run("drain", "7", "--plan").returncode == 0, "it has nothing"


def test_elections_are_of_those_that_need_one(run: Run) -> None:
    ran = run("elect")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert "not needed" in said(run("elect", "clicks:0"))
    assert "not needed" in said(run("elect", "--unclean", "clicks:0"))
    assert run("elect", "--unclean").returncode == 2, "partitions must be named"
    assert "no such partition" in said(run("elect", "--json", "clicks:7"))


def test_rates_are_set_and_taken_away(run: Run) -> None:
    assert run("throttle", "10MB").returncode == 0
    assert run("throttle", "unlimited", "0,5").returncode == 0
    assert run("throttle", "fast").returncode == 2


def test_single_copies_are_compared_with_nobody(run: Run) -> None:
    ran = run("verify")
    assert ran.returncode == 0
    assert ran.stdout == "TOPIC  PARTITION  BROKER  START  END  RESULT\n"
