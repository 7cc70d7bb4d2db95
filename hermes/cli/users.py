"""`hermes users`: who may come to a broker with a password, in the file that `users_file` names."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from hermes.cli.options import JSON_OPTION
from hermes.cli.terminal import write_json, write_line, write_table
from hermes.errors import ConfigError
from hermes.security.password_files import read_password_file
from hermes.security.passwords import (
    DEFAULT_ITERATIONS,
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    check_password,
)
from hermes.security.users import Users
from hermes.security.users_file import change_users_file, read_users

_FILE_OPTION: Final = click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    envvar="HERMES_USERS_FILE",
    show_envvar=True,
    metavar="FILE",
    help="The users file.",
)

_NAME_ARGUMENT: Final = click.argument("name", metavar="NAME")

_ITERATIONS_OPTION: Final = click.option(
    "--iterations",
    type=click.IntRange(LEAST_ITERATIONS, MOST_ITERATIONS),
    default=DEFAULT_ITERATIONS,
    show_default=True,
    metavar="N",
    help="How often the password is hashed: more makes guessing with a stolen file slower, and "
    "every connection as well. Better the same for all users.",
)

_PASSWORD_FILE_OPTION: Final = click.option(
    "--password-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file that holds the password, one line; without it there is a prompt, or stdin.",
)


@click.group("users", short_help="Add, list and remove users, and set their passwords.")
def command() -> None:
    """Change the file of users that broker.yaml's users_file names.

    Brokers notice a change within two seconds. They disconnect users who were removed, or
    whose password has changed. The file holds no passwords; still, keep it to its owner.
    """


@command.command("add", short_help="Add a user.")
@_NAME_ARGUMENT
@click.option(
    "-g",
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="A group that it belongs to; again for more.",
)
@click.option(
    "--no-password",
    is_flag=True,
    help="The user authenticates with a certificate: it has groups and no password.",
)
@_PASSWORD_FILE_OPTION
@_ITERATIONS_OPTION
@_FILE_OPTION
def add(
    name: str,
    groups: tuple[str, ...],
    no_password: bool,
    password_file: Path | None,
    iterations: int,
    path: Path,
) -> None:
    """Add a user, and make the file if there is none."""
    if no_password and password_file is not None:
        raise click.UsageError("--no-password and --password-file exclude each other")
    _look(path, lambda users: users.with_user(name, None, groups), may_create=True)
    password = None if no_password else _password(password_file)
    change_users_file(
        path,
        lambda users: users.with_user(name, password, groups, iterations=iterations),
        may_create=True,
    )
    write_line(f"added {name}")


@command.command("passwd", short_help="Set a user's password.")
@_NAME_ARGUMENT
@_PASSWORD_FILE_OPTION
@_ITERATIONS_OPTION
@_FILE_OPTION
def passwd(name: str, password_file: Path | None, iterations: int, path: Path) -> None:
    """Set a user's password. Who is connected with the old one is disconnected."""
    _look(path, lambda users: users.with_groups(name, ()))
    password = _password(password_file)
    change_users_file(
        path, lambda users: users.with_password(name, password, iterations=iterations)
    )
    write_line(f"changed {name}")


@command.command("groups", short_help="Set a user's groups.")
@_NAME_ARGUMENT
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
@_FILE_OPTION
def set_groups(name: str, groups: tuple[str, ...], path: Path) -> None:
    """Set the groups of a user, for access rules such as `principal: group:analysts`.

    They hold for those who are connected, too. Without any, the user has none.
    """
    change_users_file(path, lambda users: users.with_groups(name, groups))
    write_line(f"changed {name}")


@command.command("remove", short_help="Remove a user.")
@_NAME_ARGUMENT
@_FILE_OPTION
def remove(name: str, path: Path) -> None:
    """Remove a user. Who is connected is disconnected."""
    change_users_file(path, lambda users: users.without(name))
    write_line(f"removed {name}")


@command.command("list", short_help="List the users.")
@JSON_OPTION
@_FILE_OPTION
def list_users(as_json: bool, path: Path) -> None:
    """List users with their groups, and by which mechanisms they can say who they are."""
    users, _ = read_users(path)
    rows: list[tuple[str, list[str], list[str], int | None]] = [
        (
            user.name,
            sorted(user.groups),
            [each.mechanism for each in user.verifiers],
            min((each.iterations for each in user.verifiers), default=None),
        )
        for user in users.by_name.values()
    ]
    names = ("name", "groups", "mechanisms", "iterations")
    if as_json:
        for row in rows:
            write_json(dict(zip(names, row, strict=True)))
        return
    shown = [
        (name, ",".join(groups) or None, ",".join(mechanisms) or None, iterations)
        for name, groups, mechanisms, iterations in rows
    ]
    write_table([each.upper() for each in names], shown)


def _look(path: Path, change: Callable[[Any], Any], *, may_create: bool = False) -> None:
    """Refuse what is impossible before anybody is asked for a password."""
    is_new = may_create and not path.exists()
    if is_new and not path.absolute().parent.is_dir():
        raise ConfigError("--file", f"there is no directory {path.parent}")
    change(Users.none() if is_new else read_users(path)[0])


def _password(path: Path | None) -> str:
    if path is not None:
        password = read_password_file(path)
    elif sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    check_password(password)
    return password
