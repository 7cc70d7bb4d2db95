"""Keyword arguments that there aren't: what was meant, by the names that other clients use."""

import dataclasses
import inspect

import pytest

import hermes
import hermes.aio
import hermes.aio.twisted
import hermes.client
import hermes.schemas
import hermes.testing
from hermes import ConsumerConfig, Producer, ProducerConfig, SimpleConsumer
from hermes.audit.consumers import AuditedConnector
from hermes.client.groups import Consumer
from hermes.errors import ArgumentError, ConfigError
from hermes.keywords import explains_keywords
from hermes.schemas import RegistryClient
from hermes.security import ClientSecurity


@pytest.mark.parametrize(
    ("made", "settings", "said"),
    [
        (ProducerConfig, {"bootstrap_servers": "a:1"}, "'bootstrap_servers'.* mean 'broker_list'"),
        (ProducerConfig, {"bootstrap.servers": "a:1"}, "did you mean 'broker_list'"),
        (ProducerConfig, {"brokers": "a:1"}, "did you mean 'broker_list'"),
        (ProducerConfig, {"linger_ms": 5}, "did you mean 'queue_time'"),
        (ProducerConfig, {"compression_type": "gzip"}, "did you mean 'compression'"),
        (ProducerConfig, {"value_serializer": str}, "did you mean 'encoder'"),
        (ProducerConfig, {"key_serializer": str}, "a key is stored as bytes"),
        (ProducerConfig, {"client_id": "me"}, "a broker knows its clients by address"),
        (ProducerConfig, {"enable_idempotence": True}, "docs/kafka.md"),
        (ProducerConfig, {"ack": "written"}, "did you mean 'acks'"),
        (ProducerConfig, {"Acks": "written"}, "did you mean 'acks'"),
        (ProducerConfig, {"wholly_unlike": 1}, "docs/client-settings.md has all"),
        (ConsumerConfig, {"bootstrap_servers": "a:1"}, "did you mean 'brokers'"),
        (ConsumerConfig, {"broker_list": "a:1", "group": "g"}, "did you mean 'brokers'"),
        (ConsumerConfig, {"group_id": "g"}, "did you mean 'group'"),
        (ConsumerConfig, {"group.id": "g"}, "did you mean 'group'"),
        (ConsumerConfig, {"client_id": "me"}, "did you mean 'consumer_id'"),
        (ConsumerConfig, {"enable_auto_commit": True}, "did you mean 'auto_commit'"),
        (ConsumerConfig, {"zookeeper": "z:1"}, "did you mean 'zookeeper_connect'"),
        (ConsumerConfig, {"topics": ["t"]}, "topics are named where"),
        (ClientSecurity, {"ssl_cafile": "ca.pem"}, "did you mean 'tls_ca'"),
        (ClientSecurity, {"username": "me"}, "did you mean 'user'"),
        (SimpleConsumer, {"bootstrap_servers": "a:1"}, "did you mean 'host'"),
        (SimpleConsumer, {"host": "a", "group_id": "g"}, "there is no 'group_id'"),
        (hermes.aio.SimpleConsumer, {"bootstrap_servers": "a:1"}, "did you mean 'host'"),
        (hermes.aio.SimpleConsumer, {"host": "a", "timeout": 1}, "mean 'timeout_seconds'"),
        (Producer, {"bootstrap_servers": "a:1"}, r"stand in its ProducerConfig\(broker_list=...\)"),
        (Producer, {"acks": "written"}, r"stand in its ProducerConfig\(acks=...\)"),
        (hermes.aio.Producer, {"acks": "written"}, r"stand in its ProducerConfig\(acks=...\)"),
        (Consumer, {"group_id": "g"}, r"Consumer: .*stand in its ConsumerConfig\(group=...\)"),
        (RegistryClient, {"bootstrap_servers": "http://a"}, "did you mean 'url'"),
        (hermes.testing.running_broker, {"num_partitions": 4}, "there is no 'num_partitions'"),
    ],
)
def test_what_was_meant(made, settings: dict[str, object], said: str) -> None:
    with pytest.raises(ArgumentError, match=said) as raised:
        made(**settings)
    assert isinstance(raised.value, TypeError)
    assert raised.value.__cause__ is raised.value.__context__ is None


def test_settings_are_given_by_name() -> None:
    with pytest.raises(ArgumentError, match=r"by name, as in ProducerConfig\(broker_list=...\)"):
        ProducerConfig("localhost:9092")  # type: ignore[misc]


def test_an_address_is_no_configuration() -> None:
    with pytest.raises(ArgumentError, match=r"did you mean ProducerConfig\(broker_list='a:1'\)"):
        Producer("a:1")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"did you mean ConsumerConfig\(brokers='a:1'\)"):
        Consumer("a:1")  # type: ignore[arg-type]


MODULES = (hermes, hermes.client, hermes.aio, hermes.aio.twisted, hermes.schemas)
PUBLIC = {getattr(module, name) for module in MODULES for name in module.__all__}
PUBLIC |= {AuditedConnector}


def takes_settings(made: object) -> bool:
    """Whether it is a class that is told where brokers are, or how to work with them."""
    if not inspect.isclass(made) or issubclass(made, Exception):
        return False
    told = {"broker_list", "brokers", "config", "host", "url"}
    return bool(told & set(inspect.signature(made).parameters))


def test_the_public_constructors_are_found() -> None:
    found = {each.__name__ for each in filter(takes_settings, PUBLIC)}
    assert found >= {"Consumer", "ConsumerConfig", "Producer", "ProducerConfig", "SimpleConsumer"}


@pytest.mark.parametrize(
    "made",
    sorted(filter(takes_settings, PUBLIC), key=lambda each: f"{each.__module__}.{each.__name__}"),
)
def test_no_public_constructor_leaves_it_to_python(made) -> None:
    with pytest.raises(ArgumentError, match="there is no 'bootstrap_servers'"):
        made(bootstrap_servers="localhost:9092")


def test_other_type_errors_are_passed_on() -> None:
    @explains_keywords
    def called(number: int) -> int:
        return number + "1"  # type: ignore[operator]

    with pytest.raises(TypeError, match="unsupported operand") as raised:
        called(number=1)
    assert type(raised.value) is TypeError
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        called()


def test_configurations_stay_what_they_were() -> None:
    config = ProducerConfig(broker_list="a:1", acks="written")
    assert dataclasses.replace(config, acks="none").acks == "none"
    assert "broker_list" in inspect.signature(ProducerConfig).parameters
    with pytest.raises(ConfigError):
        dataclasses.replace(config, acks="all")
