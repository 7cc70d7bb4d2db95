"""What `hermes groups` says of partitions of Kafka's consumers that can't be asked now."""

from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from hermes.cli import program
from hermes.client.kafka_asking import KafkaAsker
from hermes.client.kafka_groups import KafkaGroups
from hermes.client.places import BEGINNING, PartitionPlace
from hermes.errors import BrokerTimeoutError, ClientError, HermesError
from hermes.security import PLAIN


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> KafkaGroups:
    """Of a cluster with a topic of three partitions; all but the first are on brokers now down."""
    broker = SimpleNamespace(node_id=0, host="127.0.0.1", port=1)
    partitions = [SimpleNamespace(partition_index=n, leader_id=-n) for n in range(3)]
    topic = SimpleNamespace(partitions=partitions)
    found = SimpleNamespace(error_code=0, offset=7)
    answers = {
        "ApiVersions": None,
        "Metadata": SimpleNamespace(brokers=[broker], topics=[topic]),
        "ListOffsets": SimpleNamespace(topics=[SimpleNamespace(partitions=[found])]),
    }

    def ask(self: KafkaAsker, name: str, version: int, **values: Any) -> Any:
        return answers[name]

    monkeypatch.setattr(KafkaAsker, "ask", ask)
    return KafkaGroups([("127.0.0.1", 1)], 1.0, PLAIN)


def test_a_partition_without_a_leader_is_not_said_to_be_gone(groups: KafkaGroups) -> None:
    assert groups.offset_at(("clicks", 0)) == 7
    with pytest.raises(ClientError, match=r"^clicks 1: the broker that has it is down$"):
        groups.offset_at(("clicks", 1))
    with pytest.raises(ClientError, match=r"^clicks 3: there is no such partition now$"):
        groups.offset_at(("clicks", 3))


def test_why_a_partition_can_not_be_reset_names_it_once(groups: KafkaGroups) -> None:
    with pytest.raises(ClientError, match=r"^clicks 1: the broker that has it is down$"):
        groups.reset(("clicks", 1), 0, BEGINNING)
    with pytest.raises(HermesError, match=r"^clicks 0: offset 9 is outside the log: it holds"):
        groups.reset(("clicks", 0), 0, PartitionPlace("offset", 9))


def test_a_broker_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt may take the whole timeout, and a broker has many partitions."""
    brokers = [SimpleNamespace(node_id=n, host="127.0.0.1", port=1 + n) for n in range(2)]
    partitions = [SimpleNamespace(partition_index=n, leader_id=1) for n in range(3)]
    topic = SimpleNamespace(partitions=partitions)
    answers = {
        "ApiVersions": None,
        "Metadata": SimpleNamespace(brokers=brokers, topics=[topic]),
        "ListGroups": SimpleNamespace(error_code=0, groups=[]),
    }
    unanswered = []

    def ask(self: KafkaAsker, name: str, version: int, **values: Any) -> Any:
        if self._connection.address.endswith(":2"):
            unanswered.append(name)
            raise BrokerTimeoutError("no answer within 1 s")
        return answers[name]

    monkeypatch.setattr(KafkaAsker, "ask", ask)
    groups = KafkaGroups([("127.0.0.1", 1)], 1.0, PLAIN)
    assert groups.faults == []
    for number in range(3):
        with pytest.raises(BrokerTimeoutError):
            groups.offset_at(("clicks", number))
    with pytest.raises(ClientError, match=r"^clicks 1: no answer within 1 s$"):
        groups.reset(("clicks", 1), 0, BEGINNING)
    assert groups.groups() == []
    assert unanswered == ["ListOffsets"]
    assert groups.faults == ["broker 1 does not answer: no answer within 1 s"]


def test_partitions_without_a_leader_are_told_together(
    monkeypatch: pytest.MonkeyPatch, groups: KafkaGroups
) -> None:
    places = {("clicks", number): 3 for number in range(3)} | {("views", 1): 3}
    monkeypatch.setattr(KafkaGroups, "members", lambda self, group: [])
    monkeypatch.setattr(KafkaGroups, "offsets", lambda self, group: places)
    monkeypatch.setattr("hermes.cli.registered_cluster.KafkaGroups", lambda *given: groups)
    ran = CliRunner().invoke(program, ["groups", "describe", "-k", "h:1", "web"])
    assert ran.exit_code == 1
    told = [each for each in ran.stderr.splitlines() if "the end is unknown" in each]
    assert [each.split(": ")[2] for each in told] == ["clicks 1, 2", "views 1"]

    reset = CliRunner().invoke(program, ["groups", "reset", "-k", "h:1", "--to", "latest", "web"])
    assert (reset.exit_code, reset.stderr) == (
        1,
        "hermes: clicks 1: the broker that has it is down; nothing was changed\n",
    )
