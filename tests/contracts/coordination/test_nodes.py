"""Nodes: what can be done with them, what their stats say, and which error a fault gives."""

from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    InvalidACLError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ReconfigDisabledError,
)
from kazoo.protocol.serialization import Create, Delete, GetData, SetData
from kazoo.security import OPEN_ACL_UNSAFE


def ask(client: Any, request: Any) -> Any:
    """Send a request past kazoo's own checks."""
    result = client.handler.async_result()
    client._call(request, result)
    return result.get(20)


def test_a_node_holds_what_it_was_given(client: KazooClient) -> None:
    assert client.create("/a", b"one") == "/a"
    data, stat = client.get("/a")
    assert data == b"one"
    assert (stat.version, stat.cversion, stat.aversion) == (0, 0, 0)
    assert (stat.dataLength, stat.numChildren, stat.ephemeralOwner) == (3, 0, 0)
    assert stat.czxid == stat.mzxid == stat.pzxid > 0
    assert stat.ctime == stat.mtime > 1_600_000_000_000


def test_creating_can_tell_the_stat(client: KazooClient) -> None:
    path, stat = client.create("/a", b"one", include_data=True)
    assert path == "/a"
    assert stat == client.exists("/a")


@pytest.mark.parametrize("data", [b"", b"\0\xff", None])
def test_data_comes_back_as_it_was(client: KazooClient, data: bytes | None) -> None:
    client.create("/a", data)
    assert client.get("/a")[0] == data
    client.set("/a", b"else")
    client.set("/a", data)
    assert client.get("/a")[0] == data
    assert client.exists("/a").dataLength == len(data or b"")


def test_setting_data_counts_versions(client: KazooClient) -> None:
    client.create("/a", b"one")
    before = client.exists("/a")
    stat = client.set("/a", b"three", version=0)
    assert stat.version == 1
    assert stat.mzxid > before.mzxid
    assert (stat.czxid, stat.pzxid, stat.ctime) == (before.czxid, before.pzxid, before.ctime)
    assert client.get("/a") == (b"three", stat)
    assert client.set("/a", b"").version == 2


@pytest.mark.parametrize("version", [0, 2, -2])
def test_a_wrong_version_changes_nothing(client: KazooClient, version: int) -> None:
    client.create("/a", b"one")
    client.set("/a", b"two")
    with pytest.raises(BadVersionError):
        client.set("/a", b"three", version=version)
    with pytest.raises(BadVersionError):
        client.delete("/a", version=version)
    assert client.get("/a")[0] == b"two"
    client.delete("/a", version=1)
    assert client.exists("/a") is None


def test_children_and_what_they_do_to_the_parents_stat(client: KazooClient) -> None:
    client.create("/p")
    created = client.exists("/p")
    client.create("/p/a")
    client.create("/p/b")
    children, stat = client.get_children("/p", include_data=True)
    assert sorted(children) == ["a", "b"]
    assert (stat.cversion, stat.numChildren, stat.version) == (2, 2, 0)
    assert stat.pzxid == client.exists("/p/b").czxid > stat.mzxid == created.mzxid
    client.delete("/p/a")
    stat = client.exists("/p")
    assert (stat.cversion, stat.numChildren) == (3, 1)
    assert stat.pzxid > client.exists("/p/b").czxid


def test_sequence_nodes_are_numbered_by_the_parent(client: KazooClient) -> None:
    client.create("/p")
    assert client.create("/p/n-", sequence=True) == "/p/n-0000000000"
    assert client.create("/p/other-", sequence=True) == "/p/other-0000000001"
    client.delete("/p/n-0000000000")
    assert client.create("/p/plain") == "/p/plain"
    assert client.create("/p/n-", sequence=True, ephemeral=True) == "/p/n-0000000003"
    assert client.create("/p/", sequence=True) == "/p/0000000004"


def test_an_ephemeral_node_has_an_owner_and_no_children(client: KazooClient) -> None:
    client.create("/e", ephemeral=True)
    assert client.exists("/e").ephemeralOwner == client.client_id[0]
    with pytest.raises(NoChildrenForEphemeralsError):
        client.create("/e/child")


def test_faults_have_their_errors(client: KazooClient) -> None:
    client.create("/p/c", makepath=True)
    with pytest.raises(NodeExistsError):
        client.create("/p")
    with pytest.raises(NoNodeError):
        client.create("/missing/child")
    with pytest.raises(NotEmptyError):
        client.delete("/p")
    for call in (client.get, client.get_children, client.delete, client.get_acls):
        with pytest.raises(NoNodeError):
            call("/missing")
    with pytest.raises(NoNodeError):
        client.set("/missing", b"")
    with pytest.raises(NoNodeError):
        client.set_acls("/missing", OPEN_ACL_UNSAFE)
    assert client.exists("/missing") is None


@pytest.mark.parametrize(
    "path", ["a", "/a/", "/a//b", "/a/./b", "/a/..", "/\x01", "/\x9f", "/\uf8ff", "/\U0001f600"]
)
def test_paths_that_no_node_can_have(client: KazooClient, path: str) -> None:
    client.create("/a")
    if path.startswith("/"):
        path = client.chroot + path
    before = client.get_children("/")
    with pytest.raises((BadArgumentsError, NoNodeError)) as created:
        ask(client, Create(path, b"", OPEN_ACL_UNSAFE, 0))
    missing_parent = path.endswith(("//b", "/./b"))
    assert created.type is (NoNodeError if missing_parent else BadArgumentsError)
    with pytest.raises(BadArgumentsError):
        ask(client, SetData(path, b"", -1))
    with pytest.raises(NoNodeError):
        ask(client, GetData(path, None))
    assert client.get_children("/") == before


@pytest.mark.parametrize("path", ["/ü", "/with space", "/{}\"'", "/a:b,c", "/\u4e16\u754c"])
def test_paths_that_a_node_can_have(client: KazooClient, path: str) -> None:
    assert client.create(path, path.encode()) == path
    assert client.get(path)[0] == path.encode()
    assert client.get_children("/") == [path[1:]]


@pytest.mark.parametrize("path", ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"])
def test_some_nodes_are_always_there(client: KazooClient, path: str) -> None:
    client.chroot = ""
    assert client.exists(path)
    with pytest.raises(BadArgumentsError):
        ask(client, Delete(path, -1))


def test_the_root_has_zookeepers_children(client: KazooClient) -> None:
    client.chroot = ""
    assert "zookeeper" in client.get_children("/")
    assert sorted(client.get_children("/zookeeper")) == ["config", "quota"]
    with pytest.raises(NodeExistsError):
        ask(client, Create("/", b"", OPEN_ACL_UNSAFE, 0))


@pytest.mark.parametrize("flags", [7, 100, -1])
def test_flags_that_mean_nothing(client: KazooClient, flags: int) -> None:
    with pytest.raises(BadArgumentsError):
        ask(client, Create(client.chroot + "/a", b"", OPEN_ACL_UNSAFE, flags))


def test_no_acl_at_all_is_an_error(client: KazooClient) -> None:
    with pytest.raises(InvalidACLError):
        ask(client, Create(client.chroot + "/a", b"", [], 0))


def test_reconfiguration_is_refused_and_the_connection_stays(client: KazooClient) -> None:
    with pytest.raises(ReconfigDisabledError):
        client.reconfig(joining="server.1=localhost:1:2", leaving=None, new_members=None)
    assert client.create("/a") == "/a"


def test_sync_gives_back_the_path(client: KazooClient) -> None:
    client.create("/a")
    assert client.sync("/a") == "/a"
    assert client.sync("/missing") == "/missing"


def test_ensure_path_and_delete_recursive(client: KazooClient) -> None:
    client.ensure_path("/a/b/c/d")
    client.ensure_path("/a/b/c/d")
    client.create("/a/b/x")
    client.delete("/a", recursive=True)
    assert client.get_children("/") == []


def test_a_chroot_hides_what_is_above(client: KazooClient, connect: Any) -> None:
    client.create("/inner/a", b"one", makepath=True)
    other = connect()
    other.chroot = client.chroot + "/inner"
    assert other.get("/a")[0] == b"one"
    assert other.get_children("/") == ["a"]
    assert other.create("/n-", sequence=True) == "/n-0000000001"


def test_pipelined_requests_are_answered_in_order(client: KazooClient) -> None:
    results = [client.create_async("/n-", sequence=True) for _ in range(200)]
    paths = [result.get(20) for result in results]
    assert paths == [f"/n-{number:010d}" for number in range(200)]
    assert len(client.get_children("/")) == 200
