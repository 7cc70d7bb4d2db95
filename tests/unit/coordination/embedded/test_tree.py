"""The tree under random transactions, taken back or kept, against what must stay true."""

import copy
import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.coordination.embedded.jute_records import OPEN_ACL, READ_ACL, EventType
from hermes.coordination.embedded.transaction import Transaction
from hermes.coordination.embedded.tree import (
    PERMANENT,
    DataTree,
    check_path,
    child_name,
    parent_path,
)
from hermes.coordination.embedded.tree_changes import (
    Change,
    ChildrenChanged,
    NodeDeleted,
    NodeWritten,
)
from hermes.coordination.embedded.zookeeper_errors import RequestRefusedError, ZooKeeperCode
from hermes.coordination.embedded.zookeeper_requests import (
    CheckRequest,
    CreateRequest,
    DeleteRequest,
    SetAclRequest,
    SetDataRequest,
)

SESSION = 77

paths = st.sampled_from(["/a", "/b", "/a/b", "/a/b/c", "/a/", "/zookeeper/x", "/a/n-0000000000"])
versions = st.sampled_from([-1, -1, -1, 0, 1])
data = st.sampled_from([None, b"", b"data"])
operations = st.one_of(
    st.builds(CreateRequest, paths, data, st.just(OPEN_ACL), st.integers(0, 3)),
    st.builds(DeleteRequest, paths, versions),
    st.builds(SetDataRequest, paths, data, versions),
    st.builds(SetAclRequest, paths, st.sampled_from([OPEN_ACL, OPEN_ACL + READ_ACL]), versions),
    st.builds(CheckRequest, paths, versions),
)


def apply(transaction: Transaction, operation: Any) -> None:
    names = {
        CreateRequest: transaction.create,
        DeleteRequest: transaction.delete,
        SetDataRequest: transaction.set_data,
        SetAclRequest: transaction.set_acl,
        CheckRequest: transaction.check,
    }
    names[type(operation)](operation)


def contents(tree: DataTree) -> Any:
    """Everything that can be seen of a tree; the order of children is none of it."""
    nodes = {
        path: (node.written(path), frozenset(node.children)) for path, node in tree.nodes.items()
    }
    return nodes, {owner: set(owned) for owner, owned in tree.ephemerals.items()}, tree.zxid


def check_invariants(tree: DataTree) -> None:
    children: dict[str, set[str]] = {path: set() for path in tree.nodes}
    owned: dict[int, set[str]] = {}
    for path, node in tree.nodes.items():
        if path != "/":
            children[parent_path(path)].add(child_name(path))
        if node.owner:
            owned.setdefault(node.owner, set()).add(path)
            assert not node.children
        assert node.stat.cversion == 2 * node.created_children - len(node.children)
        assert node.pzxid <= tree.zxid
    assert {path: set(node.children) for path, node in tree.nodes.items()} == children
    assert {owner: set(paths_) for owner, paths_ in tree.ephemerals.items()} == owned
    assert set(PERMANENT) <= set(tree.nodes)


def replay(stored: dict[str, NodeWritten], changes: Sequence[Change]) -> None:
    """Do to a table of rows what the store does."""
    for change in changes:
        match change:
            case NodeWritten(path):
                stored[path] = change
            case NodeDeleted(path):
                del stored[path]
            case ChildrenChanged(path, created, pzxid):
                stored[path] = stored[path]._replace(created_children=created, pzxid=pzxid)


@given(st.lists(st.tuples(st.lists(operations, max_size=4), st.booleans()), max_size=12))
def test_transactions(transactions: list[tuple[list[Any], bool]]) -> None:
    tree, stored = DataTree(), dict[str, NodeWritten]()
    for operations_, is_kept in transactions:
        before = copy.deepcopy(contents(tree))
        transaction = Transaction(tree, 1000 + tree.zxid, SESSION)
        for operation in operations_:
            state = copy.deepcopy(contents(tree))
            try:
                apply(transaction, operation)
            except RequestRefusedError:
                assert contents(tree) == state
        if is_kept:
            transaction.commit()
            replay(stored, transaction.changes)
            check_invariants(tree)
        else:
            transaction.rollback()
            assert contents(tree) == before
            assert transaction.changes == transaction.events == []
    assert contents(DataTree.restore(stored.values(), tree.zxid)) == contents(tree)
    last = Transaction(tree, 0, SESSION)
    assert last.delete_ephemerals(1000)
    last.commit()
    check_invariants(tree)
    assert tree.ephemerals == {}


def test_events_say_what_happened_in_order() -> None:
    tree = DataTree()
    transaction = Transaction(tree, 5, SESSION)
    path = transaction.create(CreateRequest("/a-", b"", OPEN_ACL, 2))
    transaction.set_data(SetDataRequest(path, b"x", 0))
    transaction.set_acl(SetAclRequest(path, READ_ACL, 0))
    transaction.delete(DeleteRequest(path, 1))
    assert path == "/a-0000000000"
    assert transaction.events == [
        (EventType.CREATED, path, OPEN_ACL, OPEN_ACL),
        (EventType.DATA_CHANGED, path, OPEN_ACL, ()),
        (EventType.DELETED, path, READ_ACL, OPEN_ACL),
    ]


@pytest.mark.parametrize("end", [Transaction.commit, Transaction.rollback])
def test_a_transaction_that_has_ended_is_freed_at_once(end: Callable[[Transaction], None]) -> None:
    """Thousands of topics may be registered at once; garbage would hold up the broker."""
    transaction = Transaction(DataTree(), 1, SESSION)
    transaction.create(CreateRequest("/a", b"", OPEN_ACL, 0))
    gone = weakref.ref(transaction)
    gc.disable()
    try:
        end(transaction)
        del transaction
        assert gone() is None
    finally:
        gc.enable()


def test_numbers_wrap_as_javas_do() -> None:
    tree = DataTree()
    tree.nodes["/"].created_children = 0x7FFFFFFF
    tree.nodes["/"].version = 0x80000000
    assert tree.nodes["/"].stat.encode()
    assert tree.nodes["/"].stat.version == -0x80000000
    assert tree.nodes["/"].stat.cversion == -2 - len(tree.nodes["/"].children)


@pytest.mark.parametrize(
    "path", ["", "a", "//", "/a/", "/a//b", "/.", "/a/..", "/\0", "/\x1f", "/\x7f", "/\ufff0"]
)
def test_no_paths(path: str) -> None:
    with pytest.raises(RequestRefusedError) as refusal:
        check_path(path)
    assert refusal.value.code is ZooKeeperCode.BAD_ARGUMENTS


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/...", "/.a", "/\xa0", "/\uf900", "/ "])
def test_paths(path: str) -> None:
    check_path(path)
