"""Requests that change nothing: what they answer, and the watches that they set.

Source: ZooKeeper's `FinalRequestProcessor` and `DataTree.setWatches`.
"""

from collections.abc import Hashable, Iterator
from typing import TypeAlias, TypeVar

from hermes.coordination.embedded.jute import encode_buffer, encode_string, encode_vector
from hermes.coordination.embedded.jute_records import EventType, Stat
from hermes.coordination.embedded.rights import Rights
from hermes.coordination.embedded.tree import DataTree, ZNode
from hermes.coordination.embedded.watches import Watches, WatchTable
from hermes.coordination.embedded.zookeeper_errors import RequestRefusedError, ZooKeeperCode
from hermes.coordination.embedded.zookeeper_requests import (
    ExistsRequest,
    GetAclRequest,
    GetChildrenRequest,
    GetDataRequest,
    SetWatchesRequest,
    SyncRequest,
)

#: What `serve_read` serves.
ReadRequest: TypeAlias = (
    ExistsRequest | GetDataRequest | GetChildrenRequest | GetAclRequest | SyncRequest
)

_Watcher = TypeVar("_Watcher", bound=Hashable)


def serve_read(
    tree: DataTree,
    watches: Watches[_Watcher],
    watcher: _Watcher,
    rights: Rights,
    request: ReadRequest,
) -> bytes:
    """Make the response's record. Where it is refused only `exists` sets its watch nevertheless."""
    match request:
        case ExistsRequest(path, watch):
            rights.check_read(path)
            _watch(watches.data, path, watcher, watch)
            if "\0" in path:
                raise RequestRefusedError(ZooKeeperCode.BAD_ARGUMENTS, "a null character in a path")
            return _stat(path, tree.node(path), rights).encode()
        case GetDataRequest(path, watch):
            node = tree.readable(path, rights)
            _watch(watches.data, path, watcher, watch)
            return encode_buffer(node.data) + _stat(path, node, rights).encode()
        case GetChildrenRequest(path, watch, with_stat):
            node = tree.readable(path, rights)
            _watch(watches.children, path, watcher, watch)
            names = rights.names_of(path, node.children)
            stat = node.stat._replace(num_children=len(names))
            return encode_vector(names) + (stat.encode() if with_stat else b"")
        case GetAclRequest(path):
            acl = tree.visible_acl(path, rights)
            stat = _stat(path, tree.node(path), rights)
            return encode_vector([entry.encode() for entry in acl]) + stat.encode()
        case SyncRequest(path):
            return encode_string(path)


def _stat(path: str, node: ZNode, rights: Rights) -> Stat:
    """A node's stat; without the number of its children where not all of them are shown."""
    return node.stat._replace(num_children=0) if rights.is_filtered(path) else node.stat


def missed_events(
    tree: DataTree,
    watches: Watches[_Watcher],
    watcher: _Watcher,
    rights: Rights,
    request: SetWatchesRequest,
) -> Iterator[tuple[EventType, str]]:
    """Set the watches of a client's former connection again; not of what the rules hide from it.

    Yields the events of those that would have fired meanwhile, which are not set.
    """
    for path in filter(rights.may_read, request.data):
        node = tree.nodes.get(path)
        if node is None:
            yield EventType.DELETED, path
        elif node.mzxid > request.zxid:
            yield EventType.DATA_CHANGED, path
        else:
            watches.data.add(path, watcher)
    for path in filter(rights.may_read, request.exists):
        if path in tree.nodes:
            yield EventType.CREATED, path
        else:
            watches.data.add(path, watcher)
    for path in filter(rights.may_read, request.children):
        node = tree.nodes.get(path)
        if node is None:
            yield EventType.DELETED, path
        elif node.pzxid > request.zxid:
            yield EventType.CHILDREN_CHANGED, path
        else:
            watches.children.add(path, watcher)


def _watch(table: WatchTable[_Watcher], path: str, watcher: _Watcher, is_wanted: bool) -> None:
    if is_wanted:
        table.add(path, watcher)
