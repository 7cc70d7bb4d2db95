"""`hermes doctor`: what is wrong with a set-up, and what to do about it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from hermes.cli import diagnosis
from hermes.cli.diagnosis import Diagnosis
from hermes.cli.exit_codes import EXIT_FAILURE
from hermes.cli.options import (
    JSON_OPTION,
    BrokerOption,
    CommandConnection,
    broker_option,
    zookeeper_option,
)
from hermes.cli.security_options import connection_options
from hermes.cli.terminal import note, write_json, write_line
from hermes.config.broker import BrokerConfig

_COLOURS = {"ok": "green", "notice": "yellow", "problem": "red"}


@click.command("doctor", short_help="Find out what is wrong.")
@broker_option(required=False)
@zookeeper_option("A ZooKeeper to look at.")
@JSON_OPTION
@connection_options
@click.argument(
    "path", metavar="[BROKER.YAML]", required=False, type=click.Path(dir_okay=False, path_type=Path)
)
@click.pass_context
def command(
    ctx: click.Context,
    broker: BrokerOption | None,
    zookeeper: str | None,
    as_json: bool,
    connection: CommandConnection,
    path: Path | None,
) -> None:
    r"""Look at this machine, and at the broker of BROKER.YAML, and say what is wrong.

    It looks at the installation, the configuration, the data directory, disk and limits, the
    ports, coordination and the clock, and changes nothing. The broker may be running or not. It
    should be run as the user that the broker runs as. The exit status is 1 if there is a problem,
    and 2 if nothing was given to look at beside this machine.

    \b
    Examples:
      hermes doctor /etc/hermes/broker.yaml
      hermes doctor -b kafka1:9092 -Z zk1:2181/hermes --timeout 5      from elsewhere
    """
    problems = []
    for found in _look(broker, zookeeper, connection, path):
        if found.level == "problem":
            problems.append(found)
        if as_json:
            write_json(found._asdict())
        else:
            level = f"{found.level:8}"
            shown = click.style(level, fg=_COLOURS[found.level]) if sys.stdout.isatty() else level
            click.echo(shown, nl=False)
            write_line(f"{found.area:14}{found.text}")
    if problems:
        count = f"{len(problems)} problems, the first" if len(problems) > 1 else "a problem"
        note(f"{count}: {problems[0].area}: {problems[0].text}")
        ctx.exit(EXIT_FAILURE)
    if path is None and broker is None and zookeeper is None:
        raise click.UsageError("no broker was looked at: give its BROKER.YAML, or -b, or -Z")


def _look(
    broker: BrokerOption | None,
    zookeeper: str | None,
    connection: CommandConnection,
    path: Path | None,
) -> Iterator[Diagnosis]:
    yield from diagnosis.check_installation()
    yield from diagnosis.check_clock()
    config = holder = None
    if path is not None:
        config, found = diagnosis.read_config(path)
        yield from found
    if config is not None:
        holder = diagnosis.holder_of(config.log_dir)
        yield from diagnosis.check_data(config, holder)
        yield from diagnosis.check_disk(config)
        yield from diagnosis.check_limits(config)
        yield from diagnosis.check_security(config)
        yield from diagnosis.check_ports(config, holder, connection)
        zookeeper = zookeeper or config.zookeeper_connect or _embedded(config, holder)
    if broker is not None:
        yield from diagnosis.check_broker(broker, connection)
    if zookeeper:
        yield from diagnosis.check_coordination(zookeeper, connection, config, holder)


def _embedded(config: BrokerConfig, holder: str | None) -> str | None:
    place = diagnosis.tcp_place(config.coordination_listen)
    if config.coordination != "embedded" or holder is None or place is None or not place.port:
        return None
    return str(place._replace(host=place.host or "localhost"))
