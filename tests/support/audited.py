"""What tests of the audit share: publishers in memory, stamped messages, tiers with faults."""

from collections.abc import Callable, Mapping, Sequence

from hermes.audit.comparing import Report, Window
from hermes.audit.counting import TierCounter
from hermes.audit.events import CountsEvent, Event, decode_event
from hermes.audit.publishing import Publisher
from hermes.client import ProducerConfig
from hermes.errors import BrokerTimeoutError
from hermes.protocol.stamps import Stamper

__all__ = ["FAULTS", "FAULTY_TIERS", "MemoryPublisher", "check_faults", "report_faults", "stamped"]

#: Of each fault in a tier's counts, how many messages it is short of, and has too many.
FAULTS = {"dropped": (1, 0), "doubled": (0, 1), "both": (1, 1)}

#: Tiers that are to have one of them, by their names.
FAULTY_TIERS: Mapping[str, tuple[int, int]] = {
    f"{kind}:{fault}": found
    for kind in ("cluster", "mirror", "group", "spark")
    for fault, found in FAULTS.items()
}


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


def report_faults(connect: str, window_ms: int, count: Callable[..., None]) -> None:
    """Have each of the `FAULTY_TIERS` report what it counts.

    `count`: given a counter and the fault, counts what there is; `in_ranges`: by logs.
    """
    publisher = Publisher(ProducerConfig(zookeeper_connect=connect))
    for tier in FAULTY_TIERS:
        kind, _, fault = tier.partition(":")
        counter = TierCounter(tier, publisher, window_ms=window_ms)
        count(counter, fault, in_ranges=kind in ("cluster", "mirror"))
        assert counter.close()
    publisher.close()


def check_faults(report: Report, topic: str) -> None:
    """Each of these tiers differs in one window, by its fault, and no other tier does."""
    found: dict[str, list[Window]] = {}
    for each in report.differences:
        found.setdefault(each.tier, []).append(each)
    assert found.keys() == FAULTY_TIERS.keys()
    for tier, windows in found.items():
        (window,) = windows
        assert (window.topic, window.short, window.over) == (topic, *FAULTY_TIERS[tier]), tier
