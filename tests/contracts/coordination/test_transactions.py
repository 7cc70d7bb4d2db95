"""Transactions: all or nothing, with a result for each operation."""

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)


def test_all_operations_take_place(client: KazooClient) -> None:
    client.create("/old", b"")
    client.create("/changed", b"")
    transaction = client.transaction()
    transaction.check("/old", version=0)
    transaction.create("/new", b"one")
    transaction.create("/new/n-", b"", sequence=True)
    transaction.set_data("/changed", b"two", version=0)
    transaction.delete("/old", version=0)
    results = transaction.commit()
    assert results[:3] == [True, "/new", "/new/n-0000000000"]
    assert results[3] == client.exists("/changed")
    assert results[4] is True
    assert client.get("/new")[0] == b"one"
    assert client.exists("/old") is None
    one, two = client.exists("/new"), client.exists("/changed")
    assert one.czxid == two.mzxid == one.pzxid


def test_nothing_takes_place_when_one_fails(client: KazooClient) -> None:
    client.create("/kept", b"before")
    client.create("/kept/child", b"")
    before = client.get("/kept")
    transaction = client.transaction()
    transaction.create("/new", b"")
    transaction.set_data("/kept", b"after")
    transaction.delete("/kept/child")
    transaction.create("/kept/other", b"", ephemeral=True)
    transaction.check("/kept", version=7)
    transaction.create("/behind", b"")
    results = transaction.commit()
    expected = [RolledBackError] * 4 + [BadVersionError, RuntimeInconsistency]
    assert [type(result) for result in results] == expected
    assert client.get("/kept") == before
    assert client.get_children("/kept") == ["child"]
    assert client.get_children("/") == ["kept"]
    assert client.create("/kept/n-", sequence=True) == "/kept/n-0000000001"


def test_later_operations_see_earlier_ones(client: KazooClient) -> None:
    transaction = client.transaction()
    transaction.create("/a", b"")
    transaction.create("/a/b", b"")
    transaction.set_data("/a/b", b"two", version=0)
    transaction.check("/a/b", version=1)
    transaction.delete("/a/b", version=1)
    transaction.create("/a/n-", b"", sequence=True)
    results = transaction.commit()
    assert results[5] == "/a/n-0000000001"
    assert client.get_children("/a") == ["n-0000000001"]
    assert client.exists("/a").cversion == 3


def test_each_fault_has_its_error(client: KazooClient) -> None:
    client.create("/p/c", makepath=True)
    for fault, error in (
        (lambda transaction: transaction.create("/p"), NodeExistsError),
        (lambda transaction: transaction.create("/missing/x"), NoNodeError),
        (lambda transaction: transaction.delete("/p"), NotEmptyError),
        (lambda transaction: transaction.delete("/missing"), NoNodeError),
        (lambda transaction: transaction.set_data("/p", b"", version=9), BadVersionError),
        (lambda transaction: transaction.check("/missing", version=0), NoNodeError),
    ):
        transaction = client.transaction()
        fault(transaction)
        assert [type(result) for result in transaction.commit()] == [error]


def test_an_empty_transaction(client: KazooClient) -> None:
    assert client.transaction().commit() == []


def test_watches_fire_only_when_it_took_place(client: KazooClient, seen: object) -> None:
    client.exists("/a", watch=seen)
    failing = client.transaction()
    failing.create("/a", b"")
    failing.check("/missing", version=0)
    failing.commit()
    working = client.transaction()
    working.create("/a", b"")
    working.set_data("/a", b"two")
    working.commit()
    client.sync("/a")
    (event,) = seen.wait_for(1)  # type: ignore[attr-defined]
    assert (event.type, event.path) == ("CREATED", "/a")
