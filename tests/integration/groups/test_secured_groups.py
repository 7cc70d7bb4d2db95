"""Producers and groups that find brokers by coordination, where all want TLS and users."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from certificates import Certificates
from hermes_testkit import BrokerProcess

from hermes import (
    Consumer,
    ConsumerConfig,
    FetchRequest,
    Producer,
    ProducerConfig,
    SimpleConsumer,
    errors,
)
from hermes.coordination.cluster_view import read_brokers
from hermes.coordination.sessions import Session
from hermes.testing import RunningBroker, running_broker

USERS = {"writer": "the writer's pa55word", "reader": "the reader's pa55word"}
RULES: list[dict[str, Any]] = [
    {"principal": "writer", "operations": ["produce", "create", "describe"], "topic": "clicks"},
    {"principal": "reader", "operations": ["consume"], "topic": "clicks"},
    {"principal": "reader", "operations": ["group"], "group": "search"},
]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    settings = {"access": RULES, "coordination": "embedded"}
    with running_broker(tls=True, users=USERS, settings=settings) as running:
        yield running


def producer_config(broker: RunningBroker, user: str, **more: Any) -> ProducerConfig:
    assert broker.zookeeper_connect is not None
    settings = {"acks": "flushed", **broker.client_settings(user), **more}
    return ProducerConfig(zookeeper_connect=broker.zookeeper_connect, **settings)


def consumer_config(broker: RunningBroker, user: str, **more: Any) -> ConsumerConfig:
    assert broker.zookeeper_connect is not None
    settings = {"group": "search", **broker.client_settings(user), **more}
    return ConsumerConfig(zookeeper_connect=broker.zookeeper_connect, **settings)


def test_a_producer_and_a_group(broker: RunningBroker) -> None:
    with Producer(producer_config(broker, "writer")) as producer:
        for number in range(10):
            producer.send("clicks", b"%d" % number)
    with Consumer.create(consumer_config(broker, "reader")) as connector:
        (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
        assert [int(next(stream).message) for _ in range(10)] == list(range(10))
        connector.commit_offsets()
        assert connector.metrics().failed_commits == 0


def test_whoever_coordination_does_not_know_gets_no_further(broker: RunningBroker) -> None:
    wrong = {"password": "wrong"}
    with pytest.raises(errors.NotAuthenticatedError):
        Consumer.create(consumer_config(broker, "reader", **wrong))
    with pytest.raises(errors.NotAuthenticatedError):
        Producer(producer_config(broker, "writer", **wrong))


def test_a_producer_without_the_right_learns_so_of_every_message(broker: RunningBroker) -> None:
    with Producer(producer_config(broker, "reader", producer_type="async")) as producer:
        handles = [producer.send("clicks", b"x") for _ in range(5)]
        for handle in handles:
            with pytest.raises(errors.NotAuthorizedError, match=r"'clicks'.*user 'reader'; ask"):
                handle.result(60)


def test_a_member_of_a_group_that_is_not_its_own_learns_so_at_once(broker: RunningBroker) -> None:
    config = consumer_config(broker, "writer")
    with (
        Consumer.create(config) as connector,
        pytest.raises(errors.NotAuthorizedError, match="search"),
    ):
        connector.create_message_streams({"clicks": 1})


@pytest.fixture
def all_ways(tmp_path: Path, certificates: Certificates) -> Iterator[RunningBroker]:
    """Start a broker with a listener of each kind, and plain coordination."""
    pair = certificates.server
    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}
    both = {**tls, "client_ca": str(certificates.ca), "client_certificate": "required"}
    endpoint = "tcp:0:interface=127.0.0.1"
    listen = [
        {"endpoint": endpoint, "authentication": "none"},
        {"endpoint": endpoint, "authentication": "scram"},
        {"endpoint": endpoint, "tls": tls},
        {"endpoint": endpoint, "tls": tls, "authentication": "scram"},
        {"endpoint": endpoint, "tls": both, "authentication": "tls"},
    ]
    coordination = {"endpoint": endpoint, "authentication": "none"}
    settings = {"listen": listen, "coordination_listen": coordination, "coordination": "embedded"}
    with running_broker(tmp_path / "log", settings, users=USERS) as broker:
        yield broker


def test_clients_find_the_listener_that_is_for_them(
    all_ways: RunningBroker, certificates: Certificates
) -> None:
    alice = certificates.client("alice")
    ca = {"tls_ca": str(certificates.ca)}
    own = {"tls_certificate": str(alice.certificate), "tls_key": str(alice.key)}
    user = {"user": "writer", "password": USERS["writer"]}
    assert all_ways.zookeeper_connect is not None
    ports = []
    for given in ({}, user, ca, {**ca, **user}, {**ca, **own}):
        config = ProducerConfig(
            zookeeper_connect=all_ways.zookeeper_connect,
            zookeeper_tls=False,
            acks="flushed",
            **given,  # type: ignore[arg-type]
        )
        session = Session(all_ways.zookeeper_connect, security=config.coordination_security)
        session.start()
        try:
            (node,) = read_brokers(session, pytest.fail, security=config.security).values()
        finally:
            session.stop()
        ports.append(node.port)
        with Producer(config) as producer:
            producer.send("clicks", b"hello")
    assert len(set(ports)) == 5
    assert ports[0] == all_ways.port


def test_a_right_that_is_withdrawn_while_messages_are_sent_loses_none_silently(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    """Each send is stored or fails; those after the withdrawal fail, and say why."""
    allowed = {"principal": "*", "operations": ["all"]}
    refused = {"principal": "*", "operations": ["produce"], "topic": "clicks", "allow": False}
    broker = start_broker(access=[allowed])
    config = ProducerConfig(
        broker_list=f"0:127.0.0.1:{broker.port}", producer_type="async", acks="flushed"
    )
    done = threading.Event()
    handles: list[Any] = []
    with Producer(config) as producer:

        def send() -> None:
            while not done.is_set():
                handles.append(producer.send("clicks", b"%06d" % len(handles)))
                done.wait(0.0005)

        thread = threading.Thread(target=send)
        thread.start()
        while len(handles) < 200:
            done.wait(0.001)
        assert not isinstance(outcome_of(handles[0]), Exception)
        give_rules(broker, [allowed, refused])
        while not isinstance(outcome_of(handles[-1]), errors.NotAuthorizedError):
            done.wait(0.01)
        done.set()
        thread.join()
        outcomes = [outcome_of(each) for each in handles]
        first = sum(not isinstance(each, Exception) for each in outcomes)
        assert not any(isinstance(each, Exception) for each in outcomes[:first]), "in order"
        assert {type(each) for each in outcomes[first:]} == {errors.NotAuthorizedError}
        give_rules(broker, [allowed])
        assert outcome_of(producer.send("clicks", b"again")).offset is not None
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        fetched = consumer.fetch(FetchRequest("clicks", 0, 0, 1 << 24))
    stored = [message.payload for message, _ in fetched]
    assert stored == [b"%06d" % number for number in range(first)] + [b"again"]


def test_a_right_that_is_withdrawn_while_a_group_reads_skips_nothing(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    allowed = {"principal": "*", "operations": ["all"]}
    refused = {"principal": "*", "operations": ["consume"], "topic": "clicks", "allow": False}
    coordinated = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}
    broker = start_broker(access=[allowed], **coordinated)
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        connect = consumer.coordination()
    config = ConsumerConfig(group="search", zookeeper_connect=connect, consumer_timeout="60s")
    config_of_producer = ProducerConfig(broker_list=f"0:127.0.0.1:{broker.port}", acks="flushed")
    seen: list[int] = []

    def read_on(stream: Any, count: int) -> None:
        while len(seen) < count:
            seen.append(int(next(stream).message))

    with Producer(config_of_producer) as producer:
        producer.send("clicks", [b"%d" % number for number in range(10)])
        with Consumer.create(config) as connector:
            (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
            read_on(stream, 10)
            give_rules(broker, [allowed, refused])
            producer.send("clicks", [b"%d" % number for number in range(10, 20)])
            producer.send("clicks", b"20")
            # A fetch that waited may still bring some.
            with pytest.raises(errors.NotAuthorizedError, match="clicks"):
                read_on(stream, 22)
    give_rules(broker, [allowed])
    with Consumer.create(config) as connector:
        (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
        read_on(stream, 21)
    assert seen == list(range(21))


def give_rules(broker: BrokerProcess, rules: list[dict[str, Any]]) -> None:
    """Change the rules of a broker that runs."""
    settings = yaml.safe_load(broker.config_file.read_text(encoding="utf-8"))
    settings["access"] = rules
    broker.config_file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        consumer.reload_config()


def outcome_of(handle: Any) -> Any:
    try:
        return handle.result(60)
    except errors.HermesError as error:
        return error
