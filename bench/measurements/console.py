"""The web console in a broker with a thousand topics: what an open page costs, how soon pages come.

An open page is fetched again after the pause that it asks for. What that takes of one processor,
broker and console together, is what a broker loses that has work for all of one. The pages are
fetched one after the other while messages come in at 200 MB/s.
"""

import http.client
import json
import re
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.support.load import Chunk, connect, encoded_produces, latest_offset
from bench.support.report import Row, bound_row
from bench.support.servers import Address, HermesBroker
from bench.support.settings import Settings
from bench.support.usage import cpu_seconds
from hermes.client import SyncProducer
from hermes.protocol import ProduceRequest, encode_message_set

_TOPICS = 1_000
_PAGES = (
    "/",
    "/topics",
    "/topics?sort=rate&page=9",
    "/topics/topic-0007",
    "/topics/topic-0007/live",
    "/groups",
    "/brokers",
    "/brokers/0",
)
_LOOKS = 30
_ROUNDS = 15
_LOAD_BYTES = 200e6
_MOST_PERCENT = 3.0
_MOST_MS = 100.0


def measure(settings: Settings) -> list[Row]:
    """Look at an idle broker, then at a busy one."""
    http_listen = "tcp:0:interface=127.0.0.1"
    more = {
        "http_listen": http_listen,
        "coordination": "embedded",
        "coordination_listen": http_listen,
    }
    with settings.workspace() as directory, HermesBroker(directory, **more) as broker:
        _fill(broker.address)
        ready = json.loads((directory / "ready.json").read_text())["http_listen"][0]
        address = ready["host"], ready["port"]
        percent, pause_ms = _cost_of_looking(address, broker.pid, "/")
        list_percent, _ = _cost_of_looking(address, broker.pid, "/topics")
        with _load(broker.address, encoded_produces(50)) as sent:
            began = time.perf_counter()
            times = _times_of_pages(address)
            rate = sent[0] / (time.perf_counter() - began)
    slowest = max(times, key=lambda path: statistics.median(times[path]))
    every = [each for several in times.values() for each in several]
    return [
        bound_row(
            "an open overview",
            "% of a processor",
            percent,
            below=_MOST_PERCENT,
            note=f"{_TOPICS} topics, again every {pause_ms / 1000:g} s",
        ),
        bound_row("an open list of topics", "% of a processor", list_percent, below=_MOST_PERCENT),
        bound_row(
            "a page, median",
            "ms",
            statistics.median(every),
            below=_MOST_MS,
            note=f"{len(every)} pages, while {rate / 1e6:.0f} MB/s came in",
        ),
        bound_row(
            "the slowest page, median",
            "ms",
            statistics.median(times[slowest]),
            below=_MOST_MS,
            note=slowest,
        ),
    ]


def _fill(address: Address) -> None:
    with SyncProducer(*address) as producer:
        for first in range(0, _TOPICS, 100):
            messages = encode_message_set([b"x" * 100])
            names = [f"topic-{number:04d}" for number in range(first, first + 100)]
            producer.send_acknowledged([ProduceRequest(name, 0, messages) for name in names])


def _page(connection: http.client.HTTPConnection, path: str) -> str:
    connection.request("GET", path)
    response = connection.getresponse()
    text = response.read().decode()
    if response.status != 200:
        raise RuntimeError(f"{path} was answered with {response.status}")
    return text


def _cost_of_looking(address: Address, pid: int, path: str) -> tuple[float, int]:
    """What an open page takes of one processor, in percent; and its pause in ms."""
    connection = http.client.HTTPConnection(*address)
    _page(connection, path)
    pauses, spent = [], 0.0
    for _ in range(_LOOKS):
        time.sleep(1.05)  # what was read is remembered for a second
        before = cpu_seconds(pid)
        page = _page(connection, path)
        spent += cpu_seconds(pid) - before
        found = re.search(r'data-refresh="(\d+)"', page)
        assert found is not None
        pauses.append(int(found[1]))
    connection.close()
    pause_ms = round(statistics.median(pauses))
    return 100 * spent / _LOOKS / (pause_ms / 1000), pause_ms


@contextmanager
def _load(address: Address, chunk: Chunk) -> Iterator[list[int]]:
    """Send messages at a steady pace; yields how many bytes that was, so far."""
    sent, over = [0], threading.Event()

    def send() -> None:
        with connect(address) as connection:
            began = time.perf_counter()
            while not over.is_set():
                connection.sendall(chunk.requests)
                sent[0] += len(chunk.requests)
                over.wait(max(0.0, began + sent[0] / _LOAD_BYTES - time.perf_counter()))
            latest_offset(connection)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        over.set()
        thread.join()


def _times_of_pages(address: Address) -> dict[str, list[float]]:
    """How long each page took, in ms."""
    connection = http.client.HTTPConnection(*address)
    times: dict[str, list[float]] = {path: [] for path in _PAGES}
    for _ in range(_ROUNDS):
        for path in _PAGES:
            began = time.perf_counter()
            _page(connection, path)
            times[path].append((time.perf_counter() - began) * 1000)
        time.sleep(0.3)
    connection.close()
    return times
