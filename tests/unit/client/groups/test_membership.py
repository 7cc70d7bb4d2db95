"""The thread that keeps a consumer in step with its group."""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from memory_coordination import MemoryCoordination, MemorySession

from hermes.client.groups import connector
from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.membership import GroupMember
from hermes.client.groups.streams import Claim, MessageStream
from hermes.coordination.layout import Subscription
from hermes.coordination.nodes import NodeTransaction
from hermes.coordination.sessions import Lease
from hermes.errors import ClientError, CoordinationUnavailableError
from hermes.security import PLAIN


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


class MemberSession(MemorySession):
    """A session as a member has it.

    Attributes:
        is_cut: whether nothing can be deleted.
        is_mute: whether nobody hears what became of transactions.
    """

    timeout_seconds = 6.0
    security = PLAIN
    is_cut = is_mute = False

    def lease(self, session_id: int) -> Lease:
        return Lease(session_id, lambda: 0.0)

    def delete(self, path: str, version: int) -> bool:
        if self.is_cut:
            raise CoordinationUnavailableError("out of reach")
        return super().delete(path, version)

    def delete_own(self, path: str) -> bool:
        node = self.get(path)
        return node is not None and node.owner == self.session_id and self.delete(path, -1)

    def transact(self, fill: Callable[[NodeTransaction], object]) -> list[Any]:
        results = super().transact(fill)
        if self.is_mute:
            raise CoordinationUnavailableError("the connection was lost")
        return results


class NoFetcher:
    """Fetches nothing from a broker."""

    def __init__(self, broker_id: int, address: tuple[str, int], *_: Any) -> None:
        self.address = address

    def wake(self) -> None:
        """There is nothing to do."""

    def stop(self) -> None:
        """Likewise."""

    def join(self) -> None:
        """Likewise."""


class Rebalanced:
    """A member of a group that shares two partitions with `other`, when that is there."""

    def __init__(self) -> None:
        self.session = MemberSession(MemoryCoordination(), lambda: None)
        self.session.put("/brokers/ids/0", b"maker:host:9092")
        self.session.put("/brokers/topics/clicks/0", b"2")
        config = ConsumerConfig(group="g", zookeeper_connect="any", release_wait="1ms")
        self.member = GroupMember(
            *(config, "me", self.session, nothing, nothing),  # type: ignore[arg-type]
            make_fetcher=NoFetcher,
            make_claim=self.make_claim,
        )
        self.member._subscription = Subscription({"clicks": 1})
        self.stream = MessageStream("clicks-0", None, None, self.member.wake_fetchers)
        self.member.streams = [self.stream]

    def make_claim(self, *arguments: Any) -> Claim:
        return Claim(*arguments)

    def rebalance(self, *, fails: bool = False) -> None:
        if not fails:
            self.member._rebalance()
            return
        with pytest.raises(CoordinationUnavailableError):
            self.member._rebalance()

    def let_other_join(self) -> None:
        self.session.put("/consumers/g/ids/other", b'{ "clicks": 1 }')

    def let_other_leave(self) -> None:
        self.session.delete("/consumers/g/ids/other", -1)

    @property
    def reads(self) -> list[int]:
        """The partitions that it reads."""
        return sorted(place.partition for _, place in self.stream.partitions())

    @property
    def registered(self) -> list[str]:
        """The partitions that have an owner."""
        return self.session.children("/consumers/g/owners/clicks")


def test_a_partition_that_comes_back_in_the_middle_of_its_release_is_read_again() -> None:
    group = Rebalanced()
    group.rebalance()
    assert group.reads == [0, 1]
    group.let_other_join()
    group.session.is_cut = True
    group.rebalance(fails=True)
    assert group.reads == [0]
    group.session.is_cut = False
    group.let_other_leave()
    group.rebalance()
    assert group.reads == [0, 1]


def test_a_partition_that_was_perhaps_taken_is_left_to_whoever_is_to_have_it_by_then() -> None:
    group = Rebalanced()
    group.let_other_join()
    group.rebalance()
    group.let_other_leave()
    group.session.is_mute = True
    group.rebalance(fails=True)
    assert group.registered == ["0-0", "0-1"]
    group.session.is_mute = False
    group.let_other_join()
    group.rebalance()
    assert (group.reads, group.registered) == ([0], ["0-0"])


class LosingGroup(Rebalanced):
    """While the member looks at what it has, another thread's commit finds out what is lost."""

    is_losing = False

    def make_claim(self, *arguments: Any) -> Claim:
        group = self

        class LostClaim(Claim):
            @property
            def is_revoked(self) -> bool:
                if group.is_losing:
                    group.is_losing = False
                    group.member._lose([self])
                return self._is_revoked

            @is_revoked.setter
            def is_revoked(self, value: bool) -> None:
                self._is_revoked = value

        return LostClaim(*arguments)


def test_a_partition_may_be_lost_while_a_member_looks_at_what_it_has() -> None:
    group = LosingGroup()
    group.rebalance()
    group.is_losing = True
    group.rebalance()
    assert not group.is_losing
    group.rebalance()
    assert group.reads == [0, 1]


def exiting(_: Sequence[Any]) -> None:
    sys.exit(1)


def test_a_listener_that_exits_does_not_end_the_member() -> None:
    group = Rebalanced()
    group.member._on_take = group.member._on_release = exiting
    group.rebalance()
    assert group.reads == [0, 1]
    group.let_other_join()
    group.rebalance()
    assert (group.reads, group.registered) == ([0], ["0-0"])


def test_a_listener_is_told_that_it_can_not_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ConnectorSession(MemoryCoordination(), lambda: None)
    session.put("/brokers/ids/0", b"maker:127.0.0.1:1")
    session.put("/brokers/topics/clicks/0", b"1")
    monkeypatch.setattr(connector, "Session", lambda *_, **__: session)
    leaving = Leaving()
    config = ConsumerConfig(group="g", zookeeper_connect="any")
    with connector.Connector(config, leaving) as leaving.member:
        leaving.member.create_message_streams({"clicks": 1})
        assert session.was_stopped == 0
    assert [type(each) for each in leaving.errors] == [ClientError], (
        "while it leaves, it is left alone"
    )
    assert session.was_stopped == 1


class ConnectorSession(MemberSession):
    was_stopped = 0

    def start(self, _: object) -> None:
        """It is there."""

    def stop(self) -> None:
        self.was_stopped += 1


class Leaving:
    """Tries to shut its member down."""

    member: connector.Connector

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def after_take(self, _: Sequence[Any]) -> None:
        try:
            self.member.shutdown()
        except Exception as error:
            self.errors.append(error)

    before_release = after_take
