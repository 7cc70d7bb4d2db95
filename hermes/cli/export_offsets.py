"""`hermes export-offsets`: the offsets of groups as lines, in the format of Kafka 0.7's tool."""

import click

from hermes.cli.ensemble import ZOOKEEPER_OPTION, connected
from hermes.cli.options import TIMEOUT_OPTION
from hermes.cli.terminal import note, write_line
from hermes.coordination.group_state import list_groups, read_group
from hermes.coordination.layout import GroupPaths, check_node_name
from hermes.errors import InvalidNodeError

__all__ = ["command"]


@click.command("export-offsets")
@ZOOKEEPER_OPTION
@TIMEOUT_OPTION
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
@click.pass_context
def command(
    ctx: click.Context, zookeeper: str, timeout_seconds: float, groups: tuple[str, ...]
) -> None:
    """Write the stored offsets of GROUPs, or of all, to stdout.

    Each line is a path in ZooKeeper, a colon, and the offset: what `hermes import-offsets` and
    Kafka 0.7's ImportZkOffsets read. What can't be understood is said on stderr and left out, and
    the status is 1.
    """
    unreadable: list[InvalidNodeError] = []
    with connected(zookeeper, timeout_seconds) as session:
        for group in groups or list_groups(session):
            check_node_name("group", group)
            state = read_group(session, group)
            unreadable += [fault for fault in state.unreadable() if "/offsets/" in str(fault)]
            for place, offset in state.offsets.items():
                if isinstance(offset, int):
                    write_line(f"{GroupPaths(group).offset(*place)}:{offset}")
    for fault in unreadable:
        note(str(fault))
    if unreadable:
        ctx.exit(1)
