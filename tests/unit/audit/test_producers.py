"""What a producer reports of what it sent, without a broker."""

import threading

import pytest
from audited import MemoryPublisher

from hermes.audit.events import Alive, CountsEvent
from hermes.audit.producers import AuditHandler, ProducerTier
from hermes.client import ProducerConfig
from hermes.errors import ConfigError
from hermes.protocol.stamps import read_stamp


class Clock:
    now = 5.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def publisher():
    return MemoryPublisher()


@pytest.fixture
def tier(publisher, clock):
    return ProducerTier(publisher, window_ms=1000, clock=clock)


def send(tier, topic, payloads, certain=True):
    tier.settled([(topic, tier.stamped(topic, payloads), certain)])


def test_what_is_acknowledged_counts_and_what_nobody_knows_stands_beside_it(publisher, tier):
    send(tier, "clicks", [b"a", b"b"])
    send(tier, "clicks", [b"c"], certain=False)
    send(tier, "views", [b"d"], certain=False)
    assert tier.publish(closing=True)
    clicks, views = publisher.counts()
    key = (5000, tier.process)
    assert (clicks.windows[key][0], clicks.unknown[key][0]) == (2, 1)
    assert (views.windows, views.unknown[key][0]) == ({}, 1)
    assert publisher.events()[-1].body == Alive(True, 5000)


def test_nothing_is_counted_twice(publisher, tier):
    send(tier, "clicks", [b"a"])
    tier.publish()
    tier.publish()
    assert len(publisher.counts()) == 1


def test_a_stamp_has_the_time_of_the_clock_which_never_goes_back(tier, clock):
    clock.now = 7.5
    (first,) = tier.stamped("clicks", [b"a"])
    clock.now = 3.0
    (second,) = tier.stamped("clicks", [b"b"])
    assert read_stamp(first)[0].time_ms == read_stamp(second)[0].time_ms == 7500


def test_what_is_on_its_way_is_not_covered(publisher, tier, clock):
    payloads = tier.stamped("clicks", [b"a"])
    clock.now = 9.0
    other = threading.Thread(target=send, args=(tier, "views", [b"b"]))
    other.start()
    other.join()
    tier.publish()
    tier.settled([("clicks", payloads, True)])
    tier.publish()
    covered = [each.body.covered_ms for each in publisher.events() if isinstance(each.body, Alive)]
    assert covered == [5000, 9000]


def test_what_was_not_sent_after_all_is_covered_again(publisher, tier, clock):
    tier.stamped("clicks", [b"too large"])
    tier.settled([])
    clock.now = 9.0
    tier.publish()
    assert publisher.events()[-1].body.covered_ms == 9000


def test_topics_of_hermes_are_neither_stamped_nor_counted(publisher, tier):
    assert tier.stamped("hermes-audit", [b"event"]) == [b"event"]
    tier.settled([("hermes-audit", [b"event"], True)])
    tier.publish()
    assert not any(isinstance(each.body, CountsEvent) for each in publisher.events())


@pytest.mark.parametrize(
    "options",
    [
        {"window": 0},
        {"window": True},
        {"window": "60"},
        {"tier": "Producers!"},
        {"tier": 5},
        {"audit_to": 5},
    ],
)
def test_wrong_options_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        AuditHandler(**options)


def test_another_cluster_may_be_named():
    other = ProducerConfig(zookeeper_connect="other:2181")
    assert AuditHandler(audit_to="other:2181")._audit_to == AuditHandler(audit_to=other)._audit_to
