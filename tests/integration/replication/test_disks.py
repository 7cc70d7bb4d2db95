"""Disks of brokers that keep copies: they lose what isn't flushed, are full, or fail."""

from collections.abc import Callable
from random import Random

import pytest
from kafka_loads import TOPIC
from lost_power import MODES
from replicated_cluster import ReplicatedCluster
from replicated_disks import FailingBroker, TracedBroker, empty_disk, fill_disk
from replicated_rounds import ReplicatedLoad

StartCluster = Callable[..., ReplicatedCluster]
StartLoad = Callable[[ReplicatedCluster], ReplicatedLoad]


def test_power_goes(start_cluster: StartCluster, start_load: StartLoad) -> None:
    """Of a leader, then of all at once; what isn't flushed is lost, or some of it."""
    cluster = start_cluster(broker=TracedBroker)
    load = start_load(cluster)
    chance = Random(7)
    for mode, count in zip(MODES, (1, 3) * len(MODES), strict=False):
        load.go_on()
        leader = load.leader()
        dark = [leader] if count == 1 else list(cluster.brokers)
        cluster.lose_power(dark, mode, chance)
        load.go_on()
        load.wait_until_in_sync()
    load.finish()


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_disk_is_full(start_cluster: StartCluster, start_load: StartLoad, who: str) -> None:
    """Those that have room go on, and who gets room again is in sync again."""
    cluster = start_cluster()
    load = start_load(cluster)
    load.go_on()
    leader = load.leader()
    full = leader if who == "leader" else min(cluster.brokers.keys() - {leader})
    fill_disk(cluster.brokers[full])
    cluster.wait_until(lambda: full not in cluster.copies(TOPIC)[0].in_sync, "it stays in sync")
    load.go_on()
    empty_disk(cluster.brokers[full])
    load.wait_until_in_sync()
    load.finish()


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_disk_fails(start_cluster: StartCluster, start_load: StartLoad, who: str) -> None:
    """The others go on, and its broker comes back with another one."""
    cluster = start_cluster(broker=FailingBroker, replica_lag_time="2s")
    load = start_load(cluster)
    load.go_on()
    leader = load.leader()
    failing = leader if who == "leader" else min(cluster.brokers.keys() - {leader})
    broker = cluster.brokers[failing]
    assert isinstance(broker, FailingBroker)
    broker.fail()
    cluster.wait_until(lambda: failing not in cluster.copies(TOPIC)[0].in_sync, "it stays in sync")
    load.go_on(1000)
    assert load.leader() != failing
    broker.recover()
    load.wait_until_in_sync()
    cluster.kill(failing)
    cluster.wipe(failing)
    cluster.start(failing)
    load.wait_until_in_sync()
    load.finish()
