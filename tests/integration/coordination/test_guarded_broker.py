"""A broker whose embedded coordination has TLS, users and access rules, over real sockets."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from certificates import Certificates
from fuzzed_coordination import fuzz_guarded
from hermes_testkit import BrokerProcess
from refused_sessions import refusal_of
from server_process import free_port
from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from hermes import Consumer, ConsumerConfig, Producer, ProducerConfig
from hermes.config.listeners import ListenerConfig
from hermes.coordination.embedded import EmbeddedCoordination
from hermes.coordination.sessions import Session
from hermes.errors import (
    CoordinationNotAuthenticatedError,
    CoordinationNotAuthorizedError,
    CoordinationUnavailableError,
)
from hermes.security import INTERNAL, ClientSecurity
from hermes.security.users_file import change_users_file
from hermes.testing import RunningBroker, running_broker

USERS = {name: f"{name}'s pass:word" for name in ("alice", "bob", "dave", "admin")}
ACCESS = [
    {"principal": "alice", "operations": ["produce", "consume", "create"], "topic": "clicks"},
    {"principal": "alice", "operations": ["group"], "group": "a-*"},
    {"principal": "bob", "operations": ["consume"], "topic": "clicks"},
    {"principal": "bob", "operations": ["group"], "group": "b-*"},
    {"principal": "admin", "operations": ["all"]},
]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    settings = {"coordination": "embedded", "access": ACCESS}
    with running_broker(settings=settings, tls=True, users=USERS) as running:
        yield running


@pytest.fixture
def connect(broker: RunningBroker) -> Iterator[Any]:
    """Starts sessions as users."""
    with ExitStack() as stack:

        def start(user: str, **options: Any) -> Session:
            security = ClientSecurity(**broker.client_settings(user))
            session = Session(broker.zookeeper_connect, security=security, **options)
            session.start()
            stack.callback(session.stop)
            return session

        yield start


def test_a_group_consumes_by_tls_and_as_a_user(broker: RunningBroker) -> None:
    config = ProducerConfig(
        zookeeper_connect=broker.zookeeper_connect,
        acks="flushed",
        **broker.client_settings("alice"),
    )
    with Producer(config) as producer:
        producer.send("clicks", [b"one", b"two"])
    connector = Consumer.create(consumer_config(broker, "alice", "a-consumer"))
    try:
        (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
        assert [next(stream).message, next(stream).message] == [b"one", b"two"]
        connector.commit_offsets()
    finally:
        connector.shutdown()


def test_another_s_group_is_told_to_be_so(broker: RunningBroker) -> None:
    connector = Consumer.create(consumer_config(broker, "bob", "a-consumer"))
    try:
        with pytest.raises(CoordinationNotAuthorizedError, match="refuses user 'bob' access to it"):
            connector.create_message_streams({"clicks": 1})
    finally:
        connector.shutdown()


def consumer_config(broker: RunningBroker, user: str, group: str) -> ConsumerConfig:
    return ConsumerConfig(
        group=group,
        zookeeper_connect=broker.zookeeper_connect,
        auto_offset_reset="smallest",
        consumer_timeout="20s",
        **broker.client_settings(user),
    )


def test_groups_and_brokers_are_whose_rules_say_so(connect: Any) -> None:
    alice, bob, admin = connect("alice"), connect("bob"), connect("admin")
    alice.put("/consumers/a-group/offsets/clicks/0-0", b"17")
    assert alice.create_ephemeral("/consumers/a-group/owners/clicks/0-0", b"a-0") is None
    alice.create("/cluster/origins/clicks", b"{}")
    for attempt in (
        lambda: bob.get("/consumers/a-group/offsets/clicks/0-0"),
        lambda: bob.put("/consumers/a-group/offsets/clicks/0-0", b"0"),
        lambda: bob.create_ephemeral("/consumers/a-group/owners/clicks/0-1", b"b-0"),
        lambda: bob.delete_tree("/consumers/a-group"),
        lambda: bob.transact(lambda each: each.delete("/consumers/a-group/owners/clicks/0-0")),
        lambda: bob.create_ephemeral("/brokers/ids/0", b"x:y:1"),
        lambda: bob.delete("/brokers/ids/0", -1),
        lambda: bob.put("/hermes/brokers/0", b"{}"),
        lambda: bob.create("/registry/leader", b"{}"),
        lambda: bob.create("/cluster/origins/clicks", b"{}"),
        lambda: bob.set("/cluster/id", b"mine"),
        lambda: bob.ensure_path("/chroot"),
    ):
        with pytest.raises(CoordinationNotAuthorizedError, match="refuses user 'bob'"):
            attempt()
    bob.put("/consumers/b-group/offsets/clicks/0-0", b"1")
    assert "b-group" not in alice.children("/consumers")
    assert bob.children("/consumers") == ["b-group"]
    assert connect("dave").children("/consumers") == []
    assert {"a-group", "b-group"} <= set(admin.children("/consumers"))
    admin.put("/consumers/a-group/offsets/clicks/0-0", b"0")
    assert alice.get("/consumers/a-group/offsets/clicks/0-0").value == b"0"
    assert alice.children("/brokers/ids") == ["0"]


def test_everybody_else_is_turned_away(broker: RunningBroker) -> None:
    brings = broker.client_settings("alice")
    wrong = ClientSecurity(**{**brings, "password": "wrong"})
    nobody = ClientSecurity(tls_ca=brings["tls_ca"])
    for security in (wrong, nobody):
        session = Session(broker.zookeeper_connect, security=security)
        with pytest.raises(CoordinationNotAuthenticatedError) as caught:
            session.start()
        assert "wrong" not in str(caught.value)
    plain = Session(broker.zookeeper_connect, connection_timeout_seconds=1)
    with pytest.raises(CoordinationUnavailableError):
        plain.start()
    internal = ClientSecurity(
        tls_ca=brings["tls_ca"], user="hermes-internal", password=brings["password"]
    )
    with pytest.raises(CoordinationNotAuthenticatedError):
        Session(broker.zookeeper_connect, security=internal).start()


def test_who_a_certificate_names_has_that_one_s_rights() -> None:
    settings = {"coordination": "embedded", "access": ACCESS}
    with (
        running_broker(settings=settings, certificates=["alice", "bob"]) as broker,
        ExitStack() as stack,
    ):

        def connect(name: str) -> Session:
            security = ClientSecurity(**broker.client_settings(name))
            session = Session(broker.zookeeper_connect, security=security)
            session.start()
            stack.callback(session.stop)
            return session

        alice, bob = connect("alice"), connect("bob")
        alice.put("/consumers/a-group/offsets/clicks/0-0", b"17")
        assert bob.children("/consumers") == []
        with pytest.raises(CoordinationNotAuthorizedError, match="refuses the holder of"):
            bob.put("/consumers/a-group/offsets/clicks/0-0", b"0")
        nobody = ClientSecurity(tls_ca=broker.client_settings("alice")["tls_ca"])
        said = r"certificate|closed the connection"
        assert re.search(said, refusal_of(broker.zookeeper_connect, nobody, said))


@pytest.mark.parametrize("rules", [None, ACCESS])
def test_security_can_be_turned_on_and_off(tmp_path: Path, rules: Any) -> None:
    plain = {"coordination": "embedded"}
    guarded = plain if rules is None else {**plain, "access": rules}
    for number in range(4):
        is_guarded = number % 2 == 1
        options = {"tls": True, "users": USERS} if is_guarded else {}
        settings = guarded if is_guarded else plain
        with running_broker(tmp_path / "log", settings, **options) as broker:
            brings = broker.client_settings("alice") if is_guarded else {}
            connect = broker.zookeeper_connect
            with Producer(
                ProducerConfig(zookeeper_connect=connect, acks="flushed", **brings)
            ) as producer:
                producer.send("clicks", [b"%d" % number])
            connector = Consumer.create(
                ConsumerConfig(
                    group="a-group",
                    zookeeper_connect=connect,
                    auto_offset_reset="smallest",
                    consumer_timeout="20s",
                    **brings,
                )
            )
            try:
                (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
                assert next(stream).message == b"%d" % number  # where the group was
                connector.commit_offsets()
            finally:
                connector.shutdown()


def test_users_and_rules_are_those_of_now(tmp_path: Path) -> None:
    users = tmp_path / "users"
    change_users_file(users, lambda old: old.with_user("alice", "first"), may_create=True)
    listen = {"endpoint": "tcp:0:interface=127.0.0.1", "authentication": "scram"}
    settings = {"coordination": "embedded", "coordination_listen": listen, "users_file": str(users)}
    lost = threading.Event()
    with running_broker(settings=settings) as broker:
        first = ClientSecurity(user="alice", password="first")
        session = Session(broker.zookeeper_connect, security=first, on_change=lost.set)
        session.start()
        try:
            session.create_ephemeral("/mine", b"")
            lost.clear()
            change_users_file(users, lambda old: old.with_password("alice", "second"))
            assert lost.wait(60)  # its connection is closed, and the old password is refused
            with pytest.raises(CoordinationUnavailableError):
                session.get("/mine")
        finally:
            session.stop()
        second = Session(
            broker.zookeeper_connect, security=ClientSecurity(user="alice", password="second")
        )
        second.start()
        second.stop()
        with pytest.raises(CoordinationNotAuthenticatedError):
            Session(broker.zookeeper_connect, security=first).start()


@pytest_twisted.inlineCallbacks
def test_the_broker_s_own_port_has_one_user(tmp_path: Path) -> Any:
    own = ClientSecurity(user=INTERNAL, password="random")
    listen = ListenerConfig("tcp:0:interface=127.0.0.1")
    service = EmbeddedCoordination(reactor, tmp_path / "coordination.sqlite", listen, own=own)
    service.startService()
    try:
        assert service.own_connect_string != service.connect_string
        yield deferToThread(try_own_port, service.own_connect_string, own)
    finally:
        yield service.stopService()


def try_own_port(address: str, own: ClientSecurity) -> None:
    others = (*USERS.items(), (INTERNAL, "rand"), (INTERNAL, "x"), ("anonymous", "random"))
    for user, password in others:
        session = Session(address, security=ClientSecurity(user=user, password=password))
        with pytest.raises(CoordinationNotAuthenticatedError):
            session.start()
    with pytest.raises(CoordinationNotAuthenticatedError):
        Session(address).start()
    session = Session(address, security=own)
    session.start()
    session.create("/any", b"")
    session.stop()


def test_strangers_get_and_leave_nothing(tmp_path: Path, certificates: Certificates) -> None:
    figures = fuzz_guarded(tmp_path / "server", certificates, 120, 7)
    assert figures["rss_mib_after"] - figures["rss_mib_before"] < 40


def test_sessions_outlive_a_kill_of_the_broker(
    tmp_path: Path, start_broker: Callable[..., BrokerProcess]
) -> None:
    users, port = tmp_path / "users", free_port()
    change_users_file(users, lambda old: old.with_user("alice", "secret"), may_create=True)
    listen = {"endpoint": f"tcp:{port}:interface=127.0.0.1", "authentication": "scram"}
    settings = {
        "coordination": "embedded",
        "coordination_listen": listen,
        "users_file": str(users),
        "access": [{"principal": "alice", "operations": ["all"], "group": "*"}],
    }
    first = start_broker(**settings)
    changed = threading.Event()
    session = Session(
        f"127.0.0.1:{port}",
        security=ClientSecurity(user="alice", password="secret"),
        session_timeout_seconds=30,
        on_change=changed.set,
    )
    session.start()
    try:
        owner = session.session_id
        assert session.create_ephemeral("/consumers/a/ids/one", b"") is None
        first.kill()
        for is_connected in (False, True):
            while (session.session_id is not None) != is_connected:
                assert changed.wait(60)
                changed.clear()
            if not is_connected:
                start_broker(**settings)
        assert session.session_id == owner
        assert session.get("/consumers/a/ids/one") == (b"", 0, owner)
        assert session.children("/brokers/ids") == ["0"]  # its former session has ended at once
    finally:
        session.stop()
