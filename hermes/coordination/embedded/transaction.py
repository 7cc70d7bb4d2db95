"""A transaction on the tree: changes that are carried out at once and can be rolled back.

One that is not rolled back leaves what it did as `changes` (for the store) and `events` (for the
watches). The order of the checks is ZooKeeper's, since it decides which error a client gets.

Source: ZooKeeper's `PrepRequestProcessor.pRequest2Txn` and `DataTree`.
"""

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from hermes.coordination.embedded.access_control import expand_acl
from hermes.coordination.embedded.jute_records import Acl, AclPermission, EventType
from hermes.coordination.embedded.limits import MAX_CHILDREN_BYTES
from hermes.coordination.embedded.rights import Rights
from hermes.coordination.embedded.tree import (
    PERMANENT,
    DataTree,
    ZNode,
    acl_weight,
    check_path,
    child_name,
    data_weight,
    node_bytes,
    parent_path,
)
from hermes.coordination.embedded.tree_changes import Change, ChildrenChanged, NodeDeleted
from hermes.coordination.embedded.zookeeper_errors import RequestRefusedError, ZooKeeperCode
from hermes.coordination.embedded.zookeeper_requests import (
    CheckRequest,
    CreateRequest,
    DeleteRequest,
    SetAclRequest,
    SetDataRequest,
)

_EPHEMERAL = 1
_SEQUENTIAL = 2
_LAST_FLAGS = 6  # containers and nodes with a time to live are known to ZooKeeper, but not served


class NodeEvent(NamedTuple):
    kind: EventType
    path: str
    acl: tuple[Acl, ...]
    parent_acl: tuple[Acl, ...]


class Transaction:
    """Changes under one zxid, made for one client.

    Every method either does what it says, or raises RequestRefusedError and changes nothing.

    Args:
        session_id: whose ephemeral nodes these will be.
        rights: of the client; None for the server itself.

    Attributes:
        changes, events: what was changed, and what happened, in order.
    """

    def __init__(
        self, tree: DataTree, now_ms: int, session_id: int, rights: Rights | None = None
    ) -> None:
        self.changes: list[Change] = []
        self.events: list[NodeEvent] = []
        self._tree = tree
        self._zxid = tree.zxid + 1
        self._now_ms = now_ms
        self._session_id = session_id
        self._rights = Rights() if rights is None else rights
        self._is_own = self._rights.is_own
        self._undo: list[Callable[[], None]] = []

    def commit(self) -> None:
        self._tree.zxid = self._zxid
        self._undo.clear()  # it refers to this transaction

    def rollback(self) -> None:
        while self._undo:
            self._undo.pop()()
        self.changes.clear()
        self.events.clear()

    def has(self, path: str) -> bool:
        return path in self._tree.nodes

    # -- operations -------------------------------------------------------------------------------

    def create(self, request: CreateRequest) -> str:
        """Create a node; returns its path, with the number that a sequence node gets."""
        sequential, ephemeral = _kind(request.flags)
        above = parent_path(request.path)
        # Of a sequence node the name, and so perhaps the group, isn't known yet.
        self._rights.check_write(above if sequential else request.path)
        acl = expand_acl(request.acl, self._rights.identities)
        parent = self._tree.node(above)
        number = f"{parent.created_children:010d}" if sequential else ""
        path = request.path + number
        self._rights.check_permission(path, parent.acl, AclPermission.CREATE)
        check_path(path)
        if path in self._tree.nodes:
            raise RequestRefusedError(ZooKeeperCode.NODE_EXISTS, path)
        if parent.owner:
            raise RequestRefusedError(ZooKeeperCode.NO_CHILDREN_FOR_EPHEMERALS, above)
        owner = self._session_id if ephemeral else 0
        node = ZNode.new(request.data, acl, self._zxid, self._now_ms, owner)
        if parent.children_bytes + len(path) > MAX_CHILDREN_BYTES:
            raise RequestRefusedError(
                ZooKeeperCode.QUOTA_EXCEEDED, f"{above} has too many children"
            )
        self._weigh(node_bytes(path, node))
        self._attach(path, node)
        self._undo.append(lambda: self._detach(path, node))
        self._children_changed(above, parent, created=1)
        self.changes += (node.written(path), self._parent_change(above, parent))
        self.events.append(NodeEvent(EventType.CREATED, path, acl, parent.acl))
        return path

    def delete(self, request: DeleteRequest) -> None:
        path = request.path
        above = parent_path(path)
        if path in PERMANENT:
            raise RequestRefusedError(ZooKeeperCode.BAD_ARGUMENTS, f"{path} can't be deleted")
        self._rights.check_write(path)
        parent = self._tree.node(above)
        self._rights.check_permission(path, parent.acl, AclPermission.DELETE)
        node = self._tree.node(path)
        _check_version(node.version, request.version, path)
        if node.children:
            raise RequestRefusedError(ZooKeeperCode.NOT_EMPTY, path)
        self._drop(path, node, above, parent)

    def delete_ephemerals(self, most: int) -> bool:
        """Delete nodes of the session, which is at its end; returns whether none is left."""
        for path in tuple(islice(self._tree.ephemerals.get(self._session_id, ()), most)):
            above = parent_path(path)
            self._drop(path, self._tree.node(path), above, self._tree.node(above))
        return self._session_id not in self._tree.ephemerals

    def set_data(self, request: SetDataRequest) -> ZNode:
        node = self._tree.nodes.get(request.path) if self._is_own else None
        if node is None:
            self._rights.check_write(request.path)
            node = self._permitted(request.path, AclPermission.WRITE)
        if request.version not in (-1, node.version):
            _check_version(node.version, request.version, request.path)
        if len(request.data or b"") != len(node.data or b""):
            self._weigh(data_weight(request.data) - data_weight(node.data))
        before = node.data, node.version, node.mzxid, node.mtime

        def restore() -> None:
            node.data, node.version, node.mzxid, node.mtime = before

        self._undo.append(restore)
        node.data = request.data
        node.version += 1
        node.mzxid, node.mtime = self._zxid, self._now_ms
        self.changes.append(node.written(request.path))
        self.events.append(NodeEvent(EventType.DATA_CHANGED, request.path, node.acl, ()))
        return node

    def set_acl(self, request: SetAclRequest) -> ZNode:
        check_path(request.path)
        self._rights.check_write(request.path)
        acl = expand_acl(request.acl, self._rights.identities)
        node = self._permitted(request.path, AclPermission.ADMIN)
        _check_version(node.acl_version, request.version, request.path)
        self._weigh(acl_weight(acl) - acl_weight(node.acl))
        self._remember(node, "acl", "acl_version")
        node.acl = acl
        node.acl_version += 1
        self.changes.append(node.written(request.path))
        return node

    def check(self, request: CheckRequest) -> None:
        node = self._tree.nodes.get(request.path) if self._is_own else None
        if node is None:
            self._rights.check_read(request.path)
            node = self._permitted(request.path, AclPermission.READ)
        if request.version not in (-1, node.version):
            _check_version(node.version, request.version, request.path)

    # -- steps ------------------------------------------------------------------------------------

    def _permitted(self, path: str, permission: AclPermission) -> ZNode:
        node = self._tree.nodes.get(path)
        if node is None:
            check_path(path)
            raise RequestRefusedError(ZooKeeperCode.NO_NODE, path)
        self._rights.check_permission(path, node.acl, permission)
        return node

    def _drop(self, path: str, node: ZNode, above: str, parent: ZNode) -> None:
        self._weigh(-node_bytes(path, node))
        self._detach(path, node)
        self._undo.append(lambda: self._attach(path, node))
        self._children_changed(above, parent, created=0)
        self.changes += (NodeDeleted(path), self._parent_change(above, parent))
        self.events.append(NodeEvent(EventType.DELETED, path, node.acl, parent.acl))

    def _weigh(self, change_bytes: int) -> None:
        tree = self._tree
        tree.weigh(change_bytes)

        def restore() -> None:
            tree.weight_bytes -= change_bytes

        self._undo.append(restore)

    def _attach(self, path: str, node: ZNode) -> None:
        tree = self._tree
        tree.nodes[path] = node
        tree.nodes[parent_path(path)].add_child(child_name(path))
        if node.owner:
            tree.ephemerals.setdefault(node.owner, {})[path] = None

    def _detach(self, path: str, node: ZNode) -> None:
        tree = self._tree
        del tree.nodes[path]
        tree.nodes[parent_path(path)].remove_child(child_name(path))
        if node.owner:
            owned = tree.ephemerals[node.owner]
            del owned[path]
            if not owned:
                del tree.ephemerals[node.owner]

    def _children_changed(self, above: str, parent: ZNode, created: int) -> None:
        self._remember(parent, "created_children", "pzxid")
        parent.created_children += created
        parent.pzxid = self._zxid

    @staticmethod
    def _parent_change(above: str, parent: ZNode) -> Change:
        if above in PERMANENT:  # it may not be stored yet
            return parent.written(above)
        return ChildrenChanged(above, parent.created_children, parent.pzxid)

    def _remember(self, node: ZNode, *names: str) -> None:
        before = [(name, getattr(node, name)) for name in names]

        def restore() -> None:
            for name, value in before:
                setattr(node, name, value)

        self._undo.append(restore)


def _kind(flags: int) -> tuple[bool, bool]:
    if not 0 <= flags <= _LAST_FLAGS:
        raise RequestRefusedError(ZooKeeperCode.BAD_ARGUMENTS, f"flags {flags}")
    if flags > _EPHEMERAL | _SEQUENTIAL:
        raise RequestRefusedError(ZooKeeperCode.UNIMPLEMENTED, f"flags {flags}")
    return bool(flags & _SEQUENTIAL), bool(flags & _EPHEMERAL)


def _check_version(version: int, wanted: int, path: str) -> None:
    if wanted not in {-1, version}:
        raise RequestRefusedError(
            ZooKeeperCode.BAD_VERSION, f"{path} has version {version}, not {wanted}"
        )
