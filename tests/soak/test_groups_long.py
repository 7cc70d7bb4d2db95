"""Eight members, 32 partitions on 3 brokers, five minutes of kills, stops, joins and leaves."""

import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from group_member import SESSION_SECONDS, MemberProcess, late_hand_outs
from zookeeper_process import ZooKeeperProcess

from hermes.client import Producer, ProducerConfig, SyncProducer
from hermes.coordination.sessions import Session
from hermes.protocol import ProduceRequest, encode_message_set
from hermes.testing import running_broker

pytestmark = pytest.mark.soak

SECONDS = float(os.environ.get("HERMES_SOAK_SECONDS", "300"))
PARTITIONS = {0: 11, 1: 11, 2: 10}
# Session timeout and two backoffs, and what a busy machine takes to start a process.
ORPHAN_SECONDS = SESSION_SECONDS + 2 * 0.2 + 2.0


class OwnersWatch(threading.Thread):
    """Looks at the owners all the time; notes how long a partition had none."""

    def __init__(self, connect: str) -> None:
        super().__init__(daemon=True)
        self.longest: Counter[str] = Counter()
        self.ended = threading.Event()
        self._session = Session(connect)
        self._session.start()

    def run(self) -> None:
        places = [f"{b}-{p}" for b, count in PARTITIONS.items() for p in range(count)]
        seen = dict.fromkeys(places, time.monotonic())
        while not self.ended.wait(0.02):
            now, owned = time.monotonic(), self._session.children("/consumers/g/owners/clicks")
            for place in places:
                if place not in owned:
                    gone_ms = round((now - seen[place]) * 1000)
                    self.longest[place] = max(self.longest[place], gone_ms)
                else:
                    seen[place] = now
        self._session.stop()


def test_churn(tmp_path: Path) -> None:
    seed = int(os.environ.get("HERMES_SOAK_SEED", time.time_ns() % 100_000))
    print(f"HERMES_SOAK_SEED={seed}")  # noqa: T201, so that a failure can be run again
    chance = random.Random(seed)
    zookeeper = ZooKeeperProcess(tmp_path / "zookeeper")
    with ExitStack() as stack:
        zookeeper.start()
        stack.callback(zookeeper.kill)
        members: list[MemberProcess] = []
        stack.callback(lambda: [m.end(signal.SIGKILL) for m in members if m.runs])
        numbers = itertools.count()
        for broker_id, count in PARTITIONS.items():
            settings = {
                "broker_id": broker_id,
                "num_partitions": count,
                "coordination": "zookeeper",
                "zookeeper_connect": zookeeper.address,
            }
            broker = stack.enter_context(running_broker(None, settings))
            with SyncProducer(broker.host, broker.port) as creator:  # on every broker
                payload = b"%d" % next(numbers)
                creator.send_acknowledged(
                    [ProduceRequest("clicks", 0, encode_message_set([payload]))]
                )
        config = ProducerConfig(
            zookeeper_connect=zookeeper.address,
            acks="flushed",
            partitioner="round-robin",
            num_retries=20,
        )
        producer = stack.enter_context(Producer(config))

        def send(count: int) -> None:
            for number in itertools.islice(numbers, count):
                producer.send("clicks", b"%d" % number)

        def join() -> MemberProcess:
            members.append(MemberProcess(zookeeper.address, "g", "clicks"))
            return members[-1]

        send(2000)
        alive = [join() for _ in range(8)]
        _wait(lambda: all(each.has_joined for each in alive), "they did not join")
        watch = OwnersWatch(zookeeper.address)
        watch.start()
        kills = _churn(chance, alive, join, send)
        sent = next(numbers)
        _wait(lambda: len(_values(members)) >= sent, "messages were lost")
        watch.ended.set()
        watch.join()
        values = _values(members)
        assert set(values) == set(range(sent))
        assert max(late_hand_outs(members).values(), default=0) <= 1
        assert max(watch.longest.values(), default=0) < ORPHAN_SECONDS * 1000
        repeated = sum(values.values()) - sent
        print(f"{sent} messages, {kills} kills and stops, {repeated} came again")  # noqa: T201


def _churn(chance, alive, join, send) -> int:  # type: ignore[no-untyped-def]
    kills, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        member = alive.pop(chance.randrange(len(alive)))
        deed = chance.choice(["kill", "stop", "leave"])
        kills += deed != "leave"
        if deed == "stop":
            member.signal(signal.SIGSTOP)
        else:
            member.end(signal.SIGKILL if deed == "kill" else signal.SIGTERM)
        quiet = time.monotonic() + SESSION_SECONDS + 2  # it settles before the next deed
        while time.monotonic() < quiet:
            send(20)
        if deed == "stop":
            member.signal(signal.SIGCONT)
            alive.append(member)
        else:
            alive.append(join())
    return kills


def _values(members: list[MemberProcess]) -> Counter[int]:
    return Counter(message.value for each in members for message in each.messages())


def _wait(condition, what: str) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
