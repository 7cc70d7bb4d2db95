"""A member of a consumer group as a process: a line for each message, until SIGTERM.

    python group_member.py CONNECT GROUP TOPIC CONSUMER_ID [LOG]

What it writes, `group_history` tells.
"""

import contextlib
import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from group_history import HandOut, History
from kazoo.client import KazooState

from hermes.client.groups import Consumer, ConsumerConfig
from hermes.errors import ConsumerTimeoutError, CoordinationError

SESSION_SECONDS = 1.0

_DEEDS = {
    signal.SIGKILL: "kill",
    signal.SIGSTOP: "stop",
    signal.SIGCONT: "resume",
    signal.SIGTERM: "leave",
}
_numbers = itertools.count()
_output = threading.Lock()


class MemberProcess:
    """Such a process, what it wrote, and what was done to it.

    Attributes:
        consumer_id: its id in the group.
        history: what it wrote, and the signals that it got.
    """

    def __init__(self, connect: str, group: str, topic: str, log_dir: Path | None = None) -> None:
        self.consumer_id = f"member-{next(_numbers)}"
        self.history = History()
        log = [str(log_dir / f"{self.consumer_id}.log")] if log_dir else []
        self._process = subprocess.Popen(
            [sys.executable, __file__, connect, group, topic, self.consumer_id, *log],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def has_joined(self) -> bool:
        return bool(self.history.lines)

    def messages(self) -> list[HandOut]:
        """What it handed out, in order."""
        return self.history.messages()

    def signal(self, number: int) -> None:
        self.history.deeds.append((_DEEDS[number], time.monotonic_ns()))
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
                self.history.lines.append(line.rstrip("\n"))


def _main(connect: str, group: str, topic: str, consumer_id: str, log: str = "") -> None:
    if log:
        logging.basicConfig(filename=log, level=logging.INFO, format="%(asctime)s %(message)s")
    config = ConsumerConfig(
        group=group,
        zookeeper_connect=connect,
        consumer_id=consumer_id,
        zookeeper_session_timeout=SESSION_SECONDS * 1000,
        auto_commit_interval="100ms",
        fetch_wait="50ms",
        consumer_timeout="50ms",
    )
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with Consumer.create(config, _Listener()) as connector:
        connector._session._client.add_listener(_state_changed)
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        _say("joined")
        while not stopping.is_set():
            with contextlib.suppress(ConsumerTimeoutError):
                each = next(stream)
                place, now = f"{each.broker_id}-{each.partition}", time.monotonic_ns()
                _say(f"{place} {each.offset} {each.message.decode()} {now}")
        with contextlib.suppress(CoordinationError):  # what was said last is finished with, too
            connector.commit_offsets()


class _Listener:
    def before_release(self, partitions: Sequence[Any]) -> None:
        _say_each("give", partitions)

    def after_take(self, partitions: Sequence[Any]) -> None:
        _say_each("take", partitions)


def _state_changed(state: Any) -> None:
    if state == KazooState.LOST:
        _say(f"lost {time.monotonic_ns()}")


def _say_each(what: str, partitions: Sequence[Any]) -> None:
    now = time.monotonic_ns()
    _say("\n".join(f"{what} {partition} {now}" for _, partition in partitions))


def _say(line: str) -> None:
    with _output:  # the listener has a thread of its own
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main(*sys.argv[1:])
