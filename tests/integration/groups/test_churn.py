"""Members that are killed, stopped, and come and go, while messages flow."""

import itertools
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from group_history import disorder, late_hand_outs, repetitions, unreleased_takes
from group_member import MemberProcess
from owners_watch import OwnersWatch

from hermes.client import Producer, ProducerConfig
from hermes.testing import running_broker

ROUNDS = 12
Join = Callable[[], MemberProcess]


@pytest.fixture
def join(connect: str) -> Iterator[Join]:
    members: list[MemberProcess] = []

    def start() -> MemberProcess:
        members.append(MemberProcess(connect, "g", "clicks"))
        return members[-1]

    yield start
    for each in members:
        if each.runs:
            each.end(signal.SIGKILL)


@pytest.fixture
def send(connect: str) -> Iterator[Callable[[int], None]]:
    """Sends numbers, each higher than the last, over 2 brokers of 4 partitions."""
    numbers = itertools.count()
    brokers = [
        running_broker(
            None,
            {
                "broker_id": number,
                "num_partitions": 4,
                "coordination": "zookeeper",
                "zookeeper_connect": connect,
                "flush_interval": "2ms",
            },
        )
        for number in range(2)
    ]
    config = ProducerConfig(
        zookeeper_connect=connect, acks="flushed", partitioner="round-robin", num_retries=20
    )
    with brokers[0], brokers[1], Producer(config) as producer:

        def send(count: int) -> None:
            for number in itertools.islice(numbers, count):
                producer.send("clicks", b"%d" % number)

        yield send


def values(*members: MemberProcess) -> Counter[int]:
    return Counter(message.value for each in members for message in each.messages())


def test_a_member_that_was_stopped_hands_out_one_more_message_at_most(
    join: Join, send: Callable[[int], None], eventually: Any
) -> None:
    send(2000)
    first = join()
    eventually(lambda: len(first.messages()) > 20)
    first.signal(signal.SIGSTOP)
    before = len(first.messages())
    second = join()
    eventually(lambda: set(values(first, second)) >= set(range(2000)))
    # Its output may hold what it wrote before it was stopped; that has arrived by now.
    before = max(before, len(first.messages()))
    first.signal(signal.SIGCONT)
    send(50)
    eventually(lambda: set(values(first, second)) >= set(range(2050)))
    late = [each for each in first.messages()[before:] if each.value < 2000]
    assert len(late) <= 1
    assert max(late_hand_outs([first.history, second.history]).values(), default=0) <= 1


@pytest.mark.parametrize("seed", [7, 11])
def test_everything_arrives_in_order_whoever_comes_and_goes(
    connect: str, join: Join, send: Callable[[int], None], eventually: Any, seed: int
) -> None:
    chance = random.Random(seed)
    send(1)
    members = [join() for _ in range(3)]
    alive, stopped = list(members), list[MemberProcess]()
    eventually(lambda: all(each.has_joined for each in alive))
    watch = OwnersWatch(connect, "g", "clicks", ())
    watch.start()
    for number in range(1, ROUNDS + 1):
        send(60)
        deed = chance.choice(["kill", "stop", "join", "leave"])
        if stopped:
            stopped[0].signal(signal.SIGCONT)
            alive.append(stopped.pop())
        if deed == "join" or len(alive) < 2:
            members.append(join())
            alive.append(members[-1])
        elif deed == "stop":
            stopped.append(alive.pop(chance.randrange(len(alive))))
            stopped[0].signal(signal.SIGSTOP)
        else:
            gone = alive.pop(chance.randrange(len(alive)))
            gone.end(signal.SIGKILL if deed == "kill" else signal.SIGTERM)
        if chance.random() < 0.4:  # in the other rounds, the next deed comes while they rebalance
            sent = set(range(1 + 60 * number))
            eventually(lambda sent=sent: set(values(*members)) == sent, "messages were lost")
    total = 1 + 60 * ROUNDS
    eventually(lambda: set(values(*members)) == set(range(total)), "messages were lost")
    watch.end()
    assert not watch.rewound
    for each in members:
        each.history.registered = watch.registered[each.consumer_id]
    histories = [each.history for each in members]
    assert not disorder(histories)
    assert not unreleased_takes(histories)
    assert max(late_hand_outs(histories).values(), default=0) <= 1
    _, unexplained = repetitions(histories)
    assert not unexplained


def test_who_leaves_cleanly_leaves_no_duplicates(
    join: Join, send: Callable[[int], None], eventually: Any
) -> None:
    send(100)
    members = [join() for _ in range(3)]
    eventually(lambda: set(values(*members)) == set(range(100)))
    eventually(lambda: all(each.has_joined for each in members))
    assert members[1].end(signal.SIGTERM) == 0
    send(100)
    eventually(lambda: set(values(*members)) == set(range(200)))
    assert max(values(*members).values()) == 1
