"""`twistd hermes`: the composition root, where a configuration becomes a running broker.

The only module that imports the global reactor. `Options.postOptions` validates the configuration
before Twisted starts anything, so that a wrong key is one line on stderr and exit status 1, and
neither a usage text nor a traceback.
"""

import json
import logging
import os
import signal
import sys
from datetime import UTC, datetime
from typing import Any, NoReturn

from twisted.application.service import IService
from twisted.logger import (
    FileLogObserver,
    ILogObserver,
    LogEvent,
    Logger,
    LogLevel,
    formatEvent,
)
from twisted.python import usage

from hermes.broker import BrokerService
from hermes.broker.clocks import use_monotonic_clock
from hermes.config import BrokerConfig, load_broker_config
from hermes.errors import HermesError

__all__ = ["Options", "json_log_observer", "makeService"]


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
        if (
            self.broker_config.log_format == "json"
            and parent is not None
            and not parent.get("logger")
        ):
            parent["logger"] = "hermes.tap.json_log_observer"  # twistd wants a name


def json_log_observer() -> ILogObserver:
    """Make the observer for `log_format: json`: one object a line on standard output.

    Each has `time` (ISO 8601, UTC), `level`, `logger`, `message` (as the text format would show
    it), `traceback` where there is one, and the fields that the message was made from.
    """
    return FileLogObserver(sys.stdout, _json_line)


def _json_line(event: LogEvent) -> str:
    line: dict[str, Any] = {
        "time": datetime.fromtimestamp(event["log_time"], UTC).isoformat(timespec="milliseconds"),
        "level": event["log_level"].name,
        "logger": event["log_namespace"],
        "message": formatEvent(event),
    }
    if "log_failure" in event:
        line["traceback"] = event["log_failure"].getTraceback()
    legacy = ("system", "message", "time", "isError")
    for name, value in event.items():
        if not name.startswith("log_") and name not in legacy:
            line[name] = value
    return json.dumps(line, default=str) + "\n"


def makeService(options: Options) -> IService:
    """Build the broker's service.

    Args:
        options: parsed, with `broker_config` set.
    """
    from twisted.internet import reactor  # the one place; everything else is handed it

    use_monotonic_clock(reactor)
    try:
        return _ExitingService(options.broker_config, reactor, ready_file=options["ready-file"])
    except HermesError as error:
        _exit(str(error))


class _ExitingService(BrokerService):
    """A broker whose failed start ends the process with one line and status 1."""

    def __init__(self, config: BrokerConfig, reactor: Any, **options: Any) -> None:
        def end(reason: str) -> None:
            sys.stderr.write(f"hermes: {reason}\n")
            sys.stderr.flush()
            reactor.addSystemEventTrigger("after", "shutdown", os._exit, 1)
            reactor.stop()

        super().__init__(config, reactor, on_fatal=end, **options)

    def startService(self) -> None:
        """Start, or end the process with a reason that a person can use."""
        logging.getLogger("hermes").addHandler(_ToTwisted(logging.INFO))
        logging.getLogger("hermes").setLevel(logging.INFO)
        try:
            super().startService()
        except (HermesError, OSError) as error:
            _exit(str(error))

    def stopService(self) -> Any:
        """Stop; further signals change nothing, since `stop_timeout` bounds what is awaited."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        return super().stopService()


class _ToTwisted(logging.Handler):
    """Gives Twisted's log what the parts that know no Twisted have to say."""

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        level = LogLevel.levelWithName(record.levelname.lower().replace("warning", "warn"))
        Logger(namespace=record.name).emit(level, "{message}", message=record.getMessage())


def _exit(message: str) -> NoReturn:
    sys.stderr.write(f"hermes: {message}\n")
    raise SystemExit(1)
