"""How sets get to one broker of the target, and when they are on its disk.

A link carries requests in order, several at a time, and is given up at the first failure of its
connection. There is one for each kind of broker: Hermes, which keeps positions of sources, and
Kafka 0.7, which answers no produce at all: there the end of the log has to have moved by what was
sent.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from hermes.client import conversations
from hermes.client.mirrored import MirroredPartitions
from hermes.client.sync_producer import SyncProducer
from hermes.errors import BrokerError, MessageTooLargeBrokerError, OutcomeUnknownError
from hermes.mirror.source_claim import TargetAppend
from hermes.protocol import LATEST, MirroredSet, ProduceRequest, SourceFlags
from hermes.security import ClientSecurity

_TIMEOUT_SECONDS: Final = 30.0
# Kafka 0.7 flushes every few seconds, or after some hundred messages.
_POLL_SECONDS: Final = 0.02
_FLUSH_SECONDS: Final = 20.0

#: Topic and number of a partition.
_Place = tuple[str, int]


class AppendBatch(NamedTuple):
    """Consecutive entries, at least one, of one claim for one partition, sent as one set.

    `is_verbatim`: whether the data are the source's own bytes from `begin` to `end`.
    """

    entries: Sequence[TargetAppend]
    begin: int
    end: int
    data: bytes
    is_verbatim: bool

    @property
    def place(self) -> tuple[str, int]:
        return self.entries[0].topic, self.entries[0].target.partition


class Outcome(NamedTuple):
    """What became of a batch.

    `error`: why it isn't stored; None when it is, on disk. `was_there`: the target had it already.
    """

    error: BrokerError | None
    was_there: bool = False


class Link(Protocol):
    """A connection to a broker, for one thread, with up to `most_in_flight` unanswered requests."""

    most_in_flight: int

    def begin(self, batches: Sequence[AppendBatch]) -> None: ...

    def finish(self) -> Sequence[Outcome]:
        """Wait for the outcomes of the oldest request in flight."""

    def close(self) -> None: ...


class MirroredLink:
    """To Hermes, which keeps positions of sources: each set is stored once."""

    most_in_flight = 4

    def __init__(self, partitions: MirroredPartitions) -> None:
        self._partitions = partitions

    def begin(self, batches: Sequence[AppendBatch]) -> None:
        """Send a request that refuses what doesn't follow, so that a failure leaves no hole."""
        self._partitions.begin([_mirrored(each) for each in batches])

    def finish(self) -> Sequence[Outcome]:
        return [
            Outcome(each.error, each.error is None and each.offset is None)
            for each in self._partitions.finish()
        ]

    def close(self) -> None:
        self._partitions.close()


@dataclass(slots=True, eq=False)
class _Sending:
    """A batch; once it is sent, where its partition ends with it, and its shortfalls by then."""

    batch: AppendBatch
    end: int = 0
    misses: int = 0


class PlainLink:
    """To a Kafka 0.7: at least once, and sure only while nobody else writes to the partition.

    A set with a message that is too large for the broker is dropped silently: the log doesn't grow
    by it, but by what was sent behind it. So all that was sent to a partition has to be there
    before any of it counts. When something is missing, nobody knows which set it was: then they
    are sent one by one, until one is missing that had nothing behind it.
    """

    most_in_flight = 32

    def __init__(self, producer: SyncProducer) -> None:
        self._producer = producer
        # By partition: where it will end when all is there, and how often that has gone wrong.
        self._ends: dict[_Place, int] = {}
        self._shortfalls: dict[_Place, int] = {}
        self._one_by_one: set[_Place] = set()
        self._waiting: deque[list[_Sending]] = deque()

    def begin(self, batches: Sequence[AppendBatch]) -> None:
        sendings = [_Sending(each) for each in batches]
        unsent = {each.batch.place for some in self._waiting for each in some if not each.end}
        held = unsent | self._one_by_one
        self._send([each for each in sendings if each.batch.place not in held])
        self._waiting.append(sendings)

    def finish(self) -> Sequence[Outcome]:
        return [Outcome(self._await_end(each)) for each in self._waiting.popleft()]

    def close(self) -> None:
        self._producer.close()

    def _send(self, sendings: Sequence[_Sending]) -> None:
        for each in sendings:
            place = each.batch.place
            if place not in self._ends:
                self._ends[place] = self._end(place)
            self._ends[place] += len(each.batch.data)
            each.end, each.misses = self._ends[place], self._shortfalls.get(place, 0)
        if sendings:
            self._producer.multi_send(
                [ProduceRequest(*each.batch.place, each.batch.data) for each in sendings]
            )

    def _await_end(self, sending: _Sending) -> BrokerError | None:
        if not sending.end:
            self._send([sending])
        place = sending.batch.place
        where = f"{self._producer.address}: topic {place[0]!r} partition {place[1]}"
        deadline = time.monotonic() + _FLUSH_SECONDS
        while sending.misses == self._shortfalls.get(place, 0):
            reached, end = self._end(place), self._ends[place]
            if reached >= end:
                return None
            if time.monotonic() > deadline:
                self._shortfalls[place] = sending.misses + 1
                del self._ends[place]
                if sending.end < end:
                    self._one_by_one.add(place)
                    break
                self._one_by_one.discard(place)
                return MessageTooLargeBrokerError(
                    f"{where} ends at {reached} and not at {end}, after {_FLUSH_SECONDS:g} s: "
                    "a message is larger than the broker's max.message.size, it seems"
                )
            time.sleep(_POLL_SECONDS)
        return OutcomeUnknownError(
            f"{where}: something of what was sent is missing: it is sent again in pieces, since "
            "a message may be larger than the broker's max.message.size"
        )

    def _end(self, place: _Place) -> int:
        channel = self._producer.channel
        offsets = channel.run(conversations.offsets_before(*place, LATEST, 1))
        return offsets[0] if offsets else 0


def open_link(host: str, port: int, security: ClientSecurity) -> Link:
    """Connect to a broker, of either kind. Raises ClientError."""
    partitions = MirroredPartitions(host, port, timeout_seconds=_TIMEOUT_SECONDS, security=security)
    try:
        is_exact = partitions.is_supported()
    except BaseException:
        partitions.close()
        raise
    if is_exact:
        return MirroredLink(partitions)
    partitions.close()
    settings = {"timeout_seconds": _TIMEOUT_SECONDS, **security.settings()}
    return PlainLink(SyncProducer(host, port, **settings))


def _mirrored(batch: AppendBatch) -> MirroredSet:
    flags = SourceFlags.FOLLOWS | (SourceFlags.VERBATIM if batch.is_verbatim else 0)
    if batch.entries[0].claim.holds_records:
        flags |= SourceFlags.RECORDS
    source = batch.entries[0].source
    return MirroredSet(*batch.place, source, batch.begin, batch.end, flags, batch.data)
