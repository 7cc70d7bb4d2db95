"""`hermes config`: check a broker.yaml, reload or import one, adopt a data directory for it."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

import click

from hermes.cli.options import JSON_OPTION, BrokerOption, CommandConnection, broker_option
from hermes.cli.security_options import connection_options
from hermes.cli.terminal import note, write_json, write_line
from hermes.config.broker import BROKER_SETTINGS, BrokerConfig
from hermes.config.connect_as import ConnectAs
from hermes.config.embedded_mirror import EmbeddedMirror
from hermes.config.exposure import warnings_of
from hermes.config.kinds import SECRET_OPTIONS
from hermes.config.listeners import ListenerConfig, as_given
from hermes.config.loading import load_broker_config
from hermes.config.properties import import_properties
from hermes.config.quotas import Quota
from hermes.config.setting import named_source
from hermes.errors import ClientError, StorageError
from hermes.mirror.embedding import check_embedded_mirror
from hermes.security import AccessRule
from hermes.storage import FileLayer
from hermes.storage.lock import DirectoryLock
from hermes.storage.owner import write_owner

#: What a broker's command line has: one of these, and then the plugin's name.
_TWISTD: Final = ("twistd", "twist", "twisted")
_PLUGIN: Final = "hermes"


@click.group("config")
def command() -> None:
    """Check a broker.yaml, let a broker read it again, import Kafka 0.7's, adopt a directory."""


@command.command("check", short_help="Check a broker.yaml.")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@JSON_OPTION
def check(path: Path, as_json: bool) -> None:
    """Read FILE as `twistd hermes --config FILE` would, and check that a broker can start with it.

    With --json every setting is written, including those with default values; durations are in
    milliseconds and sizes in bytes.
    """
    config = load_broker_config(path)
    _check_startable(config, str(path))
    check_embedded_mirror(config, str(path))
    if as_json:
        write_json(_settings_of(config))
        return
    for setting, listeners in config.listeners():
        for text in warnings_of(setting, listeners):
            note(f"NOT SECURED: {text}")
    click.echo(
        f"{path}: good: broker {config.broker_id} listens on {', '.join(map(str, config.listen))}"
    )


@command.command("reload", short_help="Make a running broker reload its broker.yaml.")
@broker_option(required=False)
@click.option("--pid", type=click.IntRange(1), metavar="N", help="The broker's process, here.")
@JSON_OPTION
@connection_options
def reload(
    broker: BrokerOption | None,
    pid: int | None,
    as_json: bool,
    connection: CommandConnection,
) -> None:
    """Let a running broker read its broker.yaml again, and show what has changed.

    With --pid the process is sent SIGHUP, and the broker's log has the outcome. Examples: hermes
    config reload -b localhost; hermes config reload --pid 4711
    """
    if pid is not None:
        _send_sighup(pid)
        return
    if broker is None:
        raise click.UsageError("give the broker's address with -b, or its process with --pid")
    with broker.consumer(connection) as consumer:
        told = consumer.reload_config()
    if as_json:
        changed, left = ([each._asdict() for each in some] for some in (told.changed, told.left))
        write_json({"changed": changed, "left": left, "untold": told.untold})
        return
    for each in told.changed:
        write_line(f"changed {each.name}: {each.before} -> {each.after}")
    for each in told.left:
        write_line(f"left {each.name}: {each.before}, not {each.after}: {each.left_because}")
    if told.untold:
        write_line(f"and {told.untold} more, which the broker's log may name")
    elif not (told.changed or told.left):
        write_line("nothing has changed")


def _send_sighup(pid: int) -> None:
    """Send the signal to a broker, and to nothing else: it would end most programs."""
    try:
        words = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    except FileNotFoundError:
        raise ClientError(f"there is no process {pid}") from None
    # Clients have the name in their command line, too, and so has who edits broker.yaml.
    before = words[: words.index(_PLUGIN)] if _PLUGIN in words else []
    if not any(os.path.basename(each) in _TWISTD for each in before):
        raise ClientError(f"process {pid} is no broker of Hermes, but {' '.join(words).strip()!r}")
    os.kill(pid, signal.SIGHUP)
    click.echo(f"signalled process {pid}; its log has the outcome")


@command.command("adopt", short_help="Give a data directory to the broker of a broker.yaml.")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
def adopt(path: Path) -> None:
    """Let the data directory that FILE names be that of FILE's broker_id from now on.

    For a directory that was another broker's; no broker may be using it. Groups and mirrors keep
    offsets by the broker's id: docs/operations.md says how they go with it.
    """
    config = load_broker_config(path)
    log_dir, files = os.fspath(config.log_dir), FileLayer()
    if not os.path.isdir(log_dir):
        raise StorageError(f"there is no directory {log_dir}")
    lock = DirectoryLock(log_dir, files)
    try:
        write_owner(log_dir, config.broker_id, files)
    finally:
        lock.release()
    click.echo(f"{log_dir} is the data directory of broker {config.broker_id} now")


@command.command("import", short_help="Convert Kafka 0.7's properties to a broker.yaml.")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
def import_(path: Path) -> None:
    """Print the broker.yaml that a Kafka 0.7 server.properties means (FILE, or - for stdin).

    Only what FILE sets is written. Keys without an equivalent are named on stderr.
    """
    from_stdin = str(path) == "-"
    content = sys.stdin.buffer.read() if from_stdin else path.read_bytes()
    source = "stdin" if from_stdin else str(path)
    imported = import_properties(content.decode("latin-1"), source)
    # YAML is UTF-8, whatever the terminal speaks.
    click.echo(imported.yaml_text.encode(), nl=False)
    if imported.unknown_keys:
        note(f"{source}: without an equivalent, left out: {', '.join(imported.unknown_keys)}")


def _check_startable(config: BrokerConfig, source: str) -> None:
    # Twisted takes longer to import than all other commands take to run.
    from hermes.server.checks import (
        check_certificates,
        check_ownership,
        check_startable,
        wrong_name,
    )

    with named_source(source):
        check_startable(config)
        check_ownership(config)
        for each in check_certificates(config):
            if each.missing_name:
                note(f"{each.where}: {wrong_name(each)}")


def _settings_of(config: BrokerConfig) -> dict[str, Any]:
    """Every setting by its attribute's name, as JSON can hold it; topics with all that applies."""
    settings = {
        setting.attribute: (
            setting.kind.show(getattr(config, setting.attribute))
            if setting.kind is SECRET_OPTIONS
            else _jsonable(getattr(config, setting.attribute))
        )
        for setting in BROKER_SETTINGS.values()
    }
    topics = {name: _topic_settings(config, name) for name in config.topics}
    return {**settings, "topics": topics}


def _topic_settings(config: BrokerConfig, name: str) -> dict[str, Any]:
    settings = config.topic(name)
    return {field: _jsonable(getattr(settings, field)) for field in settings.__slots__}


def _jsonable(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [_jsonable(each) for each in value]
    if isinstance(value, ListenerConfig):
        return as_given(value)
    if isinstance(value, ConnectAs):
        return value.as_given()
    if isinstance(value, AccessRule | Quota):
        return value.as_given()
    if isinstance(value, EmbeddedMirror):
        return json.loads(value.settings)
    if hasattr(value, "items"):
        return {key: _jsonable(each) for key, each in value.items()}
    return value
