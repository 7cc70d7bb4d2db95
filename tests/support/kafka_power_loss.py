"""A broker with a topic of Kafka's format is traced; then brokers start on what a disk may hold.

As `power_loss_rounds`, by the same trace and the same states. Idempotent producers, a reader and
one who deletes records talk Kafka's protocol, a request at a time. On each state hold all promises
that had left before:

- what was acknowledged is there, once, at its offset; what was visible is there;
- the log begins where it was told to, or where the next such request was to let it begin;
- a producer that repeats its last batch, or sends one that wasn't acknowledged, has it once.
"""

import bisect
import random
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_testkit import DEADLINE_SECONDS, TWISTD, BrokerProcess
from kafka_raw import KafkaConversation, parts, topics_of
from lost_power import build_state
from power_loss_load import wait_for_the_tracer
from power_loss_rounds import answered
from server_process import free_port
from traced_files import read_trace, strace_command

from hermes.protocol.records import Record, encode_batch

__all__ = ["KafkaRecording"]

_TOPIC = "loss"
_SETTINGS = {
    "num_partitions": 2,
    "segment_bytes": "16KiB",
    "coordination": "none",
    "topics": {_TOPIC: {"format": "kafka"}},
}
_PRODUCERS = 4
_VALUES = 3


@dataclass(frozen=True)
class _Promise:
    """What an answer said: `kind` is "stored", "visible" or "start"."""

    kind: str
    partition: int
    offset: int
    producer: int = 0
    number: int = 0


def _values(producer: int, number: int) -> list[bytes]:
    """What a producer's nth batch holds."""
    chance = random.Random(producer * 1_000_003 + number)
    return [
        b"%d:%d:%d:" % (producer, number, each) + chance.randbytes(chance.choice((0, 50, 900)))
        for each in range(_VALUES)
    ]


def _produce(client: KafkaConversation, producer: int, number: int) -> int:
    """Send a producer's nth batch; where it is."""
    make = parts("Produce", 9)
    now_ms = int(time.time() * 1000)  # a producer is forgotten a day after its newest message
    batch = encode_batch(
        [Record(each, now_ms, b"k", value) for each, value in enumerate(_values(producer, number))],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=number * _VALUES,
    )
    data = make.PartitionProduceData(index=producer % 2, records=batch)
    response = client.ask(
        "Produce",
        9,
        acks=-1,
        timeout=make.timeout(30_000),
        transactional_id=None,
        topic_data=(make.TopicProduceData(name=_TOPIC, partition_data=(data,)),),
    )
    (found,) = response.responses[0].partition_responses
    assert found.error_code.value == 0, found.error_code
    return int(found.base_offset)


def _offset(client: KafkaConversation, partition: int, time_ms: int) -> int:
    """What ListOffsets says of a time: -1 the end, -2 the start."""
    make = parts("ListOffsets", 7)
    asked = make.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=-1, timestamp=time_ms
    )
    topic = make.ListOffsetsTopic(name=_TOPIC, partitions=(asked,))
    answer = client.ask("ListOffsets", 7, replica_id=-1, isolation_level=0, topics=(topic,))
    return int(answer.topics[0].partitions[0].offset)


class _Client(threading.Thread):
    """Talks until the broker is gone; its promises are in the order of the answers."""

    def __init__(self, address: str, talk: Any) -> None:
        super().__init__(daemon=True)
        self.conversation = KafkaConversation(address)
        socket = self.conversation._socket
        self.ports: tuple[int, int] = socket.getpeername()[1], socket.getsockname()[1]
        self.promises: list[_Promise] = []
        self.failure: Exception | None = None
        self._talk = talk

    def run(self) -> None:
        try:
            with self.conversation:
                for promise in self._talk(self.conversation):
                    self.promises.append(promise)
        except OSError:
            pass  # killed
        except Exception as error:
            self.failure = error


def _producing(producer: int) -> Any:
    def talk(client: KafkaConversation) -> Any:
        number = 0
        while True:
            offset = _produce(client, producer, number)
            yield _Promise("stored", producer % 2, offset, producer, number)
            number += 1

    return talk


def _reading(client: KafkaConversation) -> Any:
    while True:
        for partition in range(2):
            yield _Promise("visible", partition, _offset(client, partition, -1))


def _deleting(stored: list[_Client], asked: list[int]) -> Any:
    """Let a partition begin at a batch that was acknowledged, now and then; `asked` is told where.

    It is told before the request is sent: one that is never answered may have been carried out.
    """

    def talk(client: KafkaConversation) -> Any:
        make, done = parts("DeleteRecords", 2), 0
        while True:
            known = stored[0].promises
            if len(known) < done + 20:
                yield _Promise("visible", 0, _offset(client, 0, -1))
                continue
            done += 20
            wanted = known[done // 2].offset + 1
            asked.append(wanted)
            part = make.DeleteRecordsPartition(partition_index=0, offset=wanted)
            answer = client.ask(
                "DeleteRecords",
                2,
                topics=(make.DeleteRecordsTopic(name=_TOPIC, partitions=(part,)),),
                timeout=make.timeout(30_000),
            )
            (found,) = answer.topics[0].partitions
            assert found.error_code.value == 0, found.error_code
            yield _Promise("start", 0, int(found.low_watermark))

    return talk


class KafkaRecording:
    """A traced life of a broker, and what it promised when.

    Args:
        directory: for its files; made.
        seconds: how long it lives.

    Attributes:
        trace: the life.
        promises: each with the moment from which it holds, in that order.
        checked: how many promises `check` has held a broker to.
    """

    def __init__(self, directory: Path, seconds: float) -> None:
        logs = directory / "logs"
        logs.mkdir(parents=True)
        output, port = directory / "trace", free_port()
        self._asked: list[int] = []
        settings = {**_SETTINGS, "kafka_listen": f"tcp:{port}:interface=127.0.0.1"}
        broker = BrokerProcess(
            directory / "broker",
            {**settings, "log_dir": str(logs)},
            program=[*strace_command(output), *TWISTD],
        )
        address = f"127.0.0.1:{port}"
        try:
            with KafkaConversation(address) as first:
                topics_of(first, _TOPIC)
            clients = [_Client(address, _producing(n)) for n in range(_PRODUCERS)]
            clients.append(_Client(address, _reading))
            clients.append(_Client(address, _deleting(clients, self._asked)))
            for each in clients:
                each.start()
            clients[-1].join(seconds)  # it only ends early when something is wrong
        finally:
            broker.kill()
        for each in clients:
            each.join(DEADLINE_SECONDS)
            if each.failure is not None:
                raise each.failure
        wait_for_the_tracer(output)
        self.trace = read_trace(output, logs)
        self.checked = 0
        self.promises = sorted(
            (
                (moment, promise)
                for client in clients
                for moment, promise in zip(
                    answered(self.trace.sent.get(client.ports, [])), client.promises, strict=False
                )
            ),
            key=lambda each: each[0],
        )

    def moments(self) -> range:
        """From the first promise to the end."""
        return range(self.promises[0][0], self.trace.moments + 1)

    def check(
        self, directory: Path, moment: int, mode: str, seed: int, *, believe_syncs: bool = True
    ) -> None:
        """As `power_loss_rounds.Recording.check`."""
        directory.mkdir()
        state, chance = directory / "logs", random.Random(seed)
        build_state(self.trace, moment, mode, chance, state, believe_syncs=believe_syncs)
        known = bisect.bisect_left(self.promises, moment, key=lambda each: each[0])
        promises = [promise for _, promise in self.promises[:known]]
        # What the next request may have begun to do.
        told = sum(each.kind == "start" for each in promises)
        begun = self._asked[told : told + 1]
        port = free_port()
        settings = {**_SETTINGS, "kafka_listen": f"tcp:{port}:interface=127.0.0.1"}
        broker = BrokerProcess(directory / "broker", {**settings, "log_dir": str(state)})
        try:
            with KafkaConversation(f"127.0.0.1:{port}") as client:
                for partition in range(2):
                    _check(
                        client, partition, [p for p in promises if p.partition == partition], begun
                    )
        finally:
            broker.kill()
        self.checked += known
        shutil.rmtree(directory)


def _check(
    client: KafkaConversation, partition: int, promises: list[_Promise], begun: list[int]
) -> None:
    start, end = _offset(client, partition, -2), _offset(client, partition, -1)
    told = max((each.offset for each in promises if each.kind == "start"), default=0)
    assert told <= start <= max([told, *begun]), f"begins at {start}, told {told}"
    for each in promises:
        if each.kind == "visible":
            assert each.offset <= end, f"visible to {each.offset}, there to {end}"
    last: dict[int, _Promise] = {}
    stored = [each for each in promises if each.kind == "stored"]
    for each in stored:
        last[each.producer] = each
        values = _values(each.producer, each.number)
        assert each.offset + len(values) <= end, f"{each} is lost"
    good_end = max((each.offset + _VALUES for each in stored), default=start)
    found = _read(client, partition, start, good_end) if stored else {}
    for each in stored:
        for place, value in enumerate(_values(each.producer, each.number), each.offset):
            assert place < start or found[place] == value, f"{each}: not what was acknowledged"
    values = list(found.values())
    assert len(values) == len(set(values)), "a message is there twice"
    for producer, each in last.items():
        if each.offset >= start:
            again_at = _produce(client, producer, each.number)
            assert again_at == each.offset, f"stored twice: {each} at {again_at}"
        following = _produce(client, producer, each.number + 1)
        assert following >= each.offset + _VALUES
        assert _produce(client, producer, each.number + 1) == following, "stored twice"
        again = _read(client, partition, following, following + _VALUES)
        assert list(again.values()) == _values(producer, each.number + 1)


def _read(client: KafkaConversation, partition: int, start: int, end: int) -> dict[int, bytes]:
    """The values from one offset to another, by offset.

    What follows them was never acknowledged: it may be damaged, and is kept all the same where
    something valid follows it.
    """
    found: dict[int, bytes] = {}
    while start < end:
        for each in client.fetch(_TOPIC, start, partition, end):
            if start <= each.offset < end:
                assert each.offset == start, "a gap"
                assert each.value is not None
                found[each.offset] = each.value
                start += 1
    return found
