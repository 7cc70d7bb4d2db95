"""`hermes verify-rebalance`: whether every partition of a group has the owner that it should."""

import click

from hermes.cli.ensemble import GROUP_ARGUMENT, ZOOKEEPER_OPTION, connected
from hermes.cli.options import TIMEOUT_OPTION
from hermes.cli.terminal import note, write_line
from hermes.coordination.assignment import assign
from hermes.coordination.cluster import OnFault, read_partition_counts, read_topics
from hermes.coordination.group_state import GroupState, read_group
from hermes.coordination.layout import Subscription, check_node_name
from hermes.coordination.sessions import Session
from hermes.errors import ConfigError, CoordinationError, InvalidNodeError

__all__ = ["command"]


@click.command("verify-rebalance")
@ZOOKEEPER_OPTION
@TIMEOUT_OPTION
@GROUP_ARGUMENT
@click.pass_context
def command(ctx: click.Context, zookeeper: str, timeout_seconds: float, group: str) -> None:
    """Compare the owners of GROUP's partitions with the assignment, as all members compute it.

    The status is 0 when every partition is owned by the stream that should; 1 when not, with a
    line for each that isn't, and one on stderr for each node that can't be understood. While a
    group rebalances, that is to be expected for a moment.
    """
    check_node_name("group", group)
    with connected(zookeeper, timeout_seconds) as session:
        state = read_group(session, group)
        if not state.members:
            raise CoordinationError(f"group {group!r} has no members")
        faults = state.unreadable()
        wrong, count = _differences(session, state, faults.append)
    for line in wrong:
        write_line(line)
    for fault in faults:
        note(str(fault))
    if wrong or faults:
        ctx.exit(1)
    write_line(f"{count} partitions are owned as they should be")


def _differences(session: Session, state: GroupState, on_fault: OnFault) -> tuple[list[str], int]:
    # What can't be understood is left out, as members do.
    members = {
        name: wanted for name, wanted in state.members.items() if isinstance(wanted, Subscription)
    }
    topics = read_topics(session)
    counts = {topic: read_partition_counts(session, topic, on_fault) for topic in topics}
    wrong, count = [], 0
    owners = dict(state.owners)

    def refuse(consumer_id: str, error: ConfigError) -> None:
        on_fault(InvalidNodeError(f"{consumer_id}: {error}"))

    for topic, assigned in assign(counts, members, refuse).items():
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
