"""`twistd hermes`: the composition root, where a configuration becomes a running broker.

The only module that imports the global reactor. `Options.postOptions` validates the configuration
before Twisted starts anything, so that a wrong key is one line on stderr and exit status 1, and
neither a usage text nor a traceback.
"""

import sys
from typing import Any, NoReturn

from twisted.application.service import IService
from twisted.logger import ILogObserver, jsonFileLogObserver
from twisted.python import usage

from hermes.broker import BrokerService
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
    """Make the observer for `log_format: json`: an event a line on standard output."""
    return jsonFileLogObserver(sys.stdout, recordSeparator="")


def makeService(options: Options) -> IService:
    """Build the broker's service.

    Args:
        options: parsed, with `broker_config` set.
    """
    from twisted.internet import reactor  # the one place; everything else is handed it

    try:
        return _ExitingService(options.broker_config, reactor, ready_file=options["ready-file"])
    except HermesError as error:
        _exit(str(error))


class _ExitingService(BrokerService):
    """A broker whose failed start ends the process with one line and status 1."""

    def startService(self) -> None:
        """Start, or end the process with a reason that a person can use."""
        try:
            super().startService()
        except (HermesError, OSError) as error:
            _exit(str(error))


def _exit(message: str) -> NoReturn:
    sys.stderr.write(f"hermes: {message}\n")
    raise SystemExit(1)
