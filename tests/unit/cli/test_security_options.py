"""How a command comes to know who it is: options, the environment, a prompt."""

from pathlib import Path

import click
import pytest
from certificates import Certificates
from click.testing import CliRunner

from hermes.cli import program
from hermes.cli.security_options import security_options
from hermes.security import PLAIN, ClientSecurity

NAMES = ("TLS", "TLS_CA", "TLS_CERTIFICATE", "TLS_KEY", "USER", "PASSWORD_FILE", "PASSWORD")


class Given:
    """Runs a command that has nothing but these options, and keeps what it got."""

    def __init__(self) -> None:
        self.security: ClientSecurity | None = None

    def __call__(
        self, *arguments: object, stdin: str = "", **environment: object
    ) -> click.testing.Result:
        @click.command()
        @security_options
        def command(security: ClientSecurity) -> None:
            self.security = security

        unset = {f"HERMES_{name}": None for name in NAMES}
        given = {f"HERMES_{name}": str(value) for name, value in environment.items()}
        self.security = None
        return CliRunner().invoke(command, list(map(str, arguments)), stdin, env={**unset, **given})


@pytest.fixture
def given() -> Given:
    return Given()


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "a password"
    path.write_text("of the file\n")
    return path


def test_without_anything_connections_are_plain(given) -> None:
    assert given().exit_code == 0
    assert given.security == PLAIN


def test_everything_on_the_command_line(given, certificates: Certificates, password_file) -> None:
    pair = certificates.client("alice")
    result = given(
        *("--tls-ca", certificates.ca, "--tls-certificate", pair.certificate),
        *("--tls-key", pair.key, "--user", "alice", "--password-file", password_file),
    )
    assert result.exit_code == 0, result.output
    assert given.security == ClientSecurity(
        tls_ca=str(certificates.ca),
        tls_certificate=str(pair.certificate),
        tls_key=str(pair.key),
        user="alice",
        password="of the file",
    )


def test_everything_in_the_environment(given, certificates: Certificates) -> None:
    pair = certificates.client("alice")
    files = {"TLS_CA": certificates.ca, "TLS_CERTIFICATE": pair.certificate, "TLS_KEY": pair.key}
    assert given(TLS="yes", **files, USER="alice", PASSWORD="of the environment").exit_code == 0
    assert given.security is not None
    assert given.security.uses_tls
    assert given.security.tls_certificate == str(pair.certificate)
    assert (given.security.user, given.security.password) == ("alice", "of the environment")


def test_a_file_comes_before_the_password_in_the_environment(given, password_file) -> None:
    for environment in ({"PASSWORD_FILE": password_file}, {}):
        arguments = () if environment else ("--password-file", password_file)
        assert given(*arguments, USER="alice", PASSWORD="other", **environment).exit_code == 0
        assert given.security.password == "of the file"


def test_the_password_of_one_user_is_not_sent_for_another(given, password_file) -> None:
    theirs = {"USER": "alice", "PASSWORD": "alice's", "PASSWORD_FILE": password_file}
    result = given("--user", "bob", **theirs)
    assert result.exit_code == 2
    assert "no password of user 'bob'" in result.stderr
    assert given("--user", "bob", "--password-file", password_file, **theirs).exit_code == 0
    assert given.security.password == "of the file"
    assert given("--user", "alice", USER="alice", PASSWORD="alice's").exit_code == 0
    assert given.security.password == "alice's"


def test_on_a_terminal_the_password_is_asked_for(given, monkeypatch) -> None:
    monkeypatch.setattr("hermes.cli.security_options.has_terminal", lambda: True)
    result = given("--user", "alice", stdin="typed\n")
    assert result.exit_code == 0, result.output
    assert given.security.password == "typed"
    assert "Password of alice" in result.stderr
    assert "typed" not in result.output


def test_the_environment_of_those_who_use_tls_can_be_left(given, certificates) -> None:
    assert given("--no-tls", TLS_CA=certificates.ca).exit_code == 0
    assert given.security == ClientSecurity(tls=False)
    result = given("--no-tls", "--tls-ca", certificates.ca)
    assert result.exit_code == 2
    assert "--no-tls and --tls-ca exclude each other" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--tls-ca", "nowhere"], "'nowhere' does not exist"),
        (["--tls-ca", "{password}"], "--tls-ca: "),
        (["--tls-key", "{key}"], "--tls-certificate: is missing, of which tls_key is the key"),
        (["--tls-certificate", "{certificate}", "--tls-key", "{other}"], "--tls-key: "),
        (["--user", "", "--password-file", "{password}"], "--user: expected a name"),
        (["--user", "alice"], "no password of user 'alice': give --password-file, HERMES_PASS"),
        (["--user", "alice", "--password-file", "nowhere"], "--password-file: nowhere: No such"),
        (["--password-file", "{password}"], "--password-file needs --user"),
        (["--password", "secret"], "No such option"),
    ],
)
def test_what_cannot_be_is_a_usage_error(
    given, certificates: Certificates, password_file, monkeypatch, tmp_path, arguments, expected
) -> None:
    monkeypatch.chdir(tmp_path)
    mine, other = certificates.client("alice"), certificates.client("bob")
    paths = {"certificate": mine.certificate, "key": mine.key, "other": other.key}
    result = given(*(each.format(password=password_file, **paths) for each in arguments))
    assert result.exit_code == 2
    assert expected in " ".join(result.stderr.split())
    assert "of the file" not in result.output


def test_a_password_in_the_environment_alone_does_nothing(given, password_file) -> None:
    assert given(PASSWORD="secret", PASSWORD_FILE=password_file).exit_code == 0
    assert given.security == PLAIN


# -- all commands -------------------------------------------------------------------------------

SERVERS = {"--broker", "--bootstrap-servers", "--zookeeper", "--registry"}
SECURITY = {"--tls", "--tls-ca", "--tls-certificate", "--tls-key", "--user"}


def commands(group: click.Group, path: tuple[str, ...] = ()) -> dict[str, click.Command]:
    """All commands below a group by what one types."""
    found: dict[str, click.Command] = {}
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        each = group.get_command(ctx, name)
        assert each is not None
        found[" ".join((*path, name))] = each
        if isinstance(each, click.Group):
            found |= commands(each, (*path, name))
    return found


def options_of(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_every_command_that_connects_takes_who_we_are() -> None:
    connecting = {
        name: options_of(each)
        for name, each in commands(program).items()
        if options_of(each) & SERVERS
    }
    assert {"produce", "consume", "groups describe", "mirror status", "load"} <= connecting.keys()
    for name, options in connecting.items():
        assert options >= SECURITY, name
        assert options & {"--password-file", "--client-password-file"}, name


def test_no_command_takes_a_password() -> None:
    for name, each in commands(program).items():
        for parameter in each.params:
            assert "--password" not in parameter.opts, name


def test_a_shell_completes_them() -> None:
    completed = CliRunner().invoke(
        program,
        env={
            "_HERMES_COMPLETE": "bash_complete",
            "COMP_WORDS": "hermes topics list --tls-",
            "COMP_CWORD": "3",
        },
    )
    assert "--tls-ca" in completed.output
    assert "--tls-certificate" in completed.output
