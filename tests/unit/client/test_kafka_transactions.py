"""When a transaction is said to hang, and when that can't be told."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from hermes.client.kafka_asking import KafkaAsker
from hermes.client.kafka_transactions import CoordinatedTransaction, KafkaTransactions
from hermes.errors import BrokerTimeoutError, ClientError
from hermes.protocol.kafka_errors import Code
from hermes.security import PLAIN
from hermes.transactions.state import STATE_TOPIC, State

_ANSWERS_AT_MOST = 2  # so many partitions' producers fit into one answer


def answered(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"error_code": Code.NONE, **values})


class Cluster:
    """Two brokers: 1 leads all of the topic, 2 coordinates all transactional ids.

    Attributes:
        logged: producers with open transactions, by partition.
        coordinated: what 2 has, by transactional id.
        silent: the brokers that don't answer.
        leaderless: whether some ids are nobody's.
        codes: what 2 answers at first.
    """

    def __init__(self) -> None:
        self.logged: dict[int, list[int]] = {0: [7], 1: [8], 2: [7, 8], 3: []}
        self.coordinated: dict[str, CoordinatedTransaction] = {}
        self.silent: set[int] = set()
        self.is_leaderless = False
        self.codes: list[Code] = []

    def ask(self, broker: int, name: str, values: dict[str, Any]) -> Any:
        if broker in self.silent:
            raise BrokerTimeoutError("no answer within 1 s")
        return getattr(self, name)(values)

    def ApiVersions(self, _: Any) -> Any:
        return answered()

    def Metadata(self, values: dict[str, Any]) -> Any:
        brokers = [SimpleNamespace(node_id=n, host="there", port=n) for n in (1, 2)]
        state = values["topics"] == [{"name": STATE_TOPIC}]
        numbers = (0,) if state else self.logged
        code = Code.LEADER_NOT_AVAILABLE if state and self.is_leaderless else Code.NONE
        partitions = [
            answered(partition_index=n, leader_id=2 if state else 1, error_code=code)
            for n in numbers
        ]
        topic = answered(name=STATE_TOPIC if state else "clicks", partitions=partitions)
        return SimpleNamespace(brokers=brokers, topics=[topic])

    def DescribeProducers(self, values: dict[str, Any]) -> Any:
        (asked,) = values["topics"]
        partitions = []
        for at, number in enumerate(asked["partition_indexes"]):
            fits = at < _ANSWERS_AT_MOST
            producers = [self.producer(each) for each in self.logged[number] if fits]
            code = Code.NONE if fits else Code.POLICY_VIOLATION
            told = {"partition_index": number, "error_code": code}
            partitions.append(answered(active_producers=producers, **told))
        return SimpleNamespace(topics=[SimpleNamespace(name="clicks", partitions=partitions)])

    @staticmethod
    def producer(producer_id: int) -> Any:
        return SimpleNamespace(
            current_txn_start_offset=10 * producer_id,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=-1,
            last_timestamp=1000,
        )

    def ListTransactions(self, values: dict[str, Any]) -> Any:
        code = self.codes.pop() if self.codes else Code.NONE
        wanted = values["producer_id_filters"]
        states = [
            SimpleNamespace(transactional_id=name)
            for name, each in self.coordinated.items()
            if each.producer_id in wanted
        ]
        return answered(error_code=code, transaction_states=states)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()

    def ask(self: KafkaAsker, name: str, version: int, **values: Any) -> Any:
        return cluster.ask(int(self._connection.address[-1]), name, values)

    def described(self: object, _: object, names: Iterable[str]) -> list[CoordinatedTransaction]:
        return [cluster.coordinated[name] for name in names]

    monkeypatch.setattr(KafkaAsker, "ask", ask)
    monkeypatch.setattr(KafkaTransactions, "_described", described)
    return cluster


def found(unknown: list[str], idle_ms: int = 0) -> list[tuple[int, int]]:
    """Partitions and producers of what hangs."""
    transactions = KafkaTransactions([("there", 1)], 1.0, PLAIN)
    hanging = transactions.hanging((), idle_ms, unknown)
    unknown += transactions.faults
    return [(each.place[1], each.producer_id) for each in hanging]


def test_what_no_coordinator_knows_hangs_in_each_partition(cluster: Cluster) -> None:
    unknown: list[str] = []
    assert found(unknown) == [(0, 7), (1, 8), (2, 7), (2, 8)]
    places = (("clicks", 1),)
    known = CoordinatedTransaction("t", 2, State.ONGOING.label, 8, 0, 1000, 1000, places)
    cluster.coordinated["t"] = known
    assert found(unknown) == [(0, 7), (2, 7), (2, 8)]
    assert found(unknown, idle_ms=10**15) == []
    assert unknown == []


def test_it_is_asked_again_while_a_coordinator_reads(cluster: Cluster) -> None:
    cluster.codes = [Code.COORDINATOR_LOAD_IN_PROGRESS]
    assert len(found([])) == 4


def test_nothing_hangs_while_not_all_coordinators_answer(cluster: Cluster) -> None:
    cluster.silent = {2}
    with pytest.raises(ClientError, match="not all transactions are known"):
        found([])
    cluster.silent, cluster.is_leaderless = set(), True
    with pytest.raises(ClientError, match=r"not all transactions are known: .* nobody leads"):
        found([])
    cluster.logged = {0: []}
    assert found([]) == []  # then nobody needs to know


def test_one_that_has_ended_meanwhile_is_left_alone(cluster: Cluster) -> None:
    transactions = KafkaTransactions([("there", 1)], 1.0, PLAIN)
    first, *_ = transactions.hanging((), 0, [])
    cluster.logged[0] = []
    with pytest.raises(ClientError, match="look again"):
        transactions.end(first)
