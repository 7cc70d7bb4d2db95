"""The client library through its public names, broker included, beside the clients of Kafka.

Hermes' broker is a process of its own, anew for each round, with its default settings. What the
clients of Kafka talk to is lighter: a mock cluster in C that keeps messages in memory and checks
nothing. All send 200-byte messages without acknowledgements; the clock stops when all arrived.

Beside that: what of the client's processor time goes into encoding, decoding and CRCs. It is
what a compiled core could take over; the CRCs are computed in C already.
"""

import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from zlib import crc32

from bench.peers.kafka_clients import CLIENTS, KafkaClient, MockCluster
from bench.peers.system import NotInstalled
from bench.support.load import STORED_BYTES, make_payloads, wait_until_visible
from bench.support.report import Row, floor_row, skipped_row
from bench.support.servers import Address, HermesBroker
from bench.support.settings import Settings
from hermes import FetchRequest, MessageSet, Producer, ProducerConfig, SimpleConsumer
from hermes.protocol import encode_message_set

__all__ = ["measure"]

_LISTS = "Producer, lists of 50"
_SINGLE = "Producer, async, 1 a call"
_CONSUMER = "SimpleConsumer, iterating"
_TARGETS = {_LISTS: 700.0, _SINGLE: 350.0, _CONSUMER: 1_200.0}
_THOUSAND, _MILLION = 1e3, 1e6
_UNIT = "k messages/s"

_LIST = 50
_DISTINCT_PAYLOADS = 1_000
_FETCH_BYTES = 1 << 20
_MOST_ROUNDS = 3
_TRIES = 200


def measure(settings: Settings) -> list[Row]:
    """Measure Hermes, then whichever clients of Kafka are installed, then the shares."""
    rounds = min(settings.rounds, _MOST_ROUNDS)
    count = int(settings.messages * _MILLION) // _LIST * _LIST
    payloads = make_payloads(_DISTINCT_PAYLOADS)
    runs: dict[str, list[float]] = {name: [] for name in _TARGETS}
    costs: dict[str, list[float]] = {name: [] for name in _TARGETS}
    for number in range(rounds + 1):
        for name, (rate, cpu) in _round(settings, payloads, count).items():
            if number:  # the first one warms up
                runs[name].append(rate)
                costs[name].append(cpu)
    rows = [
        floor_row(
            name,
            _UNIT,
            runs[name],
            at_least=target,
            note=_share(name, statistics.median(costs[name]), payloads),
        )
        for name, target in _TARGETS.items()
    ]
    return rows + _beside(rounds, payloads, {row.measure: row.hermes or 0.0 for row in rows})


# -- Hermes -------------------------------------------------------------------------------------


def _round(settings: Settings, payloads: list[bytes], count: int) -> dict[str, tuple[float, float]]:
    """Take each of the three once.

    Returns:
        Thousands of messages per second, and seconds of this process's processor time a message.
    """
    with settings.workspace() as directory, HermesBroker(directory) as broker:
        return {
            _LISTS: _timed(count, lambda: _send_lists(broker.address, payloads, count)),
            _CONSUMER: _timed(count, lambda: _consume(broker.address, count)),
            _SINGLE: _timed(count, lambda: _send_singly(broker.address, payloads, count)),
        }


def _timed(count: int, run: Callable[[], None]) -> tuple[float, float]:
    started, cpu_started = time.perf_counter(), time.process_time()
    run()
    cpu = time.process_time() - cpu_started
    return count / (time.perf_counter() - started) / _THOUSAND, cpu / count


def _send_lists(address: Address, payloads: list[bytes], count: int) -> None:
    lists = [payloads[start : start + _LIST] for start in range(0, len(payloads), _LIST)]
    with Producer(_config(address)) as producer:
        for number in range(count // _LIST):
            producer.send("lists", lists[number % len(lists)])
        producer.flush()
    wait_until_visible(address, count * STORED_BYTES, topic="lists")


def _send_singly(address: Address, payloads: list[bytes], count: int) -> None:
    with Producer(_config(address, producer_type="async")) as producer:
        send = producer.send
        for _ in range(count // len(payloads)):
            for payload in payloads:
                send("single", payload)
        for payload in payloads[: count % len(payloads)]:
            send("single", payload)
        producer.flush()
    wait_until_visible(address, count * STORED_BYTES, topic="single")


def _consume(address: Address, count: int) -> None:
    offset = consumed = 0
    with SimpleConsumer(*address) as consumer:
        while consumed < count:
            for message, next_offset in consumer.fetch(
                FetchRequest("lists", 0, offset, _FETCH_BYTES)
            ):
                if message.payload:
                    consumed += 1
                offset = next_offset


def _config(address: Address, **settings: str) -> ProducerConfig:
    host, port = address
    return ProducerConfig(broker_list=f"0:{host}:{port}", acks="none", **settings)  # type: ignore[arg-type]


# -- the clients of Kafka -----------------------------------------------------------------------


def _beside(rounds: int, payloads: list[bytes], hermes: dict[str, float]) -> list[Row]:
    """A row for each client and what it can do; one that says what is missing if it is."""
    try:
        with MockCluster() as cluster:
            rows = [
                row
                for client in CLIENTS
                for row in _client_rows(client, cluster, rounds, payloads, hermes)
            ]
            return sorted(rows, key=lambda row: row.measure)  # alike with alike
    except NotInstalled as missing:
        return [skipped_row("clients of Kafka", str(missing))]


def _client_rows(
    client: KafkaClient,
    cluster: MockCluster,
    rounds: int,
    payloads: list[bytes],
    hermes: dict[str, float],
) -> list[Row]:
    if find_spec(client.module) is None:
        return [skipped_row(client.name, f"pip install {client.name}")]
    runs: dict[str, list[float]] = {_SINGLE: [], _CONSUMER: []}
    for _ in range(rounds):
        runs[_SINGLE].append(client.produce(cluster, payloads) / _THOUSAND)
        runs[_CONSUMER].append(client.consume(cluster) / _THOUSAND)
    return [
        Row(name, _UNIT, hermes[name], statistics.median(each), client.name, beside_runs=(*each,))
        for name, each in runs.items()
    ]


# -- what a compiled core could take over -------------------------------------------------------


def _share(name: str, whole: float, payloads: list[bytes]) -> str:
    """Say what of the client's time goes into the bytes, and what compiling that would bring.

    Args:
        name: the measurement.
        whole: seconds of processor time that the client takes for a message, all in all.
        payloads: what was sent.
    """
    if name == _CONSUMER:
        fetched = MessageSet(encode_message_set(payloads))
        what, part = "decoding", _seconds(lambda: _iterate(fetched)) / len(payloads)
    else:
        what, part = "encoding", _seconds(lambda: _encode(payloads)) / len(payloads)
    crc = _seconds(lambda: _check(payloads)) / len(payloads)
    gain = whole / (whole - max(0.0, part - crc)) - 1
    return (
        f"the client takes {whole * 1e6:.2f} us of CPU a message, {part * 1e6:.2f} of it "
        f"({part / whole:.0%}) for {what} and CRC, {crc * 1e6:.2f} for the CRC alone; "
        f"compiled, it would be faster by at most {gain:.0%}"
    )


def _seconds(work: Callable[[], None]) -> float:
    """The processor time of a piece of work, at the best of many tries."""
    tries = []
    for _ in range(_TRIES):
        started = time.thread_time()
        work()
        tries.append(time.thread_time() - started)
    return min(tries)


def _encode(payloads: list[bytes]) -> None:
    for start in range(0, len(payloads), _LIST):
        encode_message_set(payloads[start : start + _LIST])


def _iterate(fetched: MessageSet) -> None:
    for _message, _next_offset in fetched:
        pass


def _check(payloads: list[bytes]) -> None:
    for payload in payloads:
        crc32(payload)
