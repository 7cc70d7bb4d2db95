"""A registry's broker is traced; then each thing a disk may hold afterwards is given to another.

An id counts as given out from the moment on at which the answer left through the socket. Every
state of the disk after that must still have it, and no later registration may get it again.
"""

import json
import random
import shutil
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from hermes_testkit import TWISTD, BrokerProcess
from lost_power import build_state
from power_loss_load import wait_for_the_tracer
from registry_cluster import call, http_port, schema, until
from traced_files import Trace, read_trace, strace_command

__all__ = ["RegistryLife", "record_registry"]

_SETTINGS = {
    "http_listen": "tcp:0:interface=127.0.0.1",
    "segment_bytes": "16KiB",
    "retention_time": "1ms",
    "retention_check_interval": "100ms",
}


class _Given(NamedTuple):
    moment: int
    name: str
    id: int


class RegistryLife:
    """A traced life, and the ids that were given out in it.

    Attributes:
        trace: the life.
        given: in their order.
    """

    def __init__(self, trace: Trace, given: list[_Given]) -> None:
        self.trace = trace
        self.given = given

    def check(self, directory: Path, moment: int, mode: str, seed: int) -> int:
        """Build one state, start a broker on it, and look for every id.

        Returns:
            How many ids had been given out by then.
        """
        directory.mkdir()
        build_state(self.trace, moment, mode, random.Random(seed), directory / "logs")
        broker = BrokerProcess(
            directory / "broker", {**_SETTINGS, "log_dir": str(directory / "logs")}
        )
        try:
            port = http_port(broker)
            given = [each for each in self.given if each.moment < moment]
            for each in given:
                answer = call(port, "GET", f"schemas/ids/{each.id}")
                assert answer.status == 200, (each, answer)
                assert json.loads(answer.value["schema"])["name"] == each.name, (each, answer)
            new = call(port, "POST", "subjects/new/versions", {"schema": schema("New")})
            assert new.status == 200, new
            assert new.value["id"] not in {each.id for each in given}
        finally:
            broker.kill()
        shutil.rmtree(directory)
        return len(given)


def record_registry(directory: Path, count: int) -> RegistryLife:
    """Run a broker with a registry under strace, register schemas, and kill it.

    Args:
        directory: for its files; made.
        count: how many schemas; a snapshot is written after more than a hundred.
    """
    logs = directory / "logs"
    logs.mkdir(parents=True)
    output = directory / "trace"
    broker = BrokerProcess(
        directory / "broker",
        {**_SETTINGS, "log_dir": str(logs)},
        program=[*strace_command(output), *TWISTD],
    )
    answers: list[tuple[str, int]] = []
    try:
        connection = HTTPConnection("127.0.0.1", http_port(broker), timeout=60)
        connection.connect()
        ports = connection.sock.getpeername()[1], connection.sock.getsockname()[1]
        for number in range(count):
            if number == count - 10 and number > 100:
                until((logs / ".hermes_registry").exists, "a snapshot")
            body = json.dumps({"schema": schema(f"R{number}")})
            connection.request("POST", f"/registry/subjects/s{number}/versions", body)
            response = connection.getresponse()
            value = json.loads(response.read())
            assert response.status == 200, value
            answers.append((f"R{number}", value["id"]))
        connection.close()
    finally:
        broker.kill()
    wait_for_the_tracer(output)
    trace = read_trace(output, logs)
    moments = list(_answered(trace.sent[ports]))
    # The process may be killed before strace has seen the last of them return.
    assert len(moments) >= count - 1, f"{len(moments)} answers left, {count} came"
    return RegistryLife(
        trace, [_Given(moment, *each) for moment, each in zip(moments, answers, strict=False)]
    )


def _answered(sent: list[tuple[int, bytes]]) -> Iterator[int]:
    """The moments at which one HTTP response after the other had left."""
    pending = b""
    for moment, data in sent:
        pending += data
        while b"\r\n\r\n" in pending:
            head, _, body = pending.partition(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            (length,) = (int(line[15:]) for line in lines if line.startswith(b"content-length:"))
            if len(body) < length:
                break
            pending = body[length:]
            yield moment
