"""What `twistd hermes` loads first: its options, and what must precede Twisted's imports.

`Options.postOptions` validates the configuration before Twisted starts anything, so that a wrong
key causes one line on stderr and exit status 1, instead of a usage text or a traceback.

Twisted imports OpenSSL together with its TCP wherever it is installed: a tenth of a second, and
12 MB. A broker without TLS has no use for it, so here Twisted finds none. That is for a process of
twistd's own: whatever else imports `hermes.tap` may need TLS for purposes of its own.
"""

import gc
import os
import sys
from functools import partial
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from hermes.config.broker import BrokerConfig
from hermes.config.loading import load_broker_config
from hermes.errors import HermesError
from hermes.extras import outdated_requirements

__all__ = ["Options", "makeService"]


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
            "Written (JSON: addresses, pid) when all ports are open; removed by a clean stop.",
        ],
    ]
    broker_config: BrokerConfig

    def postOptions(self) -> None:
        """Load and validate the configuration."""
        parent: Any = self.parent
        if parent is not None:
            gc.disable()  # until it has started: little of what is loaded now is ever garbage
        if self["config"] is None:
            sys.exit("hermes: no configuration given; use: twistd hermes --config broker.yaml")
        for text in outdated_requirements():
            sys.exit(f"hermes: {text}")
        try:
            self.broker_config = read_config(self["config"])
        except HermesError as error:
            sys.exit(f"hermes: {error}")
        if not _may_use_tls(self.broker_config):
            _leave_openssl_out()
        from hermes import tap

        self["config"] = os.path.abspath(self["config"])  # a daemon goes elsewhere
        if parent is not None:
            tap.twistd_options["pidfile"] = parent.get("pidfile")
        if parent is not None and not parent.get("logger") and not parent.get("syslog"):
            tap.twistd_options.update(
                logfile=parent.get("logfile"),
                nodaemon=parent.get("nodaemon"),
                config=self.broker_config,
            )
            parent["logger"] = "hermes.tap.log_observer"  # twistd wants a name


def makeService(options: Options) -> IService:
    """Build the broker's service from parsed options."""
    from hermes import tap

    read = partial(read_config, options["config"])
    return tap.make_service(options.broker_config, read, options["ready-file"])


def read_config(path: str) -> BrokerConfig:
    """Read broker.yaml; the mirror in it is checked as its own process would.

    Raises:
        ConfigError: something is wrong.
    """
    config = load_broker_config(path)
    if config.mirror is not None:
        from hermes.mirror.embedding import check_embedded_mirror  # few brokers have one

        check_embedded_mirror(config, path)
    return config


def _may_use_tls(config: BrokerConfig) -> bool:
    """Whether anything in this process may need Twisted's TLS; plugins are free to."""
    listeners = [*config.listen, *(config.http_listen or ()), config.coordination_listen]
    has_plugins = (config.authenticator, config.authorizer) != ("users-file", "rules")
    return has_plugins or any(listener.tls is not None for listener in listeners)


def _leave_openssl_out() -> None:
    """Hide OpenSSL from Twisted's TCP, unless it is imported already."""
    if "OpenSSL" in sys.modules or "twisted.internet.tcp" in sys.modules:
        return
    missing: Any = None
    sys.modules["OpenSSL"] = missing
    try:
        import twisted.internet.endpoints
        import twisted.internet.posixbase
        import twisted.internet.tcp  # noqa: F401
    finally:
        del sys.modules["OpenSSL"]
