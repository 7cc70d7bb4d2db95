"""The tree of nodes and their paths, as plain state: no clock, no socket, no file.

Reading is here; every change goes through a `Transaction` (transaction.py), which keeps these
invariants: a node's parent exists; an ephemeral node has no children; `ephemerals` holds exactly
the nodes that have an owner.

Source of the numbers in a stat: ZooKeeper's `DataTree` and `DataNode`; of what a path may be:
`PathUtils` and `PrepRequestProcessor`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from hermes.coordination.embedded.access_control import hide_digests
from hermes.coordination.embedded.jute import encode_string
from hermes.coordination.embedded.jute_records import (
    OPEN_ACL,
    READ_ACL,
    Acl,
    AclPermission,
    Stat,
)
from hermes.coordination.embedded.limits import MAX_TREE_BYTES
from hermes.coordination.embedded.rights import Rights
from hermes.coordination.embedded.tree_changes import NodeWritten
from hermes.coordination.embedded.zookeeper_errors import RequestRefusedError, ZooKeeperCode

ROOT: Final = "/"

# Surrogates and what follows up to U+F8FF are not characters to ZooKeeper; nor is a path above
# U+FFFF, which Java sees as two surrogates.
_ILLEGAL: Final = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")

_NO_NAME: Final = re.compile(r"/\.{0,2}(?:/|\Z)")

# Measured: what a node takes without its path, and how often a path is held, in part or whole.
_NODE_BYTES: Final = 800
_PATH_FACTOR: Final = 3
_ENTRY_BYTES: Final = 200

# Sizes of data count rounded up to this, so that a number that grows by a digit weighs the same.
_DATA_STEP: Final = 64

#: Every ZooKeeper has these nodes, and they can't be deleted. The last one can't be written to.
PERMANENT: Final = (ROOT, "/zookeeper", "/zookeeper/quota", "/zookeeper/config")


@dataclass(slots=True, eq=False)
class ZNode:
    """One node; fields with ZooKeeper's names are as in `Stat`.

    Attributes:
        data: None when its creator gave Java's null.
        created_children: how many children it ever had: the number of the next sequence node.
        owner: the session that it lives with; 0 when it is persistent.
        children: their names, in the order of their creation, each with itself encoded.
        children_bytes: what those take in a response.
    """

    data: bytes | None = b""
    acl: tuple[Acl, ...] = OPEN_ACL
    czxid: int = 0
    mzxid: int = 0
    pzxid: int = 0
    ctime: int = 0
    mtime: int = 0
    version: int = 0
    acl_version: int = 0
    created_children: int = 0
    owner: int = 0
    children: dict[str, bytes] = field(default_factory=dict)
    children_bytes: int = 0

    @classmethod
    def new(
        cls, data: bytes | None, acl: tuple[Acl, ...], zxid: int, now_ms: int, owner: int
    ) -> "ZNode":
        return cls(data, acl, zxid, zxid, zxid, now_ms, now_ms, owner=owner)

    def add_child(self, name: str) -> None:
        encoded = self.children[name] = encode_string(name)
        self.children_bytes += len(encoded)

    def remove_child(self, name: str) -> None:
        self.children_bytes -= len(self.children.pop(name))

    @property
    def stat(self) -> Stat:
        count = len(self.children)
        # A child that was deleted counts twice: for its creation and its deletion.
        changes = _int32(self.created_children * 2 - count)
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            _int32(self.version),
            changes,
            _int32(self.acl_version),
            self.owner,
            len(self.data or b""),
            count,
            self.pzxid,
        )

    def written(self, path: str) -> NodeWritten:
        return NodeWritten(
            path,
            self.data,
            self.acl,
            self.czxid,
            self.mzxid,
            self.pzxid,
            self.ctime,
            self.mtime,
            self.version,
            self.acl_version,
            self.created_children,
            self.owner,
        )


class DataTree:
    """`weight_bytes`: what the nodes take, by `node_bytes`; `ephemerals`: by session, their paths.

    `max_bytes`: what they may take; whatever makes them larger is then refused.
    """

    def __init__(self, max_bytes: int = MAX_TREE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.nodes: dict[str, ZNode] = {path: ZNode() for path in PERMANENT}
        for path in PERMANENT[1:]:
            self.nodes[parent_path(path)].add_child(child_name(path))
        self.nodes["/zookeeper/config"].acl = READ_ACL
        self.ephemerals: dict[int, dict[str, None]] = {}
        self.zxid = 0
        self.weight_bytes = sum(node_bytes(*each) for each in self.nodes.items())

    @classmethod
    def restore(
        cls, stored: Iterable[NodeWritten], zxid: int, max_bytes: int = MAX_TREE_BYTES
    ) -> "DataTree":
        """Make a tree of nodes that were stored, in any order.

        Permanent nodes may be among them. More than `max_bytes` stays, but nothing is added.
        """
        tree = cls(max_bytes)
        tree.zxid = zxid
        for values in stored:
            node = tree.nodes.setdefault(values.path, ZNode())
            for name, value in zip(values._fields[1:], values[1:], strict=True):
                setattr(node, name, value)
            if values.owner:
                tree.ephemerals.setdefault(values.owner, {})[values.path] = None
        for path in sorted(tree.nodes, key=lambda each: tree.nodes[each].czxid):
            if path not in PERMANENT:
                tree.nodes[parent_path(path)].add_child(child_name(path))
        tree.weight_bytes = sum(node_bytes(*each) for each in tree.nodes.items())
        return tree

    def node(self, path: str) -> ZNode:
        """Find a node, or refuse the request with NO_NODE."""
        node = self.nodes.get(path)
        if node is None:
            raise RequestRefusedError(ZooKeeperCode.NO_NODE, path)
        return node

    def readable(self, path: str, rights: Rights) -> ZNode:
        """Find a node that the client may read, or refuse the request with NO_NODE or NO_AUTH."""
        rights.check_read(path)
        node = self.node(path)
        rights.check_permission(path, node.acl, AclPermission.READ)
        return node

    def visible_acl(self, path: str, rights: Rights) -> tuple[Acl, ...]:
        """A node's ACL, without digests unless the client may change it. Refuses as `readable`."""
        rights.check_read(path)
        node = self.node(path)
        rights.check_permission(path, node.acl, AclPermission.READ | AclPermission.ADMIN)
        is_admin = rights.is_permitted(path, node.acl, AclPermission.ADMIN)
        if is_admin and rights.may_write(path):
            return node.acl
        return hide_digests(node.acl)

    @property
    def ephemeral_count(self) -> int:
        return sum(map(len, self.ephemerals.values()))

    def weigh(self, change_bytes: int) -> None:
        """Count what a change adds or, below 0, frees; refuse it with QUOTA_EXCEEDED."""
        if change_bytes > 0 and self.weight_bytes + change_bytes > self.max_bytes:
            raise RequestRefusedError(ZooKeeperCode.QUOTA_EXCEEDED, "the tree is full")
        self.weight_bytes += change_bytes


def node_bytes(path: str, node: ZNode) -> int:
    return _NODE_BYTES + _PATH_FACTOR * len(path) + data_weight(node.data) + acl_weight(node.acl)


def data_weight(data: bytes | None) -> int:
    return -(-len(data or b"") // _DATA_STEP) * _DATA_STEP


def acl_weight(acl: tuple[Acl, ...]) -> int:
    return 0 if acl == OPEN_ACL else sum(_ENTRY_BYTES + len(each.identity.name) for each in acl)


def check_path(path: str) -> None:
    if path == ROOT:
        return
    if not path.startswith("/"):
        raise RequestRefusedError(ZooKeeperCode.BAD_ARGUMENTS, f"{path!r} does not start with '/'")
    if _NO_NAME.search(path):
        raise RequestRefusedError(
            ZooKeeperCode.BAD_ARGUMENTS, f"{path!r} has an empty or relative part"
        )
    if _ILLEGAL.search(path):
        raise RequestRefusedError(ZooKeeperCode.BAD_ARGUMENTS, f"{path!r} has an illegal character")


def parent_path(path: str) -> str:
    """The parent's path; the root's is itself. BAD_ARGUMENTS: no '/', or a null character."""
    parent, slash, _ = path.rpartition("/")
    if not slash or "\0" in path:
        raise RequestRefusedError(ZooKeeperCode.BAD_ARGUMENTS, f"{path!r} is not a path")
    return parent or ROOT


def child_name(path: str) -> str:
    return path.rpartition("/")[2]


def _int32(value: int) -> int:
    return (value + 0x80000000) % 0x100000000 - 0x80000000
