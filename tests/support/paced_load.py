"""A hundred messages a second by librdkafka, idempotent, and how long each of them takes."""

import threading
import time
from itertools import count
from typing import Any

from confluent_kafka import Producer
from kafka_loads import PARTITIONS, TOPIC
from server_process import DEADLINE_SECONDS

__all__ = ["PacedLoad"]

_RATE = 100


class PacedLoad:
    """Sends numbered messages from a thread until told to stop: a `kafka_loads.Load`.

    Attributes:
        longest_seconds: how long the slowest of them took from being sent to being acknowledged.
    """

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self._known = threading.Condition()
        self._stop = threading.Event()
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.failed: list[str] = []
        self.longest_seconds = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        begin = time.monotonic()
        for number in count():
            while (left := begin + number / _RATE - time.monotonic()) > 0:
                self._producer.poll(left)
            if self._stop.is_set():
                break
            sent = time.monotonic()
            self._producer.produce(
                TOPIC,
                b"%d" % number,
                partition=number % PARTITIONS,
                on_delivery=lambda error, message, number=number, sent=sent: self._told(
                    number, sent, error, message
                ),
            )
        self._producer.flush(DEADLINE_SECONDS)

    def _told(self, number: int, sent: float, error: Any, message: Any) -> None:
        with self._known:
            if error is not None:
                self.failed.append(str(error))
            else:
                self.acknowledged[number] = message.partition(), message.offset()
                self.longest_seconds = max(self.longest_seconds, time.monotonic() - sent)
            self._known.notify()

    def wait_for_more(self, count: int) -> None:
        """See `Load`."""
        with self._known:
            goal = len(self.acknowledged) + count
            done = self._known.wait_for(
                lambda: self.failed or len(self.acknowledged) >= goal, DEADLINE_SECONDS
            )
        assert done, f"{len(self.acknowledged)} acknowledged, and no more"
        assert not self.failed, self.failed[0]

    def stop(self) -> None:
        """See `Load`."""
        self._stop.set()
        self._thread.join()
