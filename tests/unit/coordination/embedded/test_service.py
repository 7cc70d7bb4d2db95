"""The embedded server as a service, before it runs."""

from pathlib import Path

import pytest
from kazoo.hosts import collect_hosts
from twisted.internet.testing import MemoryReactorClock

from hermes.coordination.embedded import EmbeddedCoordination


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("0.0.0.0", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("::", "::1"),
        ("::1", "::1"),
        ("fd00::7", "fd00::7"),
    ],
)
def test_clients_can_use_the_address_that_they_are_told(host: str, told: str) -> None:
    service = EmbeddedCoordination(MemoryReactorClock(), Path("x"))
    service.addresses = [(host, 2181)]
    assert collect_hosts(service.connect_string) == ([(told, 2181)], None)
