"""A broker without sockets that knows users."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_bench import BrokerBench
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, maybeDeferred
from users_bench import SCRAM, USERS, Connect, Directory

from hermes.server.policies import ListenerPolicy


@pytest.fixture
def directory() -> Directory:
    return Directory(USERS)


@pytest.fixture
def bench(tmp_path: Path, directory: Directory) -> Iterator[BrokerBench]:
    made = BrokerBench(tmp_path, authenticator=directory)
    yield made
    made.close()


@pytest.fixture
def connect(bench: BrokerBench) -> Connect:
    def made(host: str = "192.0.2.1", policy: ListenerPolicy = SCRAM) -> tuple[Any, Any]:
        return bench.connect(policy, IPv4Address("TCP", host, 4711))

    return made


@pytest.fixture
def held_bench(tmp_path: Path, directory: Directory) -> Iterator[tuple[BrokerBench, Any]]:
    """One whose threads begin when the test says so."""
    calls: list[Any] = []

    def later(function: Any, *arguments: Any) -> "Deferred[Any]":
        waiting: Deferred[Any] = Deferred()
        calls.append(lambda: maybeDeferred(function, *arguments).chainDeferred(waiting))
        return waiting

    def run() -> None:
        while calls:
            calls.pop(0)()

    made = BrokerBench(tmp_path, later, authenticator=directory)
    yield made, run
    run()
    made.close()
