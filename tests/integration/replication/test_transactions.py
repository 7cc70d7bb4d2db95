"""Transactions over brokers with copies: whoever dies, each is whole and once, or not at all."""

from collections.abc import Callable

import pytest
from replicated_cluster import ReplicatedCluster
from transactional_load import (
    JavaTransactionalLoad,
    TransactionalLoad,
    group_offset,
    read_committed,
)

StartCluster = Callable[..., ReplicatedCluster]

TOPIC = "paid"
PARTITIONS = range(3)
STATE = "__transaction_state"


def judge(cluster: ReplicatedCluster, load: TransactionalLoad | JavaTransactionalLoad) -> None:
    load.finish()
    assert load.committed
    found = read_committed(cluster.bootstrap, TOPIC, PARTITIONS)
    load.judge(found, group_offset(cluster.bootstrap) if load.has_offsets else None)


@pytest.mark.parametrize("client", ["librdkafka", "java"])
def test_any_broker_is_killed(start_cluster: StartCluster, client: str) -> None:
    cluster = start_cluster()
    cluster.create_topic(TOPIC, len(PARTITIONS))
    load: TransactionalLoad | JavaTransactionalLoad
    if client == "java":
        cluster.create_topic("source", 1)
        load = JavaTransactionalLoad(cluster.bootstrap, TOPIC, PARTITIONS)
    else:
        load = TransactionalLoad(cluster.bootstrap, TOPIC, PARTITIONS, with_offsets=False)
    try:
        load.go_on()
        for number in list(cluster.brokers):
            cluster.kill(number)
            load.go_on()
            cluster.start(number)
            cluster.wait_until_in_sync(TOPIC, len(PARTITIONS))
            cluster.wait_until_in_sync(STATE, 16)
            load.go_on()
    finally:
        judge(cluster, load)


def test_all_are_killed_at_once(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    cluster.create_topic(TOPIC, len(PARTITIONS))
    load = TransactionalLoad(cluster.bootstrap, TOPIC, PARTITIONS, with_offsets=False)
    try:
        for _ in range(2):
            load.go_on()
            for number in cluster.brokers:
                cluster.kill(number)
            cluster.start_together(cluster.brokers)
        load.go_on()
    finally:
        judge(cluster, load)
