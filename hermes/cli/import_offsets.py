"""`hermes import-offsets`: offsets of groups from lines, in the format of Kafka 0.7's tool."""

import re
from functools import partial
from typing import BinaryIO, Final, NamedTuple

import click

from hermes.cli.ensemble import ZOOKEEPER_OPTION, connected
from hermes.cli.options import TIMEOUT_OPTION
from hermes.coordination.group_state import store_offsets
from hermes.coordination.layout import (
    BrokerPartition,
    GroupPaths,
    check_node_name,
    parse_number,
    parse_partition,
)
from hermes.errors import GroupActiveError, HermesError
from hermes.protocol import check_topic_name
from hermes.quoting import quoted

__all__ = ["command"]

_LINE: Final = re.compile(r"/consumers/([^/]+)/offsets/([^/]+)/([^/:]+):([0-9]{1,19})", re.ASCII)
_MOST_BYTES: Final = 64 * 1024


class _Entry(NamedTuple):
    group: str
    topic: str
    partition: BrokerPartition
    offset: int


@click.command("import-offsets")
@ZOOKEEPER_OPTION
@TIMEOUT_OPTION
@click.argument("file", type=click.File("rb"))
def command(zookeeper: str, timeout_seconds: float, file: BinaryIO) -> None:
    """Store the offsets in FILE (- for stdin), as `hermes export-offsets` wrote them.

    All lines are read, and all groups found to have no members, before anything is stored.
    """
    lines = iter(partial(file.readline, _MOST_BYTES), b"")
    entries = [_parse(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    with connected(zookeeper, timeout_seconds) as session:
        for group in dict.fromkeys(each.group for each in entries):
            if session.children(GroupPaths(group).ids):
                raise GroupActiveError(f"group {group!r} has members: stop them first")
        for each in entries:
            store_offsets(session, each.group, {(each.topic, each.partition): each.offset})
    click.echo(f"{len(entries)} offsets stored")


def _parse(number: int, line: bytes) -> _Entry:
    text = line.decode("utf-8", "replace").strip()
    found = _LINE.fullmatch(text)
    if found is None or "\ufffd" in text:
        raise HermesError(
            f"line {number}: expected /consumers/GROUP/offsets/TOPIC/BROKER-PARTITION:OFFSET, "
            f"got {quoted(line.strip())}"
        )
    group, topic, name, digits = found.groups()
    try:
        check_node_name("group", group)
        check_topic_name(topic)
        partition = parse_partition("partition", name)
        offset = parse_number("offset", digits.encode())
    except HermesError as error:
        raise HermesError(f"line {number}: {error}") from error
    return _Entry(group, topic, partition, offset)
