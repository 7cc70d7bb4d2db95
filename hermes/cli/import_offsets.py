"""`hermes import-offsets`: offsets of groups from lines, in the format of Kafka 0.7's tool."""

import re
from typing import Final, NamedTuple, TextIO

import click

from hermes.cli.ensemble import ZOOKEEPER_OPTION, connected
from hermes.cli.options import TIMEOUT_OPTION
from hermes.coordination.group_state import store_offsets
from hermes.coordination.layout import BrokerPartition, GroupPaths
from hermes.errors import GroupActiveError, HermesError

__all__ = ["command"]

_LINE: Final = re.compile(
    r"/consumers/([^/]+)/offsets/([^/]+)/([0-9]+)-([0-9]+):([0-9]{1,18})", re.ASCII
)


class _Entry(NamedTuple):
    group: str
    topic: str
    partition: BrokerPartition
    offset: int


@click.command("import-offsets")
@ZOOKEEPER_OPTION
@TIMEOUT_OPTION
@click.argument("file", type=click.File(encoding="utf-8"))
def command(zookeeper: str, timeout_seconds: float, file: TextIO) -> None:
    """Store the offsets in FILE (- for stdin), as `hermes export-offsets` wrote them.

    All lines are read, and all groups found to have no members, before anything is stored.
    """
    entries = [_parse(number, line) for number, line in enumerate(file, 1) if line.strip()]
    with connected(zookeeper, timeout_seconds) as session:
        for group in dict.fromkeys(each.group for each in entries):
            if session.children(GroupPaths(group).ids):
                raise GroupActiveError(f"group {group!r} has members: stop them first")
        for each in entries:
            store_offsets(session, each.group, {(each.topic, each.partition): each.offset})
    click.echo(f"{len(entries)} offsets stored")


def _parse(number: int, line: str) -> _Entry:
    found = _LINE.fullmatch(line.strip())
    if found is None:
        raise HermesError(
            f"line {number}: expected /consumers/GROUP/offsets/TOPIC/BROKER-PARTITION:OFFSET, "
            f"got {line.strip()!r}"
        )
    group, topic, broker_id, partition, offset = found.groups()
    return _Entry(group, topic, BrokerPartition(int(broker_id), int(partition)), int(offset))
