"""What groups have by what they committed, and how that is compared."""

import json
from uuid import uuid4

import pytest
from audited import MemoryPublisher
from memory_coordination import MemoryCoordination
from offset_nodes import offset_node_path

from hermes.audit.commits import CommitReporter, CountedLog
from hermes.audit.comparing import compare
from hermes.audit.counting import TierCounter
from hermes.audit.events import Committed, decode_event
from hermes.audit.publishing import Outbox
from hermes.audit.tiers import Tiers
from hermes.coordination.kafka_topics import TopicNode, format_topic, topic_node_path
from hermes.coordination.layout import BrokerPartition, GroupPaths
from hermes.protocol import RecordSet
from hermes.protocol.records import Record, encode_batch

WINDOW_MS = 1000


class Pipeline:
    """A cluster's counter and groups' offsets, in memory."""

    def __init__(self):
        self.publisher = MemoryPublisher()
        self.now = 10.0
        self.counter = self.made(TierCounter, "cluster:main")

    def made(self, kind, tier):
        return kind(tier, self.publisher, window_ms=WINDOW_MS, clock=lambda: self.now)

    def count(self, times, start=0, log="0-0", **more):
        batch = encode_batch([Record(start + n, each, None, b"x") for n, each in enumerate(times)])
        end = start + len(times)
        records = RecordSet(batch, start)
        self.counter.add_records("clicks", records, log=log, start=start, end=end, **more)
        self.counter.publish()
        return end

    def commit(self, set_back=None, **logs):
        places = {name.replace("_", "-")[1:]: place for name, place in logs.items()}
        outbox = self.made(Outbox, "group:g")
        assert outbox.send([Committed("clicks", "cluster:main", places, set_back or {})])

    def report(self):
        self.now += 100
        for log in {log for _, log in self.counter._ends}:
            self.counter.reached("clicks", log)
        self.counter.publish()
        tiers = Tiers()
        for each in reversed(self.publisher.payloads):
            tiers.add(decode_event(each))
        return compare(tiers, now_ms=int(self.now * 1000), grace_ms=500)


@pytest.fixture
def pipeline():
    return Pipeline()


def states(report):
    return {each.start_ms: (each.state, each.found) for each in report.windows}


def test_a_window_is_complete_once_it_is_passed_in_each_log(pipeline):
    end = pipeline.count([1000] * 3 + [1999])
    pipeline.count([2000] * 2, end)
    pipeline.count([1000, 2000], log="0-1")
    pipeline.commit(_0_0=(4, 0), _0_1=(0, 0))
    assert states(pipeline.report()) == {1000: ("behind", 4), 2000: ("behind", 0)}
    pipeline.now += 1
    pipeline.commit(_0_0=(5, 0), _0_1=(2, 0))
    assert states(pipeline.report()) == {1000: ("complete", 5), 2000: ("behind", 1)}
    pipeline.now += 1
    pipeline.commit(_0_0=(6, 0), _0_1=(2, 0))
    assert states(pipeline.report()) == {1000: ("complete", 5), 2000: ("complete", 3)}


def test_late_messages_are_awaited_again(pipeline):
    end = pipeline.count([1000])
    pipeline.commit(_0_0=(1, 0))
    assert states(pipeline.report()) == {1000: ("complete", 1)}
    end = pipeline.count([1000], end)
    assert states(pipeline.report()) == {1000: ("behind", 0)}
    pipeline.now += 1
    pipeline.commit(_0_0=(2, 0))
    assert states(pipeline.report()) == {1000: ("complete", 2)}


def test_what_is_deleted_before_it_is_committed_stays_uncertain(pipeline):
    end = pipeline.count([1000] * 3)
    pipeline.count([2000] * 3, end)
    pipeline.commit(_0_0=(1, 3))
    pipeline.now += 1
    pipeline.commit(_0_0=(6, 3))
    report = pipeline.report()
    assert states(report) == {1000: ("uncertain", 3), 2000: ("complete", 3)}
    (loss,) = report.losses
    assert (loss.tier, loss.start, loss.end, loss.why) == ("group:g", 1, 3, "lost")


def test_a_group_that_counts_itself_is_not_judged_by_its_commits(pipeline):
    pipeline.count([1000] * 3)
    pipeline.commit(_0_0=(3, 0))
    counter = pipeline.made(TierCounter, "group:g")
    counter.add_messages("clicks", [Record(n, 1000, None, b"x") for n in range(2)])
    assert counter.publish()
    pipeline.now += 50
    assert counter.publish()
    (window,) = pipeline.report().windows
    assert (window.state, window.short) == ("short", 1)


def test_offsets_without_a_message_are_lost_unless_they_may_be_compacted(pipeline):
    batch = encode_batch([Record(9, 1000, None, b"x")])
    for log, is_compacted in (("0-0", True), ("0-1", False)):
        where = {"log": log, "start": 3, "end": 10}
        pipeline.counter.add_records(
            "clicks", RecordSet(batch, 3), **where, is_compacted=lambda answer=is_compacted: answer
        )
    pipeline.commit(_0_0=(10, 0), _0_1=(10, 0))
    report = pipeline.report()
    assert report.removed == {("cluster:main", "clicks"): 6}
    (loss,) = report.losses
    assert (loss.tier, loss.log, loss.start, loss.end) == ("cluster:main", "0-1", 3, 10)
    assert loss.why == "missing"


class Group:
    """A reporter of the offsets of groups in memory."""

    def __init__(self):
        self.publisher = MemoryPublisher()
        self.session = MemoryCoordination().session()
        self.session.start()
        places = (BrokerPartition(0, 1), BrokerPartition(2, 0))
        node = TopicNode(uuid4(), "kafka", places)
        self.session.put(topic_node_path("clicks"), format_topic(node))
        self.reporter = CommitReporter(
            "cluster:main",
            self.session,
            lambda tier: Outbox(tier, self.publisher, window_ms=WINDOW_MS),
            "hermes-audit-",
        )

    def commit(self, group, partition, offset):
        path = offset_node_path(group, "clicks", partition)
        self.session.put(path, json.dumps({"offset": offset}).encode())

    def report(self, end=100):
        counted = [CountedLog("clicks", "0-1", BrokerPartition(0, 1), 5, end)]
        return self.reporter.report(counted, is_due=True)

    def reported(self):
        return [(each.tier, each.body) for each in self.publisher.events()]


def test_what_has_changed_is_reported_once():
    group = Group()
    group.commit("search", 0, 70)
    group.commit("search", 1, 9)  # another broker's, and not counted here
    group.commit("hermes-audit-main", 0, 9)
    assert group.report() == {("clicks", "0-1")}
    group.report()
    assert group.reported() == [
        ("group:search", Committed("clicks", "cluster:main", {"0-1": (70, 5)}))
    ]
    group.commit("search", 0, 100)
    assert group.report() == set()
    group.commit("search", 0, 60)
    group.report()
    (_, body) = group.reported()[-1]
    assert (body.logs, body.set_back) == ({"0-1": (60, 5)}, {"0-1": (60, 100)})


def test_what_could_not_be_stored_is_reported_again():
    group = Group()
    group.commit("search", 0, 70)
    group.publisher.fails = True
    group.report()
    group.publisher.fails = False
    group.commit("search", 0, 80)
    group.report()
    assert [body.logs["0-1"][0] for _, body in group.reported()] == [70, 80]


def test_a_topic_is_looked_at_again_as_it_may_be_made_anew_in_the_other_format():
    group = Group()
    path = topic_node_path("clicks")
    node = group.session.get(path).value
    group.session.put(GroupPaths("search").offset("clicks", BrokerPartition(0, 1)), b"70")
    group.session.delete(path, -1)
    group.report()
    assert group.reported() == []
    group.session.put(path, node)
    group.report()
    assert [body.logs["0-1"][0] for _, body in group.reported()] == [70]
