"""What `hermes groups` says of partitions of Kafka's consumers that can't be asked now."""

from types import SimpleNamespace
from typing import Any

import pytest

from hermes.cli.kafka_asking import KafkaAsker
from hermes.cli.kafka_groups import KafkaGroups
from hermes.errors import BrokerTimeoutError, ClientError
from hermes.security import PLAIN


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> KafkaGroups:
    """Of a cluster with a topic of two partitions, of which broker 1, now down, has the second."""
    broker = SimpleNamespace(node_id=0, host="127.0.0.1", port=1)
    partitions = [SimpleNamespace(partition_index=n, leader_id=-n) for n in range(2)]
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
    with pytest.raises(ClientError, match=r"^clicks 2: there is no such partition now$"):
        groups.offset_at(("clicks", 2))


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
    assert groups.groups() == []
    assert unanswered == ["ListOffsets"]
    assert groups.faults == ["broker 1 does not answer: no answer within 1 s"]
