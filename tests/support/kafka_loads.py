"""What sends numbered messages all the time: librdkafka in a thread, Kafka's own in a JVM."""

import json
import random
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Producer
from kafka_4 import TOOLS, java_command

__all__ = ["PARTITIONS", "TOPIC", "JavaLoad", "LibrdkafkaLoad", "Load"]

TOPIC = "clicks"
PARTITIONS = 3

# A thousand a second, as several batches at once: what more would cost, other tests have a use for.
_BURST = 100
_BURST_SECONDS = 0.1


class Load(Protocol):
    """A producer that sends until it is stopped.

    Attributes:
        acknowledged: partition and offset of what was acknowledged, by its number.
        failed: what it said of messages that it has given up.
    """

    acknowledged: dict[int, tuple[int, int]]
    failed: list[str]

    def wait_for_more(self, count: int) -> None:
        """Wait until so many more are acknowledged."""

    def stop(self) -> None:
        """Send no more, and wait for the answers."""


class LibrdkafkaLoad:
    """Sends numbered messages from a thread until told to stop, by librdkafka.

    Args:
        bootstrap: where the broker is.
        seed: decides how long the messages are.
        patience_seconds: how long a message, or whoever waits, may be kept waiting.
    """

    def __init__(self, bootstrap: str, seed: int, patience_seconds: int = 120) -> None:
        self._patience_seconds = patience_seconds
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 20,  # so that several batches are under way at once
                "message.timeout.ms": patience_seconds * 1000,
                "socket.timeout.ms": 10_000,  # what is under way to a broker that sleeps goes again
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._known = threading.Condition()
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.failed: list[str] = []
        self.sent = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        burst_end, next_burst = 0, 0.0
        while not self._stop.is_set():
            # No more than a few kills' worth: a message's time is running while it is queued.
            if self.sent - len(self.acknowledged) > 1000:
                self._producer.poll(0.01)
                continue
            if self.sent >= burst_end and time.monotonic() < next_burst:
                self._producer.poll(0.01)
                continue
            if self.sent >= burst_end:
                burst_end, next_burst = self.sent + _BURST, time.monotonic() + _BURST_SECONDS
            number = self.sent
            size = self._random.choice((8, 8, 8, 300))
            self._producer.produce(
                TOPIC,
                b"%d %s" % (number, b"x" * size),
                partition=number % PARTITIONS,
                on_delivery=lambda error, message, number=number: self._told(
                    number, error, message
                ),
            )
            self.sent += 1
            self._producer.poll(0)
        self._producer.flush(self._patience_seconds)

    def _told(self, number: int, error: Any, message: Any) -> None:
        with self._known:
            if error is not None:
                self.failed.append(str(error))
            else:
                self.acknowledged[number] = (message.partition(), message.offset())
            self._known.notify()

    def wait_for_more(self, count: int) -> None:
        with self._known:
            goal = len(self.acknowledged) + count
            done = self._known.wait_for(
                lambda: self.failed or len(self.acknowledged) >= goal, self._patience_seconds
            )
        assert done, f"{len(self.acknowledged)} acknowledged, and no more"
        assert not self.failed, self.failed[0]

    def give_up(self) -> None:
        """Wait for no answers: nobody is there to give them."""
        self._stop.set()
        self._producer.purge()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(self._patience_seconds + 60)
        assert not self._thread.is_alive()
        if not self.failed and len(self.acknowledged) < self.sent:
            self.failed.append(f"{self.sent - len(self.acknowledged)} were never answered")


#: What Java says of the message that its tool was about to send when it was told to end.
_NEVER_SENT = (
    "Producer closed while allocating memory",
    "Cannot perform operation after producer has been closed",
)


class JavaLoad:
    """Kafka's own producer of numbered messages in a JVM, idempotent as it is by default."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        settings = directory / "producer.properties"
        # The tool would not repeat anything unless told to. Its queue is small, so that what it
        # sends waits for the broker, and not in the queue until it is too old; nor does it wait for
        # long for a broker that sleeps.
        settings.write_text(
            "enable.idempotence=true\nretries=2147483647\nretry.backoff.ms=20\n"
            "reconnect.backoff.ms=20\nreconnect.backoff.max.ms=100\nlinger.ms=1\n"
            "batch.size=500\nmetadata.max.age.ms=1000\nrequest.timeout.ms=10000\n"
            "buffer.memory=65536\nmax.block.ms=600000\n",
            encoding="utf-8",
        )
        self._known = threading.Condition()
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.failed: list[str] = []
        self._others: list[str] = []
        self._process = subprocess.Popen(
            java_command(
                TOOLS["kafka-verifiable-producer"],
                *("--bootstrap-server", bootstrap),
                *("--topic", TOPIC),
                *("--throughput", "1000"),
                *("--command-config", str(settings)),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line) if line.startswith("{") else {}
            with self._known:
                if told.get("name") == "producer_send_success":
                    place = told["partition"], told["offset"]
                    self.acknowledged[int(told["value"])] = place
                elif told.get("name") not in ("startup_complete", "tool_data", "shutdown_complete"):
                    self._others.append(line)
                was_sent = not any(each in line for each in _NEVER_SENT)
                if told.get("name") == "producer_send_error" and was_sent:
                    self.failed.append(line)
                self._known.notify()
        with self._known:
            self._known.notify()

    def wait_for_more(self, count: int) -> None:
        with self._known:
            goal = len(self.acknowledged) + count
            done = self._known.wait_for(
                lambda: len(self.acknowledged) >= goal or self._process.poll() is not None, 120
            )
        assert done, f"{len(self.acknowledged)} acknowledged, and no more"
        assert self._process.poll() is None, self._others[-5:]

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(120)
        finally:
            self._process.kill()
            self._thread.join()
            assert self._process.stdout is not None
            self._process.stdout.close()
