"""Transactions through whatever befalls brokers and clients: each is whole and once, or not at all.

HERMES_SOAK_TIMES=5 makes 1,000 faults of three brokers of it, and 800 of one.
"""

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGSTOP

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from coordination_servers import KINDS, ServerProcess
from kafka_kills import KafkaBroker
from kafka_loads import PARTITIONS, TOPIC
from replicated_cluster import ReplicatedCluster
from replicated_disks import TracedBroker
from replicated_faults import FAULTS
from server_process import DEADLINE_SECONDS
from soak import report, seed, times
from transactional_clients import CLIENTS, TransactedCluster, TransactionalClients

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("client", sorted(CLIENTS))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_whatever_befalls_three(
    coordination_server: Callable[[str], ServerProcess], kind: str, client: str, tmp_path: Path
) -> None:
    number = seed()
    random = Random(f"{number} {kind} {client}")
    usual = {name: usual for name, (_, usual) in FAULTS.items()} | {"kill client": 10}
    del usual["flip bits"]  # which consumers take for messages, unless they check CRCs
    rounds = [name for name, count in usual.items() for _ in range(times(count))]
    random.shuffle(rounds)
    tree = f"{coordination_server(kind).address}/transactions-long-{client}"
    cluster = ReplicatedCluster(
        tmp_path / "cluster", tree, is_cuttable=True, broker=TracedBroker, replica_lag_time="2s"
    )
    done: Counter[str] = Counter()
    told: list[str] = []
    try:
        load = TransactedCluster(cluster, number, client)
        try:
            for name in rounds:
                load.go_on(random.randrange(10, 100))
                # A disk that is lost must not be the last one that has everything.
                if name in ("wipe", "fail disk", "full disk") or random.random() < 0.8:
                    load.wait_until_in_sync()
                told.append(f"{datetime.now(UTC):%H:%M:%S} {name}\n")
                if name == "kill client":
                    load.clients.kill_one()
                else:
                    FAULTS[name][0](cluster, load, random)
                done[name] += 1
            load.wait_until_in_sync()
            load.clients.check()
        finally:
            load.clients.abandon()
            (tmp_path / "history").write_text("\n".join(map(repr, load.clients.transactions)))
    except BaseException as error:
        error.add_note(f"seed {number}, after {dict(done)}; all that was said is in {tmp_path}")
        (tmp_path / "faults").write_text("".join(told))
        for each, broker in cluster.brokers.items():
            (tmp_path / f"said-{each}").write_text("".join(broker.lines))
        raise
    finally:
        cluster.close()
    counts = {name.replace(" ", "_"): count for name, count in done.items()}
    report(
        "transactions on three",
        coordination=kind,
        client=client,
        seed=number,
        **counts,
        **load.clients.counts(),
        stalled=load.clients.stalls,
    )


@pytest.mark.parametrize("client", sorted(CLIENTS))
@pytest.mark.parametrize("coordination", ["none", "embedded"])
def test_whatever_befalls_one(tmp_path: Path, coordination: str, client: str) -> None:
    number = seed()
    random = Random(f"{number} {coordination} {client}")
    usual = {"kill": 20, "stop": 5, "pause": 5, "kill client": 10}
    rounds = [name for name, count in usual.items() for _ in range(times(count))]
    random.shuffle(rounds)
    settings = {"log_dir": str(tmp_path / "log"), "coordination": coordination}
    if coordination == "embedded":
        settings["coordination_listen"] = "tcp:0:interface=127.0.0.1"
    broker = KafkaBroker(tmp_path / "broker", settings)
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(DEADLINE_SECONDS)
        clients = TransactionalClients(broker.bootstrap, number, client)
        try:
            for name in rounds:
                clients.go_on(random.randrange(10, 100))
                befall(broker, clients, name, random)
            clients.go_on(50)
            clients.check()
        finally:
            clients.abandon()
            (tmp_path / "history").write_text("\n".join(map(repr, clients.transactions)))
    except BaseException as error:
        error.add_note(f"seed {number}; all that was said is in {tmp_path}")
        (tmp_path / "said").write_text("".join(broker.lines))
        raise
    finally:
        broker.stop()
    report(
        "transactions on one",
        coordination=coordination,
        client=client,
        seed=number,
        **{name.replace(" ", "_"): times(count) for name, count in usual.items()},
        **clients.counts(),
        stalled=clients.stalls,
    )


def befall(broker: KafkaBroker, clients: TransactionalClients, name: str, random: Random) -> None:
    if name == "kill client":
        clients.kill_one()
    elif name == "pause":
        broker.process.send_signal(SIGSTOP)
        time.sleep(random.uniform(0, 20))  # transactions may time out meanwhile
        broker.process.send_signal(SIGCONT)
    else:
        (broker.kill if name == "kill" else broker.stop)()
        broker.start()
