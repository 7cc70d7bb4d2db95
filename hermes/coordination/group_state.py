"""What stands in ZooKeeper about a consumer group, for tools: nothing is watched.

Offsets may be stored for a group that has no members; members store their own, fenced.
"""

from collections.abc import Mapping
from typing import NamedTuple

from hermes.coordination.layout import (
    CONSUMERS,
    BrokerPartition,
    GroupPaths,
    Subscription,
    format_number,
    parse_number,
    parse_partition,
    parse_subscription,
)
from hermes.coordination.sessions import Session
from hermes.errors import CoordinationError, GroupActiveError, InvalidNodeError

__all__ = ["GroupState", "list_groups", "read_group", "read_members", "store_offsets"]


class GroupState(NamedTuple):
    """One group.

    Attributes:
        members: what each wants, by consumer id; the error where that can't be understood.
        owners: the stream that owns a partition, by topic and partition.
        offsets: the stored offset, by topic and partition; the error where it is no number.
    """

    members: dict[str, Subscription | InvalidNodeError]
    owners: dict[tuple[str, BrokerPartition], str]
    offsets: dict[tuple[str, BrokerPartition], int | InvalidNodeError]


def list_groups(session: Session) -> list[str]:
    """The groups that there are, active or not, sorted."""
    return session.children(CONSUMERS)


def read_members(session: Session, group: str) -> list[str]:
    """The consumer ids of a group's members, sorted; none for a group that there is not."""
    return session.children(GroupPaths(group).ids)


def read_group(session: Session, group: str) -> GroupState:
    """Read one group.

    Raises:
        CoordinationError: there is no such group.
        InvalidNodeError: a name is no partition's.
    """
    paths = GroupPaths(group)
    if session.get(paths.root) is None:
        raise CoordinationError(f"there is no group {group!r} (hermes groups list shows all)")
    state = GroupState({}, {}, {})
    for name in read_members(session, group):
        node = session.get(paths.member(name))
        if node is not None:
            state.members[name] = _subscription(paths.member(name), node.value)
    for topic in session.children(f"{paths.root}/owners"):
        for name in session.children(paths.owners(topic)):
            partition = parse_partition(paths.owners(topic), name)
            node = session.get(paths.owner(topic, partition))
            if node is not None:
                state.owners[topic, partition] = node.value.decode(errors="replace")
    for topic in session.children(f"{paths.root}/offsets"):
        for name in session.children(paths.offsets(topic)):
            partition = parse_partition(paths.offsets(topic), name)
            path = paths.offset(topic, partition)
            node = session.get(path)
            if node is not None:
                state.offsets[topic, partition] = _offset(path, node.value)
    return state


def store_offsets(
    session: Session, group: str, offsets: Mapping[tuple[str, BrokerPartition], int]
) -> None:
    """Store offsets of a group without members, by topic and partition.

    Raises:
        GroupActiveError: somebody has joined meanwhile; what was stored by then stays.
    """
    paths = GroupPaths(group)
    for (topic, partition), offset in offsets.items():
        if session.children(paths.ids):
            raise GroupActiveError(f"somebody has joined group {group!r} meanwhile")
        path = paths.offset(topic, partition)
        session.ensure_path(path)
        session.set(path, format_number(offset))


def _subscription(path: str, value: bytes) -> Subscription | InvalidNodeError:
    try:
        return parse_subscription(path, value)
    except InvalidNodeError as error:
        return error


def _offset(path: str, value: bytes) -> int | InvalidNodeError:
    try:
        return parse_number(path, value)
    except InvalidNodeError as error:
        return error
