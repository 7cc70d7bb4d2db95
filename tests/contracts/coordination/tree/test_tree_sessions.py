"""What those who follow coordination rely on: `TreeSession`, over kazoo and in memory."""

from collections.abc import Callable
from typing import Any

import pytest

from hermes.coordination.nodes import Node, NodeTransaction, TreeSession
from hermes.errors import CoordinationError, CoordinationUnavailableError


@pytest.fixture
def other(start: Callable[..., TreeSession]) -> TreeSession:
    return start()


def test_sessions_have_ids_of_their_own(session: TreeSession, other: TreeSession) -> None:
    assert session.session_id
    assert other.session_id
    assert session.session_id != other.session_id


def test_a_node_is_created_once_with_its_parents(session: TreeSession, other: TreeSession) -> None:
    assert session.get("/a/b/c") is None
    assert session.create("/a/b/c", b"first")
    assert not other.create("/a/b/c", b"second")
    assert other.get("/a/b/c") == Node(b"first", 0, 0)
    assert other.get("/a/b") == Node(b"", 0, 0)
    session.ensure_path("/a/b/c")
    session.ensure_path("/a/d")
    assert session.get("/a/b/c") == Node(b"first", 0, 0)
    assert session.children("/a") == ["b", "d"]
    assert session.children("/a/d") == []
    assert session.children("/e") == []


def test_many_nodes_are_read_at_once(session: TreeSession) -> None:
    for name in ("a", "c"):
        session.create(f"/{name}", name.encode())
    assert session.get_all([]) == []
    assert session.get_all(["/c", "/b", "/a", "/c"]) == [
        Node(b"c", 0, 0),
        None,
        Node(b"a", 0, 0),
        Node(b"c", 0, 0),
    ]


def test_a_version_counts_the_changes_of_a_value(session: TreeSession, other: TreeSession) -> None:
    session.create("/a", b"0")
    assert session.set("/a", b"1", 0) == 1
    assert other.set("/a", b"2") == 2
    with pytest.raises(CoordinationUnavailableError):
        session.set("/a", b"3", 1)
    with pytest.raises(CoordinationUnavailableError):
        session.set("/b", b"3")
    session.create("/a/child", b"")
    other.sync("/a")
    assert other.get("/a") == Node(b"2", 2, 0)


def test_a_node_is_deleted_in_one_version_and_without_children(session: TreeSession) -> None:
    session.create("/a/b", b"")
    session.set("/a/b", b"1")
    assert not session.delete("/a", -1)
    assert not session.delete("/a/b", 0)
    assert not session.delete("/c", -1)
    assert session.delete("/a/b", 1)
    assert session.delete("/a", -1)
    assert session.get("/a") is None
    session.create("/a/b", b"again")
    assert session.get("/a/b") == Node(b"again", 0, 0)


# -- watches ------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[TreeSession], Any]] = {
    "a value": lambda each: each.set("/there", b"1"),
    "an end": lambda each: each.delete("/there", -1),
    "a beginning": lambda each: each.create("/not", b""),
    "a transaction": lambda each: (
        each.transact(lambda some: some.set_data("/there", b"1")) and None
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_whoever_watches_a_node_is_woken(
    start: Any, seen: Any, other: TreeSession, change: Callable[[TreeSession], Any]
) -> None:
    other.create("/there", b"0")
    watching = start(lambda: seen(1))
    assert watching.get("/there", watch=True) == Node(b"0", 0, 0)
    assert watching.get("/not", watch=True) is None
    before = len(seen.items)

    change(other)

    seen.wait_for(before + 1)


LISTED: dict[str, Callable[[TreeSession], Any]] = {
    "a child more": lambda each: each.create("/there/b", b""),
    "a child less": lambda each: each.delete("/there/a", -1),
    "a first child": lambda each: each.create("/not/a", b""),
}


@pytest.mark.parametrize("change", LISTED.values(), ids=list(LISTED))
def test_whoever_watches_children_is_woken(
    start: Any, seen: Any, other: TreeSession, change: Callable[[TreeSession], Any]
) -> None:
    other.create("/there/a", b"0")
    watching = start(lambda: seen(1))
    assert watching.children("/there", watch=True) == ["a"]
    assert watching.children("/not", watch=True) == []
    before = len(seen.items)

    change(other)

    seen.wait_for(before + 1)


def test_whoever_has_made_the_change_is_woken_too(start: Any, seen: Any) -> None:
    session = start(lambda: seen(1))
    session.create("/a", b"0")
    session.get("/a", watch=True)
    before = len(seen.items)
    session.set("/a", b"1")
    seen.wait_for(before + 1)


# -- transactions -------------------------------------------------------------------------------


def test_a_transaction_is_done_as_a_whole(session: TreeSession, other: TreeSession) -> None:
    session.create("/a", b"0")
    session.create("/b", b"0")

    def fill(transaction: NodeTransaction) -> None:
        transaction.check("/a", 0)
        transaction.set_data("/a", b"1", 0)
        transaction.set_data("/a", b"2")
        transaction.delete("/b", 0)
        transaction.create("/b", b"anew")
        transaction.create("/b/c")

    results = session.transact(fill)

    assert len(results) == 6
    assert not any(isinstance(each, Exception) for each in results)
    other.sync("/")
    assert other.get_all(["/a", "/b", "/b/c"]) == [
        Node(b"2", 2, 0),
        Node(b"anew", 0, 0),
        Node(b"", 0, 0),
    ]


IN_THE_WAY: dict[str, Callable[[NodeTransaction], object]] = {
    "a check": lambda each: each.check("/a", 1),
    "a check of what isn't there": lambda each: each.check("/b", 0),
    "an old version": lambda each: each.set_data("/a", b"", 7),
    "no node": lambda each: each.set_data("/b", b""),
    "a node": lambda each: each.create("/a", b""),
    "no parent": lambda each: each.create("/b/c", b""),
    "another version": lambda each: each.delete("/a", 1),
    "a child": lambda each: each.delete("/parent"),
}


@pytest.mark.parametrize("fails", IN_THE_WAY.values(), ids=list(IN_THE_WAY))
def test_a_transaction_that_fails_does_nothing(
    session: TreeSession, fails: Callable[[NodeTransaction], object]
) -> None:
    session.create("/a", b"0")
    session.create("/parent/child", b"0")

    def fill(transaction: NodeTransaction) -> None:
        transaction.create("/made", b"")
        transaction.delete("/parent/child")
        transaction.create("/parent/child")
        fails(transaction)
        transaction.set_data("/a", b"1")

    results = session.transact(fill)

    assert len(results) == 5
    assert all(isinstance(each, Exception) for each in results)
    assert session.get_all(["/a", "/made", "/parent/child"]) == [
        Node(b"0", 0, 0),
        None,
        Node(b"0", 0, 0),
    ]


# -- sessions and their nodes -------------------------------------------------------------------


def test_an_ephemeral_node_is_its_sessions(session: TreeSession, other: TreeSession) -> None:
    assert session.create_ephemeral("/brokers/1", b"one") is None
    assert session.create_ephemeral("/brokers/1", b"another value") is None
    in_the_way = other.create_ephemeral("/brokers/1", b"two")
    assert in_the_way == Node(b"another value", 1, session.session_id or 0)
    session.create("/kept", b"")
    assert other.get("/brokers") == Node(b"", 0, 0)
    assert other.create_ephemeral("/brokers/2", b"two") is None
    assert session.children("/brokers") == ["1", "2"]


def test_what_a_session_that_stops_had_goes_and_who_watches_is_woken(
    start: Any, seen: Any, session: TreeSession
) -> None:
    session.create_ephemeral("/brokers/1", b"")
    session.create("/kept", b"")
    watching = start(lambda: seen(1))
    assert watching.children("/brokers", watch=True) == ["1"]
    before = len(seen.items)

    session.stop()
    session.stop()

    seen.wait_for(before + 1)
    assert watching.children("/brokers") == []
    assert watching.get("/kept") == Node(b"", 0, 0)
    assert session.session_id is None
    calls: list[Callable[[], Any]] = [
        lambda: session.get("/kept", watch=True),
        lambda: session.get_all(["/kept"]),
        lambda: session.children("/", watch=True),
        lambda: session.create("/new", b""),
        lambda: session.create_ephemeral("/new", b""),
        lambda: session.set("/kept", b"1"),
        lambda: session.delete("/kept", -1),
        lambda: session.ensure_path("/new"),
        lambda: session.sync("/"),
        lambda: session.transact(lambda each: each.set_data("/kept", b"1")),
    ]
    for call in calls:
        with pytest.raises(CoordinationError):
            call()
    assert watching.get_all(["/kept", "/new"]) == [Node(b"", 0, 0), None]


def test_a_session_that_expires_is_followed_by_another(
    coordination: Any, start: Any, make_seen: Any
) -> None:
    woken, told = make_seen(), make_seen()
    watching, expiring = start(lambda: told(1)), start(lambda: woken(1))
    first = expiring.session_id
    expiring.create_ephemeral("/brokers/1", b"")
    watching.get("/brokers/1", watch=True)
    before = len(woken.items)

    coordination.expire(expiring)

    told.wait(lambda _: watching.get("/brokers/1") is None)
    woken.wait_for(before + 1)
    woken.wait(lambda _: expiring.session_id not in (None, first))
    assert expiring.create_ephemeral("/brokers/1", b"") is None
    found = watching.get("/brokers/1")
    assert found is not None
    assert found.owner == expiring.session_id != first
