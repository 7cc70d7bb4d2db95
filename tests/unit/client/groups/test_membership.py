"""The thread that keeps a consumer in step with its group."""

import threading
from collections.abc import Sequence
from typing import Any

from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.membership import GroupMember


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
    """Counts how many times it looks."""

    looks = 0
    looked_twice: threading.Event

    def _look(self) -> bool:
        self.looks += 1
        if self.looks == 2:
            self.looked_twice.set()
        return True


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
