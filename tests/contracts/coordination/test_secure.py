"""Both servers by TLS: as users, whose nodes are their own, and by certificates.

What differs: the embedded server checks passwords against the broker's users. A real ZooKeeper
takes any, and lets nobody touch what another one owns.
"""

import re
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from certificates import Certificates
from embedded_coordination_process import SecureEmbeddedProcess
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl
from refused_sessions import refusal_of
from server_process import ServerProcess
from zookeeper_process import SecureZooKeeperProcess

from hermes.coordination.registration import BrokerRegistration
from hermes.coordination.sessions import Session
from hermes.errors import (
    CoordinationNotAuthenticatedError,
    CoordinationNotAuthorizedError,
)
from hermes.security import ClientSecurity

PASSWORDS = {name: f"{name}'s pass:word" for name in ("alice", "bob", "broker")}

Connect = Callable[..., Session]


@pytest.fixture(scope="module", params=["embedded", "zookeeper"])
def secure(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    certificates: Certificates,
) -> Iterator[ServerProcess]:
    """A server that is reached by TLS, and knows users."""
    directory = tmp_path_factory.mktemp("secure") / "server"
    server: ServerProcess
    if request.param == "embedded":
        directory.mkdir()
        server = SecureEmbeddedProcess(directory, certificates, PASSWORDS)
    else:
        server = SecureZooKeeperProcess(directory, certificates)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def security(certificates: Certificates) -> Callable[..., ClientSecurity]:
    """What a user brings."""

    def make(user: str | None, password: str | None = None) -> ClientSecurity:
        given = password or (user and PASSWORDS[user])
        return ClientSecurity(tls_ca=str(certificates.ca), user=user, password=given)

    return make


@pytest.fixture
def connect(secure: ServerProcess, security: Callable[..., ClientSecurity]) -> Iterator[Connect]:
    """Starts sessions as users."""
    sessions: list[Session] = []

    def start(user: str, password: str | None = None, **options: Any) -> Session:
        made = Session(secure.address, security=security(user, password), **options)
        made.start()
        sessions.append(made)
        return made

    yield start
    for each in sessions:
        each.stop()


def test_what_a_user_makes_is_the_user_s(connect: Connect) -> None:
    broker, alice, bob = connect("broker"), connect("alice"), connect("bob")
    broker.ensure_path("/consumers")  # as brokers do, so that groups can be made there
    alice.put("/consumers/hers/offsets/clicks/0-0", b"17")
    assert alice.create_ephemeral("/consumers/hers/owners/clicks/0-0", b"alice-0") is None
    assert bob.get("/consumers/hers/offsets/clicks/0-0") == (b"17", 0, 0)
    for attempt in (
        lambda: bob.set("/consumers/hers/offsets/clicks/0-0", b"0"),
        lambda: bob.delete("/consumers/hers/owners/clicks/0-0", -1),
        lambda: bob.create_ephemeral("/consumers/hers/owners/clicks/0-1", b"bob-0"),
        lambda: bob.create("/consumers/hers/ids", b""),
        lambda: bob.transact(lambda each: each.set_data("/consumers/hers/offsets/clicks/0-0", b"")),
        lambda: bob.call(bob._client.set_acls_async, "/consumers/hers", OPEN_ACL_UNSAFE),
    ):
        with pytest.raises(CoordinationNotAuthorizedError):
            attempt()
    bob.put("/consumers/his/offsets/clicks/0-0", b"1")
    with pytest.raises(CoordinationNotAuthorizedError, match="refuses user 'bob' access to it"):
        bob.create("/consumers/hers/ids/x", b"")
    alice.delete_tree("/consumers/hers")
    assert alice.children("/consumers/hers") == []


def test_who_isnt_the_user_owns_nothing_of_theirs(secure: ServerProcess, connect: Connect) -> None:
    connect("alice").put("/alice", b"1")
    if isinstance(secure, SecureEmbeddedProcess):
        for user, password in (("alice", "wrong"), ("nobody", "wrong")):
            with pytest.raises(CoordinationNotAuthenticatedError, match="check the user and"):
                connect(user, password)
        return
    impostor = connect("alice", "wrong")
    with pytest.raises(CoordinationNotAuthorizedError, match="refuses user 'alice'"):
        impostor.set("/alice", b"2")


def test_a_broker_s_nodes_are_read_by_others_and_written_by_brokers(
    secure: ServerProcess, security: Callable[..., ClientSecurity], connect: Connect
) -> None:
    alice = connect("alice")
    registration = BrokerRegistration(
        7, "127.0.0.1", 9092, {"clicks": 3}, connect=secure.address, security=security("broker")
    )
    registration.start()
    try:
        assert b":127.0.0.1:9092" in (alice.get("/brokers/ids/7") or (b"",))[0]
        assert alice.get("/brokers/topics/clicks/7") is not None
        for attempt in (
            lambda: alice.delete("/brokers/ids/7", -1),
            lambda: alice.create_ephemeral("/brokers/ids/8", b"x:y:1"),
            lambda: alice.set("/brokers/topics/clicks/7", b"1000"),
            lambda: alice.create("/brokers/topics/mine", b""),
            lambda: alice.set("/cluster/id", b"x"),
        ):
            with pytest.raises(CoordinationNotAuthorizedError):
                attempt()
        registration.topic_created("views", 2)  # brokers share a user, and so their nodes
        other = BrokerRegistration(
            8, "127.0.0.1", 9093, {"clicks": 1}, connect=secure.address, security=security("broker")
        )
        other.start()
        other.stop()
        alice.create("/mirrors/mine", b"")
        alice.create("/cluster/origins/clicks", b"{}")
    finally:
        registration.stop()
    assert alice.get("/brokers/ids/7") is None


def test_a_session_outlives_its_connection(connect: Connect, make_seen: Any) -> None:
    seen = make_seen()
    alice = connect("alice", session_timeout_seconds=30, on_change=lambda: seen("change"))
    session_id = alice.session_id
    alice.create_ephemeral("/e", b"")
    alice._connection.drop()
    seen.wait(lambda items: len(items) >= 3 and alice.session_id is not None)  # lost, and back
    assert alice.session_id == session_id
    assert alice.get("/e") == (b"", 0, session_id)
    alice.delete("/e", -1)


def test_more_than_a_record_of_tls(connect: Connect) -> None:
    alice = connect("alice")
    data = bytes(range(256)) * 3500
    alice.put("/large", data)
    assert [each and each.value for each in alice.get_all(["/large"] * 5)] == [data] * 5
    names = [f"{number:04}" for number in range(1000)]
    alice.ensure_path("/many")
    alice.transact(lambda each: [each.create(f"/many/{name}") for name in names] and None)
    assert alice.children("/many") == names


def test_watches_come_by_tls(connect: Connect, make_seen: Any) -> None:
    seen = make_seen()
    alice, bob = connect("alice", on_change=lambda: seen("change")), connect("bob")
    bob.put("/watched", b"1")
    count = len(seen.items)
    assert alice.get("/watched", watch=True) is not None
    bob.set("/watched", b"2")
    seen.wait(lambda items: len(items) > count)


def test_acls_of_kazoo_s_making(secure: ServerProcess, make_client: Any, security: Any) -> None:
    hosts, context = secure.address, security("alice")
    options = {"use_ssl": True, "ca": context.tls_ca}
    users = {
        name: make_client(hosts, auth_data=[("digest", f"{name}:{password}")], **options)
        for name, password in PASSWORDS.items()
    }
    own = [make_digest_acl("alice", PASSWORDS["alice"], all=True)]
    users["broker"].create("/for-alice", b"secret", acl=own)
    assert users["alice"].get("/for-alice")[0] == b"secret"
    with pytest.raises(NoAuthError):
        users["bob"].get("/for-alice")


@pytest.mark.parametrize("word", [b"stat", b"mntr", b"envi", b"conf", b"srvr", b"dump", b"cons"])
def test_nothing_is_told_without_tls(secure: ServerProcess, word: bytes) -> None:
    with socket.create_connection(("127.0.0.1", secure.port), timeout=60) as plain:
        plain.sendall(word)
        plain.shutdown(socket.SHUT_WR)
        answered = b""
        with suppress(ConnectionError):
            while part := plain.recv(1000):
                answered += part
    assert len(answered) <= 7  # an alert of TLS at the most


def test_by_certificates(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates, secure: ServerProcess
) -> None:
    directory = tmp_path_factory.mktemp("certified") / "server"
    server: ServerProcess
    if isinstance(secure, SecureEmbeddedProcess):
        directory.mkdir()
        server = SecureEmbeddedProcess(directory, certificates, None)
    else:
        server = SecureZooKeeperProcess(directory, certificates, asks_for_certificates=True)
    server.start()
    ca = str(certificates.ca)
    mine = certificates.client("alice")
    try:
        alice = Session(
            server.address,
            security=ClientSecurity(
                tls_ca=ca, tls_certificate=str(mine.certificate), tls_key=str(mine.key)
            ),
        )
        alice.start()
        alice.create("/of-alice", b"")
        alice.stop()
        foreign = certificates.untrusted_client
        for wrong, said in (
            (ClientSecurity(tls_ca=ca), "asks for a client certificate|closed the connection"),
            (
                ClientSecurity(
                    tls_ca=ca, tls_certificate=str(foreign.certificate), tls_key=str(foreign.key)
                ),
                "refuses our certificate|closed the connection",
            ),
        ):
            assert re.search(said, refusal_of(server.address, wrong, said))
    finally:
        server.stop()


def test_a_client_without_proof_gets_nothing_from_the_embedded_server(
    secure: ServerProcess, certificates: Certificates
) -> None:
    if not isinstance(secure, SecureEmbeddedProcess):
        pytest.skip("a real ZooKeeper serves everybody, within the ACLs")
    anonymous = Session(secure.address, security=ClientSecurity(tls_ca=str(certificates.ca)))
    with pytest.raises(CoordinationNotAuthenticatedError, match="it asks for a user and a pass"):
        anonymous.start()
    context = ssl.create_default_context(cafile=certificates.ca)
    for word, answer in ((b"stat", b""), (b"mntr", b""), (b"conf", b""), (b"ruok", b"imok")):
        with (
            socket.create_connection(("127.0.0.1", secure.port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as client,
        ):
            client.sendall(word)
            assert client.recv(1000) == answer
    with (
        socket.create_connection(("127.0.0.1", secure.port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        client.sendall(struct.pack(">i", 5000))  # a frame is smaller until then
        assert client.recv(1000) == b""
