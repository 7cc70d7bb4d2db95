"""What producers and consumers of other libraries use: stamps in headers, outcomes, counts."""

import pytest
from audited import MemoryPublisher

import hermes.audit.clients as clients
import hermes.audit.producers as producers
from hermes.audit.clients import AuditedGroup, AuditedProducer
from hermes.audit.events import Alive, CountsEvent
from hermes.client import ProducerConfig
from hermes.protocol.stamps import read_stamp

NOWHERE = ProducerConfig(broker_list="0:localhost:1")


class Reports(MemoryPublisher):
    def __init__(self, _config):
        super().__init__()
        self.is_closed = False
        made.append(self)

    def open(self):
        pass

    def close(self):
        self.is_closed = True


made = []


@pytest.fixture(autouse=True)
def reports(monkeypatch):
    made.clear()
    for module in (clients, producers):
        monkeypatch.setattr(module, "Publisher", Reports)
    return made


def counts(kind="windows"):
    found = {}
    for each in made:
        for body in each.counts():
            for key, tally in getattr(body, kind).items():
                found.setdefault((body.topic, key[1]), []).append(tally)
    return found


def test_each_message_has_a_stamp_of_its_own_and_counts_by_its_outcome():
    audit = AuditedProducer(NOWHERE, window_ms=86_400_000)
    stored, failed = audit.stamp("clicks", b"value", b"key"), audit.stamp("clicks", None)
    stamps = [read_stamp(each.header[1])[0] for each in (stored, failed)]
    assert [(each.number, each.process) for each in stamps] == [
        (n, stamps[0].process) for n in (0, 1)
    ]
    assert stored.header[0] == "hermes-audit"
    stored.settle(True)
    failed.settle(False)
    audit.close()
    (reports,) = made
    assert reports.is_closed
    assert [count for ((count, _),) in counts().values()] == [1]
    assert [count for ((count, _),) in counts("unknown").values()] == [1]
    last = reports.events()[-1].body
    assert isinstance(last, Alive)
    assert last.closed


def test_what_has_no_outcome_yet_is_not_covered():
    audit = AuditedProducer(NOWHERE, window_ms=86_400_000)
    stamped = audit.stamp("clicks", b"x")
    audit.close()
    last = made[0].events()[-1].body
    assert last.covered_ms <= read_stamp(stamped.header[1])[0].time_ms


def test_a_group_counts_what_the_producer_has_counted():
    audit = AuditedProducer(NOWHERE, window_ms=86_400_000)
    group = AuditedGroup("search", NOWHERE, window_ms=86_400_000)
    for number in range(1200):
        value, key = f"click {number}", b"key" if number % 2 else None
        stamped = audit.stamp("clicks", value, key)
        stamped.settle(True)
        headers = [("source", b"shop"), stamped.header]
        group.finished("clicks", value.encode(), key, headers, timestamp_ms=5)
    audit.close()
    assert group.publish()
    assert group.close()
    sent, read = ({}, {})
    for each in made:
        for event in each.events():
            if isinstance(event.body, CountsEvent):
                found = sent if event.tier == "producers" else read
                for key, (count, total) in event.body.windows.items():
                    held = found.get(key, (0, 0))
                    found[key] = held[0] + count, (held[1] + total) % 2**64
    assert sent == read
    assert sum(count for count, _ in read.values()) == 1200
