"""The options of commands that serve a web site, and the server that they describe."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click

from hermes.cli.listener_options import (
    ALLOW_INSECURE_OPTION,
    LISTENER_TYPE,
    RULES_OPTION,
    USERS_FILE_OPTION,
    check_served,
    read_rules,
)
from hermes.cli.options import Decorator
from hermes.config.listeners import ListenerConfig
from hermes.web import WebServer, users_guard


class SiteOptions(NamedTuple):
    listen: ListenerConfig
    allow_insecure: bool
    users_file: Path | None
    rules: Path | None
    hosts: tuple[str, ...]

    def check(self) -> None:
        check_served(
            "--listen",
            [self.listen],
            allow_insecure=self.allow_insecure,
            users_file=self.users_file,
        )

    def server(self, reactor: Any) -> WebServer:
        """Make the server, without ports. Raises ConfigError if users or rules can't be used."""
        guard, stop_guard = users_guard(reactor, self.users_file, read_rules(self.rules))
        server = WebServer(reactor, self.hosts, guard)
        server.on_stop.append(stop_guard)
        return server


def site_options(default: str, *, listen_note: str = "", host_note: str = "") -> Decorator:
    """Add the options; the command gets its `SiteOptions` as `site`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_site(*args: Any, **options: Any) -> Any:
            site = SiteOptions(**{name: options.pop(name) for name in SiteOptions._fields})
            return command(*args, site=site, **options)

        decorated: Callable[..., Any] = with_site
        for option in (
            click.option(
                "--host",
                "hosts",
                multiple=True,
                metavar="NAME",
                help="A name by which browsers may reach it, beside those of the loopback "
                f"interface; several times for several.{host_note}",
            ),
            RULES_OPTION,
            USERS_FILE_OPTION,
            ALLOW_INSECURE_OPTION,
            click.option(
                "-l",
                "--listen",
                default=default,
                show_default=True,
                type=LISTENER_TYPE,
                metavar="ENDPOINT",
                help="Where to listen: an endpoint string, or a mapping as broker.yaml has it, in "
                f"braces.{listen_note}",
            ),
        ):
            decorated = option(decorated)
        return decorated

    return decorate
