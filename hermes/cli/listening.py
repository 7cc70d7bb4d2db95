"""Where commands that serve listen: as broker.yaml has it, and as safe."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from hermes.cli.terminal import note
from hermes.config import ListenerConfig
from hermes.config.exposure import check_listeners, warnings_of
from hermes.config.listeners import LISTENER
from hermes.config.yaml_text import read_yaml
from hermes.errors import ConfigError


class _ListenerType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """An endpoint string, or a mapping as broker.yaml has it, in braces."""

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
    help="The users of a listener with authentication: scram, as `hermes users` writes them.",
)


def check_served(
    setting: str,
    listeners: Iterable[ListenerConfig],
    *,
    allow_insecure: bool,
    users_file: Path | None = None,
) -> None:
    """Refuse what may not be opened; warn of what is dangerous, on stderr.

    Args:
        setting: the option that they come from.
        listeners: what it says.
        allow_insecure: whether they may be dangerous.
        users_file: the users, where there are any.

    Raises:
        ConfigError: one of them may not be opened.
    """
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
