"""Well-behaved clients that are served while others attack, and what they saw of it."""

import threading
import time
from collections.abc import Callable
from typing import Any

from hermes_testkit import RawClient, fetch, message, produce_acknowledged
from jute_frames import JuteClient, create, get_data, set_data

__all__ = ["Witness", "broker_witness", "coordination_witness", "kafka_witness"]

_PAUSE_SECONDS = 0.01


class Witness(threading.Thread):
    """Asks one thing after the other until `end`.

    Args:
        client: its connection, or anything that `close` ends; closed at the end.
        ask: asks once on it, and raises when the answer is wrong.

    Attributes:
        served: how many times it was.
        slowest_ms: the longest that it waited.
    """

    def __init__(self, client: Any, ask: Callable[[int], None]) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._ask = ask
        self._ended = threading.Event()
        self.served = 0
        self.slowest_ms = 0.0
        self._asked_at: float | None = None
        self.failure: Exception | None = None
        self.start()

    def run(self) -> None:
        while not self._ended.wait(_PAUSE_SECONDS):
            began = self._asked_at = time.monotonic()
            try:
                self._ask(self.served)
            except Exception as error:
                self.failure = error
                return
            took_ms = (time.monotonic() - began) * 1000
            self.slowest_ms = max(self.slowest_ms, took_ms)
            self._asked_at = None
            self.served += 1

    def reset(self) -> None:
        """Forget how long it waited so far."""
        self.slowest_ms = 0.0

    def close(self) -> None:
        """Ask no more, whatever happened."""
        self._ended.set()
        self.join(60)
        self._client.close()

    def is_served_again(self, seconds: float) -> bool:
        """Wait for a whole answer that was asked for from now on."""
        goal, deadline = self.served + 2, time.monotonic() + seconds
        while self.served < goal and self.failure is None and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        return self.served >= goal

    def waiting_ms(self) -> float:
        """The longest that it has waited, or waits now."""
        asked_at = self._asked_at
        waits = 0.0 if asked_at is None else time.monotonic() - asked_at
        return max(self.slowest_ms, waits * 1000)

    def end(self) -> None:
        """Ask no more; raises what went wrong."""
        self.close()
        if self.failure is not None:
            raise AssertionError(f"after {self.served} answers: {self.failure!r}")
        assert not self.is_alive(), "it waits for an answer"
        assert self.served, "it was never served"


def broker_witness(
    port: int,
    topic: str = "witness",
    log_in: Callable[[RawClient], None] = lambda client: None,
) -> Witness:
    """A producer that waits for the disk, and a consumer that reads what it sent."""
    client = RawClient(port)
    log_in(client)
    end = 0

    def ask(number: int) -> None:
        nonlocal end
        data = message(b"witness %d" % number)
        answer = client.call(produce_acknowledged((topic, 0, data)))
        assert answer[4:6] == answer[12:14] == b"\0\0", answer
        assert int.from_bytes(answer[14:22], "big") == end, "something else was appended"
        assert client.call(fetch(topic, 0, end))[6:] == data
        end += len(data)

    return Witness(client, ask)


def coordination_witness(port: int, path: str = "/witness") -> Witness:
    """A session with a node of its own."""
    client = JuteClient(port, timeout_ms=40_000)
    assert client.ask(create(1, path, b"", flags=1))[0] == 0

    def ask(number: int) -> None:
        assert client.ask(set_data(2, path, b"%d" % number))[0] == 0
        error, body = client.ask(get_data(3, path))
        assert error == 0
        assert body[4 : 4 + int.from_bytes(body[:4], "big")] == b"%d" % number

    return Witness(client, ask)


def kafka_witness(port: int, topic: str = "witness") -> Witness:
    """A client of Kafka's that waits for the disk, and reads what it sent."""
    from kafka_raw import KafkaConversation, topics_of

    from hermes.protocol.records import Record

    client = KafkaConversation(f"127.0.0.1:{port}")
    topics_of(client, topic)

    def ask(number: int) -> None:
        value = b"witness %d" % number
        answer = client.produce(topic, Record(0, 0, None, value))
        assert answer.error_code.value == 0, answer
        assert answer.base_offset == number, "something else was appended"
        assert [each.value for each in client.fetch(topic, number)] == [value]

    return Witness(client, ask)
