"""The memory of a process and of all that it has started, sampled while something runs."""

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["InThread", "PeakMemory"]

_SECONDS = 0.05


class InThread:
    """Runs `_run` in a thread while its block does, until `_ended` is set."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()


class PeakMemory(InThread):
    """The most memory that processes below one had, by what they are, while its block runs.

    Args:
        pid: of the process at the top.

    Attributes:
        peaks: resident bytes of the largest process of each program ("java", "python").
        samples: how often they were looked at.
    """

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.peaks: dict[str, int] = {}
        self.samples = 0
        self._pid = pid

    def _run(self) -> None:
        while not self._ended.wait(_SECONDS):
            self.samples += 1
            for pid in _below(self._pid):
                name, size = _memory(pid)
                if size > self.peaks.get(name, 0):
                    self.peaks[name] = size


def _below(pid: int) -> list[int]:
    """Everything that a process has started, and what these have."""
    try:
        texts = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []  # it has ended
    children = [int(number) for text in texts for number in text.split()]
    return children + [further for child in children for further in _below(child)]


def _memory(pid: int) -> tuple[str, int]:
    """The program of a process, and its resident bytes; 0 of one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return "", 0
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    program = fields["Name"].strip()
    size = int(fields.get("VmRSS", "0 kB").split()[0]) * 1024
    return ("python" if program.startswith("python") else program), size
