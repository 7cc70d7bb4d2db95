"""`hermes groups` with groups of Kafka's current clients, found through coordination and by -k."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from hermes.client.kafka_asking import KafkaAsker
from hermes.client.kafka_groups import KafkaGroups, KafkaMember
from hermes.coordination.group_state import store_offsets
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.errors import GroupActiveError
from hermes.security import PLAIN
from hermes.testing import RunningKafka, running_kafka

_HERMES = str(Path(sys.executable).with_name("hermes"))
_DEADLINE_SECONDS = 60.0

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(params=["none", "embedded"])
def broker(request: pytest.FixtureRequest) -> Iterator[RunningKafka]:
    settings = {"coordination": request.param, "group_initial_rebalance_delay": "0s"}
    if request.param == "embedded":
        settings["coordination_listen"] = "tcp:0:interface=127.0.0.1"
    with running_kafka(settings=settings) as kafka:
        yield kafka


@pytest.fixture
def run(broker: RunningKafka) -> Run:
    """Runs `hermes groups`; -k or -Z is given."""
    by = ["-Z", broker.zookeeper_connect] if broker.zookeeper_connect else []
    where = by or ["-k", broker.bootstrap_servers]

    def run_command(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        line = [_HERMES, "groups", command, *map(str, where), *arguments]
        return subprocess.run(line, capture_output=True, text=True, timeout=_DEADLINE_SECONDS)

    return run_command


def test_a_group_is_listed_described_reset_and_deleted(broker: RunningKafka, run: Run) -> None:
    client: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    admin = AdminClient(client)
    admin.create_topics([NewTopic("clicks", 2)])["clicks"].result(_DEADLINE_SECONDS)
    producer = Producer(client)
    for number in range(20):
        producer.produce("clicks", f"m{number}", partition=number % 2)
    assert producer.flush(_DEADLINE_SECONDS) == 0
    consumer = Consumer(
        {**client, "group.id": "web", "group.instance.id": "one", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe(["clicks"])
        came = 0
        while came < 20:
            came += sum(1 for each in consumer.consume(20, 1.0) if not each.error())
        consumer.commit(asynchronous=False)
        for number in range(5):
            producer.produce("clicks", f"late {number}", partition=0)
        assert producer.flush(_DEADLINE_SECONDS) == 0

        assert run("list").stdout == "GROUP  MEMBERS  KIND\nweb          1  kafka\n"
        assert run("describe", "web").stdout == (
            "member one\n"
            "TOPIC   PARTITION  OFFSET  END  LAG  OWNER\n"
            "clicks          0      10   15    5  one\n"
            "clicks          1      10   10    0  one\n"
        )
        for refused in (run("reset", "--to", "earliest", "web"), run("delete", "--yes", "web")):
            assert refused.returncode == 1
            assert "stop them first" in refused.stderr
        # As a static member it stays one when it closes.
    finally:
        consumer.close()
    _let_go(broker)

    if broker.zookeeper_connect is None:
        return  # from here on the same is asked
    outside = run("reset", "--to", "99", "web")
    assert outside.returncode == 1
    assert "clicks 0: offset 99 is outside the log: it holds [0, 15]" in outside.stderr
    assert run("reset", "--to", "-3", "-p", "0", "web").stdout == (
        "TOPIC   PARTITION  BEFORE  NOW\nclicks          0      10    7\n"
    )
    assert run("reset", "--to", "latest", "web").stdout == (
        "TOPIC   PARTITION  BEFORE  NOW\n"
        "clicks          0       7   15\n"
        "clicks          1      10   10\n"
    )
    assert run("delete", "--yes", "web").stdout == "deleted web\n"
    gone = run("describe", "web")
    assert gone.returncode == 1
    assert "there is no" in gone.stderr


def _let_go(broker: RunningKafka) -> None:
    """Let an administrator take the static member out of its group."""

    host, _, port = str(broker.bootstrap_servers).rpartition(":")
    with KafkaAsker(host, int(port)) as asker:
        members = [{"member_id": "", "group_instance_id": "one"}]
        answer = asker.ask("LeaveGroup", 5, group_id="web", members=members)
        assert answer.members[0].error_code == 0


def test_consumer_groups_are_as_others() -> None:
    """By the coordinator's assignors (KIP-848): what the command asks, without its process."""
    topics = {"clicks": {"partitions": 2, "format": "kafka"}}
    with running_kafka(settings={"topics": topics}) as kafka:
        place = kafka.bootstrap_servers.rpartition(":")
        given = {
            "group_id": "web",
            "member_id": "one",
            "instance_id": "i",
            "rebalance_timeout": 60_000,
            "subscribed_topic_names": ("clicks",),
            "topic_partitions": (),
        }
        with KafkaAsker(place[0], int(place[2])) as asker:
            asker.ask("ConsumerGroupHeartbeat", 1, member_epoch=0, **given)
            with closing(KafkaGroups([(place[0], int(place[2]))], 60, PLAIN)) as groups:
                assert groups.groups() == [("web", 1)]
                every = frozenset({("clicks", 0), ("clicks", 1)})
                assert groups.members("web") == [KafkaMember("i", every)]
                with pytest.raises(GroupActiveError):
                    groups.store("web", {("clicks", 0): 0})
                with pytest.raises(GroupActiveError):
                    groups.delete("web")
                asker.ask("ConsumerGroupHeartbeat", 1, member_epoch=-1, **given)
                assert groups.groups() == [("web", 0)]
                assert groups.members("web") == []
                groups.store("web", {("clicks", 0): 0})
                assert groups.offsets("web") == {("clicks", 0): 0}
                groups.delete("web")
                assert groups.groups() == []


def test_an_offset_beyond_the_end_has_no_lag() -> None:
    """It is of an earlier topic of that name."""
    settings = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}
    with running_kafka(settings=settings) as kafka:
        client: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
        admin = AdminClient(client)
        admin.create_topics([NewTopic("clicks", 1)])["clicks"].result(_DEADLINE_SECONDS)
        producer = Producer(client)
        producer.produce("clicks", "one", partition=0)
        assert producer.flush(_DEADLINE_SECONDS) == 0
        host, _, port = kafka.bootstrap_servers.rpartition(":")
        with closing(KafkaGroups([(host, int(port))], 60, PLAIN)) as groups:
            groups.store("web", {("clicks", 0): 99})
        session = Session(str(kafka.zookeeper_connect))
        session.start()
        try:
            store_offsets(session, "search", {("clicks", BrokerPartition(0, 0)): 99})
        finally:
            session.stop()
        for group, shown in (
            ("web", ["clicks", "0", "99", "1", "-", "-"]),
            ("search", ["clicks", "0-0", "99", "1", "-", "-", "-"]),
        ):
            line = [_HERMES, "groups", "describe", "-Z", str(kafka.zookeeper_connect), group]
            told = subprocess.run(line, capture_output=True, text=True, timeout=_DEADLINE_SECONDS)
            assert told.stdout.splitlines()[1].split() == shown
            assert "the offset 99 is beyond the end 1: was the topic created again?" in told.stderr
            assert told.returncode == 1


def test_what_cannot_be_reached_is_told_in_a_line() -> None:
    line = [_HERMES, "groups", "list", "-k", "127.0.0.1:1"]
    told = subprocess.run(line, capture_output=True, text=True, timeout=_DEADLINE_SECONDS)
    assert told.returncode == 1
    assert told.stderr.startswith("hermes: no connection to 127.0.0.1:1: ")
    assert told.stderr.count("\n") == 1
