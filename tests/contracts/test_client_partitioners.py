"""What every partitioner must do, run on each built-in one through its entry point's factory."""

import threading

import pytest
from zope.interface.verify import verifyClass, verifyObject

from hermes.interfaces import IPartitioner
from hermes.plugins.partitioners.consistent import ConsistentPartitioner
from hermes.plugins.partitioners.java_hash import JavaHashPartitioner
from hermes.plugins.partitioners.spreading import (
    RandomPartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
)

FACTORIES = [
    ConsistentPartitioner,
    JavaHashPartitioner,
    RandomPartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
]
KEYS = [None, "", "a", "polygenelubricants", "\U0001f600", b"", b"\xff\x00", 0, -1, 2**31, -(2**63)]


@pytest.fixture(params=FACTORIES)
def factory(request):
    return request.param


def test_provides_the_interface(factory) -> None:
    assert verifyClass(IPartitioner, factory)
    assert verifyObject(IPartitioner, factory())


@pytest.mark.parametrize("count", [1, 2, 7, 12, 1000])
def test_every_choice_is_a_partition(factory, count: int) -> None:
    partitioner = factory()
    for _ in range(20):
        for key in KEYS:
            assert partitioner.partition("clicks", key, count) in range(count)


def test_a_shrinking_topic_is_no_trap(factory) -> None:
    partitioner = factory()
    for count in (50, 3, 1):
        assert partitioner.partition("clicks", None, count) in range(count)


def test_messages_without_a_key_reach_every_partition(factory) -> None:
    partitioner = factory()
    chosen = {partitioner.partition("clicks", None, 3) for _ in range(20_000)}
    assert chosen == {0, 1, 2}


def test_threads_may_share_it(factory) -> None:
    partitioner = factory()
    chosen: list[int] = []

    def choose() -> None:
        chosen.extend(partitioner.partition("clicks", None, 5) for _ in range(500))

    threads = [threading.Thread(target=choose) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(chosen) == 2000
    assert set(chosen) <= set(range(5))
