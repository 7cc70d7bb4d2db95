"""Watches fire once, for what they were set for, and before the change can be seen otherwise."""

import struct
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError


def kinds(seen: Any) -> list[tuple[str, str]]:
    return [(event.type, event.path) for event in seen]


def settle(client: KazooClient) -> None:
    """Events come before the answers of what the client asks later; let them be handed out."""
    client.sync("/")
    done = client.handler.event_object()
    client.handler.dispatch_callback(_callback(done))
    assert done.wait(20)


def _callback(done: Any) -> Any:
    from kazoo.protocol.states import Callback

    return Callback("watch", done.set, ())


def test_a_data_watch_fires_once(client: KazooClient, seen: Any) -> None:
    client.create("/a")
    client.get("/a", watch=seen)
    client.set("/a", b"one")
    client.set("/a", b"two")
    client.create("/a/child")
    settle(client)
    assert kinds(seen.items) == [("CHANGED", "/a")]


def test_an_exists_watch_waits_for_a_node(client: KazooClient, seen: Any) -> None:
    assert client.exists("/a", watch=seen) is None
    client.create("/a")
    client.delete("/a")
    settle(client)
    assert kinds(seen.items) == [("CREATED", "/a")]


@pytest.mark.parametrize("change", ["set", "delete"])
def test_an_exists_watch_on_a_node(client: KazooClient, seen: Any, change: str) -> None:
    client.create("/a")
    client.exists("/a", watch=seen)
    if change == "set":
        client.set("/a", b"")
    client.delete("/a")
    settle(client)
    assert kinds(seen.items) == [("CHANGED" if change == "set" else "DELETED", "/a")]


def test_a_child_watch_hears_of_children_only(client: KazooClient, seen: Any) -> None:
    client.create("/a")
    client.get_children("/a", watch=seen)
    client.set("/a", b"data")
    settle(client)
    assert seen.items == []
    client.create("/a/b")
    client.create("/a/c")
    settle(client)
    assert kinds(seen.items) == [("CHILD", "/a")]
    client.get_children("/a", watch=seen)
    client.set("/a/b", b"data")
    client.delete("/a/b")
    settle(client)
    assert kinds(seen.items) == [("CHILD", "/a")] * 2


def test_deleting_tells_all_kinds(client: KazooClient, make_seen: Any) -> None:
    data, children, above = make_seen(), make_seen(), make_seen()
    client.create("/a")
    client.get("/a", watch=data)
    client.get_children("/a", watch=children)
    client.get_children("/", watch=above)
    client.delete("/a")
    settle(client)
    assert kinds(data.items) == kinds(children.items) == [("DELETED", "/a")]
    assert kinds(above.items) == [("CHILD", "/")]


def test_a_failed_read_sets_no_watch(client: KazooClient, seen: Any) -> None:
    for read in (client.get, client.get_children):
        with pytest.raises(NoNodeError):
            read("/a", watch=seen)
    client.create("/a")
    client.delete("/a")
    settle(client)
    assert seen.items == []


def test_other_clients_are_told(connect: Any, make_seen: Any) -> None:
    writer, first, second = connect(), connect(), connect()
    writer.create("/a")
    for reader in (first, second):
        reader.seen = make_seen()
        reader.get("/a", watch=reader.seen)
    writer.set("/a", b"one")
    for reader in (first, second):
        assert kinds(reader.seen.wait_for(1)) == [("CHANGED", "/a")]


def test_data_watch_recipe(client: KazooClient, seen: Any) -> None:
    client.DataWatch("/a", lambda data, stat: seen(data))
    assert seen.wait_for(1) == [None]
    client.create("/a", b"one")
    seen.wait(lambda items: items[-1] == b"one")
    client.set("/a", b"two")
    seen.wait(lambda items: items[-1] == b"two")
    client.delete("/a")
    seen.wait(lambda items: items[-1] is None)


def test_children_watch_recipe(client: KazooClient, seen: Any) -> None:
    client.create("/a")
    client.ChildrenWatch("/a", lambda children: seen(sorted(children)))
    assert seen.wait_for(1) == [[]]
    client.create("/a/b")
    seen.wait(lambda items: items[-1] == ["b"])
    client.create("/a/c")
    seen.wait(lambda items: items[-1] == ["b", "c"])
    client.delete("/a/b")
    seen.wait(lambda items: items[-1] == ["c"])


def vector(*paths: str) -> bytes:
    parts = [struct.pack(">i", len(path)) + path.encode() for path in paths]
    return struct.pack(">i", len(paths)) + b"".join(parts)


def test_watches_set_again_after_a_reconnect(client: KazooClient, raw: Any) -> None:
    """What Java's clients send: watches whose events were missed fire at once."""
    top = client.chroot
    for name in ("same", "changed", "parent", "calm"):
        client.create(f"/{name}")
    zxid = client.exists("/calm").czxid
    client.set("/changed", b"new")
    client.create("/appeared")
    client.create("/parent/child")
    other = raw()
    other.connect()
    request = (
        struct.pack(">q", zxid)
        + vector(*(f"{top}/{name}" for name in ("same", "changed", "gone")))
        + vector(f"{top}/appeared", f"{top}/awaited")
        + vector(f"{top}/parent", f"{top}/calm", f"{top}/lost")
    )
    other.send(struct.pack(">ii", -8, 101) + request)
    got = [other.next() for _ in range(6)]
    events = {
        (struct.unpack_from(">ii", record), record[12:].decode())
        for xid, error, record in got
        if xid == -1
    }
    assert events == {
        ((3, 3), f"{top}/changed"),
        ((2, 3), f"{top}/gone"),
        ((1, 3), f"{top}/appeared"),
        ((4, 3), f"{top}/parent"),
        ((2, 3), f"{top}/lost"),
    }
    assert [(xid, error, record) for xid, error, record in got if xid != -1] == [(-8, 0, b"")]
    client.set("/same", b"new")  # the others are set
    assert other.next()[2][:4] == struct.pack(">i", 3)
    client.create("/awaited")
    assert other.next()[2][:4] == struct.pack(">i", 1)
    client.create("/calm/child")
    assert other.next()[2][:4] == struct.pack(">i", 4)
