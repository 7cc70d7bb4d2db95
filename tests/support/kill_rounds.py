"""Kill a loaded broker again and again, and hold it to what it acknowledged.

Several producers send numbered messages, each to a partition of its own and some to a shared one,
several requests ahead of the answers. The broker is killed after a random number of answers and
started again on the same directory. After every round each partition must hold, in order and
without a hole, at least everything that was acknowledged as flushed, at the offsets that the
answers named.
"""

import random
import struct
import threading
from dataclasses import dataclass, field

from hermes_testkit import BrokerProcess, RawClient, fetch, message, produce_acknowledged

__all__ = ["kill_rounds"]

_AHEAD = 8


@dataclass
class Producer:
    """One producer's memory over all rounds."""

    name: str
    partition: int
    next_number: int = 0
    round_starts: set[int] = field(default_factory=set)
    acknowledged: dict[int, int] = field(default_factory=dict)  # number -> offset

    def payload(self, number: int) -> bytes:
        return f"{self.name}:{number}:".encode().ljust(40 + number % 160, b".")

    def run(self, port: int, answers: threading.Semaphore) -> None:
        """Send until the broker is gone."""
        self.round_starts.add(self.next_number)
        try:
            with RawClient(port) as client:
                sent: list[int] = []
                while True:
                    while len(sent) < _AHEAD:
                        request = produce_acknowledged(
                            ("kill", self.partition, message(self.payload(self.next_number)))
                        )
                        sent.append(self.next_number)
                        self.next_number += 1
                        client.send(request)
                    answer = client.answer()
                    if len(answer) < 22:
                        return
                    _, outer, count, _, error, offset = struct.unpack_from(">ihhihq", answer)
                    assert (outer, count, error) == (0, 1, 0)
                    self.acknowledged[sent.pop(0)] = offset
                    answers.release()
        except OSError:
            return


def kill_rounds(broker: BrokerProcess, rounds: int, seed: int) -> int:
    """Run the rounds; how many messages were acknowledged in all."""
    chance = random.Random(seed)
    producers = [Producer("a", 0), Producer("b", 1), Producer("c", 2), Producer("d", 2)]
    for _ in range(rounds):
        answers = threading.Semaphore(0)
        threads = [
            threading.Thread(target=producer.run, args=(broker.port, answers))
            for producer in producers
        ]
        for thread in threads:
            thread.start()
        for _ in range(chance.randrange(1, 600)):
            assert answers.acquire(timeout=60), "the broker stopped answering"
        broker.kill()
        for thread in threads:
            thread.join(60)
        broker.start()
        with broker.connect() as client:
            for partition in range(3):
                _check_partition(client, partition, producers)
    return sum(len(producer.acknowledged) for producer in producers)


def _check_partition(client: RawClient, partition: int, producers: list[Producer]) -> None:
    stored: dict[str, list[tuple[int, int]]] = {}
    for offset, payload in _messages(client, partition):
        name, number, _ = payload.split(b":", 2)
        stored.setdefault(name.decode(), []).append((int(number), offset))
    for producer in producers:
        if producer.partition != partition:
            assert producer.name not in stored
            continue
        found = stored.get(producer.name, [])
        numbers = [number for number, _ in found]
        assert numbers == sorted(set(numbers)), "out of order, or twice"
        offsets = dict(found)
        for number, offset in producer.acknowledged.items():
            assert offsets.get(number) == offset, f"{producer.name}:{number} was acknowledged"
        _check_holes(producer, numbers)


def _check_holes(producer: Producer, numbers: list[int]) -> None:
    """What is missing was never acknowledged, and was the rest of a round that a kill ended."""
    for before, after in zip([-1, *numbers], numbers, strict=False):
        assert after == before + 1 or after in producer.round_starts, f"a hole before {after}"


def _messages(client: RawClient, partition: int) -> list[tuple[int, bytes]]:
    """All messages of a partition with their offsets."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    while True:
        answer = client.call(fetch("kill", partition, offset))
        assert answer[4:6] == b"\0\0"
        data, position = answer[6:], 0
        while position + 4 <= len(data):
            (size,) = struct.unpack_from(">i", data, position)
            if position + 4 + size > len(data):
                break
            found.append((offset + position, data[position + 10 : position + 4 + size]))
            position += 4 + size
        if position == 0:
            return found
        offset += position
