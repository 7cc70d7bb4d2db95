"""How many scrapes are answered at once, and what they wait for."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from hermes.broker.monitoring import Monitoring
from hermes.errors import CoordinationUnavailableError
from hermes.web import AcceptedHosts, MetricsResource, Root, Site
from hermes.web.monitoring import MAX_SCRAPES


class _NeverKnown(Monitoring):
    def __init__(self, clock: Clock) -> None:
        self.reactor = clock

    def scrape(self, format_: str) -> "Deferred[object]":  # type: ignore[override]
        return Deferred()


def test_a_flood_of_scrapes_is_refused_until_one_ends() -> None:
    clock, root = Clock(), Root()
    root.add("metrics", MetricsResource(clock, _NeverKnown(clock).scrape), any_host=True)
    site = Site(root, AcceptedHosts(), clock)
    channels = []

    def scrape() -> bytes:
        transport, channel = StringTransport(), site.buildProtocol(None)
        channel.makeConnection(transport)
        channels.append(channel)
        channel.dataReceived(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        return transport.value()

    assert [scrape() for _ in range(MAX_SCRAPES)] == [b""] * MAX_SCRAPES
    assert scrape().startswith(b"HTTP/1.1 503 ")
    channels[0].connectionLost(Failure(ConnectionDone()))
    assert scrape() == b""
    for channel in channels[1:]:
        channel.connectionLost(Failure(ConnectionDone()))


@pytest.mark.parametrize(
    "last", [lambda: succeed(({}, True)), lambda: fail(CoordinationUnavailableError("lost"))]
)
def test_offsets_of_groups_are_read_again_whatever_came_of_the_last_time(
    last: "Callable[[], Deferred[Any]]",
) -> None:
    clock, reads = Clock(), [last()]
    coordination = SimpleNamespace(is_registered=True, stored_offsets=lambda limit: reads.pop())
    run: Any = SimpleNamespace(
        reactor=clock,
        config=SimpleNamespace(metrics_per_partition=True),
        coordination=coordination,
        now_ms=lambda: 1000,
    )
    monitoring = Monitoring(run)
    monitoring.scrape("text")
    assert reads == []
    reads.append(succeed(({("group", "topic", 0): 7}, True)))
    clock.advance(10)
    monitoring.scrape("text")
    assert reads == []
    assert monitoring._offsets == {("group", "topic", 0): 7}
    monitoring.stop()
