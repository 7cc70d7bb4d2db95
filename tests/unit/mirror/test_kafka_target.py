"""What is sent to a target while its topics, or the brokers that lead them, change."""

import logging
from typing import Any

import pytest

from hermes.config.mirror import MirrorClusterAddress
from hermes.errors import UnknownTopicError
from hermes.mirror import kafka_target
from hermes.mirror.figures import Problems
from hermes.mirror.kafka_cluster import ClusterLook, KafkaTopic, kafka_partition
from hermes.mirror.kafka_target import KafkaTarget
from hermes.mirror.source_claim import TargetAppend


class Claim:
    """Remembers why it was to start anew."""

    epoch = 7

    def __init__(self) -> None:
        self.restarted: list[Any] = []

    def restart(self, epoch: int, error: Any) -> None:
        self.restarted.append(error)


class Cluster:
    """A cluster whose brokers each lead the partition of their number."""

    brokers = 2

    def look(self, topics: Any) -> ClusterLook:
        numbers = range(self.brokers)
        leaders = {n: n for n in numbers}
        places = {n: ("localhost", n + 1) for n in numbers}
        return ClusterLook("west", places, {"clicks": KafkaTopic(None, leaders)})


class Sender:
    """In place of a thread; `begins` is called when one begins."""

    begins: Any = staticmethod(lambda: None)
    got: list[Any]

    def __init__(self, *arguments: Any) -> None:
        Sender.begins()
        self.got = []

    def put(self, entry: TargetAppend) -> None:
        self.got.append(entry)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(kafka_target, "TargetSender", Sender)
    problems = Problems(logging.getLogger("test"))
    made: Any = KafkaTarget(MirrorClusterAddress("west", kafka=(("localhost", 1),)), problems)
    made._cluster = Cluster()
    return made


def entry(claim: Any, number: int) -> TargetAppend:
    pending: Any = None
    place = ("clicks", kafka_partition(number))
    return TargetAppend(claim, 7, pending, *place, "s", 0, 1, b"x", 1, True)


def test_what_is_for_a_partition_that_is_gone_is_planned_anew(target: Any) -> None:
    claim = Claim()
    target.partitions("clicks", 2)
    target._cluster.brokers = 1  # it was deleted and made anew
    target.partitions("clicks", 1)
    kept = entry(claim, 0)
    target.send([entry(claim, 1), kept])
    assert [type(each) for each in claim.restarted] == [UnknownTopicError]
    assert target._senders[0].got == [kept]


def test_a_new_broker_is_sent_to_once_there_is_who_sends(
    target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = Claim()
    target._cluster.brokers = 1
    target.partitions("clicks", 1)
    # Another thread, which has fetched something meanwhile.
    monkeypatch.setattr(Sender, "begins", lambda: target.send([entry(claim, 1)]))
    target._cluster.brokers = 2
    target.partitions("clicks", 2)
    assert len(claim.restarted) == 1
