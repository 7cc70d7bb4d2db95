"""A broker's entries on both servers, through everything that can happen to its session."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from server_process import ServerProcess

from hermes.client import SyncProducer
from hermes.coordination.cluster_view import read_listeners
from hermes.coordination.listeners import BrokerListeners, ListenerNode, parse_listeners
from hermes.coordination.registration import BrokerRegistration
from hermes.coordination.sessions import Session
from hermes.errors import (
    ConfigError,
    CoordinationUnavailableError,
    HermesError,
    IdInUseError,
)
from hermes.protocol import MessageSet
from hermes.testing import running_broker


@pytest.fixture
def register(connect: str) -> Iterator[Callable[..., BrokerRegistration]]:
    made: list[BrokerRegistration] = []

    def start(
        broker_id: int = 0, port: int = 9092, topics: Any = None, **options: Any
    ) -> BrokerRegistration:
        registration = BrokerRegistration(
            broker_id,
            "127.0.0.1",
            port,
            topics or {},
            **{"connect": connect, "now_ms": lambda: 1795220666395, **options},
        )
        made.append(registration)
        registration.start()
        return registration

    yield start
    for each in made:
        each.stop()


def value(session: Session, path: str) -> bytes | None:
    node = session.get(path)
    return node and node.value


def test_a_broker_and_its_topics_are_written_as_kafka_writes_them(
    connect: str, register: Any, make_session: Any, eventually: Any
) -> None:
    registration = register(topics={"t1": 2})
    session = make_session(connect)
    assert value(session, "/brokers/ids/0") == b"127.0.0.1-1795220666395:127.0.0.1:9092"
    eventually(lambda: value(session, "/brokers/topics/t1/0") == b"2")
    assert value(session, "/brokers/topics/t1") == b""
    registration.topic_created("new", 3)
    eventually(lambda: value(session, "/brokers/topics/new/0") == b"3")
    registration.topic_deleted("new")
    eventually(lambda: not session.children("/brokers/topics/new"))
    registration.stop()
    assert session.children("/brokers/ids") == []
    assert session.children("/brokers/topics/t1") == []


def test_it_registers_again_after_its_session_expired(
    connect: str, register: Any, make_session: Any, eventually: Any, expire: Any
) -> None:
    registration = register(topics={"t1": 2})
    session = make_session(connect)
    eventually(lambda: value(session, "/brokers/topics/t1/0"))
    before = session.get("/brokers/ids/0").owner
    expire(registration._session)

    def is_new() -> bool:
        found = [session.get("/brokers/ids/0"), session.get("/brokers/topics/t1/0")]
        return all(node and node.owner != before for node in found)

    eventually(is_new)


def test_its_listeners_come_with_it_and_go_with_it(
    connect: str, register: Any, make_session: Any, eventually: Any, expire: Any
) -> None:
    """In one transaction: whoever sees the broker sees where it listens."""
    http = ListenerNode("0", "::1", 8, True, "scram")
    listeners = BrokerListeners((ListenerNode("out", "a.b", 9, True, "tls"),), (http,))
    session = make_session(connect)
    seen: list[bool] = []

    def look() -> None:
        if session.get("/brokers/ids/0") is not None:
            seen.append(session.get("/hermes/brokers/0") is not None)

    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        registration = register(topics={"t1": 2}, listeners=listeners)
        eventually(lambda: seen)
    finally:
        stop.set()
        watcher.join()
    assert all(seen)
    path = "/hermes/brokers/0"
    assert parse_listeners(path, value(session, path) or b"") == listeners
    before = session.get(path).owner
    assert before == session.get("/brokers/ids/0").owner != 0
    expire(registration._session)
    eventually(lambda: (node := session.get(path)) and node.owner != before)
    assert read_listeners(session, pytest.fail) == {0: listeners}
    registration.stop()
    assert session.get(path) is None
    assert session.get("/hermes/brokers").owner == 0


def test_brokers_that_tell_no_more_than_0_7_have_one_plain_listener(
    connect: str, register: Any, make_session: Any
) -> None:
    register(3, port=7)
    session = make_session(connect)
    session.create_ephemeral("/hermes/brokers/4", b"{}")  # of nobody who lives
    session.create_ephemeral("/hermes/brokers/3", b"nonsense")
    faults: list[str] = []
    found = read_listeners(session, lambda fault: faults.append(str(fault)))
    assert found == {3: BrokerListeners((ListenerNode("0", "127.0.0.1", 7, False, "none"),))}
    assert faults == ["/hermes/brokers/3: expected listeners as JSON, got 'nonsense'"]


def test_it_registers_again_when_its_entry_is_deleted(
    connect: str, register: Any, make_session: Any, eventually: Any
) -> None:
    register()
    session = make_session(connect)
    session.delete("/brokers/ids/0", 0)
    eventually(lambda: value(session, "/brokers/ids/0"))


def test_a_start_that_a_stop_has_overtaken_registers_nothing(
    connect: str, make_session: Any
) -> None:
    registration = BrokerRegistration(0, "127.0.0.1", 9092, {"t1": 1}, connect=connect)
    registration.stop()
    registration.start()
    assert registration._session.session_id is None
    session = make_session(connect)
    assert session.children("/brokers/ids") == []
    assert session.children("/brokers/topics") == []


def test_an_id_in_use_is_a_clear_error(register: Any) -> None:
    register()
    with pytest.raises(IdInUseError, match=r"broker id 0 is in use: .*127\.0\.0\.1:9092"):
        register(port=9093, session_timeout_seconds=2)


def test_who_has_an_id_is_said_even_if_the_connection_is_lost_then(
    register: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    register()
    left = [Session.create_ephemeral]

    def once(session: Session, path: str, content: bytes) -> Any:
        if not left:
            raise CoordinationUnavailableError("ZooKeeper: lost")
        return left.pop()(session, path, content)

    monkeypatch.setattr(Session, "create_ephemeral", once)
    with pytest.raises(IdInUseError, match="broker id 0 is in use"):
        register(port=9093, session_timeout_seconds=2)


def test_what_an_earlier_life_left_is_replaced_at_once(
    connect: str, register: Any, make_session: Any, eventually: Any
) -> None:
    dead = make_session(connect)
    dead.create_ephemeral("/brokers/ids/0", b"127.0.0.1-1:127.0.0.1:9092")
    dead.create_ephemeral("/brokers/topics/t1/0", b"1")
    register(topics={"t1": 2})
    eventually(lambda: value(dead, "/brokers/topics/t1/0") == b"2")
    assert dead.get("/brokers/ids/0").owner != dead.session_id


def test_what_may_be_an_earlier_life_s_is_waited_for(
    connect: str,
    register: Any,
    make_session: Any,
    eventually: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "hermes.coordination.registration")
    dead = make_session(connect)
    dead.create_ephemeral("/brokers/ids/0", b"127.0.0.1-1:127.0.0.1:1234")
    timer = threading.Timer(0.2, lambda: dead.delete("/brokers/ids/0", 0))
    timer.start()
    register(session_timeout_seconds=60)
    timer.join()
    # Once, however often it is tried.
    (said,) = [each for each in caplog.messages if "retrying to register" in each]
    assert said.startswith("retrying to register broker 0, for up to 90 s: broker id 0")
    assert said.endswith("; if that was this one, it waits for that session's end")
    assert b":9092" in (value(dead, "/brokers/ids/0") or b"")


def test_a_paused_server_is_survived(
    own_server: ServerProcess, register: Any, make_session: Any, eventually: Any
) -> None:
    registration = register(topics={"t1": 2}, connect=own_server.address, session_timeout_seconds=1)
    own_server.pause()
    eventually(lambda: registration._session.session_id is None)
    registration.topic_created("meanwhile", 1)
    own_server.resume()
    session = make_session(own_server.address)
    eventually(lambda: value(session, "/brokers/topics/meanwhile/0") == b"1")
    eventually(lambda: value(session, "/brokers/ids/0"))


def test_a_broker_registers_what_it_has_and_what_it_gets(
    connect: str, tmp_path: Path, make_session: Any, eventually: Any
) -> None:
    settings = {"coordination": "zookeeper", "zookeeper_connect": connect, "num_partitions": 2}
    session = make_session(connect)
    with running_broker(tmp_path / "log", settings) as broker:
        assert (value(session, "/brokers/ids/0") or b"").endswith(
            f":127.0.0.1:{broker.port}".encode()
        )
        with SyncProducer(broker.host, broker.port) as producer:
            producer.send("clicks", 0, MessageSet.of([b"x"]).data)
        eventually(lambda: value(session, "/brokers/topics/clicks/0") == b"2")
    assert session.children("/brokers/ids") == []
    with running_broker(tmp_path / "log", settings):
        eventually(lambda: value(session, "/brokers/topics/clicks/0") == b"2")


def test_a_broker_whose_id_is_in_use_does_not_start(connect: str, make_session: Any) -> None:
    session = make_session(connect)
    session.create_ephemeral("/brokers/ids/0", b"other-1:other:9092")
    settings = {
        "coordination": "zookeeper",
        "zookeeper_connect": connect,
        "zookeeper_session_timeout": "2s",
    }
    with (
        pytest.raises(IdInUseError, match="broker id 0 is in use"),
        running_broker(None, settings),
    ):
        pass


def test_zookeeper_must_be_named() -> None:
    with (
        pytest.raises(ConfigError, match="zookeeper_connect"),
        running_broker(None, {"coordination": "zookeeper"}),
    ):
        pass


def test_a_broker_without_zookeeper_does_not_start() -> None:
    settings = {
        "coordination": "zookeeper",
        "zookeeper_connect": "127.0.0.1:1",
        "zookeeper_connection_timeout": "200ms",
    }
    with pytest.raises(HermesError, match="did not answer"), running_broker(None, settings):
        pass


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of servers from now on, by all sessions of this process."""
    calls: list[str] = []
    call = Session._call

    def counted(self: Session, method: Any, *args: Any, **options: Any) -> Any:
        calls.append(getattr(method, "__name__", ""))
        return call(self, method, *args, **options)

    monkeypatch.setattr(Session, "_call", counted)
    return calls


def test_many_topics_are_registered_in_few_calls_whatever_is_there(
    connect: str, register: Any, make_session: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some are left of an earlier life, of some only the parent is there."""
    topics = {f"topic-{n}": 1 + n % 3 for n in range(1000)}
    dead = make_session(connect)
    dead.create_ephemeral("/brokers/topics/topic-7/0", b"9")
    dead.create_ephemeral("/brokers/topics/topic-700/0", b"2")
    dead.ensure_path("/brokers/topics/topic-8")
    calls = count_calls(monkeypatch)
    registration = register(topics=topics)
    eventually(lambda: len(registration._registered) == 1 + len(topics))
    assert sum(name == "commit_async" for name in calls) == 4, "the broker with the first topics"
    assert len(calls) < 40, calls
    for number in (0, 7, 8, 700, 999):
        found = dead.get(f"/brokers/topics/topic-{number}/0")
        assert found.value == b"%d" % topics[f"topic-{number}"]
        assert found.owner == registration._session.session_id
    assert len(dead.children("/brokers/topics")) == len(topics)


def test_one_topic_that_is_refused_stops_no_other(
    connect: str, register: Any, make_session: Any, eventually: Any
) -> None:
    session = make_session(connect)
    session.ensure_path("/brokers/topics")
    session.create_ephemeral("/brokers/topics/topic-50", b"which can have no children")
    registration = register(topics={f"topic-{n}": 1 for n in range(100)})
    eventually(lambda: len(registration._registered) == 100)
    assert value(session, "/brokers/topics/topic-99/0") == b"1"
    session.delete("/brokers/topics/topic-50", 0)
    eventually(lambda: value(session, "/brokers/topics/topic-50/0") == b"1")


def test_a_stop_ends_registering(
    connect: str, make_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 10,000 topics and a slow server that would be minutes."""
    asked, go_on = threading.Event(), threading.Event()
    transact, transactions = Session.transact, []

    def slow(self: Session, fill: Any) -> Any:
        transactions.append(fill)
        asked.set()
        assert go_on.wait(60)
        return transact(self, fill)

    monkeypatch.setattr(Session, "transact", slow)
    topics = {f"topic-{n}": 1 for n in range(2000)}
    registration = BrokerRegistration(0, "127.0.0.1", 9092, topics, connect=connect)
    starting = threading.Thread(target=registration.start)
    starting.start()
    assert asked.wait(60)
    registration.stop_soon()
    go_on.set()
    starting.join()
    registration.stop()
    assert len(transactions) == 1
    assert make_session(connect).children("/brokers/ids") == []


def test_who_sees_a_broker_sees_its_topics(
    connect: str, register: Any, make_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a producer would take the default number of partitions for that of a topic."""
    session = make_session(connect)
    transact, seen = Session.transact, []

    def watched(self: Session, fill: Any) -> Any:
        results = transact(self, fill)
        topics = session.children("/brokers/topics")
        seen.append((session.get("/brokers/ids/0") is not None, len(topics)))
        return results

    monkeypatch.setattr(Session, "transact", watched)
    register(topics={f"topic-{n}": 1 for n in range(200)})
    assert seen == [(True, 200)]
