"""Kafka's clients, each with a replicated topic of its own, through fail-overs."""

from collections.abc import Sequence

from client_loads import ClientLoad, ClientReader
from kafka_clients import Aiokafka, KafkaClient
from kafka_kills import read_all
from kafka_loads import PARTITIONS
from replicated_cluster import ReplicatedCluster
from replicated_log import judge

__all__ = ["go_through_kills"]

#: What isn't left at the client's default: aiokafka's is acks=1, which promises less.
_SETTINGS: dict[type[KafkaClient], dict[str, object]] = {Aiokafka: {"acks": "all"}}

#: Those that repeat nothing by default, and keep the order.
_IDEMPOTENT = ("java", "franz-go")


def go_through_kills(
    cluster: ReplicatedCluster, clients: Sequence[type[KafkaClient]], kills: int
) -> dict[str, int]:
    """Produce and read by each client while leaders are killed; then look everything up.

    Returns:
        How many messages each client was acknowledged.
    """
    used = [each() for each in (*clients, *clients)]
    producing, reading = used[: len(clients)], used[len(clients) :]
    loads: dict[str, ClientLoad] = {}
    try:
        for each in producing:
            cluster.create_topic(each.name, PARTITIONS, config={"min.insync.replicas": "2"})
            settings = _SETTINGS.get(type(each), {})
            loads[each.name] = ClientLoad(each, cluster.bootstrap, each.name, **settings)
        for number in range(kills - 1):
            _kill_one(cluster, loads, number)
        counts = {name: len(load.acknowledged) for name, load in loads.items()}
        readers = {
            each.name: ClientReader(each, cluster.bootstrap, each.name, counts[each.name])
            for each in reading
        }
        _kill_one(cluster, loads, kills - 1)
        for name, load in loads.items():
            load.stop()
            assert not load.failed, (name, load.failed)
            _look_up(cluster, name, load, readers[name])
    finally:
        for load in loads.values():
            load.stop()
        for each in used:
            each.close()
    return {name: len(load.acknowledged) for name, load in loads.items()}


def _kill_one(cluster: ReplicatedCluster, loads: dict[str, ClientLoad], number: int) -> None:
    """Kill who leads a partition of one client; all go on, also while it is gone."""
    for each in loads.values():
        each.wait_for_more(200)
    topic = list(loads)[number % len(loads)]
    leader = cluster.leader(topic, number % PARTITIONS)
    cluster.kill(leader)
    cluster.leader(topic, number % PARTITIONS, but=leader)
    for each in loads.values():
        each.wait_for_more(200)
    cluster.start(leader)
    for name in loads:
        cluster.wait_until_in_sync(name, PARTITIONS)


def _look_up(cluster: ReplicatedCluster, name: str, load: ClientLoad, reader: ClientReader) -> None:
    there = read_all(cluster.bootstrap, PARTITIONS, name)
    findings = judge(load.acknowledged, there)
    if name not in _IDEMPOTENT:
        findings.twice, findings.turned = [], []
    assert not findings, (name, findings, cluster.said())
    for number, messages in reader.result().items():
        assert messages == there[number][: len(messages)], (name, number)
