"""Requests that change nothing: what they answer, and the watches that they set.

Source: ZooKeeper's `FinalRequestProcessor` and `DataTree.setWatches`.
"""

from collections.abc import Collection, Hashable, Iterator
from typing import TypeAlias, TypeVar

from hermes.coordination.embedded.errors import RequestRefusedError, ZooKeeperCode
from hermes.coordination.embedded.jute import encode_buffer, encode_string, encode_vector
from hermes.coordination.embedded.records import EventType, Identity
from hermes.coordination.embedded.requests import (
    ExistsRequest,
    GetAclRequest,
    GetChildrenRequest,
    GetDataRequest,
    SetWatchesRequest,
    SyncRequest,
)
from hermes.coordination.embedded.tree import DataTree
from hermes.coordination.embedded.watches import Watches, WatchTable

#: What `serve_read` serves.
ReadRequest: TypeAlias = (
    ExistsRequest | GetDataRequest | GetChildrenRequest | GetAclRequest | SyncRequest
)

_Watcher = TypeVar("_Watcher", bound=Hashable)


def serve_read(
    tree: DataTree,
    watches: Watches[_Watcher],
    watcher: _Watcher,
    identities: Collection[Identity],
    request: ReadRequest,
) -> bytes:
    """Answer a request that changes nothing: make the response's record.

    Raises:
        RequestRefusedError: it can't be answered. Only `exists` sets its watch nevertheless.
    """
    match request:
        case ExistsRequest(path, watch):
            _watch(watches.data, path, watcher, watch)
            if "\0" in path:
                raise RequestRefusedError(ZooKeeperCode.BAD_ARGUMENTS, "a null character in a path")
            return tree.node(path).stat.encode()
        case GetDataRequest(path, watch):
            node = tree.readable(path, identities)
            _watch(watches.data, path, watcher, watch)
            return encode_buffer(node.data) + node.stat.encode()
        case GetChildrenRequest(path, watch, with_stat):
            node = tree.readable(path, identities)
            _watch(watches.children, path, watcher, watch)
            names = encode_vector(node.children.values())
            return names + (node.stat.encode() if with_stat else b"")
        case GetAclRequest(path):
            acl = tree.visible_acl(path, identities)
            return encode_vector([entry.encode() for entry in acl]) + tree.node(path).stat.encode()
        case SyncRequest(path):
            return encode_string(path)


def missed_events(
    tree: DataTree, watches: Watches[_Watcher], watcher: _Watcher, request: SetWatchesRequest
) -> Iterator[tuple[EventType, str]]:
    """Set the watches of a client's former connection again.

    Yields the events of those that would have fired meanwhile, which are not set.
    """
    for path in request.data:
        node = tree.nodes.get(path)
        if node is None:
            yield EventType.DELETED, path
        elif node.mzxid > request.zxid:
            yield EventType.DATA_CHANGED, path
        else:
            watches.data.add(path, watcher)
    for path in request.exists:
        if path in tree.nodes:
            yield EventType.CREATED, path
        else:
            watches.data.add(path, watcher)
    for path in request.children:
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
