"""The audit of a topic of Kafka's format, through kills of all that may be killed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from audited_kafka import AuditedKafkaTopic
from coordination_servers import ServerProcess
from replicated_cluster import ReplicatedCluster

pytestmark = pytest.mark.nightly


def test_one_of_20000_is_found_at_each_tier_and_nothing_where_nothing_is(tmp_path: Path) -> None:
    AuditedKafkaTopic(tmp_path / "a place", 20_000, kills=2).run()


def test_so_it_is_when_leaders_change(
    tmp_path: Path, coordination_server: Callable[[str], ServerProcess]
) -> None:
    tree = f"{coordination_server('zookeeper').address}/audited"
    copies = ReplicatedCluster(tmp_path / "the copies", tree, default_replication_factor=3)
    try:
        AuditedKafkaTopic(tmp_path, 20_000, kills=2, copies=copies).run()
    finally:
        copies.close()
