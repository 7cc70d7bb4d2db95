"""kazoo's recipes, which users build on."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

WAIT = 20


def in_thread(function: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def eventually(condition: Callable[[], bool]) -> None:
    """Ask until it is so."""
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline


def test_lock(connect: Callable[..., Any]) -> None:
    first, second = connect(), connect()
    held, wanted = first.Lock("/lock", "one"), second.Lock("/lock", "two")
    assert held.acquire(timeout=WAIT)
    with pytest.raises(LockTimeout):
        wanted.acquire(timeout=0.1)
    assert not wanted.acquire(blocking=False)
    got = threading.Event()
    thread = in_thread(lambda: wanted.acquire(timeout=WAIT) and got.set())
    eventually(lambda: held.contenders() == ["one", "two"])
    held.release()
    assert got.wait(WAIT)
    assert wanted.contenders() == ["two"]
    wanted.release()
    thread.join(WAIT)


def test_a_lock_is_free_when_its_holder_is_gone(connect: Callable[..., Any]) -> None:
    first, second = connect(), connect()
    assert first.Lock("/lock").acquire(timeout=WAIT)
    got = threading.Event()
    lock = second.Lock("/lock")
    thread = in_thread(lambda: lock.acquire(timeout=WAIT) and got.set())
    eventually(lambda: len(lock.contenders()) == 2)
    first.stop()
    assert got.wait(WAIT)
    thread.join(WAIT)


def test_read_and_write_locks(connect: Callable[..., Any]) -> None:
    first, second = connect(), connect()
    readers = [client.ReadLock("/lock") for client in (first, second)]
    assert all(reader.acquire(timeout=WAIT) for reader in readers)
    writer = first.WriteLock("/lock")
    assert not writer.acquire(blocking=False)
    for reader in readers:
        reader.release()
    assert writer.acquire(timeout=WAIT)
    writer.release()


def test_semaphore(connect: Callable[..., Any]) -> None:
    semaphores = [connect().Semaphore("/semaphore", max_leases=2) for _ in range(3)]
    assert semaphores[0].acquire(timeout=WAIT)
    assert semaphores[1].acquire(timeout=WAIT)
    assert not semaphores[2].acquire(blocking=False)
    semaphores[0].release()
    assert semaphores[2].acquire(timeout=WAIT)
    for semaphore in semaphores[1:]:
        semaphore.release()


def test_party(connect: Callable[..., Any], client: KazooClient) -> None:
    first, second = connect(), connect()
    parties = [first.Party("/party", "one"), second.Party("/party", "two")]
    for party in parties:
        party.join()
    assert set(client.Party("/party")) == {"one", "two"}
    parties[0].leave()
    assert list(client.Party("/party")) == ["two"]
    second.stop()
    assert len(client.Party("/party")) == 0
    shallow = client.ShallowParty("/shallow", "three")
    shallow.join()
    assert list(shallow) == ["three"]


def test_election(connect: Callable[..., Any]) -> None:
    first, second = connect(), connect()
    led, go = [], threading.Event()
    leading = threading.Event()

    def lead(name: str) -> None:
        led.append(name)
        leading.set()
        go.wait(WAIT)

    one, two = first.Election("/election", "one"), second.Election("/election", "two")
    threads = [in_thread(lambda: one.run(lead, "one"))]
    assert leading.wait(WAIT)
    threads.append(in_thread(lambda: two.run(lead, "two")))
    eventually(lambda: one.contenders() == ["one", "two"])
    assert led == ["one"]
    go.set()
    for thread in threads:
        thread.join(WAIT)
    assert led == ["one", "two"]


def test_counter(connect: Callable[..., Any]) -> None:
    counters = [connect().Counter("/counter") for _ in range(2)]

    def count(counter: Any) -> None:
        for _ in range(10):
            counter += 2

    threads = [in_thread(lambda each=counter: count(each)) for counter in counters]
    for thread in threads:
        thread.join(WAIT)
    assert counters[0].value == 40
    counters[1] -= 1
    assert counters[0].value == 39


def test_queue(client: KazooClient) -> None:
    queue = client.Queue("/queue")
    for item in (b"one", b"two", b"three"):
        queue.put(item)
    queue.put(b"urgent", priority=1)
    assert len(queue) == 4
    assert [queue.get() for _ in range(5)] == [b"urgent", b"one", b"two", b"three", None]


def test_locking_queue(connect: Callable[..., Any]) -> None:
    first, second = (connect().LockingQueue("/queue") for _ in range(2))
    first.put_all([b"one", b"two"])
    assert first.get(WAIT) == b"one"
    assert second.get(WAIT) == b"two"
    assert first.consume()
    assert second.holds_lock()
    assert second.release()
    assert first.get(WAIT) == b"two"
    assert first.consume()
    assert len(first) == 0
    assert first.get(0.05) is None


def test_barrier(connect: Callable[..., Any]) -> None:
    first, second = connect(), connect()
    barrier = first.Barrier("/barrier")
    barrier.create()
    waiting = second.Barrier("/barrier")
    assert not waiting.wait(0.05)
    passed = threading.Event()
    thread = in_thread(lambda: waiting.wait(WAIT) and passed.set())
    barrier.remove()
    assert passed.wait(WAIT)
    thread.join(WAIT)


def test_double_barrier(connect: Callable[..., Any]) -> None:
    barriers = [connect().DoubleBarrier("/barrier", 2, f"member-{n}") for n in range(2)]
    done = []
    both_in = threading.Barrier(2)

    def through(barrier: Any) -> None:
        barrier.enter()
        done.append("in")
        # kazoo's first to leave takes away what the other may not have seen yet, and waits for it.
        both_in.wait(WAIT)
        barrier.leave()
        done.append("out")

    threads = [in_thread(lambda each=barrier: through(each)) for barrier in barriers]
    for thread in threads:
        thread.join(WAIT)
    assert sorted(done) == ["in", "in", "out", "out"]


def test_set_partitioner(client: KazooClient) -> None:
    partitioner = client.SetPartitioner("/set", {1, 2, 3}, time_boundary=0.05)
    partitioner.wait_for_acquire(WAIT)
    assert partitioner.acquired
    assert sorted(partitioner) == [1, 2, 3]
    partitioner.finish()


def test_tree_cache(client: KazooClient, seen: Any) -> None:
    from kazoo.recipe.cache import TreeCache, TreeEvent

    client.ensure_path("/tree/a")
    cache = TreeCache(client, "/tree")
    cache.listen(lambda event: seen(event.event_type))
    cache.start()
    seen.wait(lambda items: TreeEvent.INITIALIZED in items)
    assert cache.get_children("/tree") == {"a"}
    client.create("/tree/b", b"two")
    seen.wait(lambda items: items.count(TreeEvent.NODE_ADDED) == 3)
    assert cache.get_data("/tree/b").data == b"two"
    cache.close()
