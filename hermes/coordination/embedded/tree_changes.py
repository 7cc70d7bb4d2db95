"""What a transaction changes, as values: the tree produces them, the store writes them.

They hold copies, so that they say the same whenever they are written.
"""

from typing import NamedTuple, TypeAlias

from hermes.coordination.embedded.jute_records import Acl


class NodeWritten(NamedTuple):
    """A node was created or its data or ACL set; its values now, as `ZNode` names them."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    czxid: int
    mzxid: int
    pzxid: int
    ctime: int
    mtime: int
    version: int
    acl_version: int
    created_children: int
    owner: int


class ChildrenChanged(NamedTuple):
    """A child of a node was created or deleted, which changes these two values of the parent."""

    path: str
    created_children: int
    pzxid: int


class NodeDeleted(NamedTuple):
    path: str


class SessionOpened(NamedTuple):
    """A session began, or is now known to be this broker's own (server_sessions.py)."""

    session_id: int
    password: bytes
    timeout_ms: int
    is_own: bool = False


class SessionClosed(NamedTuple):
    session_id: int


Change: TypeAlias = NodeWritten | ChildrenChanged | NodeDeleted | SessionOpened | SessionClosed
