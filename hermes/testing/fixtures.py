"""The pytest fixture `hermes_broker`: `pytest_plugins = ["hermes.testing.fixtures"]`."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from hermes.testing import RunningBroker, running_broker


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
