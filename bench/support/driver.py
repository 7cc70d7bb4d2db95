"""The load driver: requests made beforehand, at a given rate, on many connections, from C.

A client in Python needs more of a processor for a small request than the server does, and would
measure itself. `driver.c` sends what is made here with `kafka_frames`, and is measured itself, on
a server that does nothing.
"""

import math
import shutil
import subprocess
import tempfile
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bench.peers.system import NotInstalled
from bench.support.processes import Program
from bench.support.servers import Address
from bench.support.usage import cpu_seconds, withheld_seconds

__all__ = ["Driven", "Load", "NullServer", "build_driver", "drive", "merged"]

_SOURCE = Path(__file__).with_name("driver.c")
_UNITS_A_MS = 10_000  # of 100 ns


@dataclass(frozen=True, slots=True)
class Load:
    """What a driver sends.

    Attributes:
        address: of the server, on the loopback interface.
        frames: the requests; connection i repeats the one with the number i modulo how many.
        error_at: where answers have their error code, counted from their size on.
        connections: how many.
        rate: requests a second, of all connections; 0: the next one as soon as one is answered.
        in_flight: how many requests a connection has unanswered at most.
        seconds: how long what is sent is measured.
        warm_up_seconds: how long before that the load begins.
        ramp_seconds: without a rate, over how long the first requests are spread.
    """

    address: Address
    frames: Sequence[bytes]
    error_at: int
    connections: int = 1
    rate: float = 0
    in_flight: int = 1
    seconds: float = 5
    warm_up_seconds: float = 1
    ramp_seconds: float = 0


@dataclass
class Driven:
    """What came of it.

    Attributes:
        seconds: how long was measured.
        answers: how many there were in that time.
        all_answers: the same, with the warm-up.
        driver_seconds: the driver's processor time.
        server_seconds: the servers' processor time, by what `drive` calls them.
        withheld_seconds: processor time that the host kept from this machine meanwhile.
        latencies: of each request that was due in that time, in 100 ns, in the order of their
            answers. With a rate they count from when the request was due.
    """

    seconds: float = 0
    answers: int = 0
    all_answers: int = 0
    driver_seconds: float = 0
    server_seconds: dict[str, float] = field(default_factory=dict)
    withheld_seconds: float = 0
    latencies: "array[int]" = field(default_factory=lambda: array("I"))

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.answers / self.seconds

    def ms(self, share: float) -> float:
        """How long the share of them took at most, in ms: 0.999 of them, 0.5 of them."""
        place = math.ceil(share * len(self.latencies)) - 1
        return self._ascending[max(0, place)] / _UNITS_A_MS

    @cached_property
    def _ascending(self) -> list[int]:
        return sorted(self.latencies)

    def cores(self, server: str) -> float:
        """How much of a core a server took."""
        return self.server_seconds[server] / self.seconds

    @property
    def driver_cores(self) -> float:
        """How much of a core the driver took."""
        return self.driver_seconds / self.seconds

    @property
    def withheld_cores(self) -> float:
        """How much of a core the host let wait."""
        return self.withheld_seconds / self.seconds


def build_driver(directory: Path) -> Path:
    """Compile it.

    Raises:
        NotInstalled: there is no compiler.
    """
    if shutil.which("cc") is None:
        raise NotInstalled("the load driver needs a C compiler: apt-get install gcc libc6-dev")
    built = directory / "driver"
    subprocess.run(["cc", "-O2", str(_SOURCE), "-o", str(built)], check=True)
    return built


def drive(driver: Path, loads: Sequence[Load], pids: Mapping[str, int]) -> list[Driven]:
    """Put loads on servers at the same time.

    Args:
        driver: what `build_driver` made.
        loads: what is sent, by a driver each.
        pids: the servers' processes, whose processor time is taken in the first load's window.

    Returns:
        What came of each load; the servers' time, and what was withheld, is in the first one.

    Raises:
        RuntimeError: a driver was answered with an error, or not at all.
    """
    with tempfile.TemporaryDirectory(dir=driver.parent) as directory:
        places = [Path(directory, str(number)) for number in range(len(loads))]
        started = [_start(driver, *each) for each in zip(loads, places, strict=True)]
        try:
            results = _results(started, loads, pids)
        finally:
            for process in started:
                process.kill()
                process.wait()
                process.stdout.close()  # type: ignore[union-attr]
        for result, place in zip(results, places, strict=True):
            result.latencies.frombytes(place.with_suffix(".out").read_bytes())
    return results


def _start(driver: Path, load: Load, place: Path) -> "subprocess.Popen[str]":
    place.write_bytes(b"".join(load.frames))
    numbers = (load.connections, load.rate, load.in_flight, load.warm_up_seconds, load.seconds)
    last = (load.ramp_seconds, load.error_at)
    arguments = (load.address[1], place, place.with_suffix(".out"), *numbers, *last)
    return subprocess.Popen(
        [str(driver), "load", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


def _results(
    started: "Sequence[subprocess.Popen[str]]", loads: Sequence[Load], pids: Mapping[str, int]
) -> list[Driven]:
    times, withheld = [], []
    for expected in ("measuring", "measured"):
        _line(started[0], expected)
        times.append({name: cpu_seconds(pid) for name, pid in pids.items()})
        withheld.append(withheld_seconds())
    results = []
    for process, load in zip(started, loads, strict=True):
        if process is not started[0]:
            _line(process, "measuring")
            _line(process, "measured")
        everything, answers, own = _line(process).split()
        results.append(Driven(load.seconds, int(answers), int(everything), float(own)))
        process.wait()
    begin, end = times
    results[0].server_seconds = {name: end[name] - begin[name] for name in pids}
    results[0].withheld_seconds = withheld[1] - withheld[0]
    return results


def _line(process: "subprocess.Popen[str]", expected: str = "") -> str:
    line = process.stdout.readline()  # type: ignore[union-attr]
    if not line.endswith("\n") or (expected and line != f"{expected}\n"):
        raise RuntimeError(f"the driver ended with {process.wait()}, see above")
    return line


def merged(runs: Sequence[Driven]) -> Driven:
    """Several runs as if they were one."""
    whole = Driven()
    for run in runs:
        whole.seconds += run.seconds
        whole.answers += run.answers
        whole.all_answers += run.all_answers
        whole.driver_seconds += run.driver_seconds
        whole.withheld_seconds += run.withheld_seconds
        for name, seconds in run.server_seconds.items():
            whole.server_seconds[name] = whole.server_seconds.get(name, 0) + seconds
        whole.latencies.extend(run.latencies)
    return whole


class NullServer(Program):
    """The driver as a server that answers everything with the same bytes at once.

    Attributes:
        address: where it listens.
    """

    def __init__(self, driver: Path, answer: bytes, directory: Path) -> None:
        """Start it and wait until it listens.

        Args:
            driver: what `build_driver` made.
            answer: what it answers with, with its size.
            directory: its own.
        """
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "answer").write_bytes(answer)
        super().__init__("null", [str(driver), "null", "answer"], directory=directory)
        try:
            self.wait_until(self._listens, timeout_seconds=30, what="listening")
        except BaseException:
            self.stop()
            raise
        self.address: Address = ("127.0.0.1", int(self.log.read_text()))

    def _listens(self) -> bool:
        return self.log.read_text().endswith("\n")
