"""Brokers whose disks do what disks do: lose what isn't flushed, have no room left, or fail.

    HERMES_DISK=FILE python replicated_disks.py -n hermes --config broker.yaml

is twistd with a disk that fails while FILE is there: each call that reads, writes or flushes then
says `EIO`, as a disk that is dying does.
"""

import os
import resource
import shutil
import sys
from collections.abc import Callable, Sequence
from errno import EIO
from pathlib import Path
from random import Random
from typing import Any

from hermes_testkit import BrokerProcess
from lost_power import build_state
from traced_files import FILE_CALLS, read_trace, strace_command, tree

__all__ = ["FailingBroker", "TracedBroker", "empty_disk", "fill_disk"]

_VARIABLE = "HERMES_DISK"
_UNLIMITED = resource.RLIM_INFINITY


class FailingBroker(BrokerProcess):
    """A broker whose disk fails while it is told to.

    Args:
        directory: as any broker's.
        settings: as any broker's.
        wait: as any broker's.
        before: what stands before its program.
    """

    def __init__(
        self,
        directory: Path,
        settings: dict[str, Any],
        wait: bool = True,
        before: Sequence[str] = (),
    ) -> None:
        self._fails = directory / "fails"
        environment = {_VARIABLE: str(self._fails)}
        program = [*before, sys.executable, __file__]
        super().__init__(directory, settings, wait, environment, program)

    def fail(self) -> None:
        """From now on it can neither read nor write."""
        self._fails.touch()

    def recover(self) -> None:
        """The disk works as before."""
        self._fails.unlink()


class TracedBroker(FailingBroker):
    """A broker under strace, which knows what its disk may hold once its power has gone.

    What an earlier life of the process has left counts as flushed.
    """

    def __init__(self, directory: Path, settings: dict[str, Any], wait: bool = True) -> None:
        self._output = directory / "trace"
        super().__init__(directory, settings, wait, strace_command(self._output, FILE_CALLS))

    def start(self, wait: bool = True) -> None:
        """As any broker's."""
        self._before = tree(self.log_dir)
        super().start(wait)

    def lose(self, mode: str, chance: Random) -> None:
        """Let a broker that was killed find what its disk may hold: one of `lost_power.MODES`."""
        trace = read_trace(self._output, self.log_dir, self._before)
        state = self.directory / "state"
        build_state(trace, trace.moments + 1, mode, chance, state)
        shutil.rmtree(self.log_dir)
        state.rename(self.log_dir)


def fill_disk(broker: BrokerProcess) -> None:
    """No file of a broker that runs may grow: `EFBIG` instead of `ENOSPC`, treated alike."""
    resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (0, _UNLIMITED))


def empty_disk(broker: BrokerProcess) -> None:
    """There is room again."""
    resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (_UNLIMITED, _UNLIMITED))


def _main() -> None:
    from twisted.scripts.twistd import run

    from hermes.storage.files import FileLayer

    told = os.environ[_VARIABLE]

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def fails_or_does(*arguments: Any) -> Any:
            if os.path.exists(told):
                raise OSError(EIO, os.strerror(EIO))
            return call(*arguments)

        return fails_or_does

    for name in ("pwrite", "pwritev", "pread", "fdatasync"):
        setattr(FileLayer, name, staticmethod(failing(getattr(FileLayer, name))))
    run()


if __name__ == "__main__":
    _main()
