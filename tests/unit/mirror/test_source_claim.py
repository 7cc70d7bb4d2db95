"""What a claim counts of topics of Kafka's format, and up to where offsets may be committed."""

import math
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from audited import MemoryPublisher
from batches import NOW_MS

from hermes.audit.counting import TierCounter
from hermes.config.mirror import Partitioning
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Lease
from hermes.errors import (
    BrokerUnavailableError,
    InvalidMessageBrokerError,
    MessageTooLargeBrokerError,
)
from hermes.mirror import source_claim
from hermes.mirror.figures import PartitionFigures
from hermes.mirror.kafka_cluster import kafka_partition
from hermes.mirror.routing import IndexRoute, PartitionRoute, RoutingPlan, make_route
from hermes.mirror.source_claim import SourceClaim, TargetAppend
from hermes.protocol import Message, MessageSet, RecordSet, encode_message_set
from hermes.protocol.records import Record, encode_batch

HOLES = encode_batch([Record(n, NOW_MS, None, b"%d" % n) for n in (0, 1, 5)], last_offset=9)
_PARTITION, _ROUTE = kafka_partition(0), IndexRoute(0)


class Context:
    """What a claim reports to: sends what it is given when `arrive` is called."""

    skips_damage = True

    def __init__(self, *, compacted: bool) -> None:
        self.publisher = MemoryPublisher()
        self.counter: Any = TierCounter("mirror:m", self.publisher)
        self.sent: list[TargetAppend] = []
        self.errors: list[str] = []
        self.error = ""
        self.asked = 0
        self._compacted = compacted

    def send(self, entries: Iterable[TargetAppend]) -> None:
        self.sent += entries

    def arrive(self) -> None:
        while self.sent:
            entry = self.sent.pop(0)
            entry.claim.done(entry, was_there=False)

    def plan(self, claim: SourceClaim, pause_seconds: float) -> None: ...
    def has_room(self) -> None: ...

    def set_error(self, claim: SourceClaim, text: str) -> None:
        self.errors += filter(None, [text])
        self.error = text

    def released(self, claim: SourceClaim) -> None: ...
    def note(self, text: str) -> None: ...

    def is_compacted(self, claim: SourceClaim) -> bool:
        self.asked += 1
        return self._compacted


def claimed(context: Context, partition: BrokerPartition = _PARTITION) -> SourceClaim:
    figures = PartitionFigures("east", "clicks", "0", "east.clicks")
    lease = Lease(0)
    lock = threading.Condition()
    claim = SourceClaim("east", figures, context, "clicks", partition, "", lock, lease)
    begin(claim, 0)
    return claim


def begin(claim: SourceClaim, offset: int, route: PartitionRoute = _ROUTE) -> None:
    targets = (_PARTITION,)
    claim.begin(RoutingPlan("id/clicks/0-0", "east.clicks", targets, route, [offset]), offset)


@pytest.mark.parametrize("skips_damage", [True, False])
def test_what_can_not_be_opened_is_skipped_by_itself_also_by_a_key(skips_damage: bool) -> None:
    context = Context(compacted=False)
    context.skips_damage, context.counter = skips_damage, None
    good, bad = encode_message_set([b"a"]), Message.of(b"no gzip", attributes=1).encode()
    fetched = good + bad + good
    claim = claimed(context, BrokerPartition(0, 0))
    for _ in range(3):
        position = claim.position
        begin(claim, position, make_route(Partitioning("key", "bytes", (0, 1)), 0, "s"))
        claim.add(MessageSet(fetched[position:], position), claim.epoch)
        context.arrive()
    end = len(fetched) if skips_damage else len(good)
    assert (claim.position, claim.figures.damaged) == (end, int(skips_damage))
    assert claim.figures.messages == (2 if skips_damage else 1)
    assert bool(context.errors) is not skips_damage


@pytest.mark.parametrize("compacted", [True, False])
def test_offsets_without_a_message_were_compacted_away_or_are_missing(compacted: bool) -> None:
    context = Context(compacted=compacted)
    claim = claimed(context)
    claim.add(RecordSet(HOLES, 0), claim.epoch)
    context.arrive()
    assert context.counter.publish()
    (event,) = context.publisher.counts()
    assert (event.log, event.start, event.end) == ("east/0", 0, 10)
    assert (event.topic, event.target_topic) == ("clicks", "east.clicks")
    assert (event.removed, event.missing) == ((7, 0) if compacted else (0, 7))
    assert sum(count for count, _ in event.windows.values()) == 3
    assert context.asked == 1


def test_what_has_not_arrived_is_not_counted() -> None:
    context = Context(compacted=True)
    claim = claimed(context)
    claim.add(RecordSet(HOLES, 0), claim.epoch)
    claim.restart(claim.epoch, None)
    begin(claim, 0)
    context.arrive()
    assert context.counter.publish()
    assert context.publisher.counts() == []


def test_only_what_is_reported_is_committed_also_after_a_failure() -> None:
    context = Context(compacted=True)
    claim = claimed(context)
    claim.add(RecordSet(HOLES, 0), claim.epoch)
    context.arrive()
    claim.restart(claim.epoch, None)
    begin(claim, 10)
    assert (claim.acknowledged, claim.covered) == (10, 0)
    assert context.counter.publish()
    claim.cover(context.counter.published_to("clicks", claim.log))
    assert claim.covered == 10


def test_a_report_on_a_topic_is_none_on_the_one_that_was_made_anew() -> None:
    context = Context(compacted=True)
    claim = claimed(context)
    claim.add(RecordSet(HOLES, 0), claim.epoch)
    context.arrive()
    assert context.counter.publish()
    claim.start_over_at = 0
    claim.restart(claim.epoch, None)
    begin(claim, 0)
    claim.cover(context.counter.published_to("clicks", claim.log))
    claim.add(RecordSet(encode_batch([Record(0, NOW_MS, None, b"0")]), 0), claim.epoch)
    context.arrive()
    assert context.counter.published_to("clicks", claim.log) is None
    assert (claim.acknowledged, claim.covered) == (1, 0)
    assert context.counter.publish()
    claim.cover(context.counter.published_to("clicks", claim.log))
    assert claim.covered == 1


def test_what_the_target_has_already_is_counted_and_not_sent() -> None:
    context = Context(compacted=True)
    claim = claimed(context)
    claim.start_at(0)
    targets, route = (kafka_partition(0),), IndexRoute(0)
    claim.begin(RoutingPlan("id/clicks/0-0", "east.clicks", targets, route, [4]), 10)
    claim.add(RecordSet(HOLES, 0), claim.epoch)
    assert [(each.begin, each.end, each.messages) for each in context.sent] == [(4, 10, 1)]
    context.arrive()
    assert context.counter.publish()
    (event,) = context.publisher.counts()
    assert sum(count for count, _ in event.windows.values()) == 3


def test_what_was_refused_of_a_log_is_not_left_out_of_the_one_that_was_made_anew() -> None:
    context = Context(compacted=False)
    context.counter = None
    claim = claimed(context, BrokerPartition(0, 0))
    fetched = MessageSet(encode_message_set([b"a", b"b"]), 0)
    for _ in range(2):  # both together, and then the first one by itself
        claim.add(fetched, claim.epoch)
        claim.refused(context.sent[:1], InvalidMessageBrokerError("it is damaged"))
        context.sent.clear()
        begin(claim, 0)
    claim.start_over_at = 0
    claim.restart(claim.epoch, None)
    begin(claim, 0)
    claim.add(fetched, claim.epoch)
    context.arrive()
    assert (claim.figures.messages, claim.figures.damaged) == (2, 0)


@pytest.mark.parametrize("replanned", [False, True])
@pytest.mark.parametrize("fetched", [b"", encode_message_set([b"a"])])
def test_an_error_ends_when_a_fetch_goes_well(fetched: bytes, replanned: bool) -> None:
    context = Context(compacted=False)
    context.counter = None
    claim = claimed(context, BrokerPartition(0, 0))
    claim.pause("it has moved", 0.0)
    if replanned:
        claim.restart(claim.epoch, None)
        begin(claim, 0)
    claim.add(MessageSet(fetched, 0), claim.epoch)
    assert (context.errors, context.error) == (["it has moved"], "")


def test_the_targets_error_ends_when_all_has_arrived() -> None:
    context = Context(compacted=False)
    context.counter = None
    claim = claimed(context, BrokerPartition(0, 0))
    fetched = encode_message_set([b"a"])
    claim.add(MessageSet(fetched, 0), claim.epoch)
    claim.restart(claim.epoch, BrokerUnavailableError("it is gone"))
    begin(claim, 0)
    claim.add(MessageSet(fetched, 0), claim.epoch)
    assert context.error == "it is gone"
    claim.restart(claim.epoch, BrokerUnavailableError("it is gone"))
    begin(claim, len(fetched))  # the target has stored it before it went
    claim.add(MessageSet(b"", len(fetched)), claim.epoch)
    assert context.error == ""


def test_nothing_is_fetched_behind_what_is_too_large_before_it_has_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = Context(compacted=False)
    context.counter = None
    claim = claimed(context, BrokerPartition(0, 0))
    fetched = MessageSet(encode_message_set([b"large"]), 0)
    claim.add(fetched, claim.epoch)
    claim.refused([context.sent.pop()], MessageTooLargeBrokerError("it is too large"))
    begin(claim, 0)
    claim.add(fetched, claim.epoch)
    later = SimpleNamespace(monotonic=lambda: math.nextafter(math.inf, 0))
    monkeypatch.setattr(source_claim, "time", later)
    assert claim.wants_bytes(100, 100) == 0
    context.arrive()
    assert claim.wants_bytes(100, 100) == 100
