"""With what the console connects to brokers; nothing is connected."""

from typing import Any

import pytest

from hermes.config.addresses import BrokerAddress
from hermes.console import cluster_client
from hermes.console.cluster_client import ClusterClient
from hermes.errors import NotAuthenticatedError
from hermes.security import ClientSecurity

OTHER = BrokerAddress("other", 9092)


class Connection:
    """Is let in with the broker's password at this moment; keeps its own."""

    right = "old"

    def __init__(self, host: str, port: int, **settings: Any) -> None:
        self._password = settings["password"]

    def describe_settings(self) -> str:
        if self._password != self.right:
            raise NotAuthenticatedError("wrong password")
        return "settings"

    def close(self) -> None: ...


def test_a_password_that_was_replaced_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_client, "SimpleConsumer", Connection)
    cluster = ClusterClient(
        BrokerAddress("own", 9092),
        clock=iter(range(0, 1000, 10)).__next__,
        elsewhere=lambda: ClientSecurity(user="brokers", password=Connection.right),
    )
    ask = Connection.describe_settings
    assert cluster.ask(OTHER, ask) == "settings"  # type: ignore[arg-type, comparison-overlap]
    monkeypatch.setattr(Connection, "right", "new")
    with pytest.raises(NotAuthenticatedError):
        cluster.ask(OTHER, ask)  # type: ignore[arg-type]
    assert cluster.ask(OTHER, ask) == "settings"  # type: ignore[arg-type, comparison-overlap]
