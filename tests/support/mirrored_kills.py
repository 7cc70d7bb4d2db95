"""Kill a broker again and again under mirrors, and hold it to each range being there once.

Each mirror copies a source of numbered messages into a partition, several requests ahead of the
answers: one byte for byte, one with every other message, and two into one partition, beside a
producer. After a kill each goes on from the position that the broker tells, or from what it was
acknowledged, and then cuts what the broker has already.
"""

import random
import struct
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from hermes_testkit import BrokerProcess, RawClient, fetch, message, produce_acknowledged

from hermes.client.mirrored import MirroredPartitions, source_name
from hermes.errors import (
    BrokerError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    SourceGapError,
    SourceOverlapError,
    UnknownTopicError,
)
from hermes.protocol import MirroredSet, SourceFlags

__all__ = ["mirrored_kill_rounds"]

_TOPIC = "mirrored"
_AHEAD = 6
_SIZE = 40  # of each message, in the source and in the log


@dataclass
class Mirror:
    """One mirror's memory over all rounds.

    Attributes:
        name: the source's, for its messages.
        partition: where it is copied to.
        is_verbatim: whether all of it is.
        asks: whether it asks for the position after a kill.
        acknowledged: up to where it was acknowledged as flushed.
        promised: up to where the broker must have it after a kill: a position that sets without
            messages have moved since is on disk with the next flush only.
        refused: how often it had to cut or to begin again.
    """

    name: str
    partition: int
    is_verbatim: bool
    asks: bool
    acknowledged: int = 0
    promised: int = 0
    refused: int = 0
    failure: Exception | None = None
    chance: random.Random = field(default_factory=random.Random)

    @property
    def source(self) -> str:
        return source_name("u", self.name, 0, 0)

    def message(self, number: int) -> bytes:
        data = message(f"{self.name}:{number:010d}:".encode().ljust(_SIZE - 10, b"."))
        assert len(data) == _SIZE
        return data

    def kept(self, first: int, end: int) -> list[int]:
        return [n for n in range(first, end) if self.is_verbatim or n % 2 == 0]

    def batch(self, begin: int, follows: bool) -> MirroredSet:
        end = begin + _SIZE * self.chance.randrange(1, 30)
        numbers = self.kept(begin // _SIZE, end // _SIZE)
        flags = SourceFlags.VERBATIM if self.is_verbatim else SourceFlags.NONE
        if follows:
            flags |= SourceFlags.FOLLOWS
        data = b"".join(map(self.message, numbers))
        return MirroredSet(_TOPIC, self.partition, self.source, begin, end, flags, data)

    def run(self, port: int, answers: threading.Semaphore) -> None:
        """Copy until the broker is gone."""
        try:
            with MirroredPartitions("127.0.0.1", port) as target:
                self._copy(target, answers)
        except (BrokerUnavailableError, BrokerTimeoutError):
            pass
        except Exception as error:
            self.failure = error

    def _begin(self, target: MirroredPartitions) -> int:
        try:
            told = target.positions(_TOPIC, self.partition)
        except UnknownTopicError:
            return self.acknowledged
        position = told[0].positions.get(self.source, 0) if told else 0
        assert position >= self.promised, f"{self.name} is back at {position}"
        return position if self.asks else self.acknowledged

    def _copy(self, target: MirroredPartitions, answers: threading.Semaphore) -> None:
        begin, follows = self._begin(target), False
        sent: deque[MirroredSet] = deque()
        while True:
            while target.in_flight < _AHEAD:
                batch = self.batch(begin, follows)
                target.begin([batch])
                sent.append(batch)
                begin, follows = batch.source_end, True
            (outcome,) = target.finish()
            batch = sent.popleft()
            answers.release()
            if outcome.error is None:
                self.acknowledged = max(self.acknowledged, outcome.position)
                if batch.message_set:
                    self.promised = max(self.promised, batch.source_end)
            elif isinstance(outcome.error, SourceOverlapError | SourceGapError):
                self.refused += 1
                while target.in_flight:
                    target.finish()
                sent.clear()
                begin, follows = outcome.position, False
            else:
                raise outcome.error


def mirrored_kill_rounds(broker: BrokerProcess, rounds: int, seed: int) -> dict[str, int]:
    """Run the rounds; how many messages each mirror has copied."""
    chance = random.Random(seed)
    mirrors = [
        Mirror("plain", 0, is_verbatim=True, asks=True),
        Mirror("again", 1, is_verbatim=True, asks=False),
        Mirror("some", 1, is_verbatim=False, asks=True),
        Mirror("few", 2, is_verbatim=False, asks=False),
    ]
    for number, each in enumerate(mirrors):
        each.chance.seed(seed * 10 + number)
    local: list[bytes] = []
    numbers = count()
    for _ in range(rounds):
        answers, stopping = threading.Semaphore(0), threading.Event()
        threads = [threading.Thread(target=m.run, args=(broker.port, answers)) for m in mirrors]
        threads.append(
            threading.Thread(target=_produce, args=(broker.port, local, numbers, stopping))
        )
        for thread in threads:
            thread.start()
        for _ in range(chance.randrange(1, 400)):
            assert answers.acquire(timeout=60), "the broker stopped answering"
        broker.kill()
        stopping.set()
        for thread in threads:
            thread.join(60)
        for mirror in mirrors:
            if mirror.failure is not None:
                raise mirror.failure
        broker.start()
        found = [_payloads(broker, partition) for partition in range(3)]
        for mirror in mirrors:
            _check(mirror, found[mirror.partition])
        assert [data for data in found[1] if data in set(local)] == local
    return {mirror.name: mirror.acknowledged // _SIZE for mirror in mirrors}


def _check(mirror: Mirror, payloads: list[bytes]) -> None:
    """All of the source from its start on is there once and in order, beyond what was promised."""
    mine = [data for data in payloads if data.startswith(mirror.name.encode() + b":")]
    numbers = [int(data.split(b":")[1]) for data in mine]
    last = numbers[-1] + 1 if numbers else 0
    assert numbers == mirror.kept(0, last), f"{mirror.name}: twice, missing, or out of order"
    wanted = mirror.kept(0, mirror.acknowledged // _SIZE)
    assert len(numbers) >= len(wanted), f"{mirror.name}: what was acknowledged is missing"


def _produce(
    port: int, acknowledged: list[bytes], numbers: Iterator[int], stopping: threading.Event
) -> None:
    """A producer beside the mirrors, in one of their partitions."""
    try:
        with RawClient(port) as client:
            while not stopping.is_set():
                data = f"local:{next(numbers)}".encode()
                answer = client.call(produce_acknowledged((_TOPIC, 1, message(data))))
                if len(answer) < 22 or struct.unpack_from(">h", answer, 12)[0]:
                    return
                acknowledged.append(data)
                stopping.wait(0.002)  # the mirrors' turn
    except (OSError, BrokerError):
        return


def _payloads(broker: BrokerProcess, partition: int) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    with broker.connect() as client:
        while True:
            answer = client.call(fetch(_TOPIC, partition, offset))
            if answer[4:6] != b"\0\0":
                return found  # killed before its first message
            data, position = answer[6:], 0
            while position + 4 <= len(data):
                (size,) = struct.unpack_from(">i", data, position)
                if position + 4 + size > len(data):
                    break
                found.append(data[position + 10 : position + 4 + size])
                position += 4 + size
            if not position:
                return found
            offset += position
