"""What ZooKeeper stores about a consumer group, for tools: nothing is watched.

Offsets may be stored for a group that has no members; members store their own, fenced.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeVar

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
from hermes.coordination.nodes import Node, NodeTransaction, TreeSession
from hermes.coordination.sessions import Session
from hermes.errors import CoordinationError, GroupActiveError, InvalidNodeError

T = TypeVar("T")

# So many nodes are asked for together that a server notices little of it.
_READ_AT_ONCE: Final = 128

# Of an owner's node, in characters.
_MOST_SHOWN: Final = 1000


class GroupState(NamedTuple):
    """One group.

    Attributes:
        members: what each wants, by consumer id; the error where that can't be understood.
        owners: the stream that owns a partition, by topic and partition.
        offsets: the stored offset, by topic and partition; the error where it is not a number.
        faults: what else can't be understood, and is left out.
    """

    members: dict[str, Subscription | InvalidNodeError]
    owners: dict[tuple[str, BrokerPartition], str]
    offsets: dict[tuple[str, BrokerPartition], int | InvalidNodeError]
    faults: list[InvalidNodeError]

    def unreadable(self) -> list[InvalidNodeError]:
        found = [*self.members.values(), *self.offsets.values(), *self.faults]
        return [each for each in found if isinstance(each, InvalidNodeError)]


def list_groups(session: TreeSession) -> list[str]:
    return session.children(CONSUMERS)


def read_members(session: Session, group: str) -> list[str]:
    """Consumer ids, sorted; none for an unknown group."""
    return session.children(GroupPaths(group).ids)


def lag_between(offset: int | None, end: int | None) -> int | None:
    """How far a group is behind, in the offsets' unit; None where that isn't known.

    An offset beyond the end is of another log, which had the topic's name before, or has lost its
    end: where the group goes on is then for its clients to decide.

    Args:
        offset: what it has stored, read before the end; None where that isn't known.
        end: up to where the partition can be read; likewise.
    """
    return None if offset is None or end is None or offset > end else end - offset


def read_group(session: Session, group: str) -> GroupState:
    """Read one group; CoordinationError if there is none."""
    paths = GroupPaths(group)
    if session.get(paths.root) is None:
        raise CoordinationError(f"there is no group {group!r} (hermes groups list shows all)")
    state = GroupState({}, {}, {}, [])
    for name in read_members(session, group):
        path = paths.member(name)
        member = _read(session, path, parse_subscription)
        if member is not None:
            state.members[name] = member
    places = list(_places(session, f"{paths.root}/owners", state.faults))
    nodes = _read_all(session, [paths.owner(*place) for place in places], _owner)
    for place, owner in zip(places, nodes, strict=True):
        if isinstance(owner, InvalidNodeError):
            state.faults.append(owner)
        elif owner is not None:
            state.owners[place] = owner
    places = list(_places(session, f"{paths.root}/offsets", state.faults))
    numbers = _read_all(session, [paths.offset(*place) for place in places], parse_number)
    for place, offset in zip(places, numbers, strict=True):
        if offset is not None:
            state.offsets[place] = offset
    return state


def read_stored_offsets(
    session: TreeSession, broker_id: int, limit: int
) -> tuple[dict[tuple[str, str, int], int], bool]:
    """Read up to `limit` offsets that groups have stored of one broker's partitions.

    By group, topic and partition, without invalid ones; and whether these are all.
    """
    places: dict[str, tuple[str, str, int]] = {}
    for group in list_groups(session):
        paths = GroupPaths(group)
        for topic, partition in _places(session, f"{paths.root}/offsets", []):
            if partition.broker_id != broker_id:
                continue
            if len(places) == limit:
                return _stored(session, places), False
            places[paths.offset(topic, partition)] = (group, topic, partition.partition)
    return _stored(session, places), True


def _stored(
    session: TreeSession, places: dict[str, tuple[str, str, int]]
) -> dict[tuple[str, str, int], int]:
    paths, numbers = list(places), list[int | InvalidNodeError | None]()
    for first in range(0, len(paths), _READ_AT_ONCE):
        numbers += _read_all(session, paths[first : first + _READ_AT_ONCE], parse_number)
    found = zip(places.values(), numbers, strict=True)
    return {place: number for place, number in found if isinstance(number, int)}


def delete_group(session: Session, group: str) -> None:
    """Delete a group that has no members, with its offsets.

    The node of its members goes first, and only if it is empty; then that of the group only if
    nobody has joined meanwhile. Raises GroupActiveError: it has members; CoordinationError: there
    is no such group.
    """
    paths = GroupPaths(group)
    if session.get(paths.root) is None:
        raise CoordinationError(f"there is no group {group!r} (hermes groups list shows all)")
    if session.children(paths.ids) or not session.delete_empty(paths.ids):
        raise GroupActiveError(f"group {group!r} has members: stop them first")
    for name in session.children(paths.root):
        if f"{paths.root}/{name}" != paths.ids:
            session.delete_tree(f"{paths.root}/{name}")
    if not session.delete_empty(paths.root):
        raise GroupActiveError(f"somebody has joined group {group!r} meanwhile")


def store_offsets(
    session: Session, group: str, offsets: Mapping[tuple[str, BrokerPartition], int]
) -> None:
    """Store offsets of a group without members, by topic and partition.

    Raises GroupActiveError: somebody has joined meanwhile; what was stored by then stays.
    """
    paths = GroupPaths(group)
    for (topic, partition), offset in offsets.items():
        if session.children(paths.ids):
            raise GroupActiveError(f"somebody has joined group {group!r} meanwhile")
        session.put(paths.offset(topic, partition), format_number(offset))


def advance_offsets(
    session: Session, group: str, offsets: Mapping[tuple[str, BrokerPartition], int]
) -> None:
    """Store offsets of a group where it has none or smaller ones, and only while it has no members.

    Whoever takes a partition over meanwhile changes the version of its offset, which then stays.
    """
    paths = GroupPaths(group)
    places = {paths.offset(*place): offset for place, offset in offsets.items()}
    for (path, offset), node in zip(places.items(), session.get_all(list(places)), strict=True):
        if node is not None and parse_number(path, node.value) >= offset:
            continue
        if session.children(paths.ids):
            return
        value = format_number(offset)
        if node is None:
            session.create(path, value)
        else:
            session.transact(partial(_replace, path, value, node.version))


def _replace(path: str, value: bytes, version: int, transaction: NodeTransaction) -> None:
    transaction.set_data(path, value, version)


def _places(
    session: TreeSession, parent: str, faults: list[InvalidNodeError]
) -> Iterator[tuple[str, BrokerPartition]]:
    """The topics and partitions below a node; invalid names are reported."""
    for topic in session.children(parent):
        try:
            names = session.children(f"{parent}/{topic}")
        except InvalidNodeError as fault:
            faults.append(fault)
            continue
        for name in names:
            try:
                yield topic, parse_partition(f"{parent}/{topic}/{name}", name)
            except InvalidNodeError as fault:
                faults.append(fault)


def _read_all(
    session: TreeSession, paths: list[str], parse: Callable[[str, bytes], T]
) -> list[T | InvalidNodeError | None]:
    try:
        nodes = session.get_all(paths)
    except InvalidNodeError:  # access to one is refused: which?
        return [_read(session, path, parse) for path in paths]
    return [_parsed(path, node, parse) for path, node in zip(paths, nodes, strict=True)]


def _read(
    session: TreeSession, path: str, parse: Callable[[str, bytes], T]
) -> T | InvalidNodeError | None:
    """What a node says, or what is wrong with it; None when there is none."""
    try:
        return _parsed(path, session.get(path), parse)
    except InvalidNodeError as fault:
        return fault


def _parsed(
    path: str, node: Node | None, parse: Callable[[str, bytes], T]
) -> T | InvalidNodeError | None:
    try:
        return None if node is None else parse(path, node.value)
    except InvalidNodeError as fault:
        return fault


def _owner(_path: str, value: bytes) -> str:
    return value.decode(errors="replace")[:_MOST_SHOWN]
