"""The pytest fixture `hermes_broker`: `pytest_plugins = ["hermes.testing.fixtures"]`."""

from collections.abc import Iterator

import pytest

from hermes.testing import RunningBroker, running_broker

__all__ = ["hermes_broker"]


@pytest.fixture
def hermes_broker() -> Iterator[RunningBroker]:
    """A broker of its own for one test, with an empty data directory."""
    with running_broker() as broker:
        yield broker
