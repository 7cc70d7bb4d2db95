"""The broker's own way to the nodes: what it is told is on disk, and clients see its changes."""

from typing import Any

import pytest
from twisted.python.failure import Failure

from hermes.coordination.embedded.clients import Clients
from hermes.coordination.embedded.jute_records import Acl, AclIdentity, AclPermission
from hermes.coordination.embedded.own_nodes import OwnNodes
from hermes.coordination.embedded.tree_changes import NodeWritten
from hermes.coordination.nodes import Node, NodeTransaction
from hermes.errors import CoordinationError, CoordinationUnavailableError


class Own:
    """The nodes, and what was told, in a processor's bench."""

    def __init__(self, bench: Any) -> None:
        self.clients = Clients(bench.clock, processor=bench.processor)
        self.nodes = OwnNodes(bench.clock, self.clients)
        self.told: list[Any] = []

    def call(self, name: str, *args: Any) -> None:
        self.nodes.call_then(self.told.append, getattr(self.nodes, name), *args)

    def now(self, name: str, *args: Any) -> Any:
        """What a call gives where the disk is prompt."""
        self.call(name, *args)
        result = self.told.pop()
        if isinstance(result, Failure):
            result.raiseException()
        return result


@pytest.fixture
def own(bench: Any) -> Own:
    return Own(bench)


def test_it_is_told_what_is_on_disk(bench: Any, own: Own) -> None:
    own.now("ensure_path", "/a/b")
    bench.disk.is_slow = True
    own.call("set", "/a/b", b"1")
    own.call("get", "/a/b")
    own.call("children", "/a")
    assert own.told == []
    bench.disk.finish()
    assert own.told == [1, Node(b"1", 1, 0), ["b"]]
    (written,) = (each for each in bench.disk.batches[-1][0] if isinstance(each, NodeWritten))
    assert (written.path, written.data, written.version, written.owner) == ("/a/b", b"1", 1, 0)


def test_one_write_is_for_all_that_came_meanwhile(bench: Any, own: Own) -> None:
    own.now("ensure_path", "/a")
    before = len(bench.disk.batches)
    bench.disk.is_slow = True
    for number in range(5):
        own.call("set", "/a", b"%d" % number)
    assert len(bench.disk.batches) == before + 1
    bench.disk.finish()
    bench.disk.finish()
    assert len(bench.disk.batches) == before + 2
    assert own.told == [1, 2, 3, 4, 5]


def test_clients_that_watch_are_told(bench: Any, own: Own) -> None:
    own.now("ensure_path", "/a")
    peer = bench.connect()
    bench.state.watches.data.add("/a", peer)
    bench.disk.is_slow = True
    own.call("set", "/a", b"1")
    assert peer.events == []
    bench.disk.finish()
    assert len(peer.events) == 1


def test_a_server_out_of_service_is_not_available(bench: Any, own: Own) -> None:
    own.now("ensure_path", "/a")
    bench.disk.is_slow = True
    own.call("set", "/a", b"1")
    own.call("get", "/a")
    bench.disk.fail(OSError("no room"))
    own.clients.processor = None
    own.nodes.abort()
    own.call("get", "/a")
    assert [type(each.value) for each in own.told] == [CoordinationUnavailableError] * 3


def test_a_node_that_is_not_as_it_was_is_not_changed(own: Own) -> None:
    own.now("ensure_path", "/a")
    for path, version in (("/a", 1), ("/b", -1)):
        with pytest.raises(CoordinationUnavailableError):
            own.now("set", path, b"", version)
    with pytest.raises(CoordinationError):
        own.now("ensure_path", "/a/../b")
    assert own.now("get_all", ["/a", "/b"]) == [Node(b"", 0, 0), None]
    assert own.now("children", "/b") == []


def test_a_transaction_is_done_as_a_whole(bench: Any, own: Own) -> None:
    own.now("ensure_path", "/a")

    def fill(version: int) -> Any:
        def add(transaction: NodeTransaction) -> None:
            transaction.create("/a/b", b"1")
            transaction.delete("/a/b")
            transaction.set_data("/a", b"1", 0)
            transaction.check("/a", version)

        return add

    zxid = bench.state.tree.zxid
    failed = own.now("transact", fill(7))
    assert len(failed) == 4
    assert all(isinstance(each, Exception) for each in failed)
    assert (own.now("get", "/a"), bench.state.tree.zxid) == (Node(b"", 0, 0), zxid)
    done = own.now("transact", fill(1))
    assert not any(isinstance(each, Exception) for each in done)
    assert (own.now("get", "/a"), bench.state.tree.zxid) == (Node(b"1", 1, 0), zxid + 1)


def test_it_may_change_what_is_somebody_elses(bench: Any, own: Own) -> None:
    own.now("ensure_path", "/a")
    owner = AclIdentity("digest", "somebody:else")
    bench.state.tree.nodes["/a"].acl = (Acl(AclPermission(31), owner),)
    assert own.now("set", "/a", b"1") == 1
