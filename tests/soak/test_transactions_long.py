"""Transactions through kills and pauses of brokers: each is whole and once, or not at all."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from coordination_servers import KINDS, ServerProcess
from replicated_cluster import ReplicatedCluster
from soak import report, seed, times
from transactional_load import (
    JavaTransactionalLoad,
    TransactionalLoad,
    group_offset,
    read_committed,
)

TOPIC, PARTITIONS = "paid", range(3)
ROUNDS = 20


@pytest.mark.soak
@pytest.mark.parametrize("client", ["librdkafka", "java"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_transactions_outlive_brokers(
    coordination_server: Callable[[str], ServerProcess], kind: str, client: str, tmp_path: Path
) -> None:
    random = Random(f"{seed()} {kind} {client}")
    tree = f"{coordination_server(kind).address}/transactions-long-{client}"
    cluster = ReplicatedCluster(tmp_path / "cluster", tree, replica_lag_time="2s")
    done: Counter[str] = Counter()
    try:
        cluster.create_topic(TOPIC, len(PARTITIONS))
        load: TransactionalLoad | JavaTransactionalLoad
        if client == "java":
            cluster.create_topic("source", 1)
            load = JavaTransactionalLoad(cluster.bootstrap, TOPIC, PARTITIONS)
        else:
            load = TransactionalLoad(cluster.bootstrap, TOPIC, PARTITIONS, with_offsets=False)
        try:
            for _ in range(times(ROUNDS)):
                load.go_on(random.randrange(1, 20))
                cluster.wait_until_in_sync(TOPIC, len(PARTITIONS))
                fault = random.choice(("kill one", "kill all", "pause one"))
                _befall(cluster, fault, random)
                done[fault] += 1
            load.go_on()
        finally:
            load.finish()
        found = read_committed(cluster.bootstrap, TOPIC, PARTITIONS)
        load.judge(found, group_offset(cluster.bootstrap) if load.has_offsets else None)
    finally:
        cluster.close()
    became = {name: len(getattr(load, name)) for name in ("committed", "aborted", "unknown")}
    report("transactions", seed=seed(), client=client, **became, **done)


def _befall(cluster: ReplicatedCluster, fault: str, random: Random) -> None:
    numbers = list(cluster.brokers)
    if fault == "pause one":
        (number,) = random.sample(numbers, 1)
        cluster.pause(number)
        cluster.leader(TOPIC, random.choice(PARTITIONS), but=number)
        cluster.resume(number)
        return
    killed = numbers if fault == "kill all" else random.sample(numbers, 1)
    for each in killed:
        cluster.kill(each)
    cluster.start_together(killed)
