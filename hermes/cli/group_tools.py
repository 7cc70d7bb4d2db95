"""The commands that replace Kafka 0.7's tools for groups: offsets as lines, owners verified."""

import re
from functools import partial
from typing import BinaryIO, Final, NamedTuple

import click

from hermes.cli.exit_codes import EXIT_FAILURE, fail_for
from hermes.cli.registered_cluster import GROUP_ARGUMENT, RegisteredCluster, cluster_options
from hermes.cli.terminal import write_line
from hermes.client.resets import check_inactive
from hermes.coordination.cluster_view import OnFault, read_partitions, read_topics
from hermes.coordination.group_state import GroupState, list_groups, read_group, store_offsets
from hermes.coordination.layout import (
    BrokerPartition,
    GroupPaths,
    Subscription,
    assign,
    check_node_name,
    parse_number,
    parse_partition,
)
from hermes.coordination.sessions import Session
from hermes.errors import (
    ConfigError,
    CoordinationError,
    HermesError,
    InvalidNodeError,
)
from hermes.protocol import check_topic_name
from hermes.quoting import quoted

# A line of 0.7's tools: a path in ZooKeeper, a colon, and the offset.
_LINE: Final = re.compile(r"/consumers/([^/]+)/offsets/([^/]+)/([^/:]+):([0-9]{1,19})", re.ASCII)
_MAX_LINE_BYTES: Final = 64 * 1024


# -- offsets ------------------------------------------------------------------------------------


@click.command("export-offsets")
@cluster_options
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
def export_offsets(cluster: RegisteredCluster, groups: tuple[str, ...]) -> None:
    """Write the stored offsets of GROUPs, or of all, to stdout.

    Each line is a path in ZooKeeper, a colon, and the offset: what `hermes import-offsets` and
    Kafka 0.7's ImportZkOffsets read. Nodes that are unreadable are reported on stderr and left
    out, and the status is 1.
    """
    unreadable: list[InvalidNodeError] = []
    for group in groups or list_groups(cluster.session):
        check_node_name("group", group)
        state = read_group(cluster.session, group)
        unreadable += [fault for fault in state.unreadable() if "/offsets/" in str(fault)]
        for place, offset in state.offsets.items():
            if isinstance(offset, int):
                write_line(f"{GroupPaths(group).offset(*place)}:{offset}")
    fail_for(unreadable)


class _GroupEntry(NamedTuple):
    group: str
    topic: str
    partition: BrokerPartition
    offset: int


@click.command("import-offsets")
@cluster_options
@click.argument("file", type=click.File("rb"))
def import_offsets(cluster: RegisteredCluster, file: BinaryIO) -> None:
    """Store the offsets in FILE (- for stdin), as `hermes export-offsets` wrote them.

    All lines are read, and all groups are checked to have no members, before anything is stored.
    """
    lines = iter(partial(file.readline, _MAX_LINE_BYTES), b"")
    entries = [_parse(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    for group in dict.fromkeys(each.group for each in entries):
        check_inactive(group, cluster.session.children(GroupPaths(group).ids))
    for each in entries:
        store_offsets(cluster.session, each.group, {(each.topic, each.partition): each.offset})
    click.echo(f"{len(entries)} offsets stored")


def _parse(number: int, line: bytes) -> _GroupEntry:
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
    return _GroupEntry(group, topic, partition, offset)


# -- owners -------------------------------------------------------------------------------------


@click.command("verify-rebalance")
@cluster_options
@GROUP_ARGUMENT
def verify_rebalance(cluster: RegisteredCluster, group: str) -> None:
    """Compare the owners of GROUP's partitions with the assignment that all members compute.

    The status is 0 when every partition is owned by the right stream; 1 otherwise, with a line
    for each that isn't, and one on stderr for each node that is unreadable. While a group
    rebalances, differences are to be expected for a moment.
    """
    state = read_group(cluster.session, group)
    if not state.members:
        raise CoordinationError(f"group {group!r} has no members")
    faults = state.unreadable()
    wrong, count = _differences(cluster.session, state, faults.append)
    for line in wrong:
        write_line(line)
    fail_for(faults)
    if wrong:
        click.get_current_context().exit(EXIT_FAILURE)
    write_line(f"{count} partitions are owned as they should be")


def _differences(session: Session, state: GroupState, on_fault: OnFault) -> tuple[list[str], int]:
    # Unreadable members are left out, as members do.
    members = {
        name: wanted for name, wanted in state.members.items() if isinstance(wanted, Subscription)
    }
    named = {topic for wanted in members.values() for topic in wanted.streams}
    topics = sorted({*read_topics(session), *named})
    partitions = {topic: read_partitions(session, topic, on_fault) for topic in topics}
    wrong, count = [], 0
    owners = dict(state.owners)

    def refuse(consumer_id: str, error: ConfigError) -> None:
        on_fault(InvalidNodeError(f"{consumer_id}: {error}"))

    for topic, assigned in assign(partitions, members, refuse).items():
        for partition, expected in assigned.items():
            count += 1
            owner = owners.pop((topic, partition), None)
            if owner != expected:
                found = f"owned by {owner}" if owner else "not owned"
                wrong.append(f"{topic} {partition}: {found}, should be {expected}")
    wrong += [
        f"{topic} {p}: owned by {owner}, should not be" for (topic, p), owner in owners.items()
    ]
    return wrong, count
