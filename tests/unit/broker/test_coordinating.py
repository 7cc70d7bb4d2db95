"""What a broker tells of where coordination is."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from hermes.broker.coordinating import RETRY_SECONDS, Coordination
from hermes.config.broker import BrokerConfig
from hermes.coordination.listeners import BrokerListeners
from hermes.errors import CoordinationUnavailableError


def coordination(**settings: Any) -> Coordination:
    config = BrokerConfig(broker_id=0, log_dir=Path("x"), **settings)
    unused: Any = None
    return Coordination(config, unused, unused, unused)


def test_an_ensemble_is_told_as_it_is_configured() -> None:
    told = coordination(
        coordination="zookeeper", zookeeper_connect="zk1:2181/h"
    ).address_for_clients()
    assert told == "zk1:2181/h"
    assert coordination(coordination="none").address_for_clients() == ""


@pytest.mark.parametrize(
    ("host", "told"),
    [("127.0.0.1", "127.0.0.1:7"), ("10.0.0.7", "10.0.0.7:7"), ("0.0.0.0", ":7"), ("::", ":7")],
)
def test_an_embedded_server_on_every_address_leaves_the_host_to_the_client(
    host: str, told: str
) -> None:
    made = coordination(coordination="none")
    server: Any = SimpleNamespace(running=True, addresses=[(host, 7)], connect_string=f"{host}:7")
    made._server = server
    assert made.address_for_clients() == told


class Attempts:
    """Stands in for registrations: each attempt fails while the server answers nobody."""

    def __init__(self) -> None:
        self.started = 0
        self.is_answered = False

    def __call__(self, *given: Any) -> "Attempts":
        return self

    def start(self) -> None:
        self.started += 1
        if not self.is_answered:
            raise CoordinationUnavailableError("no answer")

    def stop_soon(self) -> None: ...

    def stop(self) -> None: ...


def registered_late(clock: Clock, attempts: Attempts) -> Coordination:
    """A broker whose embedded server is out of service at the start, and then serves."""
    unused: Any = None
    config = BrokerConfig(broker_id=0, log_dir=Path("x"), coordination="none")
    made = Coordination(config, clock, maybeDeferred, unused)
    server: Any = SimpleNamespace(is_serving=False, own_connect_string="127.0.0.1:7")
    made._server = server
    made._registration_for = attempts  # type: ignore[method-assign, assignment]
    made.register_embedded(BrokerListeners(()), unused)
    server.is_serving = True
    server.on_serving()
    return made


def test_a_late_registration_that_fails_is_tried_again() -> None:
    clock, attempts = Clock(), Attempts()
    registered_late(clock, attempts)
    assert attempts.started == 1
    clock.advance(RETRY_SECONDS)
    assert attempts.started == 2
    attempts.is_answered = True
    clock.advance(RETRY_SECONDS)
    assert attempts.started == 3
    assert clock.getDelayedCalls() == []


def test_a_broker_that_stops_is_not_registered_any_more() -> None:
    clock, attempts = Clock(), Attempts()
    made = registered_late(clock, attempts)
    made.unregister()
    assert clock.getDelayedCalls() == []
    made._server.on_serving()  # type: ignore[union-attr]
    assert attempts.started == 1
