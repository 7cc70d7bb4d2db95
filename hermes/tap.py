"""`twistd hermes`: the composition root, where a configuration becomes a running broker.

The only module that imports the global reactor. `Options.postOptions` validates the configuration
before Twisted starts anything, so that a wrong key is one line on stderr and exit status 1, and
neither a usage text nor a traceback.
"""

import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, cast

from twisted.application.service import IService
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import ILogObserver, LogLevel
from twisted.python import usage
from twisted.python.logfile import LogFile

from hermes import logs
from hermes.broker import BrokerService
from hermes.broker.clocks import use_monotonic_clock
from hermes.config import BrokerConfig, load_broker_config
from hermes.errors import HermesError

__all__ = ["Options", "log_observer", "makeService"]

#: A full collection of garbage that takes longer is one of what is there to stay.
_LONG_COLLECTION_SECONDS = 0.01


class Options(usage.Options):
    """The options of `twistd hermes`."""

    synopsis = "[--config broker.yaml] [--ready-file FILE]"
    longdesc = "Runs a Hermes broker. docs/configuration.md lists what broker.yaml may say."
    optParameters = [  # noqa: RUF012 - Twisted's way of declaring options
        ["config", "c", None, "The broker's configuration (YAML)."],
        [
            "ready-file",
            None,
            None,
            "Written (JSON: addresses, pid) when all ports are open; removed at a clean stop.",
        ],
    ]
    broker_config: BrokerConfig

    def postOptions(self) -> None:
        """Load and validate the configuration."""
        if self["config"] is None:
            _exit("which configuration? use: twistd hermes --config broker.yaml")
        try:
            self.broker_config = load_broker_config(self["config"])
        except HermesError as error:
            _exit(str(error))
        parent: Any = self.parent
        if parent is not None:
            _twistd["pidfile"] = parent.get("pidfile")
        if parent is not None and not parent.get("logger") and not parent.get("syslog"):
            _twistd.update(
                logfile=parent.get("logfile"),
                nodaemon=parent.get("nodaemon"),
                log_level=self.broker_config.log_level,
                log_format=self.broker_config.log_format,
            )
            parent["logger"] = "hermes.tap.log_observer"  # twistd wants a name


# What twistd was told; it calls `log_observer` by its name, without any argument.
_twistd: dict[str, Any] = {}


def log_observer() -> ILogObserver:
    """Make the process's log observer, as broker.yaml and twistd's own options want it.

    The file is the one that twistd itself would take, and SIGUSR1 renames it and begins a new one;
    on standard output there is nothing to rotate, and the signal changes nothing.
    """
    path, is_daemon = _twistd["logfile"], not _twistd["nodaemon"]
    file: Any = sys.stdout
    if path == "-" and is_daemon:
        _exit("a daemon can't log to standard output: leave --logfile out, or give -n")
    if path == "-" or not (path or is_daemon):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    else:
        file = LogFile.fromFullPath(path or "twistd.log")  # type: ignore[no-untyped-call]
        signal.signal(signal.SIGUSR1, lambda *_: _in_reactor(file.rotate))
    level, as_json = _twistd["log_level"], _twistd["log_format"] == "json"
    return logs.log_observer(file, level, as_json=as_json)


def _in_reactor(function: Callable[[], object]) -> None:
    from twisted.internet import reactor

    cast(IReactorFromThreads, reactor).callFromThread(function)


def makeService(options: Options) -> IService:
    """Build the broker's service.

    Args:
        options: parsed, with `broker_config` set.
    """
    from twisted.internet import reactor  # the one place; everything else is handed it

    use_monotonic_clock(reactor)
    try:
        return _ExitingService(
            options.broker_config,
            reactor,
            pid_file=_twistd.get("pidfile"),
            ready_file=options["ready-file"],
        )
    except HermesError as error:
        _exit(str(error))


class _ExitingService(BrokerService):
    """A broker whose failed start ends the process with one line and status 1."""

    def __init__(
        self, config: BrokerConfig, reactor: Any, pid_file: str | None, **options: Any
    ) -> None:
        def end(reason: str) -> None:
            sys.stderr.write(f"hermes: {reason}\n")
            sys.stderr.flush()
            reactor.addSystemEventTrigger("after", "shutdown", self._remove_pid_file)
            reactor.addSystemEventTrigger("after", "shutdown", os._exit, 1)
            reactor.stop()

        super().__init__(config, reactor, on_fatal=end, **options)
        self._pid_file = pid_file

    def startService(self) -> None:
        """Start, or end the process with a reason that a person can use."""
        level = logging.DEBUG if self.config.log_level == "debug" else logging.INFO
        logging.getLogger("hermes").addHandler(_ToTwisted(level))
        logging.getLogger("hermes").setLevel(level)
        try:
            super().startService()
            _collect_briefly()
        except (HermesError, OSError) as error:
            self._remove_pid_file()
            _exit(str(error))

    def _remove_pid_file(self) -> None:
        """Do what twistd leaves undone when the process ends by itself."""
        if self._pid_file:
            with suppress(OSError):
                os.unlink(self._pid_file)

    def stopService(self) -> Any:
        """Stop; a further signal means that clients are not waited for any longer."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: _in_reactor(self.hurry))
        return super().stopService()


def _collect_briefly() -> None:
    """Have full collections of garbage take a few milliseconds, however much there is for good.

    They look through all that there is, every log among it, and stop everything meanwhile. What is
    there now isn't looked through again, nor is what has made one take long: that is logs which
    were created since. Little is garbage later that only a collection would find: nothing that a
    request or a connection leaves behind refers to itself.
    """
    began = 0.0

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.thread_time()
        elif info["generation"] == 2 and time.thread_time() - began > _LONG_COLLECTION_SECONDS:
            gc.freeze()

    gc.callbacks.append(collected)
    gc.freeze()


class _ToTwisted(logging.Handler):
    """Gives Twisted's log what the parts that know no Twisted have to say."""

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        level = LogLevel.levelWithName(record.levelname.lower().replace("warning", "warn"))
        logs.ModuleLogger(namespace=record.name).emit(
            level, "{message}", message=record.getMessage()
        )


def _exit(message: str) -> NoReturn:
    sys.stderr.write(f"hermes: {message}\n")
    raise SystemExit(1)
