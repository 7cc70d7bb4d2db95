"""A target some of whose partitions nobody leads, and some of whose brokers are gone."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from memory_coordination import MemoryCoordination

from hermes.config.mirror import MirrorClusterAddress
from hermes.coordination.layout import BROKER_IDS, BrokerPartition
from hermes.errors import BrokerUnavailableError, NotLeaderError
from hermes.mirror.figures import Problems
from hermes.mirror.planning_queries import empty_set
from hermes.mirror.target_cluster import TargetCluster


@pytest.fixture
def target() -> Iterator[TargetCluster]:
    problems = Problems(logging.getLogger("test"))
    made = TargetCluster(MirrorClusterAddress("west", brokers=(("localhost", 1),)), problems)
    yield made
    made.close()


def test_a_partition_that_lost_its_leader_meanwhile_fails_by_itself(target: TargetCluster) -> None:
    partition = BrokerPartition(0, 0)
    failed = target.open([(partition, empty_set("clicks", partition, "s", 0, 0))])
    assert [type(each) for each in failed.values()] == [NotLeaderError]


def test_only_brokers_that_are_registered_are_asked_what_they_have(target: TargetCluster) -> None:
    session: Any = MemoryCoordination().session()
    target.session = session
    for broker_id in (0, 1):
        session.put(f"{BROKER_IDS}/{broker_id}", b"h-1:localhost:%d" % (1 + broker_id))
    look(target)
    assert target.addresses() == {0: ("localhost", 1), 1: ("localhost", 2)}
    session.delete(f"{BROKER_IDS}/1", -1)
    look(target)
    assert target.addresses() == {0: ("localhost", 1)}


def look(target: TargetCluster) -> None:
    with pytest.raises(BrokerUnavailableError):  # nobody listens there
        target.partitions("clicks", 1)
