"""`hermes groups`: who is in a consumer group, how far it has come, and where it goes on."""

from contextlib import closing
from typing import Any, Final

import click

from hermes.cli.ensemble import GROUP_ARGUMENT, ZOOKEEPER_OPTION, Brokers, connected
from hermes.cli.exits import require_subcommand
from hermes.cli.group_reset import TARGET, Target, new_offsets
from hermes.cli.options import JSON_OPTION, TIMEOUT_OPTION, TOPIC
from hermes.cli.terminal import note, write_json, write_line, write_table
from hermes.coordination.group_state import (
    GroupState,
    delete_group,
    list_groups,
    read_group,
    read_members,
    store_offsets,
)
from hermes.coordination.layout import BrokerPartition, check_node_name
from hermes.errors import GroupActiveError, HermesError

__all__ = ["command"]

# Up to this much of a partition is read to count its messages.
_COUNTED_BYTES: Final = 1024 * 1024
_DASHED: Final = ("messages", "owner")


@click.group(
    "groups",
    short_help="List, describe, reset and delete consumer groups.",
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List, describe, reset and delete consumer groups, of Hermes' consumers and Kafka 0.7's."""
    require_subcommand(ctx)


@command.command("list")
@ZOOKEEPER_OPTION
@JSON_OPTION
@TIMEOUT_OPTION
def list_(zookeeper: str, as_json: bool, timeout_seconds: float) -> None:
    """List the consumer groups."""
    with connected(zookeeper, timeout_seconds) as session:
        # Not more than that: a group in disorder must not hide the others.
        counts = {each: len(read_members(session, each)) for each in list_groups(session)}
    if as_json:
        for group, count in counts.items():
            write_json({"group": group, "members": count})
        return
    write_table(("GROUP", "MEMBERS"), list(counts.items()))


@command.command("describe", short_help="Show members, owners, offsets and lag.")
@ZOOKEEPER_OPTION
@JSON_OPTION
@TIMEOUT_OPTION
@GROUP_ARGUMENT
@click.pass_context
def describe(
    ctx: click.Context, zookeeper: str, as_json: bool, timeout_seconds: float, group: str
) -> None:
    """Show the members of GROUP and, per partition, owner, offset, end and lag.

    The lag is in bytes, as offsets are. In messages it is counted, by reading them, where there is
    at most a megabyte; else it is not shown.

    What can't be known (a broker that is away, an offset that is no number) is said on stderr,
    and the status is 1.
    """
    check_node_name("group", group)
    with connected(zookeeper, timeout_seconds) as session:
        state = read_group(session, group)
        unknown = [str(each) for each in state.unreadable()]
        with closing(Brokers(session, timeout_seconds)) as brokers:
            rows = [_row(brokers, state, place, unknown) for place in _places(state)]
    if as_json:
        write_json({"group": group, "members": list(state.members), "partitions": rows})
    else:
        for member in state.members:
            write_line(f"member {member}")
        headings = ("topic", "partition", "offset", "end", "lag", "messages", "owner")
        table = [
            ["-" if key in _DASHED and row[key] is None else row[key] for key in headings]
            for row in rows
        ]
        write_table([each.upper() for each in headings], table)
    for text in unknown:
        note(text)
    if unknown:
        ctx.exit(1)


@command.command("reset", short_help="Change where an inactive group goes on.")
@ZOOKEEPER_OPTION
@JSON_OPTION
@TIMEOUT_OPTION
@click.option("-t", "--topic", type=TOPIC, help="One topic; all that the group has offsets of.")
@click.option(
    "-p", "--partition", "partition_name", metavar="BROKER-PARTITION", help="One partition."
)
@click.option(
    "--to",
    "target",
    type=TARGET,
    required=True,
    metavar="WHERE",
    help="earliest, latest, @TIME, an offset, +N or -N: bytes from the offset that is stored, "
    "back to where a message starts.",
)
@GROUP_ARGUMENT
def reset(
    zookeeper: str,
    as_json: bool,
    timeout_seconds: float,
    topic: str | None,
    partition_name: str | None,
    target: Target,
    group: str,
) -> None:
    """Change the offsets of GROUP, which must have no members."""
    check_node_name("group", group)
    with connected(zookeeper, timeout_seconds) as session:
        state = read_group(session, group)
        if state.members:
            raise _active(state, group)
        places = [
            place
            for place in state.offsets
            if topic in (None, place[0]) and partition_name in (None, str(place[1]))
        ]
        if not places:
            raise HermesError(f"group {group!r} has no such offsets")
        with closing(Brokers(session, timeout_seconds)) as brokers:
            found = new_offsets(brokers, state, places, target)
        store_offsets(session, group, found)
    rows = [
        {"topic": name, "partition": str(where), "before": _known(state, name, where), "now": now}
        for (name, where), now in found.items()
    ]
    if as_json:
        for row in rows:
            write_json(row)
    else:
        table = [list(row.values()) for row in rows]
        write_table(("TOPIC", "PARTITION", "BEFORE", "NOW"), table)


@command.command("delete", short_help="Delete an inactive group and its offsets.")
@ZOOKEEPER_OPTION
@JSON_OPTION
@TIMEOUT_OPTION
@click.option("--yes", is_flag=True, help="Don't ask.")
@GROUP_ARGUMENT
def delete(zookeeper: str, as_json: bool, timeout_seconds: float, yes: bool, group: str) -> None:
    """Delete GROUP, which must have no members, with its offsets. There is no way back."""
    check_node_name("group", group)
    with connected(zookeeper, timeout_seconds) as session:
        state = read_group(session, group)
        if state.members:
            raise _active(state, group)
        if not yes:
            count = len(state.offsets)
            question = f"Delete group {group!r} and its offsets of {count} partitions for good?"
            click.confirm(question, abort=True, err=True)
        delete_group(session, group)
    if as_json:
        write_json({"deleted": group})
    else:
        write_line(f"deleted {group}")


def _active(state: GroupState, group: str) -> GroupActiveError:
    members = ", ".join(state.members)
    return GroupActiveError(f"group {group!r} has members ({members}): stop them first")


def _places(state: GroupState) -> list[tuple[str, BrokerPartition]]:
    return sorted({*state.owners, *state.offsets})


def _known(state: GroupState, topic: str, partition: BrokerPartition) -> int | None:
    offset = state.offsets.get((topic, partition))
    return offset if isinstance(offset, int) else None


def _messages(
    brokers: Brokers, place: tuple[str, BrokerPartition], offset: int | None, end: int | None
) -> int | None:
    """How many messages there are between two offsets; None where counting is not cheap."""
    if offset is None or end is None or not 0 <= end - offset <= _COUNTED_BYTES:
        return None
    try:
        return brokers.count(*place, offset, end)
    except HermesError:  # damage, or an offset that has gone meanwhile
        return None


def _row(
    brokers: Brokers, state: GroupState, place: tuple[str, BrokerPartition], unknown: list[str]
) -> dict[str, Any]:
    """Describe a partition; what can't be known is added to `unknown`."""
    topic, partition = place
    offset = _known(state, topic, partition)
    end: int | None = None
    try:
        end = brokers.latest(topic, partition)
    except HermesError as error:
        unknown.append(f"{topic} {partition}: the end is not known: {error}")
    return {
        "topic": topic,
        "partition": str(partition),
        "offset": offset,
        "end": end,
        "lag": None if offset is None or end is None else end - offset,
        "messages": _messages(brokers, place, offset, end),
        "owner": state.owners.get(place),
    }
