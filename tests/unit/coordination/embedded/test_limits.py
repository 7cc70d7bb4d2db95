"""What a client may cost: requests that are too much are refused, and nothing else suffers."""

import struct
from collections.abc import Sequence
from typing import Any

import pytest

from hermes.coordination.embedded import access_control, processor
from hermes.coordination.embedded.limits import (
    MAX_ACL_ENTRIES,
    MAX_CHILDREN_BYTES,
    MAX_CREDENTIAL_BYTES,
    MAX_IDENTITIES,
    MAX_OPERATIONS,
    MAX_TREE_BYTES,
    MAX_WATCH_BYTES,
    MAX_WATCH_BYTES_PER_CLIENT,
    MAX_WATCHES_SET,
)
from hermes.coordination.embedded.tree import DataTree, node_bytes
from hermes.coordination.embedded.zookeeper_errors import ZooKeeperCode

OPEN = (("world", "anyone"),)
END = struct.pack(">i?i", -1, True, -1)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">i", len(data)) + data


def acl_of(entries: Sequence[tuple[str, str]]) -> bytes:
    return struct.pack(">i", len(entries)) + b"".join(
        struct.pack(">i", 31) + text(scheme) + text(name) for scheme, name in entries
    )


def create(
    path: str, data: str = "", entries: Sequence[tuple[str, str]] = OPEN, flags: int = 0
) -> bytes:
    return text(path) + text(data) + acl_of(entries) + struct.pack(">i", flags)


def ask(bench: Any, peer: Any, code: int, body: bytes) -> tuple[int, bytes]:
    """Have a request served; returns the answer's error and record."""
    bench.processor.handle(peer, memoryview(struct.pack(">ii", 7, code) + body))
    answer = peer.answers[-1]
    return struct.unpack(">i", answer[16:20])[0], answer[20:]


def multi(bodies: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack(">i?i", 1, False, -1) + body for body in bodies) + END


def test_an_acl_of_too_many_entries_is_refused(bench: Any) -> None:
    peer = bench.connect()
    entries = [("ip", f"10.0.{index >> 8}.{index & 255}") for index in range(35_000)]
    assert ask(bench, peer, 1, create("/a", entries=entries))[0] == ZooKeeperCode.INVALID_ACL
    few = entries[: MAX_ACL_ENTRIES + 1]
    assert ask(bench, peer, 1, create("/a", entries=few))[0] == ZooKeeperCode.INVALID_ACL
    assert ask(bench, peer, 1, create("/a", entries=few[1:]))[0] == ZooKeeperCode.OK
    few_set = text("/a") + acl_of(few) + struct.pack(">i", -1)
    assert ask(bench, peer, 7, few_set)[0] == ZooKeeperCode.INVALID_ACL


def test_who_one_is_does_not_multiply_an_acl(bench: Any) -> None:
    peer = bench.connect()
    for index in range(MAX_IDENTITIES - 1):
        assert ask(bench, peer, 100, bytes(4) + text("digest") + text(f"u{index}:p"))[0] == 0
    entries = [("auth", ""), *(("ip", f"10.0.0.{index}") for index in range(60))]
    assert ask(bench, peer, 1, create("/a", entries=entries))[0] == ZooKeeperCode.INVALID_ACL


def test_the_networks_of_an_acl_are_parsed_once(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    parse = access_control.ipaddress.ip_network
    monkeypatch.setattr(
        access_control.ipaddress,
        "ip_network",
        lambda value, **options: parsed.append(value) or parse(value, **options),
    )
    access_control._network.cache_clear()
    peer = bench.connect()
    entries = [("ip", f"10.1.{index}.0/24") for index in range(MAX_ACL_ENTRIES)]
    ask(bench, peer, 1, create("/a", entries=entries))
    for _ in range(10):
        assert ask(bench, peer, 4, text("/a") + b"\0")[0] == ZooKeeperCode.NO_AUTH
    assert len(parsed) == MAX_ACL_ENTRIES


def test_a_transaction_of_too_many_operations_is_refused(bench: Any) -> None:
    peer = bench.connect()
    bodies = [create(f"/n{index}") for index in range(MAX_OPERATIONS + 1)]
    assert ask(bench, peer, 14, multi(bodies))[0] == ZooKeeperCode.BAD_ARGUMENTS
    assert "/n0" not in bench.state.tree.nodes
    assert ask(bench, peer, 14, multi(bodies[1:]))[0] == ZooKeeperCode.OK
    assert "/n1" in bench.state.tree.nodes


def test_identities_are_bounded(bench: Any) -> None:
    peer = bench.connect()

    def prove(credential: str) -> int:
        return ask(bench, peer, 100, bytes(4) + text("digest") + text(credential))[0]

    assert prove("u" * MAX_CREDENTIAL_BYTES + ":p") == ZooKeeperCode.AUTH_FAILED
    for index in range(MAX_IDENTITIES - 1):  # its address is one
        assert prove(f"u{index}:p") == ZooKeeperCode.OK
    assert prove("u0:p") == ZooKeeperCode.OK
    assert prove("one-more:p") == ZooKeeperCode.AUTH_FAILED
    assert len(peer.rights.identities) == MAX_IDENTITIES


def test_a_client_with_too_many_watches_gets_no_more(bench: Any) -> None:
    peer, other = bench.connect(), bench.connect()

    def watch(who: Any, number: int) -> int:
        return ask(bench, who, 3, text(f"/{number}" + "w" * 100_000) + b"\1")[0]

    held = MAX_WATCH_BYTES_PER_CLIENT // 100_400
    assert {watch(peer, number) for number in range(held)} == {ZooKeeperCode.NO_NODE}
    assert watch(peer, 0) == ZooKeeperCode.NO_NODE  # it is set already
    assert watch(peer, held) == ZooKeeperCode.QUOTA_EXCEEDED
    assert watch(other, held) == ZooKeeperCode.NO_NODE
    assert len(bench.state.watches) == held + 1
    bench.processor.leave(peer)
    assert len(bench.state.watches) == 1


def test_of_too_many_watches_those_go_whose_owner_has_most(bench: Any) -> None:
    modest = bench.connect()
    ask(bench, modest, 3, text("/modest") + b"\1")
    greedy = [bench.connect() for _ in range(2 * MAX_WATCH_BYTES // MAX_WATCH_BYTES_PER_CLIENT)]
    for peer in greedy:
        for number in range(MAX_WATCH_BYTES_PER_CLIENT // 1_000_400):
            ask(bench, peer, 3, text(f"/{number}" + "w" * 1_000_000) + b"\1")
    assert not modest.has_ended
    assert 0 < sum(peer.has_ended for peer in greedy) < len(greedy)
    assert bench.state.watches.largest() is None


def test_watches_set_again_are_bounded(bench: Any) -> None:
    peer = bench.connect()
    paths = b"".join(text(f"/{number}") for number in range(MAX_WATCHES_SET + 1))
    body = bytes(8) + struct.pack(">i", MAX_WATCHES_SET + 1) + paths + bytes(8)
    assert ask(bench, peer, 101, body)[0] == ZooKeeperCode.MARSHALLING_ERROR
    assert peer.events == []


def test_an_event_is_encoded_once_for_all_who_hear_it(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[Any] = []
    encode = processor.encode_event
    monkeypatch.setattr(
        processor, "encode_event", lambda *args: encoded.append(args) or encode(*args)
    )
    watchers = [bench.connect() for _ in range(100)]
    for watcher in watchers:
        ask(bench, watcher, 3, text("/a") + b"\1")
    ask(bench, watchers[0], 1, create("/a"))
    assert all(len(watcher.events) == 1 for watcher in watchers)
    assert len(encoded) == 1


def test_a_tree_that_is_full_takes_no_more(bench: Any) -> None:
    tree, peer = bench.state.tree, bench.connect()
    tree.max_bytes = tree.weight_bytes + 3_000_000
    before = tree.weight_bytes
    assert ask(bench, peer, 1, create("/a", "x" * 1_000_000))[0] == ZooKeeperCode.OK
    assert ask(bench, peer, 1, create("/b", "x" * 1_000_000))[0] == ZooKeeperCode.OK
    full = ZooKeeperCode.QUOTA_EXCEEDED
    assert ask(bench, peer, 1, create("/c", "x" * 1_000_000))[0] == full
    grown = text("/a") + text("x" * 1_999_000) + struct.pack(">i", -1)
    assert ask(bench, peer, 5, grown)[0] == full
    error, _ = ask(bench, peer, 14, multi([create("/d"), create("/e", "x" * 1_000_000)]))
    assert error == ZooKeeperCode.OK  # the refusal stands in the results
    assert sorted(tree.nodes) == ["/", "/a", "/b", *sorted(DataTree().nodes)[1:]]
    same = text("/a") + text("y" * 1_000_000) + struct.pack(">i", -1)
    assert ask(bench, peer, 5, same)[0] == ZooKeeperCode.OK
    for path in ("/a", "/b"):
        assert ask(bench, peer, 2, text(path) + struct.pack(">i", -1))[0] == ZooKeeperCode.OK
    assert tree.weight_bytes == before


def test_numbers_grow_by_a_digit_in_a_tree_that_is_full(bench: Any) -> None:
    peer = bench.connect()
    ask(bench, peer, 1, create("/offset", "9"))
    bench.state.tree.max_bytes = bench.state.tree.weight_bytes
    body = text("/offset") + text("10000000000000000000") + struct.pack(">i", -1)
    assert ask(bench, peer, 5, body)[0] == ZooKeeperCode.OK


def test_the_weight_of_a_tree_is_that_of_its_nodes(bench: Any) -> None:
    peer = bench.connect()
    ask(bench, peer, 1, create("/a", "x" * 1000, [("ip", "127.0.0.1")]))
    ask(bench, peer, 1, create("/a/b", "y", flags=1))
    ask(bench, peer, 14, multi([create("/a/c"), create("/a/b")]))  # the second can't be
    ask(bench, peer, 7, text("/a") + acl_of([*OPEN, ("ip", "::1")]) + struct.pack(">i", -1))
    tree = bench.state.tree
    assert tree.weight_bytes == sum(node_bytes(*each) for each in tree.nodes.items())
    stored = [node.written(path) for path, node in tree.nodes.items()]
    again = DataTree.restore(stored, tree.zxid)
    assert again.weight_bytes == tree.weight_bytes < MAX_TREE_BYTES
    assert {path: node.children_bytes for path, node in again.nodes.items()} == {
        path: node.children_bytes for path, node in tree.nodes.items()
    }


def test_the_names_of_children_fit_an_answer(bench: Any) -> None:
    peer = bench.connect()
    created = 0
    while ask(bench, peer, 1, create(f"/{created:0>100000}"))[0] == ZooKeeperCode.OK:
        created += 1
    assert created == MAX_CHILDREN_BYTES // 100_010
    assert peer.answers[-1][16:20] == struct.pack(">i", ZooKeeperCode.QUOTA_EXCEEDED)
    assert len(ask(bench, peer, 8, text("/") + b"\0")[1]) < MAX_CHILDREN_BYTES + 8


def test_a_session_of_many_nodes_ends_in_several_turns(bench: Any) -> None:
    peer, watcher = bench.connect(), bench.connect()
    count = 3 * MAX_OPERATIONS // 2
    for index in range(count):
        ask(bench, peer, 1, create(f"/e{index}", flags=1))
    tree, answers = bench.state.tree, len(peer.answers)
    bench.processor.handle(peer, memoryview(struct.pack(">ii", 9, -11)))
    assert tree.ephemeral_count == count - MAX_OPERATIONS
    assert len(peer.answers) == answers
    assert ask(bench, watcher, 3, text("/e0") + b"\0")[0] == ZooKeeperCode.NO_NODE
    bench.clock.advance(0)
    assert tree.ephemeral_count == 0
    assert len(peer.answers) == answers + 1
    assert peer.has_ended


def test_a_thousand_sessions_expire(bench: Any) -> None:
    peers = [bench.connect() for _ in range(1200)]
    for index, peer in enumerate(peers[:3]):
        ask(bench, peer, 1, create(f"/e{index}", flags=1))
    bench.clock.advance(5)
    assert len(bench.state.sessions) == 0
    assert bench.state.tree.ephemeral_count == 0


def test_sessions_that_nobody_uses_end_early_when_there_are_too_many(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "MAX_SESSIONS", 20)
    owner, present = bench.connect(), bench.connect()
    ask(bench, owner, 1, create("/e", flags=1))
    bench.processor.leave(owner)
    for _ in range(100):
        bench.processor.leave(bench.connect())
    assert len(bench.state.sessions) <= 20
    assert "/e" in bench.state.tree.nodes
    assert present.session.session_id in {each.session_id for each in bench.state.sessions}
