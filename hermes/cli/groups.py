"""`hermes groups`: who is in a consumer group, how far it has come, and where it goes on."""

from contextlib import closing
from typing import Any

import click

from hermes.cli.ensemble import GROUP_ARGUMENT, ZOOKEEPER_OPTION, Brokers, connected
from hermes.cli.exits import require_subcommand
from hermes.cli.group_reset import TARGET, Target, new_offsets
from hermes.cli.options import JSON_OPTION, TIMEOUT_OPTION, TOPIC
from hermes.cli.terminal import note, write_json, write_line, write_table
from hermes.coordination.group_state import (
    GroupState,
    list_groups,
    read_group,
    read_members,
    store_offsets,
)
from hermes.coordination.layout import BrokerPartition, check_node_name
from hermes.errors import GroupActiveError, HermesError

__all__ = ["command"]


@click.group(
    "groups",
    short_help="List, describe and reset consumer groups.",
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List, describe and reset consumer groups, of Hermes' consumers and Kafka 0.7's."""
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
    """Show the members of GROUP and, per partition, owner, offset, end and lag in bytes.

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
        headings = ("topic", "partition", "offset", "end", "lag", "owner")
        table = [[*(row[key] for key in headings[:-1]), row["owner"] or "-"] for row in rows]
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
            raise GroupActiveError(
                f"group {group!r} has members ({', '.join(state.members)}): stop them first"
            )
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


def _places(state: GroupState) -> list[tuple[str, BrokerPartition]]:
    return sorted({*state.owners, *state.offsets})


def _known(state: GroupState, topic: str, partition: BrokerPartition) -> int | None:
    offset = state.offsets.get((topic, partition))
    return offset if isinstance(offset, int) else None


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
        "owner": state.owners.get(place),
    }
