"""The load on a traced broker: who talks to it, and what each answer promised.

`record` runs a broker under strace with clients of every kind, and kills it.
"""

import gzip
import random
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hermes_testkit import (
    DEADLINE_SECONDS,
    TWISTD,
    BrokerProcess,
    RawClient,
    frame,
    message,
    produce,
    produce_acknowledged,
    waiting_fetch,
)
from jute_frames import JuteClient, create, set_data
from server_process import free_port
from traced_files import Trace, read_trace, strace_command

from hermes.protocol import (
    MirroredProduceRequest,
    MirroredSet,
    SourceFlags,
    decode_mirrored_produce_response,
)

__all__ = [
    "COMMITS",
    "COPIED",
    "COPIED_BYTES",
    "PARTITIONS",
    "SETTINGS",
    "TOPIC",
    "Client",
    "MirrorClient",
    "Promise",
    "is_to_be_deleted",
    "loopback",
    "record",
    "wait_for_the_tracer",
]

PARTITIONS = 3
TOPIC = "loss"
SETTINGS = {
    "num_partitions": PARTITIONS,
    "segment_bytes": "48KiB",
    "retention_policy": "size",
    "retention_bytes": "400KiB",
    "retention_check_interval": "1s",
    "coordination": "embedded",
}
COMMITS = "/offset"
COPIED = "copied"
COPIED_BYTES = 50  # of each message, in the sources and in the logs


@dataclass(frozen=True)
class Promise:
    """What one answer said.

    Attributes:
        kind: "stored", "visible", "deleted", "committed" or "copied".
        topic: which.
        partition: of it.
        end: the offset behind what was stored or could be seen, or the one that was committed; of
            a source, the position.
        start: where what was stored begins.
        data: what was stored; of a copy, the source.
    """

    kind: str
    topic: str = TOPIC
    partition: int = 0
    end: int = 0
    start: int = 0
    data: bytes = b""


class Client(threading.Thread):
    """Talks until the broker is gone.

    Attributes:
        port: its own.
        ports: the broker's and its own, by which the trace knows it.
        promises: what each answer said, in the order of the answers.
    """

    def __init__(self, client: RawClient, seed: int) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.port: int = client.socket.getsockname()[1]
        self.ports: tuple[int, int] = client.socket.getpeername()[1], self.port
        self.promises: list[Promise | None] = []
        self.chance = random.Random(seed)
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            with self.client:
                self.talk()
        except OSError:
            pass  # killed
        except Exception as error:
            self.failure = error

    def talk(self) -> None:
        raise NotImplementedError

    def payload(self) -> bytes:
        size = self.chance.choice([0, 20, 100, 100, 700, 3000])
        return b"%d:%d:" % (self.port, len(self.promises)) + self.chance.randbytes(size)

    def answer(self) -> bytes:
        answer = self.client.answer()
        if len(answer) < 4 or len(answer) < 4 + struct.unpack_from(">i", answer)[0]:
            raise ConnectionResetError
        assert answer[4:6] == b"\0\0", answer[:20]
        return answer

    def produce(self, topic: str, partition: int, acks: int = 2) -> None:
        data = b"".join(message(self.payload()) for _ in range(self.chance.randrange(1, 4)))
        self.client.send(produce_acknowledged((topic, partition, data), acks=acks))
        _, _, count, _, error, start = struct.unpack_from(">ihhihq", self.answer())
        assert (count, error) == (1, 0), error
        promise = Promise("stored", topic, partition, start + len(data), start, data)
        self.promises.append(promise if acks == 2 else None)


class _Producer(Client):
    """Sends to one partition, mostly with acknowledgements, sometimes without, and compressed."""

    def talk(self) -> None:
        partition = self.chance.randrange(PARTITIONS)
        while True:
            kind = self.chance.random()
            if kind < 0.1:
                packed = gzip.compress(message(self.payload()) * 3, 1)
                self.client.send(produce(TOPIC, partition, message(packed, attributes=1)))
            elif kind < 0.2:
                self.client.send(produce(TOPIC, partition, message(self.payload()) * 2))
            else:
                self.produce(TOPIC, partition, 2 if kind < 0.9 else 1)


class _TopicMaker(Client):
    """Makes topics, and deletes every other one again."""

    def talk(self) -> None:
        for number in range(10_000):
            topic = f"made{number}"
            self.produce(topic, number % PARTITIONS)
            if number % 2:
                name = topic.encode()
                self.client.send(frame(struct.pack(f">hhh{len(name)}s", 68, 0, len(name), name)))
                self.answer()
                self.promises.append(Promise("deleted", topic))
            time.sleep(0.05)  # of all that is traced, topics shouldn't be the most


class _Reader(Client):
    """Reads one partition to its end and waits for more; hands on how far it could see."""

    def __init__(self, client: RawClient, seed: int, partition: int, seen: dict[int, int]) -> None:
        super().__init__(client, seed)
        self._partition = partition
        self._seen = seen

    def talk(self) -> None:
        while True:
            end = self._seen.get(self._partition, 0)
            self.client.send(waiting_fetch((TOPIC, self._partition, end, 300), min_bytes=1))
            _, _, _, error, high_watermark = struct.unpack_from(">ihhhq", self.answer())
            assert error in (0, 1), error  # 1: retention was faster
            self.promises.append(Promise("visible", TOPIC, self._partition, high_watermark))
            self._seen[self._partition] = high_watermark


class MirrorClient(Client):
    """Copies a source of numbered messages into a partition, some requests ahead of the answers.

    Attributes:
        name: the source's.
        partition: where to.
        is_verbatim: whether all is copied; else every other message is left out.
    """

    def __init__(self, client: RawClient, seed: int, number: int) -> None:
        super().__init__(client, seed)
        self.name = f"source{number}"
        self.partition = number % PARTITIONS
        self.is_verbatim = number % 2 == 0

    def kept(self, first: int, end: int) -> list[int]:
        """The numbers of the messages that are copied."""
        return [n for n in range(first, end) if self.is_verbatim or n % 2 == 0]

    def payload_of(self, number: int) -> bytes:
        """What a message of the source holds."""
        return f"{self.name}:{number}:".encode().ljust(COPIED_BYTES - 10, b".")

    def batch(self, begin: int, count: int) -> MirroredSet:
        """The next messages from an offset on."""
        first = begin // COPIED_BYTES
        end = begin + count * COPIED_BYTES
        data = b"".join(message(self.payload_of(n)) for n in self.kept(first, first + count))
        flags = SourceFlags.VERBATIM if self.is_verbatim else SourceFlags.NONE
        if begin:
            flags |= SourceFlags.FOLLOWS
        return MirroredSet(COPIED, self.partition, self.name, begin, end, flags, data)

    def talk(self) -> None:
        sent: list[MirroredSet] = []
        begin = 0
        while True:
            while len(sent) < 3:
                batch = self.batch(begin, self.chance.randrange(1, 20))
                self.client.send(MirroredProduceRequest(2, 0, (batch,)).encode())
                begin = batch.source_end
                sent.append(batch)
            (entry,) = decode_mirrored_produce_response(self.answer()[4:])
            assert entry.error == 0, entry
            batch = sent.pop(0)
            promise = Promise(
                "copied", COPIED, self.partition, batch.source_end, 0, self.name.encode()
            )
            # A position that only moves is on disk with the next flush.
            self.promises.append(promise if batch.message_set else None)


class _Committer(Client):
    """Commits to the coordination server how far the readers could see."""

    def __init__(self, client: RawClient, seed: int, seen: dict[int, int]) -> None:
        super().__init__(client, seed)
        self._seen = seen

    def talk(self) -> None:
        self.promises.append(None)  # the session's first answer
        for partition in range(PARTITIONS):
            self._ask(create(partition, f"{COMMITS}{partition}", b"0"))
            self.promises.append(None)
        while True:
            for partition, end in list(self._seen.items()):
                self._ask(set_data(9, f"{COMMITS}{partition}", b"%d" % end))
                self.promises.append(Promise("committed", TOPIC, partition, end))
            time.sleep(0.01)

    def _ask(self, data: bytes) -> None:
        assert isinstance(self.client, JuteClient)
        assert self.client.ask(data)[0] == 0


def record(directory: Path, seconds: float, seed: int) -> tuple[Trace, list[Client]]:
    """Run a broker under load and strace, and kill it.

    Args:
        directory: for its files; made.
        seconds: for how long.
        seed: decides what is sent.

    Returns:
        Its life, and the clients, which know what they were answered.
    """
    logs = directory / "logs"
    logs.mkdir(parents=True)
    output = directory / "trace"
    coordination_port = free_port()
    settings = {**SETTINGS, "coordination_listen": loopback(coordination_port)}
    broker = BrokerProcess(
        directory / "broker",
        {**settings, "log_dir": str(logs)},
        program=[*strace_command(output), *TWISTD],
    )
    try:
        seen: dict[int, int] = {}
        with broker.connect() as first:
            for partition in range(PARTITIONS):
                first.call(produce_acknowledged((TOPIC, partition, message(b"first"))))
        clients: list[Client] = [_Producer(broker.connect(), seed * 100 + n) for n in range(6)]
        clients += [_Reader(broker.connect(), 0, n, seen) for n in range(PARTITIONS)]
        clients += [MirrorClient(broker.connect(), seed * 10 + n, n) for n in range(4)]
        clients += [_TopicMaker(broker.connect(), seed)]
        clients += [_Committer(JuteClient(coordination_port), seed, seen)]
        for each in clients:
            each.start()
        time.sleep(seconds)
    finally:
        broker.kill()
    for each in clients:
        each.join(DEADLINE_SECONDS)
        if each.failure is not None:
            raise each.failure
    wait_for_the_tracer(output)
    return read_trace(output, logs), clients


def is_to_be_deleted(topic: str) -> bool:
    """Whether a topic is one that its maker deletes."""
    return topic.startswith("made") and int(topic.removeprefix("made")) % 2 == 1


def loopback(port: int) -> str:
    """An endpoint."""
    return f"tcp:{port}:interface=127.0.0.1"


def wait_for_the_tracer(output: Path) -> None:
    """strace outlives what it traces by a moment; its last line says that the process is gone."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError), open(output, "rb") as file:
            process = file.readline().split()[0]
            file.seek(max(0, output.stat().st_size - 4096))
            last = file.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
            if last.split()[:3] == [process, b"+++", b"killed"]:
                return
        time.sleep(0.05)  # between two looks; nothing tells
    raise AssertionError("strace did not end")
