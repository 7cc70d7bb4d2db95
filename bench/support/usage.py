"""What a process uses, as the kernel counts it: resident memory and processor time."""

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = [
    "MEGABYTE",
    "PeakMemory",
    "cpu_seconds",
    "precise_cpu_seconds",
    "resident_bytes",
    "withheld_seconds",
]

MEGABYTE = 1_000_000

_SAMPLE_SECONDS = 0.02


def resident_bytes(pid: int) -> int:
    """The resident set (VmRSS) of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has no resident memory: it has ended")


def cpu_seconds(pid: int) -> float:
    """The processor time of a process so far, all its threads, user and system; steps of 10 ms."""
    # Behind the program's name, which may hold anything: state, 10 numbers, utime, stime.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def precise_cpu_seconds(pid: int) -> float:
    """The same in steps of nanoseconds, of the threads that there are now."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def withheld_seconds() -> float:
    """How long the host of this virtual machine has let processors wait that had work, so far."""
    # Behind "cpu": user, nice, system, idle, iowait, irq, softirq, steal; of all processors.
    steal = Path("/proc/stat").read_text().split(maxsplit=9)[8]
    return int(steal) / os.sysconf("SC_CLK_TCK")


class PeakMemory:
    """Samples a process's resident memory 50 times a second while its block runs.

    Attributes:
        before_bytes: what was resident when the block began.
        peak_bytes: the largest sample so far.
    """

    def __init__(self, pid: int) -> None:
        """Args: pid: the process to watch."""
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.before_bytes = self.peak_bytes = 0

    @property
    def growth_bytes(self) -> int:
        """How far the peak lies above what was resident at the beginning."""
        return self.peak_bytes - self.before_bytes

    def __enter__(self) -> Self:
        self.before_bytes = self.peak_bytes = resident_bytes(self._pid)
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
        if error is None:
            self.peak_bytes = max(self.peak_bytes, resident_bytes(self._pid))

    def _sample(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            try:
                self.peak_bytes = max(self.peak_bytes, resident_bytes(self._pid))
            except (OSError, ProcessLookupError):
                return  # it has ended; whoever uses it says so
