"""The broker for users' own tests, which asks its clients who they are."""

import pytest

from hermes import ConfigError, FetchRequest, Producer, ProducerConfig, SimpleConsumer
from hermes.testing import RunningBroker, running_broker

USERS = {"writer": "the writer's pa55word", "reader": "the reader's pa55word"}
ACCESS = [
    {"principal": "writer", "operations": ["produce", "create"], "topic": "clicks"},
    {"principal": "reader", "operations": ["consume"], "topic": "clicks"},
]


def send(broker: RunningBroker, **settings: str) -> None:
    config = ProducerConfig(broker_list=broker.broker_list, acks="flushed", **settings)
    with Producer(config) as producer:
        producer.send("clicks", b"hello").result()


def read(broker: RunningBroker, **settings: str) -> list[bytes]:
    with SimpleConsumer(broker.host, broker.port, **settings) as consumer:
        fetched = consumer.fetch(FetchRequest("clicks", 0, 0, 1 << 20))
        return [message.payload for message, _ in fetched]


def test_ports_of_ones_own_stay_as_they_are() -> None:
    plain = {"endpoint": "tcp:0:interface=127.0.0.1", "name": "plain"}
    settings = {"listen": [plain, "tcp:0:interface=127.0.0.1"]}
    with running_broker(users=USERS, settings=settings) as broker:
        send(broker)
        assert read(broker) == [b"hello"]


def test_users_and_certificates_exclude_each_other() -> None:
    with (
        pytest.raises(ConfigError, match="give these or users"),
        running_broker(users=USERS, certificates=["web"]),
    ):
        pass


def test_a_name_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="user"), running_broker(users={"a:b": "x"}):
        pass
