"""`hermes console`: the web console of a broker or a whole cluster, on a port of its own."""

import logging
from pathlib import Path
from typing import Final

import click
from twisted.internet.defer import maybeDeferred

from hermes.cli.listener_options import url_shown
from hermes.cli.options import BrokerOption, broker_option, zookeeper_option
from hermes.cli.record_codec import REGISTRY_OPTION, needs_fastavro
from hermes.cli.security_options import security_options
from hermes.cli.site_options import SiteOptions, site_options
from hermes.cli.terminal import ask_password, note
from hermes.console import (
    CHANGES_LOGGER,
    ClusterClient,
    Password,
    RegistryRecords,
    hash_password,
    serve_console,
)
from hermes.errors import HermesError
from hermes.listening import Listener
from hermes.reactors import make_reactor
from hermes.security import ClientSecurity
from hermes.security.secret_files import replace_secret_file

_LISTEN: Final = "tcp:8092:interface=127.0.0.1"
_LEAST_CHARACTERS: Final = 8


def _write_password(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is None or ctx.resilient_parsing:
        return
    password = ask_password()
    if len(password) < _LEAST_CHARACTERS:
        raise HermesError(f"a password has {_LEAST_CHARACTERS} characters or more")
    content = f"{hash_password(password)}\n".encode()
    try:
        replace_secret_file(path.resolve(), content)
    except OSError as error:
        raise HermesError(f"can't write {path}: {error.strerror}") from None
    note(f"{path} holds the password now")
    ctx.exit()


@click.command("console", short_help="Serve the web console.")
@broker_option(required=False)
@zookeeper_option("Show all brokers of this ZooKeeper.")
@site_options(
    _LISTEN, listen_note=" Elsewhere than on the loopback interface only with --password-file."
)
@click.option(
    "--password-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Ask for this password.",
)
@click.option(
    "--write-password",
    type=click.Path(dir_okay=False, path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_write_password,
    metavar="FILE",
    help="Ask for a password, or read it from stdin, write it to FILE as --password-file takes it, "
    "and exit.",
)
@REGISTRY_OPTION
@security_options(password_option="--client-password-file")
@click.option(
    "--actions",
    is_flag=True,
    help="Allow changes: of topics, of messages that are produced, and of groups and their "
    "offsets. Each is noted on stderr, with who made it.",
)
def command(
    broker: BrokerOption | None,
    zookeeper: str | None,
    site: SiteOptions,
    password_file: Path | None,
    registry_url: str | None,
    security: ClientSecurity,
    actions: bool,
) -> None:
    r"""Serve pages that show a broker, or a whole cluster, until Ctrl-C.

    \b
    hermes console -b localhost:9092
    hermes console -Z zoo1:2181,zoo2:2181/hermes --listen tcp:8093:interface=127.0.0.1

    With -b it shows that broker and all others that are registered where it is; with -Z all that
    are registered there. With --registry, messages that carry the id of a schema are shown as
    records.
    """
    if broker is None and not zookeeper:
        raise click.UsageError("missing option '-b' / '--broker', or '-Z' / '--zookeeper'")
    site.check()
    password = None if password_file is None else Password(password_file)
    reactor = make_reactor()
    listener = Listener(reactor, "--listen", site.listen)
    cluster = ClusterClient(broker, zookeeper or "", security=security)
    server = site.server(reactor)
    failure: list[HermesError] = []
    try:
        server.open([listener])
        serve_console(
            server,
            reactor,
            cluster,
            setting="--listen",
            password=password,
            may_act=lambda: actions,
            records=_records(registry_url, security),
        )
    except HermesError as error:
        failure.append(error)
        reactor.callWhenRunning(reactor.stop)
    else:
        _note_changes()
        for served_at in server.addresses:
            note(f"the console of {cluster.name} is at {url_shown(served_at, site.listen)}/")
    reactor.addSystemEventTrigger("before", "shutdown", lambda: maybeDeferred(server.stop))
    reactor.run()
    if failure:
        raise failure[0]


def _note_changes() -> None:
    changes = logging.getLogger(CHANGES_LOGGER)
    changes.addHandler(_NoteHandler())
    changes.setLevel(logging.INFO)
    changes.propagate = False  # the root's handler would write each line once more


class _NoteHandler(logging.Handler):
    """Notes on stderr who changed what."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def _records(url: str | None, security: ClientSecurity) -> RegistryRecords | None:
    try:
        return RegistryRecords(url, security) if url else None
    except ModuleNotFoundError as error:
        raise needs_fastavro("--registry") from error
