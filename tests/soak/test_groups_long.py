"""Eight members, 32 partitions on 3 brokers, three minutes of kills, stops, joins and leaves."""

import itertools
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import pytest
from coordination_servers import KINDS
from group_history import disorder, late_hand_outs, repetitions, unreleased_takes
from group_member import SESSION_SECONDS, MemberProcess
from owners_watch import OwnersWatch
from soak import report, seed, times

from hermes.client import Producer, ProducerConfig, SyncProducer
from hermes.client.groups import ConsumerConfig
from hermes.coordination.layout import BrokerPartition
from hermes.protocol import ProduceRequest, encode_message_set
from hermes.testing import running_broker

pytestmark = pytest.mark.soak

SECONDS = times(180)
PARTITIONS = {0: 11, 1: 11, 2: 10}
PLACES = [
    str(BrokerPartition(broker, number))
    for broker, count in PARTITIONS.items()
    for number in range(count)
]
# Session timeout and two backoffs, and what a busy machine takes for its turns.
BACKOFF_SECONDS = ConsumerConfig(group="g", zookeeper_connect="any").seconds("rebalance_backoff")
ORPHAN_SECONDS = SESSION_SECONDS + 2 * BACKOFF_SECONDS
BUSY_SECONDS = float(os.environ.get("HERMES_SOAK_BUSY_SECONDS", "0.5"))


@pytest.mark.parametrize("kind", KINDS)
def test_churn(tmp_path: Path, kind: str) -> None:
    chosen_seed = seed()
    report(f"churn on {kind}", seed=chosen_seed, seconds=SECONDS)  # should it hang
    server = KINDS[kind](tmp_path / "server")
    members: list[MemberProcess] = []
    with ExitStack() as stack:
        server.start()
        stack.callback(server.kill)
        send, numbers = _cluster(stack, server.address)
        stack.callback(lambda: [m.end(signal.SIGKILL) for m in members if m.runs])

        def join() -> MemberProcess:
            members.append(MemberProcess(server.address, "g", "clicks", tmp_path))
            return members[-1]

        send(2000)
        alive = [join() for _ in range(8)]
        _wait(lambda: all(each.has_joined for each in alive), "they did not join")
        watch = OwnersWatch(server.address, "g", "clicks", PLACES)
        for each in alive:
            watch.count_in(each.consumer_id)
        watch.start()
        stack.callback(_keep, tmp_path / "accounts.json", members, watch)
        deeds = _churn(random.Random(chosen_seed), alive, join, send, watch)
        sent = next(numbers)
        _wait(lambda: len(_values(members)) >= sent, "messages were lost")
        watch.end()
    assert set(_values(members)) == set(range(sent))
    report(f"churn on {kind}", seed=chosen_seed, messages=sent, members=len(members), **deeds)
    _check(members, watch, kind)


def _cluster(stack: ExitStack, connect: str) -> tuple[Callable[[int], None], Iterator[int]]:
    """Start the brokers; what sends so many numbers, and those that are still to be sent."""
    numbers = itertools.count()
    for broker_id, count in PARTITIONS.items():
        settings = {
            "broker_id": broker_id,
            "num_partitions": count,
            "coordination": "zookeeper",
            "zookeeper_connect": connect,
        }
        broker = stack.enter_context(running_broker(None, settings))
        with SyncProducer(broker.host, broker.port) as creator:  # on every broker
            message_set = encode_message_set([b"%d" % next(numbers)])
            creator.send_acknowledged([ProduceRequest("clicks", 0, message_set)])
    config = ProducerConfig(
        zookeeper_connect=connect, acks="flushed", partitioner="round-robin", num_retries=20
    )
    producer = stack.enter_context(Producer(config))

    def send(count: int) -> None:
        for number in itertools.islice(numbers, count):
            producer.send("clicks", b"%d" % number)

    return send, numbers


def _keep(path: Path, members: list[MemberProcess], watch: OwnersWatch) -> None:
    """Write down all that is known, for whoever looks into a failure."""
    for each in members:
        each.history.registered = watch.registered[each.consumer_id]
    accounts = {each.consumer_id: asdict(each.history) for each in members}
    path.write_text(json.dumps({"orphaned": watch.orphaned, "members": accounts}, indent=1))


def _check(members: list[MemberProcess], watch: OwnersWatch, kind: str) -> None:
    """Hold what happened against what a group promises."""
    histories = [each.history for each in members]
    causes, unexplained = repetitions(histories)
    longest, _ = max(watch.orphaned.values())
    losses = sum(len(each.losses()) for each in histories)
    report(f"churn on {kind}", longest_orphan_ms=longest, looks=watch.looks, expired=losses)
    report(f"churn on {kind}, repeated by", **causes)
    assert not unreleased_takes(histories)
    assert not {who: n for who, n in late_hand_outs(histories).items() if n > 1}
    assert not disorder(histories)
    assert not watch.rewound
    assert not unexplained
    assert longest < (ORPHAN_SECONDS + BUSY_SECONDS) * 1000


def _churn(
    chance: random.Random,
    alive: list[MemberProcess],
    join: Callable[[], MemberProcess],
    send: Callable[[int], None],
    watch: OwnersWatch,
) -> Counter[str]:
    deeds: Counter[str] = Counter()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        member = alive.pop(chance.randrange(len(alive)))
        deed = chance.choice(["kill", "stop", "leave"])
        deeds[deed] += 1
        if deed != "leave":
            watch.count_out(member.consumer_id)
        if deed == "stop":
            member.signal(signal.SIGSTOP)
        else:
            member.end(signal.SIGKILL if deed == "kill" else signal.SIGTERM)
        # Sometimes the next deed comes while they rebalance: a second member goes as well.
        quiet = time.monotonic() + chance.choice([0.3, 1.0, SESSION_SECONDS + 2])
        while time.monotonic() < quiet:
            send(20)
        if deed == "stop":
            member.signal(signal.SIGCONT)
            alive.append(member)
        else:
            alive.append(join())
        watch.count_in(alive[-1].consumer_id)
    return deeds


def _values(members: list[MemberProcess]) -> Counter[int]:
    return Counter(message.value for each in members for message in each.messages())


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
