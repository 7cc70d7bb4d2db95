"""The tree of nodes as plain state: no clock, no socket, no file.

Reading is here; every change goes through a `Transaction` (transaction.py), which keeps these
invariants: a node's parent exists; an ephemeral node has no children; `ephemerals` holds exactly
the nodes that have an owner.

Source of the numbers in a stat: ZooKeeper's `DataTree` and `DataNode`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from hermes.coordination.embedded.access import check_permission, hide_digests, is_permitted
from hermes.coordination.embedded.changes import NodeWritten
from hermes.coordination.embedded.errors import ErrorCode, RequestRefusedError
from hermes.coordination.embedded.paths import ROOT, child_name, parent_path
from hermes.coordination.embedded.records import (
    OPEN_ACL,
    READ_ACL,
    Acl,
    Identity,
    Permission,
    Stat,
)

__all__ = ["PERMANENT", "DataTree", "Node"]

#: Every ZooKeeper has these nodes, and they can't be deleted. The last one can't be written to.
PERMANENT: Final = (ROOT, "/zookeeper", "/zookeeper/quota", "/zookeeper/config")


class Node:
    """One node.

    Attributes:
        data: what it holds; None when its creator gave Java's null.
        acl: who may do what.
        czxid: the transaction that created it.
        mzxid: the one that last set its data.
        pzxid: the one by which a child last came or went.
        ctime: when it was created, in ms since 1970.
        mtime: when its data was last set, in ms since 1970.
        version: how often its data was set.
        acl_version: how often its ACL was set.
        created_children: how many children it ever had: the number of the next sequence node.
        owner: the session that it lives with; 0 when it is persistent.
        children: their names, in the order of their creation.
    """

    __slots__ = (
        "acl",
        "acl_version",
        "children",
        "created_children",
        "ctime",
        "czxid",
        "data",
        "mtime",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(
        self,
        data: bytes | None = b"",
        acl: tuple[Acl, ...] = OPEN_ACL,
        zxid: int = 0,
        now_ms: int = 0,
        owner: int = 0,
    ) -> None:
        self.data = data
        self.acl = acl
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = now_ms
        self.version = self.acl_version = self.created_children = 0
        self.owner = owner
        self.children: dict[str, None] = {}

    @property
    def stat(self) -> Stat:
        """What a client is told."""
        count = len(self.children)
        # Every child that is gone counts once more for its going.
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
        """Its values now, to be stored."""
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
    """All nodes.

    Attributes:
        nodes: by path.
        ephemerals: of each session that owns nodes their paths.
        zxid: the newest transaction.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {path: Node() for path in PERMANENT}
        for path in PERMANENT[1:]:
            self.nodes[parent_path(path)].children[child_name(path)] = None
        self.nodes["/zookeeper/config"].acl = READ_ACL
        self.ephemerals: dict[int, dict[str, None]] = {}
        self.zxid = 0

    @classmethod
    def restore(cls, stored: Iterable[NodeWritten], zxid: int) -> "DataTree":
        """Make a tree of nodes that were stored.

        Args:
            stored: in any order; permanent nodes may be among them.
            zxid: the newest transaction that they reflect.
        """
        tree = cls()
        tree.zxid = zxid
        for values in stored:
            node = tree.nodes.setdefault(values.path, Node())
            for name, value in zip(values._fields[1:], values[1:], strict=True):
                setattr(node, name, value)
            if values.owner:
                tree.ephemerals.setdefault(values.owner, {})[values.path] = None
        for path in sorted(tree.nodes, key=lambda each: tree.nodes[each].czxid):
            if path != ROOT:
                tree.nodes[parent_path(path)].children[child_name(path)] = None
        return tree

    def node(self, path: str) -> Node:
        """Find a node.

        Raises:
            RequestRefusedError: with NO_NODE.
        """
        node = self.nodes.get(path)
        if node is None:
            raise RequestRefusedError(ErrorCode.NO_NODE, path)
        return node

    def readable(self, path: str, identities: Sequence[Identity]) -> Node:
        """Find a node that the client may read.

        Raises:
            RequestRefusedError: with NO_NODE or NO_AUTH.
        """
        node = self.node(path)
        check_permission(node.acl, Permission.READ, identities)
        return node

    def visible_acl(self, path: str, identities: Sequence[Identity]) -> tuple[Acl, ...]:
        """A node's ACL as the client may see it: without digests, unless it may change it.

        Raises:
            RequestRefusedError: with NO_NODE or NO_AUTH.
        """
        node = self.node(path)
        check_permission(node.acl, Permission.READ | Permission.ADMIN, identities)
        if is_permitted(node.acl, Permission.ADMIN, identities):
            return node.acl
        return hide_digests(node.acl)

    @property
    def ephemeral_count(self) -> int:
        """How many nodes live with a session."""
        return sum(map(len, self.ephemerals.values()))

    @property
    def data_bytes(self) -> int:
        """What paths and data take together; walks the whole tree."""
        return sum(len(path) + len(node.data or b"") for path, node in self.nodes.items())


def _int32(value: int) -> int:
    """Wrap around as Java's int does."""
    return (value + 0x80000000) % 0x100000000 - 0x80000000
