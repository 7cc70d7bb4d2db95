"""What one broker counts while it carries out requests: plain attributes, no lock, one thread.

The rest is counted by whoever does it (the flush scheduler its flushes, and so on). `monitoring`
knows where everything is, and how it is called outside.
"""

import re
from typing import Final

from hermes.metrics import Histogram

#: The types of requests, as labels.
KINDS: Final = (
    "produce",
    "multiproduce",
    "acknowledged_produce",
    "mirrored_produce",
    "fetch",
    "multifetch",
    "waiting_fetch",
    "other",
)


class TopicCounts:
    """Of one topic, since the broker started or the topic was created.

    Messages inside compressed sets are counted; of those going out, only bytes can be.
    """

    __slots__ = ("bytes_in", "bytes_out", "messages_in")

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_out = 0


class RequestKind:
    """Requests of one type.

    `taken` counts a multiproduce or a multifetch once. `seconds` is from being taken to the
    response being known; nothing for those that ended in closing their connection.
    """

    __slots__ = ("seconds", "taken")

    def __init__(self) -> None:
        self.taken = 0
        self.seconds = Histogram()


class Metrics:
    """Counters of one broker; all of them only grow, save `connections`.

    Attributes:
        requests_refused: requests that ended in closing their connection.
        oversized_sets: message sets dropped for a message above `max_message_bytes`.
        fetches: fetches answered, each of a multifetch counting.
        topics: of those that exist, or that were fetched from.
        refusals: requests that weren't carried out, by type and reason: closed or answered with an
            error, each entry of a request by itself.
        acknowledged: from an acknowledged produce being taken to its flush, in seconds.
    """

    def __init__(self) -> None:
        self.connections = self.connections_accepted = self.connections_refused = 0
        self.requests_refused = self.oversized_sets = self.fetches = 0
        self.topics: dict[str, TopicCounts] = {}
        self.requests = {kind: RequestKind() for kind in KINDS}
        self.refusals: dict[tuple[str, str], int] = {}
        self.acknowledged = Histogram()
        self._deleted = TopicCounts()

    def topic(self, name: str) -> TopicCounts:
        return self.topics.setdefault(name, TopicCounts())

    def forget(self, topic: str) -> None:
        """A topic is gone: its series end, and the sums stay."""
        counts = self.topics.pop(topic, None)
        if counts is not None:
            self._deleted.messages_in += counts.messages_in
            self._deleted.bytes_in += counts.bytes_in
            self._deleted.bytes_out += counts.bytes_out

    def refuse(self, kind: str, reason: str) -> None:
        key = (kind, reason)
        self.refusals[key] = self.refusals.get(key, 0) + 1

    def totals(self) -> TopicCounts:
        sums = TopicCounts()
        for counts in (self._deleted, *self.topics.values()):
            sums.messages_in += counts.messages_in
            sums.bytes_in += counts.bytes_in
            sums.bytes_out += counts.bytes_out
        return sums

    def snapshot(self) -> dict[str, int]:
        """For the line that is logged now and then."""
        totals, requests = self.totals(), self.requests
        produces = ("produce", "multiproduce", "acknowledged_produce", "mirrored_produce")
        return {
            "connections": self.connections,
            "connections_refused": self.connections_refused,
            "requests_refused": self.requests_refused,
            "produce_requests": sum(requests[kind].taken for kind in produces),
            "messages_in": totals.messages_in,
            "bytes_in": totals.bytes_in,
            "oversized_sets": self.oversized_sets,
            "fetch_requests": self.fetches,
            "bytes_out": totals.bytes_out,
        }


def reason_of(error: BaseException) -> str:
    """An error's label: `OffsetOutOfRangeError` is `offset_out_of_range`."""
    name = type(error).__name__.removesuffix("Error")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
