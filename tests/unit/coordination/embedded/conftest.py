"""A processor without sockets, files and time: what the tests of its parts share."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import Logger
from twisted.python.failure import Failure

from hermes.coordination.embedded.commit_queue import CommitQueue
from hermes.coordination.embedded.four_letter_words import ClientReport
from hermes.coordination.embedded.guarded_processor import GuardedProcessor
from hermes.coordination.embedded.jute_records import AclIdentity
from hermes.coordination.embedded.processor import ServerState
from hermes.coordination.embedded.proofs import Promise, Proof
from hermes.coordination.embedded.rights import Rights
from hermes.coordination.embedded.tree_changes import Change
from hermes.coordination.embedded.zookeeper_requests import ConnectRequest
from hermes.limited_log import LimitedLog


class Disk:
    """Where a commit queue writes: at once, or when the test says so.

    Attributes:
        batches: the changes that were written, a list a batch, each with its zxid.
        is_slow: whether writes wait for `finish`.
    """

    def __init__(self) -> None:
        self.batches: list[tuple[list[Change], int]] = []
        self.is_slow = False
        self._writing: list[Callable[[Any], None]] = []

    def write(self, then: Callable[[Any], None], changes: Sequence[Change], zxid: int) -> None:
        self.batches.append((list(changes), zxid))
        if self.is_slow:
            self._writing.append(then)
        else:
            then(None)

    def finish(self) -> None:
        """The write under way is done."""
        self._writing.pop(0)(None)

    def fail(self, error: Exception) -> None:
        """The write under way fails."""
        self._writing.pop(0)(Failure(error))


class FakePeer:
    """A connection that only remembers what it was told."""

    def __init__(self) -> None:
        self.rights = Rights({AclIdentity("ip", "127.0.0.1"): None})
        self.promise: Promise | None = None
        self.asks_for_passwords = False
        self.proofs: list[Proof] = []
        self.waiting_bytes = 0
        self.report = ClientReport("127.0.0.1:1", 0, 0, 0)
        self.session: Any = None
        self.answers: list[bytes] = []
        self.events: list[bytes] = []
        self.has_ended = False

    def respond(self, data: bytes) -> None:
        self.answers.append(data)

    def notify(self, data: bytes) -> None:
        self.events.append(data)

    def end(self) -> None:
        self.has_ended = True

    def check(self, proof: Proof) -> None:
        self.proofs.append(proof)


class Bench:
    """A processor with its surroundings."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.disk = Disk()
        self.failures: list[Any] = []
        self.state = ServerState()
        self.queue = CommitQueue(self.disk.write, self.failures.append, self.clock)
        self.processor = GuardedProcessor(
            self.state,
            self.queue,
            (1000, 10_000),
            self.clock,
            lambda: 1_700_000_000_000,
            LimitedLog(Logger(), self.clock.seconds),
        )

    def connect(self, timeout_ms: int = 5000) -> FakePeer:
        """A client with a new session."""
        peer = FakePeer()
        self.processor.connect(peer, ConnectRequest(0, timeout_ms, 0, bytes(16), None))
        return peer


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def disk() -> Disk:
    return Disk()
