"""Kafka's clients under load, each in a thread: what they were told, and what they have read."""

import threading
from collections import defaultdict
from collections.abc import Sequence

from kafka_clients import KafkaClient, Sent

__all__ = ["ClientLoad", "ClientReader"]

_AT_ONCE = 100


class ClientLoad:
    """Sends numbered messages, some at a time, until told to stop: a `kafka_loads.Load`.

    Args:
        client: nobody else uses it.
        bootstrap: where the brokers are.
        topic: where the messages go.
        settings: what isn't the client's default.
    """

    def __init__(self, client: KafkaClient, bootstrap: str, topic: str, **settings: object) -> None:
        self._client, self._bootstrap, self._topic = client, bootstrap, topic
        self._settings = settings
        self._known = threading.Condition()
        self._stop = threading.Event()
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        first = 0
        while not self._stop.is_set() and not self.failed:
            numbers = range(first, first + _AT_ONCE)
            sent = [Sent(b"%d %s" % (each, b"x" * 100)) for each in numbers]
            try:
                placed = self._client.produce(self._bootstrap, self._topic, sent, **self._settings)
            except Exception as error:
                self.failed.append(repr(error))
                placed = []
            with self._known:
                self.acknowledged.update(zip(numbers, placed, strict=False))
                self._known.notify()
            first += _AT_ONCE

    def wait_for_more(self, count: int) -> None:
        """See `Load`."""
        with self._known:
            goal = len(self.acknowledged) + count
            done = self._known.wait_for(
                lambda: self.failed or len(self.acknowledged) >= goal, timeout=240
            )
        assert not self.failed, (self._client, self.failed)
        assert done, f"{self._client}: {len(self.acknowledged)} acknowledged, and no more"

    def stop(self) -> None:
        """See `Load`."""
        self._stop.set()
        self._thread.join()


class ClientReader:
    """Reads so many messages of a topic from its beginning.

    Args:
        client: nobody else uses it.
        bootstrap: where the brokers are.
        topic: what is read.
        count: how many messages.
    """

    def __init__(self, client: KafkaClient, bootstrap: str, topic: str, count: int) -> None:
        self._client, self._bootstrap, self._topic = client, bootstrap, topic
        self._count = count
        self._read: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self._failures: list[Exception] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            got = self._client.read(self._bootstrap, [self._topic], self._count)
        except Exception as error:
            self._failures.append(error)
            return
        for each in got:
            self._read[each.partition].append((each.offset, each.value or b""))

    def result(self) -> dict[int, Sequence[tuple[int, bytes]]]:
        """What it has read, by partition, in the order in which it came."""
        self._thread.join()
        assert not self._failures, (self._client, self._failures)
        return dict(self._read)
