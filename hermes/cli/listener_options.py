"""The listeners of commands that serve: as in broker.yaml, and as safe."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from hermes.cli.terminal import note
from hermes.config.access import ACCESS_RULES
from hermes.config.exposure import check_listeners, warnings_of
from hermes.config.files import read_regular_file
from hermes.config.listeners import LISTENER, ListenerConfig
from hermes.config.yaml_text import read_yaml
from hermes.errors import ConfigError
from hermes.listening import Address
from hermes.security import AccessRule

_MOST_RULES_BYTES: Final = 1 << 20


class _ListenerType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """An endpoint string, or a mapping as in broker.yaml, in braces."""

    name = "endpoint"

    def convert(self, value: Any, param: Any, ctx: Any) -> ListenerConfig:
        if isinstance(value, ListenerConfig):
            return value
        try:
            given = read_yaml(value.encode(), "") if value.startswith("{") else value
            parsed: ListenerConfig = LISTENER.parse(given)
        except (ConfigError, ValueError) as error:
            self.fail(" ".join(str(error).split()), param, ctx)
        return parsed.relative_to(Path.cwd())


LISTENER_TYPE: Final = _ListenerType()

ALLOW_INSECURE_OPTION: Final = click.option(
    "--allow-insecure",
    is_flag=True,
    help="Let other machines reach the port although it lacks TLS or authentication.",
)


USERS_FILE_OPTION: Final = click.option(
    "--users-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The users of ports with authentication: scram, as `hermes users` writes them.",
)

RULES_OPTION: Final = click.option(
    "--rules",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="What those who are served may do: a YAML file with `access`, such as a broker.yaml. "
    "Unless given, everything.",
)


def read_rules(path: Path | None) -> tuple[AccessRule, ...] | None:
    """Read the `access` of a YAML file; None without a file. Raises ConfigError."""
    if path is None:
        return None
    try:
        values = read_yaml(read_regular_file(path, _MOST_RULES_BYTES), str(path))
    except OSError as error:
        raise ConfigError("--rules", f"{path} can't be read: {error.strerror}") from None
    if not isinstance(values, Mapping) or "access" not in values:
        raise ConfigError("--rules", f"{path} has no access: a list of rules")
    try:
        found: tuple[AccessRule, ...] = ACCESS_RULES.parse(values["access"])
    except ValueError as error:
        raise ConfigError("access", str(error), source=str(path)) from None
    return found


def url_shown(address: Address, listener: ListenerConfig) -> str:
    if isinstance(address, str):
        return address
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{'http' if listener.tls is None else 'https'}://{host}:{address[1]}"


def check_served(
    setting: str,
    listeners: Iterable[ListenerConfig],
    *,
    allow_insecure: bool,
    users_file: Path | None = None,
) -> None:
    """Refuse listeners that may not be opened (ConfigError); warn of dangerous ones on stderr."""
    listeners = [
        replace(each, name=str(place)) if each.name.isdigit() else each
        for place, each in enumerate(listeners)
    ]
    try:
        check_listeners(
            setting, listeners, allow_insecure=allow_insecure, knows_users=users_file is not None
        )
    except ConfigError as error:
        text = error.message.replace("allow_insecure: true", "--allow-insecure")
        text = text.replace("users_file", "--users-file")
        raise ConfigError(setting, text) from None
    for text in warnings_of(setting, listeners):
        note("NOT SECURED: " + text.replace("allow_insecure: true", "--allow-insecure"))
