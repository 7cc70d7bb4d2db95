"""`hermes users`: who may come to a broker with a password.

In the file that `users_file` names, or through a broker: then of its cluster, for all brokers.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from hermes.cli.options import (
    JSON_OPTION,
    TIMEOUT_OPTION,
    BrokerOption,
    kafka_option,
)
from hermes.cli.security_options import security_options
from hermes.cli.terminal import ask_password, write_json, write_line, write_table
from hermes.client.kafka_asking import KafkaAsker
from hermes.client.kafka_users import KafkaUser, KafkaUsers
from hermes.errors import ClientError, ConfigError
from hermes.quoting import quoted
from hermes.security import ClientSecurity
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


#: The most iterations that Kafka takes in a request.
_MOST_ASKED: Final = 16_384


def _somewhere(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --file and --kafka; the command gets a `path`, or the `users` of a broker, or both."""

    @wraps(command)
    def chosen(
        *args: Any,
        kafka: BrokerOption | None,
        path: Path | None,
        security: ClientSecurity,
        timeout_seconds: float,
        **options: Any,
    ) -> Any:
        users = None
        if kafka is not None:
            asker = KafkaAsker(kafka.host, kafka.port, timeout_seconds, security)
            users = KafkaUsers(asker)
            click.get_current_context().call_on_close(users.close)
        elif path is None:
            raise click.UsageError("give --file, or --kafka HOST:PORT for users of a cluster")
        return command(*args, path=path, users=users, **options)

    option = kafka_option(
        "The kafka_listen of a broker: its cluster's users, instead of those of a file."
    )
    secured = security_options(TIMEOUT_OPTION(chosen), password_option="--own-password-file")
    return _FILE_OPTION(option(secured))


@click.group("users", short_help="Add, list and remove users, and set their passwords.")
def command() -> None:
    """Change the file of users that broker.yaml's users_file names, or a cluster's users.

    Brokers notice a change within two seconds. They disconnect users who were removed, or
    whose password has changed. The file holds no passwords; still, keep it to its owner.

    With --kafka a broker is asked: users are made in coordination then, for all brokers of its
    cluster, or in its own file where it has no such cluster. Its own users have --user.
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
@_somewhere
def add(
    name: str,
    groups: tuple[str, ...],
    no_password: bool,
    password_file: Path | None,
    iterations: int,
    path: Path | None,
    users: KafkaUsers | None,
) -> None:
    """Add a user, and make the file if there is none."""
    if no_password and password_file is not None:
        raise click.UsageError("--no-password and --password-file exclude each other")
    if users is not None:
        if no_password or groups:
            raise click.UsageError("a cluster's users have passwords, and no groups: see --file")
        if any(each.name == name for each in users.all()):
            raise ClientError(f"there is a user {quoted(name)} already")
        users.set_password(name, _password(password_file), min(iterations, _MOST_ASKED))
        write_line(f"added {name}")
        return
    assert path is not None
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
@_somewhere
def passwd(
    name: str,
    password_file: Path | None,
    iterations: int,
    path: Path | None,
    users: KafkaUsers | None,
) -> None:
    """Set a user's password. Who is connected with the old one is disconnected."""
    if users is not None:
        _of(users, name)
        users.set_password(name, _password(password_file), min(iterations, _MOST_ASKED))
        write_line(f"changed {name}")
        return
    assert path is not None
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
def set_groups(name: str, groups: tuple[str, ...], path: Path | None) -> None:
    """Set the groups of a user, for access rules such as `principal: group:analysts`.

    They hold for those who are connected, too. Without any, the user has none. Users of a cluster
    have no groups.
    """
    if path is None:
        raise click.UsageError("give --file: users of a cluster have no groups")
    change_users_file(path, lambda users: users.with_groups(name, groups))
    write_line(f"changed {name}")


@command.command("remove", short_help="Remove a user.")
@_NAME_ARGUMENT
@_somewhere
def remove(name: str, path: Path | None, users: KafkaUsers | None) -> None:
    """Remove a user. Who is connected is disconnected."""
    if users is not None:
        users.remove(_of(users, name))
        write_line(f"removed {name}")
        return
    assert path is not None
    change_users_file(path, lambda users: users.without(name))
    write_line(f"removed {name}")


@command.command("list", short_help="List the users.")
@JSON_OPTION
@_somewhere
def list_users(as_json: bool, path: Path | None, users: KafkaUsers | None) -> None:
    """List users with their groups, and by which mechanisms they can say who they are.

    With --kafka those that a broker knows; with its users file as well, which of them come from
    there. The others are the cluster's.
    """
    rows = {} if path is None else _rows_of(path)
    names = ["name", "groups", "mechanisms", "iterations"]
    if users is not None:
        names.append("from")
        of_file = {name: (*row, "file") for name, row in rows.items()}
        where = None if path is None else "cluster"
        rows = {
            each.name: ([], list(each.iterations), min(each.iterations.values()), where)
            for each in users.all()
        } | of_file
    for name, row in rows.items() if as_json else ():
        write_json(dict(zip(names, (name, *row), strict=True)))
    if not as_json:
        shown = [
            [name, *(",".join(each) or None if isinstance(each, list) else each for each in row)]
            for name, row in rows.items()
        ]
        write_table([each.upper() for each in names], shown)


def _rows_of(path: Path) -> dict[str, tuple[Any, ...]]:
    users, _ = read_users(path)
    return {
        user.name: (
            sorted(user.groups),
            [each.mechanism for each in user.verifiers],
            min((each.iterations for each in user.verifiers), default=None),
        )
        for user in users.by_name.values()
    }


def _of(users: KafkaUsers, name: str) -> KafkaUser:
    for each in users.all():
        if each.name == name:
            return each
    raise ClientError(f"there is no user {quoted(name)}")


def _look(path: Path, change: Callable[[Any], Any], *, may_create: bool = False) -> None:
    """Refuse what is impossible before anybody is asked for a password."""
    is_new = may_create and not path.exists()
    if is_new and not path.absolute().parent.is_dir():
        raise ConfigError("--file", f"there is no directory {path.parent}")
    change(Users.none() if is_new else read_users(path)[0])


def _password(path: Path | None) -> str:
    password = ask_password() if path is None else read_password_file(path)
    check_password(password)
    return password
