"""The pytest fixtures: `pytest_plugins = ["hermes.testing.fixtures"]`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from hermes.testing import RunningBroker, RunningKafka, running_broker, running_kafka


@pytest.fixture
def hermes_broker_settings() -> Mapping[str, Any]:
    """The settings of `hermes_broker`; define a fixture of this name for others."""
    return {}


@pytest.fixture
def hermes_broker_security() -> Mapping[str, Any]:
    """What `hermes_broker` asks of its clients; define a fixture of this name for others.

    `tls`, `users` and `certificates`, as `running_broker` takes them.
    """
    return {}


@pytest.fixture
def hermes_broker(
    hermes_broker_settings: Mapping[str, Any], hermes_broker_security: Mapping[str, Any]
) -> Iterator[RunningBroker]:
    """A broker of its own for one test, with an empty data directory."""
    with running_broker(settings=hermes_broker_settings, **hermes_broker_security) as broker:
        yield broker


@pytest.fixture
def hermes_kafka_topics() -> Mapping[str, int] | Iterable[str]:
    """The topics of `hermes_kafka`; define a fixture of this name for others."""
    return ()


@pytest.fixture
def hermes_kafka_settings() -> Mapping[str, Any]:
    """The settings of `hermes_kafka`; define a fixture of this name for others."""
    return {}


@pytest.fixture
def hermes_kafka_security() -> Mapping[str, Any]:
    """What `hermes_kafka` asks of its clients; define a fixture of this name for others.

    `tls`, `users` and `certificates`, as `running_kafka` takes them.
    """
    return {}


@pytest.fixture
def hermes_kafka(
    hermes_kafka_topics: Mapping[str, int] | Iterable[str],
    hermes_kafka_settings: Mapping[str, Any],
    hermes_kafka_security: Mapping[str, Any],
) -> Iterator[RunningKafka]:
    """A broker with Kafka's protocol, of its own for one test."""
    with running_kafka(
        hermes_kafka_topics, hermes_kafka_settings, **hermes_kafka_security
    ) as kafka:
        yield kafka
