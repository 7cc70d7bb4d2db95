"""The thread that keeps a consumer in step with its group."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.membership import GroupMember
from hermes.client.groups.streams import MessageStream
from hermes.coordination.layout import GroupPaths, Subscription, format_subscription
from hermes.coordination.nodes import NodeTransaction
from hermes.coordination.sessions import Lease
from hermes.errors import CoordinationUnavailableError
from tests.support.memory_coordination import MemoryCoordination, MemorySession


class LateEvent(threading.Event):
    """Is set once in the very moment in which waiting for it was given up."""

    def __init__(self) -> None:
        super().__init__()
        self.was_late = False

    def wait(self, timeout: float | None = None) -> bool:
        found = super().wait(timeout)
        if not found and not self.was_late:
            self.was_late = True
            self.set()
        return found


class Watched(GroupMember):
    """Counts how many times it looks, and is in no group."""

    looks = 0
    looked_twice: threading.Event

    def _look(self) -> bool:
        self.looks += 1
        if self.looks == 2:
            self.looked_twice.set()
        return True

    def _leave(self) -> None: ...


def nothing(_: Sequence[Any]) -> None:
    pass


def test_no_wake_is_lost_however_late_it_comes() -> None:
    config = ConsumerConfig(
        group="g", zookeeper_connect="any", auto_commit=False, auto_commit_interval="1ms"
    )
    member = Watched(config, "me", None, nothing, nothing)  # type: ignore[arg-type]
    member._wake = LateEvent()
    member.looked_twice = threading.Event()
    member._thread.start()
    try:
        assert member.looked_twice.wait(10)
    finally:
        member._stopping = True
        member.wake()
        member._thread.join()


class LeasedSession(MemorySession):
    """A session whose lease lasts. While `is_cut`, no transaction is answered."""

    timeout_seconds = 6.0
    is_cut = False

    def lease(self, session_id: int) -> Lease:
        lease = Lease(session_id, clock=lambda: 0.0)
        lease.until = 1.0
        return lease

    def transact(self, fill: Callable[[NodeTransaction], object]) -> list[Any]:
        if self.is_cut:
            raise CoordinationUnavailableError("no answer")
        return super().transact(fill)

    def delete_own(self, path: str) -> None:
        self.delete(path, -1)


class IdleFetcher:
    """Fetches nothing."""

    def __init__(self, broker_id: int, address: tuple[str, int], *_: Any) -> None:
        self.address = address

    def wake(self) -> None: ...

    def stop(self) -> None: ...

    def join(self) -> None: ...


class Group:
    """A group with two partitions to share, one member of which is looked at step by step."""

    def __init__(self) -> None:
        server = MemoryCoordination()
        self.session = LeasedSession(server, lambda: None)
        self.paths = GroupPaths("g")
        self.session.create("/brokers/ids/0", b"creator:localhost:9092")
        self.session.create("/brokers/topics/clicks/0", b"2")
        config = ConsumerConfig(group="g", zookeeper_connect="any", auto_commit_interval="1h")
        session: Any = self.session
        self.member = GroupMember(
            config, "g_a", session, nothing, nothing, make_fetcher=IdleFetcher
        )
        self.stream = MessageStream("clicks-0", None, None, nothing_at_all)
        self.member._subscription = Subscription({"clicks": 1})
        self.member.streams = [self.stream]

    @property
    def owned(self) -> list[int]:
        return sorted(partition.partition for _, partition in self.stream.partitions())


def nothing_at_all() -> None:
    pass


def test_a_release_that_failed_is_finished_and_what_comes_back_is_read_again() -> None:
    group = Group()
    assert group.member._look()
    assert group.owned == [0, 1]
    for claim in group.member.claims():
        claim.start_at(0)
    other = group.paths.member("g_b")
    group.session.create(other, format_subscription(Subscription({"clicks": 1})))
    group.session.is_cut = True
    assert not group.member._look(), "the offset couldn't be stored"
    group.session.is_cut = False
    group.session.delete(other, -1)
    group.member._look()
    assert group.owned == [0, 1]
    assert all(claim.is_held() and not claim.is_revoked for claim in group.member.claims())
