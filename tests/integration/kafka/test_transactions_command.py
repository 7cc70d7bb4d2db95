"""`hermes transactions`: what is under way, what hangs, and to abort both."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from hermes.testing import RunningKafka, running_kafka

_HERMES = str(Path(sys.executable).with_name("hermes"))
_DEADLINE_SECONDS = 60.0

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningKafka]:
    settings = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}
    with running_kafka({"clicks": 2}, settings) as kafka:
        yield kafka


def command(*where: str) -> Run:
    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        line = [_HERMES, "transactions", name, *where, *arguments]
        return subprocess.run(line, capture_output=True, text=True, timeout=_DEADLINE_SECONDS)

    return run


@pytest.fixture(params=["-k", "-Z"])
def run(request: pytest.FixtureRequest, broker: RunningKafka) -> Run:
    places = {"-k": broker.bootstrap_servers, "-Z": broker.zookeeper_connect}
    return command(request.param, str(places[request.param]))


def begun(kafka: RunningKafka, name: str, *partitions: int) -> Producer:
    """A producer that has sent a message to each partition, and ends nothing."""
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name}
    producer = Producer({**settings, "log_level": 0})
    producer.init_transactions(_DEADLINE_SECONDS)
    producer.begin_transaction()
    for each in partitions:
        producer.produce("clicks", name.encode(), partition=each)
    assert producer.flush(_DEADLINE_SECONDS) == 0
    return producer


def rows(ran: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    assert ran.returncode == 0, ran
    return [json.loads(each) for each in ran.stdout.splitlines()]


def said(ran: subprocess.CompletedProcess[str]) -> str:
    assert ran.returncode == 1, ran
    return ran.stderr


def test_what_is_under_way_is_shown_and_aborted(
    run: Run, broker: RunningKafka, request: pytest.FixtureRequest
) -> None:
    done, mine, other = (f"{each}{request.node.callspec.id}" for each in ("done", "mine", "other"))
    begun(broker, done, 0).commit_transaction(_DEADLINE_SECONDS)
    producers = [begun(broker, name, 0, 1) for name in (mine, other)]
    found = {each["id"]: each for each in rows(run("list", "--json"))}
    assert found[done]["state"] in ("PrepareCommit", "CompleteCommit")
    assert found[mine]["partitions"] == ["clicks:0", "clicks:1"]
    assert found[mine]["producer"] != found[other]["producer"]
    named = [each["id"] for each in rows(run("list", "--json", "--open"))]
    assert {mine, other} <= set(named)

    lines = dict(each.split(None, 1) for each in run("describe", mine).stdout.splitlines())
    assert lines["state"] == "Ongoing"
    assert lines["partitions"] == "clicks:0, clicks:1"
    assert lines["since"] == found[mine]["since"]

    assert rows(run("list", "--hanging", "--idle", "0", "--json")) == []
    assert run("abort", "--yes", mine).stdout == f"aborted {mine}\n"
    with pytest.raises(KafkaException):
        producers[0].commit_transaction(_DEADLINE_SECONDS)
    producers[1].commit_transaction(_DEADLINE_SECONDS)
    (row,) = rows(run("describe", "--json", mine))
    assert (row["state"], row["since"], row["partitions"]) == ("Empty", None, [])
    assert "nothing is under way" in said(run("abort", "--yes", mine))
    assert "there is no such id" in said(run("describe", "nobody"))


def test_nothing_is_there_where_nobody_has_used_transactions() -> None:
    with running_kafka({"clicks": 1}) as kafka:
        run = command("-k", kafka.bootstrap_servers)
        assert rows(run("list", "--json")) == []
        assert rows(run("list", "--json", "--hanging", "--idle", "0")) == []
        assert "nobody has used transactions" in said(run("describe", "x"))
        assert "topic 'nowhere'" in said(run("list", "--hanging", "nowhere"))


def test_what_hangs_is_found_and_aborted(tmp_path: Path) -> None:
    """Of a directory whose transactional ids were lost."""
    log_dir = tmp_path / "a log"
    with running_kafka({"clicks": 2}, log_dir=log_dir) as kafka:
        begun(kafka, "lost", 0)
    for each in log_dir.glob("__transaction_state-*"):
        shutil.rmtree(each)
    with running_kafka({"clicks": 2}, log_dir=log_dir) as kafka:
        run = command("-k", kafka.bootstrap_servers)
        alive = begun(kafka, "alive", 0, 1)
        assert rows(run("list", "--hanging", "--json")) == []  # not for long enough
        hanging = ("list", "--hanging", "--idle", "0", "--json")
        (row,) = rows(run(*hanging, "clicks"))
        assert (row["topic"], row["partition"], row["offset"]) == ("clicks", 0, 0)
        aborted = run("abort", "--hanging", "--idle", "0", "--yes")
        assert aborted.stdout == "aborted clicks:0 from offset 0\n"
        assert rows(run(*hanging)) == []
        alive.commit_transaction(_DEADLINE_SECONDS)
        assert first_committed(kafka) == b"alive"


def first_committed(kafka: RunningKafka) -> bytes | None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "any"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition("clicks", 0, 0)])
        message = consumer.poll(_DEADLINE_SECONDS)
        return None if message is None else message.value()
    finally:
        consumer.close()
