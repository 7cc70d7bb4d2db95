"""What tests of the audit share: publishers in memory, and stamped messages."""

from collections.abc import Sequence

from hermes.audit.events import CountsEvent, Event, decode_event
from hermes.errors import BrokerTimeoutError
from hermes.protocol.stamps import Stamper

__all__ = ["MemoryPublisher", "stamped"]


class MemoryPublisher:
    """Keeps what is published.

    Attributes:
        payloads: everything that was stored, in order.
        fails: whether publishing fails; with `stores`, after storing.
        stores: see above.
    """

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.fails = self.stores = False

    def publish(self, payloads: Sequence[bytes]) -> None:
        if not self.fails or self.stores:
            self.payloads += payloads
        if self.fails:
            raise BrokerTimeoutError("nobody knows")

    def events(self) -> list[Event]:
        return [decode_event(each) for each in self.payloads]

    def counts(self) -> list[CountsEvent]:
        return [each.body for each in self.events() if isinstance(each.body, CountsEvent)]


def stamped(count: int, time_ms: int = 5_000, process: int = 1) -> list[bytes]:
    """Payloads with the stamps of one process."""
    payloads = [f"payload {number}".encode() for number in range(count)]
    return Stamper(process, "web-7").stamped(payloads, time_ms)
