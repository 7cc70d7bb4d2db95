"""Replicated topics through kills, pauses, cuts, lost power and bad disks: nothing is lost.

Nor is anything changed that was seen. HERMES_SOAK_TIMES=12.5 makes 1,000 leaders killed of it.
"""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random

import pytest
from coordination_servers import KINDS, ServerProcess
from kafka_loads import JavaLoad, LibrdkafkaLoad, Load
from replicated_cluster import ReplicatedCluster
from replicated_disks import TracedBroker
from replicated_faults import FAULTS
from replicated_rounds import ReplicatedLoad
from soak import report, seed, times


@pytest.mark.soak
@pytest.mark.parametrize("client", ["librdkafka", "java"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_whatever_befalls_them(
    coordination_server: Callable[[str], ServerProcess], kind: str, client: str, tmp_path: Path
) -> None:
    number = seed()
    random = Random(f"{number} {kind} {client}")
    rounds = [name for name, (_, usual) in FAULTS.items() for _ in range(times(usual))]
    random.shuffle(rounds)
    start: Callable[[str], Load] = partial(LibrdkafkaLoad, seed=number)
    if client == "java":
        start = partial(JavaLoad, directory=tmp_path)
    tree = f"{coordination_server(kind).address}/replication-long-{client}"
    cluster = ReplicatedCluster(
        tmp_path / "cluster", tree, is_cuttable=True, broker=TracedBroker, replica_lag_time="2s"
    )
    done: Counter[str] = Counter()
    told: list[str] = []
    try:
        load = ReplicatedLoad(cluster, number, start)
        try:
            for name in rounds:
                load.go_on(random.randrange(50, 300))
                # A disk that is lost must not be the last one that has everything.
                if name in ("wipe", "fail disk", "full disk") or random.random() < 0.8:
                    load.wait_until_in_sync()
                told.append(f"{datetime.now(UTC):%H:%M:%S} {name}\n")
                FAULTS[name][0](cluster, load, random)
                done[name] += 1
                if random.random() < 0.2:
                    load.watcher.look_again()
            messages = load.finish()
        finally:
            load.abandon()
    except BaseException as error:
        error.add_note(f"seed {number}, after {dict(done)}; all that was said is in {tmp_path}")
        (tmp_path / "faults").write_text("".join(told))
        for each, broker in cluster.brokers.items():
            (tmp_path / f"said-{each}").write_text("".join(broker.lines))
        raise
    finally:
        cluster.close()
    counts = {name.replace(" ", "_"): done[name] for name in FAULTS}
    report(
        "replicated topics",
        client=client,
        coordination=kind,
        seed=number,
        **counts,
        messages=messages,
        lost=0,
        changed=0,
    )
