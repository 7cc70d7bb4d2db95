"""Events of several partitions, in the order in which they add up."""

from contextlib import closing
from itertools import islice
from typing import Any

import pytest
from audited import MemoryPublisher, stamped
from memory_coordination import MemoryCoordination

from hermes.audit import event_reader
from hermes.audit.comparing import compare
from hermes.audit.counting import TierCounter
from hermes.audit.event_reader import EventReader
from hermes.audit.tiers import Tiers
from hermes.config.topic import AUDIT_TOPIC
from hermes.errors import BrokerUnavailableError
from hermes.protocol import FetchRequest, MessageSet, encode_message_set


class Logs:
    """What brokers have of the topic, by their ports; makes what reads them."""

    def __init__(self) -> None:
        self.stored = {1000: b"", 1001: b""}
        self.gone: set[int] = set()

    def consumer(self, host: str, port: int, **settings: Any) -> "Consumer":
        return Consumer(self, port)


class Consumer:
    def __init__(self, logs: Logs, port: int) -> None:
        self._logs, self._port = logs, port

    def get_offsets_before(self, topic: str, partition: int, time_ms: int) -> tuple[int, ...]:
        return (0,)

    def fetch(self, request: FetchRequest) -> MessageSet:
        if self._port in self._logs.gone:
            raise BrokerUnavailableError("it is gone")
        return MessageSet(self._logs.stored[self._port][request.offset :], request.offset)

    def close(self) -> None: ...


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    made = Logs()
    monkeypatch.setattr(event_reader, "SimpleConsumer", made.consumer)
    return made


@pytest.fixture
def reader() -> EventReader:
    session: Any = MemoryCoordination().session()
    session.security = event_reader.PLAIN
    for broker_id in (0, 1):
        session.put(f"/brokers/ids/{broker_id}", f"h-1:localhost:{1000 + broker_id}".encode())
        session.put(f"/brokers/topics/{AUDIT_TOPIC}/{broker_id}", b"1")
    return EventReader(session)


def report(logs: Logs, count: int) -> None:
    """A cluster is counted a message at a time, and its reports go to one broker or the other."""
    publisher, now = MemoryPublisher(), [10.0]
    counter = TierCounter("cluster:a", publisher, window_ms=1000, clock=lambda: now[0])
    offset = 0
    for payload in stamped(count):
        data = encode_message_set([payload])
        counter.add_set("clicks", data, log="0-0", start=offset, end=offset + len(data))
        offset += len(data)
        now[0] += 1
        assert counter.publish()
        port = 1000 + int(now[0]) % 2
        logs.stored[port] += encode_message_set(publisher.payloads)
        publisher.payloads.clear()


def test_reports_that_are_spread_over_partitions_add_up(logs: Logs, reader: EventReader) -> None:
    report(logs, 400)
    tiers = Tiers()
    for event in reader.read():
        tiers.add(event)
    tally = tiers.topics["cluster:a"]["clicks"]
    assert tally.holes() == []
    assert sum(count for count, _ in tally.tallies().values()) == 400
    assert compare(tiers, now_ms=10_000_000, grace_ms=0).losses == []
    assert list(reader.read()) == []


def test_a_broker_that_is_away_is_read_when_it_is_back(logs: Logs, reader: EventReader) -> None:
    report(logs, 10)
    logs.gone.add(1000)
    before = list(reader.read())
    assert reader.unavailable == [f"{AUDIT_TOPIC} 0-0: it is gone"]
    logs.gone.clear()
    after = list(reader.read())
    assert reader.unavailable == []
    assert {each.sequence for each in (*before, *after)} == set(range(20))


def test_who_reads_a_few_at_a_time_gets_all(logs: Logs, reader: EventReader) -> None:
    """The console's page reads for half a second, and goes on with the next look."""
    report(logs, 20)
    found: set[int] = set()
    for _ in range(40):
        with closing(reader.read()) as events:
            found.update(each.sequence for each in islice(events, 4))
    assert found == set(range(40))
