"""The schema registry in a broker: a thousand schemas from a hundred writers at the same time.

Each writer has a connection and a subject of its own, and registers ten versions of a schema, each
compared with the one before and flushed before it is answered. The schedule is fixed beforehand
(open loop): a call that leaves late because something was slow is counted from when it was due.
Then the ids are asked for in the same way, and at last all writers register as fast as they are
answered, which tells how many registrations a second there can be: with a hundred calls under way
all the time, each takes a hundred times what one keeps the registry busy.

Beside that: what a produce takes that is answered when it has been flushed, one after the other at
the same pace, which is the share of the disk and of the machine's other work.
"""

import http.client
import json
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from bench.support.report import Row, bound_row
from bench.support.servers import Address, HermesBroker
from bench.support.settings import Settings
from hermes.client import SyncProducer
from hermes.protocol import Acks, ProduceRequest, encode_message_set

__all__ = ["measure"]

_WRITERS = 100
_VERSIONS = 10
_RATE = 100
_TARGET_MS = 20.0
_FIELDS = 20

_Call = Callable[[http.client.HTTPConnection, int, int], None]


def measure(settings: Settings) -> list[Row]:
    """Register and look up at a steady pace, then register as fast as it goes."""
    http_listen = "tcp:0:interface=127.0.0.1"
    with (
        settings.workspace() as directory,
        HermesBroker(directory, http_listen=http_listen) as broker,
    ):
        ready = json.loads((directory / "ready.json").read_text())["http_listen"][0]
        address = ready["host"], ready["port"]
        _timed(address, _registering("warm_up"), _RATE)
        flushed = _flushed_produces(broker.address)
        written, _ = _timed(address, _registering("paced"), _RATE)
        read, _ = _timed(address, _look_up, _RATE)
        at_once, seconds = _timed(address, _registering("at_once"), None)
    count = _WRITERS * _VERSIONS
    return [
        bound_row(
            "a registration, p99",
            "ms",
            _percentile(written),
            below=_TARGET_MS,
            beside=_percentile(flushed),
            beside_name="a flushed produce",
            note=f"{count} schemas from {_WRITERS} writers at {_RATE}/s, open loop; median "
            f"{statistics.median(written):.1f} ms",
        ),
        bound_row(
            "a schema by its id, p99",
            "ms",
            _percentile(read),
            below=_TARGET_MS,
            note=f"likewise; median {statistics.median(read):.1f} ms",
        ),
        Row(
            "registrations at once",
            "1/s",
            count / seconds,
            note=f"{_WRITERS} writers, each as fast as it is answered: median "
            f"{statistics.median(at_once):.0f} ms, p99 {_percentile(at_once):.0f} ms",
        ),
    ]


def _flushed_produces(address: Address) -> list[float]:
    """How long produces of a schema's size take, in ms."""
    times, produce = [], ProduceRequest("beside", 0, encode_message_set([b"x" * 2000]))
    with SyncProducer(*address) as producer:
        begin = time.perf_counter()
        for number in range(_WRITERS * _VERSIONS):
            due = begin + number / _RATE
            time.sleep(max(0.0, due - time.perf_counter()))
            due = max(due, time.perf_counter())
            producer.send_acknowledged([produce], Acks.FLUSHED)
            times.append((time.perf_counter() - due) * 1e3)
    return times


def _registering(name: str) -> _Call:
    """Registers a version of a writer's subject: one more field, with a default."""

    def register(connection: http.client.HTTPConnection, writer: int, turn: int) -> None:
        fields: list[dict[str, Any]] = [
            {"name": f"field_{number}", "type": ["null", "string"], "default": None}
            for number in range(_FIELDS + turn)
        ]
        schema = {"type": "record", "name": f"Record{writer}", "namespace": name, "fields": fields}
        path = f"/registry/subjects/{name}-{writer}-value/versions"
        answer = _ask(connection, "POST", path, {"schema": json.dumps(schema)})
        if answer["version"] != turn + 1:
            raise RuntimeError(f"version {turn + 1} of {path} is {answer}")

    return register


def _look_up(connection: http.client.HTTPConnection, writer: int, turn: int) -> None:
    _ask(connection, "GET", f"/registry/schemas/ids/{1 + writer * _VERSIONS + turn}")


def _timed(address: Address, call: _Call, rate: int | None) -> tuple[list[float], float]:
    """Let every writer make its calls, in turns.

    Returns:
        How long each took, in ms from when it was due; and the seconds from first to last.
    """
    times: list[float] = []
    failures: list[BaseException] = []
    everybody = threading.Barrier(_WRITERS + 1)
    begin = 0.0

    def write(writer: int) -> None:
        connection = http.client.HTTPConnection(*address)
        try:
            connection.connect()
            everybody.wait()
            everybody.wait()  # until the begin is known
            for turn in range(_VERSIONS):
                due = time.perf_counter()
                if rate is not None:
                    due = begin + (turn * _WRITERS + writer) / rate
                    time.sleep(max(0.0, due - time.perf_counter()))
                call(connection, writer, turn)
                times.append((time.perf_counter() - due) * 1e3)
        except BaseException as error:
            failures.append(error)
            everybody.abort()
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=[number]) for number in range(_WRITERS)]
    for thread in threads:
        thread.start()
    everybody.wait()
    begin = time.perf_counter()
    everybody.wait()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(f"a writer failed: {failures[0]!r}")
    return times, time.perf_counter() - begin


def _ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None
) -> dict[str, Any]:
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer: dict[str, Any] = json.loads(response.read())
    if response.status != 200:
        raise RuntimeError(f"{path} was answered with {response.status}: {answer}")
    return answer


def _percentile(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]
