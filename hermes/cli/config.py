"""`hermes config`: check a broker.yaml before a broker does, or make one from Kafka 0.7's."""

import sys
from pathlib import Path
from typing import Any

import click

from hermes.cli.options import JSON_OPTION
from hermes.cli.terminal import note, write_json
from hermes.config import BrokerConfig, load_broker_config
from hermes.config.broker import BROKER_SETTINGS
from hermes.config.properties import import_properties
from hermes.errors import ConfigError


@click.group("config")
def command() -> None:
    """Check a broker.yaml, or import Kafka 0.7's properties."""


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
    if as_json:
        write_json(_settings_of(config))
        return
    click.echo(f"{path}: good: broker {config.broker_id} listens on {', '.join(config.listen)}")


@command.command("import", short_help="Turn Kafka 0.7's properties into a broker.yaml.")
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
    """Check what the broker's start checks on this machine."""
    # Twisted takes longer to import than all other commands take to run.
    from hermes.broker.checks import check_startable

    try:
        check_startable(config)
    except ConfigError as error:
        raise ConfigError(error.key, error.message, source=source) from None


def _settings_of(config: BrokerConfig) -> dict[str, Any]:
    """Every setting by its attribute's name, as JSON can hold it; topics with all that applies."""
    settings = {
        setting.attribute: _jsonable(getattr(config, setting.attribute))
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
        return list(value)
    return dict(value) if hasattr(value, "items") else value
