"""What access rules and SCRAM cost a connection: the same load with them and without, in turns.

A client proves once who it is, and a decision of the rules is remembered; so both cost a look-up
for each run of produces and each fetch. That is far less than runs differ on a busy machine. So
what is held against the target is the broker's processor time, which varies less than the time on
the wall; the notes have that as well.
"""

import socket
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.support.load import (
    STORED_BYTES,
    TOPIC,
    connect,
    encoded_produces,
    fetch,
    produce,
    read_answer,
    wait_until_visible,
)
from bench.support.report import Row, ratio_row
from bench.support.servers import Address, HermesBroker, log_bytes
from bench.support.settings import Settings
from bench.support.usage import precise_cpu_seconds
from hermes.protocol import AuthenticateRequest
from hermes.security.scram import ScramClient
from hermes.security.users import Users

__all__ = ["measure"]

_TARGET = 0.97
_BATCH = 50
_FETCH_BYTES = 200_000
_LOG_MESSAGES = 500_000
_LOG_BYTES = _LOG_MESSAGES * STORED_BYTES

#: Each takes a second: many, so that noise meets all sides alike.
_RUNS_PER_ROUND = 3

_WARM_UP_MESSAGES = 100_000
_MILLION = 1e6
_GIGABYTE = 1e9
_MECHANISM = "SCRAM-SHA-256"
_USER, _PASSWORD = "bench", "a password of the benchmark"
_LOOPBACK = "tcp:0:interface=127.0.0.1"

#: What a broker of several applications may have; the last ones decide here.
_RULES: list[dict[str, Any]] = [
    *(
        {"principal": f"app-{n}", "operations": ["produce"], "topic": f"app-{n}.*"}
        for n in range(9)
    ),
    {"principal": "*", "operations": ["all"], "topic": "/secret-[a-z]+/", "allow": False},
    *(
        {"principal": who, "operations": ["produce", "create", "consume"], "topic": "ben*"}
        for who in (_USER, "anonymous")
    ),
]
_SCRAM = {"listen": {"endpoint": _LOOPBACK, "authentication": "scram"}}

#: What is measured, by name: the settings, and whether the client has a user.
_SIDES: dict[str, tuple[dict[str, Any], bool]] = {
    "neither": ({}, False),
    "rules": ({"access": _RULES}, False),
    "SCRAM": (_SCRAM, True),
    "rules and SCRAM": ({**_SCRAM, "access": _RULES}, True),
}


class _Side:
    """One way to set a broker up; collects the time on the wall that its runs took."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.settings, self._has_user = _SIDES[name]
        self.rates: list[float] = []

    def broker(self, directory: Path) -> HermesBroker:
        """Start one."""
        directory.mkdir(parents=True, exist_ok=True)
        settings = dict(self.settings)
        if self._has_user:
            path = directory / "users"
            path.touch(0o600)
            path.write_bytes(Users.none().with_user(_USER, _PASSWORD).encode())
            settings["users_file"] = str(path)
        return HermesBroker(directory, **settings)

    def connect(self, address: Address) -> socket.socket:
        """Connect as this side does."""
        connection = connect(address)
        if self._has_user:
            _log_in(connection)
        return connection


def measure(settings: Settings) -> list[Row]:
    """Ingest and fetch, each with everything that there is to pay for and without."""
    rows = _rows("ingest", "M messages", _RUNS_PER_ROUND * settings.rounds, _ingest, settings)
    with settings.workspace() as directory, ExitStack() as stack:
        brokers = {}
        for name in _SIDES:
            side = _Side(name)
            brokers[name] = broker = stack.enter_context(side.broker(directory / name))
            chunk = encoded_produces(_BATCH)
            produce(broker.address, chunk, _LOG_MESSAGES, opens=side.connect)
            wait_until_visible(broker.address, _LOG_BYTES, opens=side.connect)

        def run(settings: Settings, side: _Side) -> float:
            return _fetch(settings, side, brokers[side.name])

        return [*rows, *_rows("fetch", "GB", _RUNS_PER_ROUND * settings.rounds, run, settings)]


def _rows(
    load: str,
    unit: str,
    rounds: int,
    run: Callable[[Settings, _Side], float],
    settings: Settings,
) -> list[Row]:
    sides = {name: _Side(name) for name in _SIDES}
    by_name = _in_turns(
        rounds, {name: partial(run, settings, each) for name, each in sides.items()}
    )
    rates = {name: statistics.median(side.rates[1:]) for name, side in sides.items()}
    on_the_wall = ", ".join(f"{name} {rate:.2f} {unit}/s" for name, rate in rates.items())
    rows = [
        ratio_row(
            f"{load} with {name}",
            f"{unit} per s of processor",
            by_name[name],
            by_name["neither"],
            beside_name="neither",
            at_least=_TARGET,
        )
        for name in sides
        if name != "neither"
    ]
    return [*rows[:-1], replace(rows[-1], note=f"{rows[-1].note}; on the wall: {on_the_wall}")]


def _in_turns(rounds: int, runs: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Take measurements in turns, after a round that doesn't count; each round begins with another.

    What comes first finds the machine as the last one has left it: a few percent may hang on that.
    """
    figures: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for number in range(rounds + 1):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            figures[name].append(runs[name]())
    return {name: found[1:] for name, found in figures.items()}


def _ingest(settings: Settings, side: _Side) -> float:
    """Produce to a fresh broker; millions of messages per second of its processor."""
    chunk, messages = encoded_produces(_BATCH), int(settings.messages * _MILLION)
    with settings.workspace() as directory, side.broker(directory) as broker:
        log = broker.log_dir / f"{TOPIC}-0"
        produce(broker.address, chunk, _WARM_UP_MESSAGES, opens=side.connect)
        connection = side.connect(broker.address)  # to log in is not what is measured
        size, used = log_bytes(log), precise_cpu_seconds(broker.pid)
        rate = produce(broker.address, chunk, messages, opens=lambda _: connection)
        used = precise_cpu_seconds(broker.pid) - used
        sent = -(-messages // chunk.messages) * chunk.messages * STORED_BYTES
        if log_bytes(log) - size != sent:
            raise RuntimeError(f"{sent} bytes were sent, the log grew by {log_bytes(log) - size}")
        side.rates.append(rate / _MILLION)
        return messages / _MILLION / used


def _fetch(settings: Settings, side: _Side, broker: HermesBroker) -> float:
    """Fetch; gigabytes per second of the broker's processor."""
    total = int(settings.fetch_gigabytes * _GIGABYTE)
    connection = side.connect(broker.address)
    used = precise_cpu_seconds(broker.pid)
    rate = fetch(
        broker.address,
        log_bytes=_LOG_BYTES,
        max_bytes=_FETCH_BYTES,
        in_flight=1,
        total_bytes=total,
        opens=lambda _: connection,
    )
    used = precise_cpu_seconds(broker.pid) - used
    side.rates.append(rate / _GIGABYTE)
    return total / _GIGABYTE / used


def _log_in(connection: socket.socket) -> None:
    """Prove who we are, by SCRAM."""
    client = ScramClient(_USER, _PASSWORD, _MECHANISM)
    connection.sendall(AuthenticateRequest(_MECHANISM, client.first()).encode())
    challenge = bytes(read_answer(connection)[4:])
    connection.sendall(AuthenticateRequest(_MECHANISM, client.answer(challenge)).encode())
    client.verify(bytes(read_answer(connection)[4:]))
