"""Transactions over brokers with copies: whoever dies, each is whole and once, or not at all."""

from collections.abc import Callable

from replicated_cluster import ReplicatedCluster
from transactional_load import TransactionalLoad, read_committed

StartCluster = Callable[..., ReplicatedCluster]

TOPIC = "paid"
PARTITIONS = range(3)
STATE = "__transaction_state"


def judge(cluster: ReplicatedCluster, load: TransactionalLoad) -> None:
    load.finish()
    assert load.committed
    load.judge(read_committed(cluster.bootstrap, TOPIC, PARTITIONS))


def test_any_broker_is_killed(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    cluster.create_topic(TOPIC, len(PARTITIONS))
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
            for number in cluster.brokers:
                cluster.launch(number)
            for number in cluster.brokers:
                cluster.wait_until_ready(number)
        load.go_on()
    finally:
        judge(cluster, load)
