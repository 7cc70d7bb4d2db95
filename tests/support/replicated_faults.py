"""What befalls a replicated topic under load: each waits until all of it is well again."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol

from kafka_loads import PARTITIONS, TOPIC
from lost_power import MODES
from replicated_cluster import Cut, ReplicatedCluster
from replicated_disks import FailingBroker, empty_disk, fill_disk
from replicated_log import flip_bit, has_damage

__all__ = ["FAULTS", "Fault", "UnderLoad"]


class UnderLoad(Protocol):
    """The topic, while clients use it."""

    def go_on(self, count: int = 300) -> None:
        """Wait until so many more messages are acknowledged."""

    def wait_until_in_sync(self) -> None:
        """Wait until no copy lacks anything."""

    def leader(self, number: int = 0, but: int = -1) -> int:
        """Who leads a partition; waits until it is somebody else than `but`."""


Fault = Callable[[ReplicatedCluster, UnderLoad, Random], None]

_CUTS: list[tuple[Cut, ...]] = [
    ("to it",),
    ("from it",),
    ("to it", "from it"),
    ("from coordination",),
    ("to it", "from coordination"),
    ("to it", "from it", "from coordination"),
]


def _go_on_without(load: UnderLoad, random: Random) -> bool:
    """Whether clients are to go on before a broker is back: two others have everything then."""
    goes_on = random.random() < 0.7
    if goes_on:
        load.wait_until_in_sync()
    return goes_on


def kill_leader(cluster: ReplicatedCluster, load: UnderLoad, random: Random) -> None:
    """Another leads, and has some time to itself or none."""
    number = random.randrange(PARTITIONS)
    goes_on = _go_on_without(load, random)
    leader = load.leader(number)
    cluster.kill(leader)
    if goes_on:
        load.leader(number, but=leader)
        load.go_on(random.randrange(1, 200))
    cluster.start(leader)


def kill_follower(cluster: ReplicatedCluster, load: UnderLoad, random: Random) -> None:
    """Its leaders go on without it."""
    load.wait_until_in_sync()
    leader = load.leader(random.randrange(PARTITIONS))
    follower = random.choice(sorted(cluster.brokers.keys() - {leader}))
    cluster.kill(follower)
    load.go_on(random.randrange(1, 200))
    cluster.start(follower)


def kill_all(cluster: ReplicatedCluster, load: UnderLoad, random: Random) -> None:
    """They come back in any order."""
    numbers = sorted(cluster.brokers)
    random.shuffle(numbers)
    for number in numbers:
        cluster.kill(number)
    random.shuffle(numbers)
    cluster.start_together(numbers)


def stop(cluster: ReplicatedCluster, load: UnderLoad, random: Random) -> None:
    """In good order."""
    load.wait_until_in_sync()
    number = random.choice(sorted(cluster.brokers))
    cluster.stop(number)
    load.go_on(random.randrange(1, 200))
    cluster.start(number)


def pause(cluster: ReplicatedCluster, load: UnderLoad, random: Random) -> None:
    """A leader sleeps until it is one no more, or wakes before that."""
    number = random.randrange(PARTITIONS)
    goes_on = _go_on_without(load, random)
    leader = load.leader(number)
    cluster.pause(leader)
    try:
        if goes_on:
            load.leader(number, but=leader)
            load.go_on(random.randrange(1, 200))
    finally:
        cluster.resume(leader)


def cut(cluster: ReplicatedCluster, load: UnderLoad, random: Random) -> None:
    """A leader is cut off from others until these have drawn their conclusions, or not so long."""
    number = random.randrange(PARTITIONS)
    ways = random.choice(_CUTS)
    if "from coordination" in ways:
        load.wait_until_in_sync()
    leader = load.leader(number)
    cluster.cut(leader, *ways)
    try:
        if len(ways) > 1 and "from coordination" in ways:
            load.leader(number, but=leader)
        elif "from coordination" in ways:
            load.go_on()
        elif random.random() < 0.7:
            cluster.wait_until(
                lambda: cluster.copies(TOPIC)[number].in_sync == {leader},
                "followers that are cut off stay in sync",
            )
    finally:
        cluster.heal(leader)


def wipe(cluster: ReplicatedCluster, load: UnderLoad, random: Random) -> None:
    """A broker comes back with an empty disk."""
    number = random.choice(sorted(cluster.brokers))
    cluster.kill(number)
    cluster.wipe(number)
    if random.random() < 0.5:
        load.go_on(random.randrange(1, 200))
    cluster.start(number)


def lose_power(cluster: ReplicatedCluster, load: UnderLoad, random: Random) -> None:
    """One, some or all lose it, and each of them some of what it hasn't flushed."""
    numbers = random.sample(sorted(cluster.brokers), random.randint(1, len(cluster.brokers)))
    cluster.lose_power(numbers, random.choice(list(MODES)), random)
    load.wait_until_in_sync()  # the one that had power may be the only one that has everything


def fail_disk(cluster: ReplicatedCluster, load: UnderLoad, random: Random) -> None:
    """A broker can neither read nor write; it goes on with a new disk, or with that one."""
    number = random.choice(sorted(cluster.brokers))
    broker = cluster.brokers[number]
    assert isinstance(broker, FailingBroker)
    broker.fail()
    cluster.wait_until(
        lambda: all(number not in each.in_sync for each in cluster.copies(TOPIC).values()),
        "who can't write stays in sync",
    )
    load.go_on(random.randrange(1, 200))
    broker.recover()
    if random.random() < 0.7:
        cluster.kill(number)
        if random.random() < 0.5:
            cluster.wipe(number)
        cluster.start(number)


def fill(cluster: ReplicatedCluster, load: UnderLoad, random: Random) -> None:
    """A broker has no room for a while: those that have lead."""
    number = random.choice(sorted(cluster.brokers))
    fill_disk(cluster.brokers[number])
    try:
        cluster.wait_until(
            lambda: all(number not in each.in_sync for each in cluster.copies(TOPIC).values()),
            "who has no room stays in sync",
        )
        load.go_on(random.randrange(1, 200))
    finally:
        empty_disk(cluster.brokers[number])


def flip_bits(cluster: ReplicatedCluster, load: UnderLoad, random: Random) -> None:
    """A copy loses bits of what was committed, while its broker runs or not, and is mended."""
    load.wait_until_in_sync()
    partition, number = random.randrange(PARTITIONS), random.choice(sorted(cluster.brokers))
    broker, is_down = cluster.brokers[number], random.random() < 0.5
    if is_down:
        cluster.kill(number)
    for _ in range(random.randint(1, 3)):
        flip_bit(broker.log_dir, TOPIC, partition, random)
    if is_down:
        cluster.start(number)
    elif load.leader(partition) == number:
        # Who copies all of it finds what is damaged.
        follower = random.choice(sorted(cluster.brokers.keys() - {number}))
        cluster.kill(follower)
        cluster.wipe(follower)
        cluster.start(follower)
    load.go_on(random.randrange(1, 200))
    load.wait_until_in_sync()
    if not is_down and has_damage(broker.log_dir, TOPIC, partition):
        cluster.kill(number)
        cluster.start(number)  # it reads all that it has, a minute after that
    cluster.wait_until(
        lambda: not has_damage(broker.log_dir, TOPIC, partition), "a copy stays damaged"
    )


#: By name, each with how often it happens in a usual run.
FAULTS: Mapping[str, tuple[Fault, int]] = {
    "kill leader": (kill_leader, 20),
    "kill follower": (kill_follower, 4),
    "kill all": (kill_all, 4),
    "stop": (stop, 4),
    "pause": (pause, 6),
    "cut": (cut, 6),
    "wipe": (wipe, 1),
    "lose power": (lose_power, 2),
    "fail disk": (fail_disk, 1),
    "full disk": (fill, 1),
    "flip bits": (flip_bits, 2),
}
