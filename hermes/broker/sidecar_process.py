"""A program that runs beside the broker, in a process of its own, and ends with it.

It gets its settings as a line on its standard input, which then stays open: its end means that the
broker has gone, however that came about, and that the program has to end as well. Its output
becomes lines of the broker's log. When it ends by itself it is started again, after pauses that
grow while it keeps ending soon.
"""

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import IO, Any, Final

from twisted.logger import LogLevel

from hermes.backoff import growing_pause
from hermes.logs import ModuleLogger

_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
#: A process that has run for this long was fine, and is started again soon.
_FINE_SECONDS: Final = 60.0
#: How long it may take to end when it is to have other settings.
_REPLACE_SECONDS: Final = 30.0
_LONGEST_LINE_BYTES: Final = 4096

_LEVELS: Final = {
    b"DEBUG": LogLevel.debug,
    b"INFO": LogLevel.info,
    b"WARNING": LogLevel.warn,
    b"ERROR": LogLevel.error,
    b"CRITICAL": LogLevel.critical,
}


class SidecarProcess:
    """One such program. Its methods may be called in any thread.

    Args:
        name: for the log.
        command: the program and its arguments. Its lines may begin with the names of levels, as
            Python's `logging` has them.
        first_pause_seconds: before it is started again for the first time.
    """

    _log = ModuleLogger()

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        first_pause_seconds: float = _FIRST_PAUSE_SECONDS,
    ) -> None:
        self._name = name
        self._command = list(command)
        self._first_pause = first_pause_seconds
        self._news = threading.Condition()
        self._settings: bytes | None = None
        self._is_stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._killer: threading.Timer | None = None

    @property
    def pid(self) -> int | None:
        """Of the process that runs now; None while there is none."""
        process = self._process
        return None if process is None else process.pid

    def use(self, settings: bytes | None) -> None:
        """Run it with these settings, a line without its end; None: don't run it."""
        with self._news:
            if self._is_stopping or settings == self._settings:
                return
            self._settings = settings
            if self._process is not None:
                self._end()
                self._killer = threading.Timer(_REPLACE_SECONDS, _kill, [self._process])
                self._killer.daemon = True
                self._killer.start()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"hermes-{self._name}")
                self._thread.daemon = True  # a program that can't be killed must not keep us
                self._thread.start()
            self._news.notify_all()

    def stop(self, patience_seconds: float) -> None:
        """End it, or kill it after `patience_seconds`; blocks. Idempotent."""
        with self._news:
            self._is_stopping = True
            self._end()
            self._news.notify_all()
            thread = self._thread
        if thread is None:
            return
        thread.join(patience_seconds)
        process = self._process
        if thread.is_alive() and process is not None:
            self._log.warn("the {name} does not end and is killed", name=self._name)
            _kill(process)
            thread.join(patience_seconds)

    def _end(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            with suppress(OSError):
                self._process.stdin.close()

    # -- its thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        pauses = 0
        while (settings := self._wait_for_settings()) is not None:
            began = time.monotonic()
            how = self._run_once(settings)
            pauses = 0 if time.monotonic() - began >= _FINE_SECONDS else pauses
            with self._news:
                if self._is_outdated(settings):
                    pauses = 0
                    continue
                pause = growing_pause(self._first_pause, pauses, _LONGEST_PAUSE_SECONDS)
                self._log.error(
                    "the {name} has ended, {how}; it starts again in {seconds} s",
                    name=self._name,
                    how=how,
                    seconds=f"{pause:g}",
                )
                self._news.wait_for(partial(self._is_outdated, settings), pause)
                pauses += 1

    def _is_outdated(self, settings: bytes) -> bool:
        return self._is_stopping or self._settings != settings

    def _wait_for_settings(self) -> bytes | None:
        """What it runs with; None when it is over."""
        with self._news:
            self._news.wait_for(lambda: self._is_stopping or self._settings is not None)
            return None if self._is_stopping else self._settings

    def _run_once(self, settings: bytes) -> str:
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C is the broker's, which ends it in good order
            )
        except OSError as error:
            return f"it can't be started: {error}"
        assert process.stdin is not None
        assert process.stdout is not None
        self._log.info("the {name} runs as process {pid}", name=self._name, pid=process.pid)
        with process.stdout:
            with suppress(OSError):  # it has ended already
                process.stdin.write(settings + b"\n")
                process.stdin.flush()
            with self._news:
                self._process = process
                if self._is_outdated(settings):
                    self._end()
            self._log_lines(process.stdout)
        status = process.wait()
        with self._news:
            self._end()
            self._process = None
            if self._killer is not None:
                self._killer.cancel()
                self._killer = None
        return f"by signal {-status}" if status < 0 else f"with status {status}"

    def _log_lines(self, output: IO[bytes]) -> None:
        while line := output.readline(_LONGEST_LINE_BYTES):
            first, _, rest = line.rstrip(b"\n").partition(b" ")
            level: Any = _LEVELS.get(first)
            text = (rest if level else line).decode(errors="replace").strip()
            self._log.emit(level or LogLevel.info, "{name}: {text}", name=self._name, text=text)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):
        process.kill()
