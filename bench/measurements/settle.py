"""How soon a group of consumers has shared its partitions anew after a clean join or leave.

Held against what any use of ZooKeeper through kazoo costs: a party that a client joins or leaves,
until the other three have seen it. Messages flow meanwhile, and each must arrive exactly once:
a group that settles by forgetting where it was has settled nothing.
"""

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kazoo.client import KazooClient

from bench.support.report import Row, skipped_row
from bench.support.servers import HermesBroker, ZooKeeper, free_port
from bench.support.settings import Settings
from hermes.client import Producer, ProducerConfig
from hermes.client.groups import Connector, Consumer, ConsumerConfig, MessageStream

__all__ = ["measure"]

_TARGET_SECONDS = 2.0
_MEMBERS = 4
_PARTITIONS = 32
_TOPIC = "clicks"
_MESSAGES_A_SECOND = 200
_DEADLINE_SECONDS = 60.0


class _Times(NamedTuple):
    """Seconds, of each round."""

    join: list[float]
    leave: list[float]


def measure(settings: Settings) -> list[Row]:
    """Let a fourth member join and leave, again and again, on both servers."""
    rounds = 2 * settings.rounds
    rows = []
    with settings.workspace() as directory:
        for kind, start in (("ZooKeeper", _on_zookeeper), ("embedded", _on_embedded)):
            if kind == "ZooKeeper" and not ZooKeeper.is_installed():
                rows.append(skipped_row("settling, ZooKeeper", "Debian's zookeeper is not there"))
                continue
            with start(directory) as connect:
                group = _measure_group(connect, rounds)
                party = _measure_party(connect, rounds)
                trip = _round_trip(connect)
            rows += [
                _row(f"4 consumers settle after a join, {kind}", group.join, party.join, trip),
                _row(f"4 consumers settle after a leave, {kind}", group.leave, party.leave, trip),
            ]
    return rows


def _row(measure: str, group: Sequence[float], party: Sequence[float], trip: float) -> Row:
    p50, worst, beside = (
        each * 1000 for each in (statistics.median(group), max(group), statistics.median(party))
    )
    return Row(
        measure,
        "ms",
        p50,
        beside,
        "kazoo party of 4",
        f"max < {_TARGET_SECONDS:g} s",
        worst < _TARGET_SECONDS * 1000,
        f"max {worst:.0f} ms over {len(group)} rounds; a party's {max(party) * 1000:.0f} ms; "
        f"one request takes {trip * 1000:.2f} ms, so p50 is {p50 / trip / 1000:.0f} of these",
        tuple(each * 1000 for each in group),
        tuple(each * 1000 for each in party),
    )


@contextmanager
def _on_zookeeper(directory: Path) -> Iterator[str]:
    with (
        ZooKeeper(directory / "zookeeper") as zookeeper,
        HermesBroker(
            directory / "with-zookeeper",
            num_partitions=_PARTITIONS,
            coordination="zookeeper",
            zookeeper_connect=zookeeper.connect_string,
        ),
    ):
        yield zookeeper.connect_string


@contextmanager
def _on_embedded(directory: Path) -> Iterator[str]:
    port = free_port()
    with HermesBroker(
        directory / "embedded",
        num_partitions=_PARTITIONS,
        coordination="embedded",
        coordination_listen=f"tcp:{port}:interface=127.0.0.1",
    ):
        yield f"127.0.0.1:{port}"


# -- the group ----------------------------------------------------------------------------------


class _Member:
    """A consumer that reads what it gets."""

    def __init__(self, connect: str) -> None:
        config = ConsumerConfig(group="g", zookeeper_connect=connect)
        self._connector: Connector = Consumer.create(config)
        (self._stream,) = self._connector.create_message_streams({_TOPIC: 1})[_TOPIC]
        self.payloads: list[bytes] = []
        self._thread = threading.Thread(target=self._read, args=(self._stream,), daemon=True)
        self._thread.start()

    def owned(self) -> int:
        return len(self._stream.partitions())

    def leave(self) -> None:
        self._connector.shutdown()
        self._thread.join()

    def _read(self, stream: MessageStream) -> None:
        for message in stream:
            self.payloads.append(message.message)


def _measure_group(connect: str, rounds: int) -> _Times:
    times = _Times([], [])
    with ExitStack() as stack:
        sender = _Sender(connect)
        stack.callback(sender.stop)
        members = [_Member(connect) for _ in range(_MEMBERS - 1)]
        for member in members:
            stack.callback(member.leave)
        gone: list[_Member] = []
        _wait(lambda: _shares(members, _PARTITIONS))
        for number in range(rounds + 1):
            began = time.perf_counter()
            last = _Member(connect)
            joined = _wait(lambda last=last: _shares([*members, last], _PARTITIONS)) - began
            time.sleep(0.2)  # it works for a moment
            began = time.perf_counter()
            last.leave()
            left = _wait(lambda: _shares(members, _PARTITIONS)) - began
            gone.append(last)
            if number:  # the first only warms up
                times.join.append(joined)
                times.leave.append(left)
        sent = sender.stop()
        everybody = [*members, *gone]
        _wait(lambda: sum(len(each.payloads) for each in everybody) >= sent)
        _check_exactly_once(everybody, sent)
    return times


def _shares(members: Sequence[_Member], partitions: int) -> bool:
    owned = [member.owned() for member in members]
    return sum(owned) == partitions and max(owned) - min(owned) <= 1


def _check_exactly_once(members: Sequence[_Member], sent: int) -> None:
    received = [int(payload) for member in members for payload in member.payloads]
    missing, again = sent - len(set(received)), len(received) - len(set(received))
    if missing or again:
        raise RuntimeError(f"of {sent} messages {missing} did not arrive and {again} came again")


class _Sender:
    """Sends numbers, evenly, to all partitions; the first one creates the topic."""

    def __init__(self, connect: str) -> None:
        config = ProducerConfig(
            zookeeper_connect=connect, acks="flushed", partitioner="round-robin", num_retries=5
        )
        self._producer = Producer(config)
        self._producer.send(_TOPIC, b"0")
        self._numbers = itertools.count(1)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Send no more; how many were sent. Idempotent."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._thread.join()
            self._producer.close()
            self._sent = next(self._numbers)
        return self._sent

    def _send(self) -> None:
        while not self._stopping.wait(1 / _MESSAGES_A_SECOND):
            self._producer.send(_TOPIC, b"%d" % next(self._numbers))


# -- what it is held against --------------------------------------------------------------------


def _measure_party(connect: str, rounds: int) -> _Times:
    times = _Times([], [])
    with ExitStack() as stack:
        seen = [0] * (_MEMBERS - 1)
        for number in range(_MEMBERS - 1):
            client = stack.enter_context(_client(connect))
            client.Party("/party", f"member-{number}").join()

            def watch(names: list[str], number: int = number) -> None:
                seen[number] = len(names)

            client.ChildrenWatch("/party", watch)
        _wait(lambda: seen == [_MEMBERS - 1] * len(seen))
        for number in range(rounds + 1):
            began = time.perf_counter()
            with _client(connect) as last:
                party = last.Party("/party", "last")
                party.join()
                joined = _wait(lambda: seen == [_MEMBERS] * len(seen)) - began
                began = time.perf_counter()
                party.leave()
                left = _wait(lambda: seen == [_MEMBERS - 1] * len(seen)) - began
            if number:
                times.join.append(joined)
                times.leave.append(left)
    return times


def _round_trip(connect: str) -> float:
    """How long the server takes to answer one request, in seconds."""
    times = []
    with _client(connect) as client:
        for _ in range(200):
            began = time.perf_counter()
            client.exists("/")
            times.append(time.perf_counter() - began)
    return statistics.median(times)


@contextmanager
def _client(connect: str) -> Iterator[Any]:
    client = KazooClient(connect)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def _wait(condition: Callable[[], bool]) -> float:
    """Wait until something is so; when it was."""
    deadline = time.perf_counter() + _DEADLINE_SECONDS
    while not condition():
        if time.perf_counter() > deadline:
            raise RuntimeError(f"not settled within {_DEADLINE_SECONDS:g} s")
        time.sleep(0.001)
    return time.perf_counter()
