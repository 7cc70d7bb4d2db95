"""A member of a consumer group as a process: a line for each message, until SIGTERM.

    python group_member.py CONNECT GROUP TOPIC

It writes `joined`, `take BROKER-PARTITION NANOSECONDS` for each partition that it gets, and
`BROKER-PARTITION OFFSET PAYLOAD NANOSECONDS` for each message, by the machine's monotonic clock.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from hermes.client.groups import Consumer, ConsumerConfig
from hermes.errors import ConsumerTimeoutError

SESSION_SECONDS = 1.0

# A listener hears of a partition when it has been taken: by then its first messages may be out.
_SLACK_NS = 500_000_000

_output = threading.Lock()


class HandOut(NamedTuple):
    """A message that a member handed out."""

    place: str
    offset: int
    value: int
    time_ns: int


class MemberProcess:
    """Such a process, and what it wrote."""

    def __init__(self, connect: str, group: str, topic: str) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, __file__, connect, group, topic],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def has_joined(self) -> bool:
        return bool(self.lines)

    def messages(self) -> list[HandOut]:
        """What it handed out, in order."""
        split = [line.split() for line in list(self.lines)]
        return [HandOut(each[0], *map(int, each[1:])) for each in split if len(each) == 4]

    def takes(self) -> list[tuple[str, int]]:
        """When it got which partition."""
        split = [line.split() for line in list(self.lines)]
        return [(each[1], int(each[2])) for each in split if each[0] == "take"]

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def end(self, number: int) -> int:
        """End it, and return its status."""
        self.signal(number)
        self.signal(signal.SIGCONT)
        status = self._process.wait(60)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return status

    @property
    def runs(self) -> bool:
        return self._process.returncode is None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):
                self.lines.append(line.rstrip("\n"))


def late_hand_outs(members: Sequence[MemberProcess]) -> dict[tuple[int, str, int], int]:
    """Count messages that members handed out after another had taken the partition.

    Returns:
        How many, by member, partition, and the time at which the other took it.
    """
    takes: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, member in enumerate(members):
        for place, when in member.takes():
            takes[place].append((when, number))
    counts: defaultdict[tuple[int, str, int], int] = defaultdict(int)
    for number, member in enumerate(members):
        for each in member.messages():
            own = [
                t for t, who in takes[each.place] if who == number and t < each.time_ns + _SLACK_NS
            ]
            others = [t for t, who in takes[each.place] if who != number and t < each.time_ns]
            if others and max(others) > max(own, default=0):
                counts[number, each.place, max(others)] += 1
    return counts


def _main(connect: str, group: str, topic: str) -> None:
    config = ConsumerConfig(
        group=group,
        zookeeper_connect=connect,
        zookeeper_session_timeout=SESSION_SECONDS * 1000,
        auto_commit_interval="100ms",
        fetch_wait="50ms",
        consumer_timeout="50ms",
    )
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with Consumer.create(config, _Listener()) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        _say("joined")
        while not stopping.is_set():
            with contextlib.suppress(ConsumerTimeoutError):
                each = next(stream)
                place, now = f"{each.broker_id}-{each.partition}", time.monotonic_ns()
                _say(f"{place} {each.offset} {each.message.decode()} {now}")
        connector.commit_offsets()  # what was said last is finished with, too


class _Listener:
    def before_release(self, partitions: Sequence[Any]) -> None:
        pass

    def after_take(self, partitions: Sequence[Any]) -> None:
        now = time.monotonic_ns()
        _say("\n".join(f"take {partition} {now}" for _, partition in partitions))


def _say(line: str) -> None:
    with _output:  # the listener has a thread of its own
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main(*sys.argv[1:])
