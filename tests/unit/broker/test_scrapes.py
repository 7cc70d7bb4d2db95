"""How many scrapes are answered at once."""

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from hermes.broker.monitoring import Monitoring
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
