"""A target some of whose partitions nobody leads."""

import logging

from hermes.config.mirror import MirrorClusterAddress
from hermes.coordination.layout import BrokerPartition
from hermes.errors import NotLeaderError
from hermes.mirror.figures import Problems
from hermes.mirror.planning_queries import empty_set
from hermes.mirror.target_cluster import TargetCluster


def test_a_partition_that_lost_its_leader_meanwhile_fails_by_itself() -> None:
    problems = Problems(logging.getLogger("test"))
    target = TargetCluster(MirrorClusterAddress("west", brokers=(("localhost", 1),)), problems)
    partition = BrokerPartition(0, 0)
    failed = target.open([(partition, empty_set("clicks", partition, "s", 0, 0))])
    assert [type(each) for each in failed.values()] == [NotLeaderError]
