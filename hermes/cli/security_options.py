"""The options, environment variables and prompt for a `ClientSecurity`.

Every command that talks to a broker, to ZooKeeper or to a registry has these options, and gets one
value for all of them. No option takes a password: a command line is public while it runs, and
stays in the shell's history.
"""

import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

import click
from click.core import ParameterSource

from hermes.cli.options import TIMEOUT_OPTION, CommandConnection
from hermes.errors import ConfigError, NotAuthenticatedError
from hermes.protocol import BrokerMetadata
from hermes.security import ClientSecurity
from hermes.security.password_files import read_password_file

_PASSWORD: Final = "HERMES_PASSWORD"
_PASSWORD_FILE: Final = "HERMES_PASSWORD_FILE"
_USER: Final = "HERMES_USER"

#: What `--no-tls` turns off; on the command line they contradict it.
_OF_TLS: Final = ("tls_ca", "tls_certificate", "tls_key")


def _file_option(name: str, envvar: str, help_text: str) -> Callable[..., Any]:
    return click.option(
        name,
        type=click.Path(exists=True, dir_okay=False),
        envvar=envvar,
        show_envvar=True,
        metavar="FILE",
        help=help_text,
    )


_TLS_OPTIONS: Final = (
    click.option(
        "--tls/--no-tls",
        "tls",
        default=None,
        envvar="HERMES_TLS",
        show_envvar=True,
        help="Use TLS; by default, if one of the next three is given.",
    ),
    _file_option(
        "--tls-ca",
        "HERMES_TLS_CA",
        "Certificates (PEM) of those who may have signed the other side's; the system's unless "
        "given.",
    ),
    _file_option("--tls-certificate", "HERMES_TLS_CERTIFICATE", "The client certificate (PEM)."),
    _file_option("--tls-key", "HERMES_TLS_KEY", "Its key (PEM)."),
)
_USER_OPTION: Final = click.option(
    "--user",
    envvar=_USER,
    show_envvar=True,
    metavar="NAME",
    help="The user to authenticate as. The password comes from a file, "
    f"from {_PASSWORD}, or is asked for.",
)


def security_options(
    command: Callable[..., Any] | None = None, *, password_option: str = "--password-file"
) -> Callable[..., Any]:
    """Add the options; the command gets a `ClientSecurity` as `security`.

    `password_option`: the option for the file with the password, where that name is taken.
    """
    if command is None:
        return lambda decorated: security_options(decorated, password_option=password_option)

    @wraps(command)
    def secured(*args: Any, **options: Any) -> Any:
        given = {
            name: options.pop(name) for name in ("tls", *_OF_TLS, "user", "client_password_file")
        }
        return command(*args, security=_security(password_option, **given), **options)

    password_file = click.option(
        password_option,
        "client_password_file",
        type=click.Path(dir_okay=False),
        envvar=_PASSWORD_FILE,
        show_envvar=True,
        metavar="FILE",
        help="A file with the user's password.",
    )
    decorated = secured
    for option in (password_file, _USER_OPTION, *reversed(_TLS_OPTIONS)):
        decorated = option(decorated)
    return decorated


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options, and --timeout; the command gets a `CommandConnection` as `connection`."""

    @wraps(command)
    def connecting(
        *args: Any, security: ClientSecurity, timeout_seconds: float, **more: Any
    ) -> Any:
        return command(*args, connection=CommandConnection(security, timeout_seconds), **more)

    return security_options(TIMEOUT_OPTION(connecting))


def _security(
    password_option: str,
    *,
    tls: bool | None,
    user: str | None,
    client_password_file: str | None,
    **files: str | None,
) -> ClientSecurity:
    if tls is False:
        _check_without_tls(files)
        files = {}
    password = None
    if user is not None:
        password = _password(user, client_password_file, password_option)
    elif client_password_file is not None and _is_given("client_password_file"):
        raise click.UsageError(f"{password_option} needs --user")
    try:
        return ClientSecurity(tls=tls, user=user, password=password, **files).check()
    except ConfigError as error:
        option = f"--{error.key.replace('_', '-')}"
        raise click.UsageError(f"{option}: {error.message}") from None


def _check_without_tls(files: Mapping[str, str | None]) -> None:
    """Refuse options that contradict --no-tls; the environment's values don't count."""
    for name, value in files.items():
        if value is not None and _is_given(name):
            raise click.UsageError(f"--no-tls and --{name.replace('_', '-')} exclude each other")


def _password(user: str, path: str | None, option: str) -> str | None:
    """The password of a user: from the option, the environment, or a prompt."""
    is_of_environment = not _is_given("user") or os.environ.get(_USER) in (None, "", user)
    if path is not None and (is_of_environment or _is_given("client_password_file")):
        try:
            return read_password_file(path, option)
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
    if is_of_environment and os.environ.get(_PASSWORD):
        return os.environ[_PASSWORD]
    if not has_terminal():
        raise click.UsageError(
            f"there is no password of user {user!r}: give {option}, {_PASSWORD_FILE} or {_PASSWORD}"
        )
    password: str = click.prompt(f"Password of {user}", hide_input=True, err=True)
    return password


def _is_given(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def spark_options(security: ClientSecurity) -> dict[str, str]:
    """The same as options of Spark's data source.

    Its tasks run in other processes, maybe on other machines: a password from a file is passed as
    the file's name, which they read themselves.
    """
    settings = security.settings()
    names = {"tls_ca": "tlsCa", "tls_certificate": "tlsCertificate", "tls_key": "tlsKey"}
    options = {
        option: os.path.abspath(settings[name])
        for name, option in names.items()
        if name in settings
    }
    if security.tls is not None:
        options["tls"] = str(security.tls).lower()
    if security.user is not None and security.password is not None:
        options["user"] = security.user
        path = click.get_current_context().params.get("client_password_file")
        if path is not None and _holds(path, security.password):
            options["passwordFile"] = os.path.abspath(path)
        else:
            options["password"] = security.password
    return options


def _holds(path: str, password: str) -> bool:
    """Whether a file has the password, and can be read again: a pipe can't."""
    try:
        return os.path.isfile(path) and read_password_file(path) == password
    except ConfigError:
        return False


def require_known(answer: BrokerMetadata, address: object) -> BrokerMetadata:
    """Check that a broker's answer isn't the reduced one for unauthenticated clients.

    A broker that requires authentication tells others only which requests it knows; that is a
    NotAuthenticatedError here.
    """
    if not answer.version:
        raise NotAuthenticatedError(f"{address} wants to know who asks")
    return answer


def has_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
