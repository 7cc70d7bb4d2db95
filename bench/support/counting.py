"""A broker whose instructions or system calls are counted, and what is asked of it in between."""

import json
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from bench.peers.system import NotInstalled
from bench.support.servers import HermesBroker
from bench.support.usage import precise_cpu_seconds

__all__ = ["CallgrindBroker", "CountedBroker", "StraceBroker", "build_collecting"]

_HERE = Path(__file__).parent
_PROGRAM = _HERE.parent / "baselines" / "counted_twistd.py"
_SOURCE = _HERE / "collecting.c"

_START_SECONDS = 600
_ANSWER_SECONDS = 600
_STOP_SECONDS = 300
_LISTENS = {"kafka_listen": "tcp:0:interface=127.0.0.1"}
#: The order of sets and dictionaries is part of what is counted.
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}
_TOTALS = re.compile(rb"^totals: (\d+)$", re.MULTILINE)
_TAIL_BYTES = 4_096
#: A call; its second half, if it is written in two, is `PID <... NAME resumed>...`.
_CALL = re.compile(rb"^\d+ +(\w+)\(")


def build_collecting(directory: Path) -> Path:
    """Compile the module by which a broker speaks to callgrind.

    Raises:
        NotInstalled: valgrind, its headers, Python's or the compiler are missing.
    """
    if shutil.which("valgrind") is None:
        raise NotInstalled("callgrind counts instructions: apt-get install valgrind")
    built = directory / "collecting.so"
    include = sysconfig.get_path("include")
    command = ["cc", "-O2", "-shared", "-fPIC", f"-I{include}", str(_SOURCE), "-o", str(built)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise NotInstalled("a C compiler: apt-get install gcc") from None
    except subprocess.CalledProcessError as error:
        raise NotInstalled(
            f"what {_SOURCE.name} includes: apt-get install valgrind python3-dev\n{error.stderr}"
        ) from None
    return built


class CountedBroker(HermesBroker):
    """A Hermes broker with a thread that obeys."""

    def __init__(
        self, directory: Path, counter: list[str], arguments: list[str], settings: dict[str, Any]
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        # Paths of Unix sockets are short; this one is relative to the broker's directory.
        with socket.socket(socket.AF_UNIX) as listener:
            path = directory / "control"
            listener.bind(str(path))
            listener.listen(1)
            program = [*counter, sys.executable, "-P", str(_PROGRAM), "--control", str(path)]
            super().__init__(
                directory,
                program=[*program, *arguments],
                environment=_ENVIRONMENT,
                start_timeout_seconds=_START_SECONDS,
                **_LISTENS,
                **settings,
            )
            self._control, _ = listener.accept()
        self._control.settimeout(_ANSWER_SECONDS)
        self._answers = self._control.makefile("r")

    def order(self, line: str) -> Any:
        """Have the broker do something, see `bench.baselines.counted_twistd`."""
        self._control.sendall(line.encode() + b"\n")
        answer = self._answers.readline()
        if not answer:
            raise ConnectionError("the broker has ended")
        return json.loads(answer)

    def rest(self) -> None:
        """Wait until every thread of the broker waits for something, and nothing is left to do."""
        before, now = None, self._run_time_asleep()
        while now is None or now != before:
            time.sleep(0.001)
            before, now = now, self._run_time_asleep()

    def _run_time_asleep(self) -> float | None:
        """The processor time that its threads have had, or None while one of them is awake."""
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with suppress(FileNotFoundError):  # it has just ended
                # Behind the program's name, which may hold anything: the state.
                if not (task / "stat").read_text().rpartition(")")[2].startswith(" S"):
                    return None
        return precise_cpu_seconds(self.pid)

    def stop(self, *, timeout_seconds: float = _STOP_SECONDS) -> int:
        """As any program, but slowly."""
        return super().stop(timeout_seconds=timeout_seconds)

    def __enter__(self) -> Self:
        return self


class CallgrindBroker(CountedBroker):
    """A broker under callgrind.

    Args:
        directory: its own.
        collecting: what `build_collecting` made.
        by_layer: collect in one layer at a time, and see every call, which costs instructions.
        settings: keys of broker.yaml.
    """

    def __init__(
        self, directory: Path, collecting: Path, *, by_layer: bool = False, **settings: Any
    ) -> None:
        self._dumps = directory / "callgrind"
        self._dumps.mkdir(parents=True)
        counter = [
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={self._dumps}/out",
            f"--collect-atstart={'no' if by_layer else 'yes'}",
        ]
        layers = ["--layers"] if by_layer else []
        arguments = ["--collecting", str(collecting), *layers]
        super().__init__(directory, counter, arguments, settings)

    def watch(self, layer: int) -> None:
        """Collect in this layer, by its place in `take_layers`, and nowhere else."""
        self.order(f"watch {layer}")

    def take_layers(self) -> list[tuple[str, int, int]]:
        """Each layer's name, and the calls of Python and of C functions since the last time."""
        # Each is there twice: in the reactor's thread, and in others.
        return [
            (f"{name}, in threads" if place % 2 else name, calls, c_calls)
            for place, (name, calls, c_calls) in enumerate(self.order("layers"))
        ]

    def instructions(self) -> int:
        """How many there were since the last time."""
        self.order("dump requests")
        total = 0
        for file in self._dumps.glob("out.*"):  # "out" is what it writes at its end
            with file.open("rb") as opened:
                opened.seek(max(0, file.stat().st_size - _TAIL_BYTES))
                found = _TOTALS.search(opened.read())
            if found is None:
                raise RuntimeError(f"callgrind has written no totals into {file.name}")
            total += int(found[1])
            file.unlink()
        return total


class StraceBroker(CountedBroker):
    """A broker under strace, which writes down its system calls.

    Args:
        directory: its own.
        settings: keys of broker.yaml.

    Raises:
        NotInstalled: strace is missing.
    """

    def __init__(self, directory: Path, **settings: Any) -> None:
        if shutil.which("strace") is None:
            raise NotInstalled("strace counts system calls: apt-get install strace")
        directory.mkdir(parents=True, exist_ok=True)
        self._written = directory / "strace.out"
        counter = ["strace", "-D", "-f", "-qq", "-s", "32", "-o", str(self._written)]
        super().__init__(directory, counter, [], settings)
        self._marks = 0
        self._position = 0

    def system_calls(self) -> Counter[str]:
        """How many there were since the last time, by name."""
        self._marks += 1
        mark = b'bench-mark-%d"' % self._marks
        self.order(f"mark bench-mark-{self._marks}")
        calls: Counter[str] = Counter()
        size = 0
        with self._written.open("rb") as lines:
            lines.seek(self._position)
            for line in lines:
                size += len(line)
                if mark in line:
                    self._position += size
                    return calls
                if found := _CALL.match(line):
                    calls[found[1].decode()] += 1
        raise RuntimeError("strace has written no mark")
