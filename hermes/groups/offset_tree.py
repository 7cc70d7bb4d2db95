"""Groups' offsets in coordination, where whichever broker coordinates a group finds them.

Whoever loads a group puts a mark of its own into the group's node, which changes the node's
version; each write says which version must be there. So what a coordinator writes that was replaced
comes to nothing, even if it doesn't know yet that it was.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from typing import Any, Final
from uuid import UUID, uuid4

from hermes.coordination.kafka_groups import (
    KAFKA_GROUPS,
    MEMBERS_NAME,
    group_node_path,
    group_of_node,
    parse_offset_name,
)
from hermes.coordination.nodes import Node, NodeTransaction, TreeNodes
from hermes.errors import CoordinationError, HermesError, InvalidNodeError
from hermes.groups.membership import AnyMembership, decode_membership, encode_membership
from hermes.groups.offsets import (
    Change,
    Committed,
    GroupMovedError,
    GroupRecord,
    StoredGroup,
    TopicPartition,
)

#: Of one transaction: what a server takes at once.
_MOST_OPERATIONS: Final = 100
_MOST_BYTES: Final = 256 * 1024

#: So many nodes are asked for together that a server notices little of it.
_READ_AT_ONCE: Final = 128

_NO_RECORD: Final = -1

#: Of a `GroupRecord`, what stands in the group's node; the membership has a node of its own.
_RECORD_FIELDS: Final = GroupRecord._fields[:3]

# A call of kazoo's transaction, with its arguments.
_Operation = tuple[str, *tuple[Any, ...]]


@dataclass(slots=True)
class _Claim:
    """A group that is this store's to write.

    Attributes:
        path: of its node.
        mark: there as a sign of that.
        version: of its node; None where there is none yet.
        names: the offsets' nodes below it.
        is_certain: whether all this is known; not after a write whose outcome isn't.
    """

    path: str
    mark: str
    version: int | None = None
    record: GroupRecord | None = None
    names: set[str] = field(default_factory=set)
    is_certain: bool = True

    def begun(self) -> "_Claim":
        """A copy, to become what is there after a change; `names` is replaced, not changed."""
        return _Claim(self.path, self.mark, self.version, self.record, self.names, self.is_certain)


class OffsetTree:
    """The groups of a cluster, as one broker writes them.

    `open_nodes` connects to coordination; called at the first use. Blocks, and raises HermesError
    where that can't be done now.
    """

    def __init__(self, open_nodes: Callable[[], TreeNodes]) -> None:
        self._open_nodes = open_nodes
        self._opened: TreeNodes | None = None
        self._claims: dict[str, _Claim] = {}
        self._may_have_lost = False
        self._is_closed = False

    @property
    def _tree(self) -> TreeNodes:
        if self._is_closed:
            raise CoordinationError("the broker is stopping")
        if self._opened is None:
            tree = self._open_nodes()
            try:
                tree.ensure_path(KAFKA_GROUPS)
            except BaseException:
                tree.stop()
                raise
            self._opened = tree
        return self._opened

    # -- reading --------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return [group_of_node(each) for each in self._tree.children(KAFKA_GROUPS)]

    def load(self, group: str) -> StoredGroup | None:
        path, tree = group_node_path(group), self._tree
        self._claims.pop(group, None)
        claim = _Claim(path, str(uuid4()))
        node = tree.get(path)
        if node is None:
            # Perhaps the server only lags behind; a member that is told that nothing was committed
            # would begin at one end of the log.
            tree.sync(path)
            node = tree.get(path)
        if node is None:
            self._claims[group] = claim
            return None
        # First the mark, then the offsets: nobody else changes them from here on.
        claim.record = _parse_record(path, node)
        claim.version = tree.set(path, _record_value(claim.record, claim.mark), node.version)
        offsets = self._read_offsets(path, claim)
        self._claims[group] = claim
        record = claim.record
        if record is not None and MEMBERS_NAME in claim.names:
            found = tree.get(f"{path}/{MEMBERS_NAME}")
            data = b"" if found is None else found.value
            record = record._replace(membership=decode_membership(data, record.generation))
        return StoredGroup(record, offsets)

    def _read_offsets(self, path: str, claim: _Claim) -> dict[TopicPartition, Committed]:
        names = self._tree.children(path)
        claim.names = set(names)
        offsets: dict[TopicPartition, Committed] = {}
        for first in range(0, len(names), _READ_AT_ONCE):
            some = names[first : first + _READ_AT_ONCE]
            nodes = self._tree.get_all([f"{path}/{each}" for each in some])
            for name, node in zip(some, nodes, strict=True):
                place = parse_offset_name(name)
                if place is not None and node is not None:
                    committed = _parse_offset(f"{path}/{name}", node)
                    offsets[TopicPartition(*place)] = committed
        return offsets

    # -- writing --------------------------------------------------------------------------------

    def distrust(self) -> None:
        """Take nothing for certain that was written until now; any thread may call."""
        self._may_have_lost = True

    def write(self, changes: Sequence[Change]) -> list[HermesError | None]:
        if self._may_have_lost:
            self._may_have_lost = False
            for claim in self._claims.values():
                claim.is_certain = False
        if len(changes) == 1:
            return [self._write_alone(changes[0])]
        results: list[HermesError | None] = []
        while len(results) < len(changes):
            results += self._write_some(changes[len(results) :])
        return results

    def _write_some(self, changes: Sequence[Change]) -> list[HermesError | None]:
        """Write the first changes that fit into a transaction; else the first one by itself."""
        claims: dict[str, _Claim] = {}
        operations: list[_Operation] = []
        size = count = 0
        for change in changes:
            claim = claims.get(change.group) or self._claims.get(change.group)
            if claim is None or not claim.is_certain or change.forget:
                break
            claim = claim.begun()
            more = _operations(change, claim)
            size += sum(len(each[2]) for each in more if isinstance(each[2], bytes))
            if len(operations) + len(more) > _MOST_OPERATIONS or size > _MOST_BYTES:
                break
            claims[change.group] = claim
            operations += more
            count += 1
        if count > 1:
            try:
                failed = self._transact(operations)
            except HermesError as error:
                for group in claims:
                    self._claims[group].is_certain = False
                return [error] * count
            if not failed:
                self._claims.update(claims)
                return [None] * count
            # One of them is in the way of the others.
        return [self._write_alone(each) for each in changes[: max(count, 1)]]

    def _write_alone(self, change: Change) -> HermesError | None:
        try:
            if not self._write_parts(change):
                # Its node has changed; whether by another coordinator is read there.
                self._claims[change.group].is_certain = False
                if not self._write_parts(change):
                    raise CoordinationError(f"group {change.group} changes all the time")
        except GroupMovedError as error:
            self._claims.pop(change.group, None)
            return error
        except HermesError as error:
            if change.group in self._claims:
                self._claims[change.group].is_certain = False
            return error
        return None

    def _write_parts(self, change: Change) -> bool:
        claim = self._certain(change.group)
        if change.forget and claim.version is None:
            return True
        begun = claim.begun()
        operations = _operations(change, begun)
        guard: list[_Operation] = []
        part: list[_Operation] = []
        size = 0
        for place, each in enumerate(operations):
            part.append(each)
            size += len(each[2]) if isinstance(each[2], bytes) else 0
            is_last = place == len(operations) - 1
            if not is_last and len(part) < _MOST_OPERATIONS and size < _MOST_BYTES:
                continue
            if self._transact(guard + part):
                return False
            version = claim.version if change.forget else begun.version
            guard, part, size = [("check", claim.path, version)], [], 0
        self._claims[change.group] = begun
        return True

    def _certain(self, group: str) -> _Claim:
        """What is known of a group that is this store's; GroupMovedError for another one."""
        claim = self._claims.get(group)
        if claim is not None and claim.is_certain:
            return claim
        moved = GroupMovedError(f"group {group} is another coordinator's")
        if claim is None:
            raise moved
        path = claim.path
        node = self._tree.get(path)
        if node is None:
            if claim.version is not None:
                raise moved
            claim.names = set()
        else:
            if _mark_of(node) != claim.mark:
                raise moved
            claim.version, claim.record = node.version, _parse_record(path, node)
            claim.names = set(self._tree.children(path))
        claim.is_certain = True
        return claim

    def _transact(self, operations: Sequence[_Operation]) -> bool:
        def fill(transaction: NodeTransaction) -> None:
            for name, *arguments in operations:
                getattr(transaction, name)(*arguments)

        results = self._tree.transact(fill)
        return isinstance(results[0], Exception)  # as all of them are then

    # -- the end --------------------------------------------------------------------------------

    def release(self, group: str) -> None:
        self._claims.pop(group, None)

    def close(self) -> None:
        self._claims.clear()
        self._is_closed = True
        tree, self._opened = self._opened, None
        if tree is not None:
            tree.stop()


def _operations(change: Change, claim: _Claim) -> list[_Operation]:
    """A change as calls of kazoo's transaction; the claim becomes what it is then."""
    path, operations = claim.path, list[_Operation]()
    if change.forget:
        operations.append(("check", path, claim.version))
        for name in sorted(claim.names):
            operations.append(("delete", f"{path}/{name}", -1))
        operations.append(("delete", path, claim.version))
        claim.version, claim.record, claim.names = None, None, set()
        return operations
    record = change.record or claim.record
    if claim.version is None:
        operations.append(("create", path, _record_value(record, claim.mark)))
        if change.is_empty:  # which fails if anybody has made it, as a check does of a version
            operations.append(("delete", path, 0))
            return operations
        claim.version = 0
    elif change.record is not None:
        operations.append(("set_data", path, _record_value(record, claim.mark), claim.version))
        claim.version += 1
    else:
        operations.append(("check", path, claim.version))
    claim.record = record
    before = claim.names
    if change.record is not None:
        claim.names = set(before)
        # Beside the record, so that only a new generation writes it.
        operations += _membership_operations(path, change.record, claim.names)
    for (topic, partition), committed in change.offsets.items():
        name = f"{topic}:{partition}"
        node, is_there = f"{path}/{name}", name in claim.names
        if committed is not None and is_there:
            operations.append(("set_data", node, _offset_value(committed), -1))
            continue
        if claim.names is before:
            claim.names = set(before)
        if committed is not None:
            claim.names.add(name)
            operations.append(("create", node, _offset_value(committed)))
        elif is_there:
            claim.names.remove(name)
            operations.append(("delete", node, -1))
    return operations


def _membership_operations(path: str, record: GroupRecord, names: set[str]) -> Iterator[_Operation]:
    node, is_there = f"{path}/{MEMBERS_NAME}", MEMBERS_NAME in names
    membership: AnyMembership | None = record.membership
    if membership is not None:
        names.add(MEMBERS_NAME)
        value = encode_membership(record.generation, membership)
        yield ("set_data", node, value, -1) if is_there else ("create", node, value)
    elif is_there:
        names.remove(MEMBERS_NAME)
        yield "delete", node, -1


# -- values -------------------------------------------------------------------------------------


def _record_value(record: GroupRecord | None, mark: str) -> bytes:
    known = record or GroupRecord(_NO_RECORD, "", -1)
    values = dict(zip(_RECORD_FIELDS, known, strict=False))
    return json.dumps({**values, "mark": mark}).encode()


def _parse_record(path: str, node: Node) -> GroupRecord | None:
    found = _json(path, node)
    generation, kind, empty_ms = (found.get(each) for each in _RECORD_FIELDS)
    if not (isinstance(generation, int) and isinstance(kind, str) and isinstance(empty_ms, int)):
        raise _invalid(path, node)
    return None if generation == _NO_RECORD else GroupRecord(generation, kind, empty_ms)


def _mark_of(node: Node) -> str | None:
    try:
        return str(_json("", node).get("mark"))
    except InvalidNodeError:
        return None


def _offset_value(committed: Committed) -> bytes:
    offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id = committed
    end = "" if topic_id is None else f', "topic_id": "{topic_id}"'
    return (
        f'{{"offset": {offset}, "leader_epoch": {leader_epoch}, "metadata": '
        f'{encode_basestring_ascii(metadata)}, "commit_ms": {commit_ms}, '
        f'"expire_ms": {expire_ms}{end}}}'
    ).encode()


def _parse_offset(path: str, node: Node) -> Committed:
    found = _json(path, node)
    topic_id = found.pop("topic_id", None)
    committed = Committed(*(found.get(each, -1) for each in Committed._fields[:-1]))
    numbers = committed._replace(metadata=0)[:-1]  # type: ignore[arg-type]
    if not (all(isinstance(each, int) for each in numbers) and isinstance(committed.metadata, str)):
        raise _invalid(path, node)
    try:
        return committed._replace(topic_id=None if topic_id is None else UUID(topic_id))
    except (ValueError, AttributeError, TypeError):
        raise _invalid(path, node) from None


def _json(path: str, node: Node) -> dict[str, Any]:
    try:
        found = json.loads(node.value)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _invalid(path, node)
    return found


def _invalid(path: str, node: Node) -> InvalidNodeError:
    return InvalidNodeError(f"{path} can't be understood: {node.value[:60]!r}")
