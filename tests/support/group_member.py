"""A member of a consumer group as a process: a line for each message, until SIGTERM.

    python group_member.py CONNECT GROUP TOPIC

Lines are `BROKER-PARTITION OFFSET PAYLOAD`; `joined` comes first.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading

from hermes.client.groups import Consumer, ConsumerConfig
from hermes.errors import ConsumerTimeoutError

SESSION_SECONDS = 1.0


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

    def messages(self) -> list[tuple[str, int, int]]:
        """Partition, offset and number of each message, in order."""
        split = [line.split() for line in list(self.lines) if line.count(" ") == 2]
        return [(place, int(offset), int(value)) for place, offset, value in split]

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
    with Consumer.create(config) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        _say("joined")
        while not stopping.is_set():
            with contextlib.suppress(ConsumerTimeoutError):
                each = next(stream)
                _say(f"{each.broker_id}-{each.partition} {each.offset} {each.message.decode()}")
        connector.commit_offsets()  # what was said last is finished with, too


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main(*sys.argv[1:])
