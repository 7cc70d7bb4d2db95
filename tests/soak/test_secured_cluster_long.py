"""Brokers of a cluster with TLS, users and rules are killed, that with the coordination as well."""

import random
from pathlib import Path

import pytest
from mirrored_pair import eventually
from secured_cluster import USE, Cluster, secured_cluster
from server_process import free_ports
from soak import report, times


def all_known(cluster: Cluster) -> bool:
    """Whether each broker tells of all three, where they listen."""
    wanted = [(n, "127.0.0.1", broker.port) for n, broker in enumerate(cluster.brokers, 1)]
    found = []
    for number in range(3):
        with cluster.client("report", number) as consumer:
            found.append(consumer.brokers())
    return all(each == wanted for each in found)


@pytest.mark.soak
def test_killed_brokers_come_back_as_who_they_are(tmp_path: Path) -> None:
    chance = random.Random(7)
    kills = [0, 0, 0]
    with secured_cluster(tmp_path, free_ports(4)) as cluster:
        for _ in range(times(20)):
            number = chance.randrange(3)
            cluster.brokers[number].kill()
            cluster.brokers[number].start()
            kills[number] += 1
            eventually(lambda: all_known(cluster))
            assert cluster.run(USE).stdout == "hello, cluster\n"
        for broker in cluster.brokers:
            assert not [line for line in broker.lines if "Traceback" in line]
    report("secured cluster", kills=sum(kills), of_the_coordination=kills[0])
