"""Authentication and access control."""

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, InvalidACLError, NoAuthError
from kazoo.security import (
    ACL,
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
    Id,
    Permissions,
    make_acl,
    make_digest_acl,
)

ALL = Permissions.ALL
AUTH_FAILED = -115


def refused(*calls: Callable[[], Any]) -> None:
    for call in calls:
        with pytest.raises(NoAuthError):
            call()


def test_acls_come_back_with_their_version(client: KazooClient) -> None:
    client.create("/a")
    acls, stat = client.get_acls("/a")
    assert acls == OPEN_ACL_UNSAFE
    assert stat == client.exists("/a")
    after = client.set_acls("/a", [*OPEN_ACL_UNSAFE, make_digest_acl("u", "p", read=True)], 0)
    assert (after.aversion, after.version, after.mzxid) == (1, 0, stat.mzxid)
    assert len(client.get_acls("/a")[0]) == 2
    with pytest.raises(BadVersionError):
        client.set_acls("/a", OPEN_ACL_UNSAFE, version=0)


def test_digest_decides_over_everything(client: KazooClient, connect: Callable[..., Any]) -> None:
    client.create("/a", b"secret", acl=[make_digest_acl("user", "pass", all=True)])
    client.exists("/a")
    refused(
        lambda: client.get("/a"),
        lambda: client.set("/a", b""),
        lambda: client.get_children("/a"),
        lambda: client.create("/a/b"),
        lambda: client.get_acls("/a"),
        lambda: client.set_acls("/a", OPEN_ACL_UNSAFE),
    )
    wrong = connect(auth_data=[("digest", "user:wrong")])
    refused(lambda: wrong.get("/a"))
    right = connect(auth_data=[("digest", "user:pass")])
    assert right.get("/a")[0] == b"secret"
    right.set("/a", b"new")
    right.create("/a/b")
    assert right.get_children("/a") == ["b"]


def test_each_permission_is_its_own(client: KazooClient) -> None:
    client.create("/r", acl=READ_ACL_UNSAFE)
    assert client.get("/r")[0] == b""
    refused(
        lambda: client.set("/r", b""),
        lambda: client.create("/r/x"),
        lambda: client.set_acls("/r", OPEN_ACL_UNSAFE),
    )
    client.create("/w", acl=[make_acl("world", "anyone", write=True)])
    client.set("/w", b"x")
    refused(lambda: client.get("/w"), lambda: client.create("/w/x"))
    client.create("/c", acl=[make_acl("world", "anyone", create=True)])
    client.create("/c/x")
    refused(lambda: client.delete("/c/x"), lambda: client.get_children("/c"))
    client.create("/d", acl=[make_acl("world", "anyone", create=True, delete=True)])
    client.create("/d/x", acl=[make_acl("world", "anyone", admin=True)])
    client.delete("/d/x")
    client.create("/adm", acl=[make_acl("world", "anyone", admin=True)])
    client.set_acls("/adm", OPEN_ACL_UNSAFE)
    client.get("/adm")


def test_a_child_does_not_inherit(client: KazooClient) -> None:
    client.add_auth("digest", "u:p")
    client.create("/a", acl=CREATOR_ALL_ACL)
    client.create("/a/open")
    assert client.get_acls("/a/open")[0] == OPEN_ACL_UNSAFE


def test_auth_stands_for_the_creator(client: KazooClient, connect: Callable[..., Any]) -> None:
    with pytest.raises(InvalidACLError):
        client.create("/a", acl=CREATOR_ALL_ACL)
    client.add_auth("digest", "one:1")
    client.add_auth("digest", "two:2")
    client.create("/a", acl=CREATOR_ALL_ACL)
    assert {acl.id.id.split(":")[0] for acl in client.get_acls("/a")[0]} == {"one", "two"}
    assert connect(auth_data=[("digest", "two:2")]).get("/a")
    refused(lambda: connect().get("/a"))


def test_digests_are_hidden_from_those_who_may_only_read(client: KazooClient) -> None:
    own = make_digest_acl("user", "pass", all=True)
    client.create("/a", acl=[own, *READ_ACL_UNSAFE])
    hidden = ACL(ALL, Id("digest", "user:x"))
    assert client.get_acls("/a")[0] == [hidden, *READ_ACL_UNSAFE]
    client.add_auth("digest", "user:pass")
    assert client.get_acls("/a")[0] == [own, *READ_ACL_UNSAFE]


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("127.0.0.1", True),
        ("127.0.0.0/8", True),
        ("127.9.9.9/8", True),
        ("0.0.0.0/0", True),
        ("10.0.0.1", False),
        ("127.0.0.2/32", False),
    ],
)
def test_addresses(client: KazooClient, address: str, allowed: bool) -> None:
    client.create("/a", acl=[make_acl("ip", address, all=True)])
    if allowed:
        client.get("/a")
    else:
        refused(lambda: client.get("/a"))


@pytest.mark.parametrize(
    "identity",
    [
        ("world", "someone"),
        ("digest", "nocolon"),
        ("digest", "one:two:three"),
        ("ip", "not an address"),
        ("ip", "10.0.0.0/33"),
        ("ip", "10.0.0.0/255.0.0.0"),
        ("nosuch", "x"),
    ],
)
def test_acls_that_mean_nothing(client: KazooClient, identity: tuple[str, str]) -> None:
    acl = [ACL(ALL, Id(*identity))]
    with pytest.raises(InvalidACLError):
        client.create("/a", acl=acl)
    client.create("/a")
    with pytest.raises(InvalidACLError):
        client.set_acls("/a", acl)


def test_duplicates_are_stored_once(client: KazooClient) -> None:
    client.create("/a", acl=[*OPEN_ACL_UNSAFE, *OPEN_ACL_UNSAFE])
    assert client.get_acls("/a")[0] == OPEN_ACL_UNSAFE


def test_an_unknown_scheme_ends_the_connection(raw: Any) -> None:
    client = raw()
    client.connect()
    body = b"\0\0\0\0" + b"\0\0\0\6nosuch" + b"\0\0\0\1x"
    assert client.call(-4, 100, body) == (-4, AUTH_FAILED, b"")
    assert client.is_closed()


def test_transactions_are_checked_too(client: KazooClient) -> None:
    client.create("/a", acl=READ_ACL_UNSAFE)
    transaction = client.transaction()
    transaction.check("/a", version=0)
    transaction.set_data("/a", b"x")
    assert [type(result).__name__ for result in transaction.commit()] == [
        "RolledBackError",
        "NoAuthError",
    ]


def test_changes_are_told_to_those_who_may_read(
    client: KazooClient, connect: Callable[..., Any], make_seen: Any
) -> None:
    owner = connect(auth_data=[("digest", "u:p")])
    owner.create("/a", acl=CREATOR_ALL_ACL)
    outside, inside = make_seen(), make_seen()
    assert client.exists("/a", watch=outside)
    owner.exists("/a", watch=inside)
    client.exists("/open", watch=outside)
    owner.set("/a", b"new")
    assert inside.wait_for(1)[0].type == "CHANGED"
    client.create("/open")  # whatever came before it would be there too
    assert [event.path for event in outside.wait_for(1)] == ["/open"]
