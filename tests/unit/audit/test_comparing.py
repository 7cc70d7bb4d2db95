"""Comparing tiers: what is complete, what is not and by how much, and what can't be known."""

import itertools
import random

import pytest
from audited import MemoryPublisher, stamped

from hermes.audit.comparing import compare
from hermes.audit.counting import TierCounter
from hermes.audit.events import decode_event
from hermes.audit.producers import ProducerTier
from hermes.audit.tiers import Tiers
from hermes.protocol import RecordSet, encode_message_set
from hermes.protocol.records import Record, encode_batch

WINDOW = 1000
GRACE = 500


class Clock:
    def __init__(self):
        self.now = 10.0

    def __call__(self):
        return self.now


class Pipeline:
    """Producers and tiers in memory, with one clock, that report to one topic."""

    def __init__(self):
        self.publisher = MemoryPublisher()
        self.clock = Clock()
        self.tiers = {}

    def producer(self):
        return ProducerTier(self.publisher, window_ms=WINDOW, clock=self.clock)

    def send(self, producer, payloads, certain=True, topic="clicks"):
        sent = producer.stamped(topic, payloads)
        producer.settled([(topic, sent, certain)])
        return sent

    def counter(self, tier):
        if tier not in self.tiers:
            self.tiers[tier] = TierCounter(tier, self.publisher, window_ms=WINDOW, clock=self.clock)
        return self.tiers[tier]

    def count(self, tier, sent, start=0, topic="clicks", log="0-0", **more):
        data = encode_message_set(sent)
        counter = self.counter(tier)
        if tier.startswith(("group", "spark")):
            counter.add_payloads(topic, sent)
        else:
            end = start + len(data)
            counter.add_set(topic, data, log=log, start=start, end=end, **more)
        return start + len(data)

    def report(self, shuffle=None, **options):
        """Everybody reports; then, later, the tiers say that they are at their ends."""
        for counter in self.tiers.values():
            counter.publish()
        self.clock.now += 100
        for name, counter in self.tiers.items():
            if not name.startswith(("group", "spark")):
                for topic, log in list(counter._ends):
                    counter.reached(topic, log)
            counter.publish()
        payloads = list(self.publisher.payloads)
        if shuffle is not None:
            random.Random(shuffle).shuffle(payloads)
        tiers = Tiers()
        for payload in payloads:
            tiers.add(decode_event(payload))
        now_ms = int(self.clock.now * 1000)
        return compare(tiers, now_ms=now_ms, grace_ms=GRACE, **options)


@pytest.fixture
def pipeline():
    return Pipeline()


def states(report):
    return [(each.topic, each.start_ms, each.tier, each.state) for each in report.windows]


@pytest.mark.parametrize("shuffle", [None, 1, 2])
def test_what_arrived_everywhere_is_complete(pipeline, shuffle):
    producers = [pipeline.producer() for _ in range(3)]
    offset = 0
    for _ in range(4):
        for producer in producers:
            sent = pipeline.send(producer, [b"x"] * 5)
            end = pipeline.count("cluster:a", sent, offset)
            pipeline.count("mirror:m", sent, offset, log="a/0-0")
            pipeline.count("group:g", sent)
            offset = end
            producer.publish()
        pipeline.clock.now += 0.7
    for producer in producers:
        producer.publish(closing=True)
    report = pipeline.report(shuffle)
    assert {each.state for each in report.windows} == {"complete"}
    assert {each.tier for each in report.windows} == {"cluster:a", "mirror:m", "group:g"}
    assert sum(each.found for each in report.windows if each.tier == "group:g") == 60
    assert report.losses == report.totals == []


TIERS = ["cluster:a", "mirror:m", "group:g", "spark:load"]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("fault", ["dropped", "doubled", "both"])
def test_one_of_20000_is_found_at_each_tier(pipeline, tier, fault):
    producer = pipeline.producer()
    windows = []
    for _ in range(4):
        windows.append(pipeline.send(producer, [b"x"] * 5000))
        pipeline.clock.now += 1
    producer.publish(closing=True)
    damaged = [list(each) for each in windows]
    if fault in ("doubled", "both"):
        damaged[2].insert(77, damaged[2][99])
    if fault in ("dropped", "both"):
        del damaged[2][3000]
    for name in TIERS:
        offset = 0
        for sent in damaged if name == tier else windows:
            offset = pipeline.count(name, sent, offset)
    report = pipeline.report()
    ((topic, start, found, state),) = [each for each in states(report) if each[3] != "complete"]
    expected = {"dropped": "short", "doubled": "over", "both": "changed"}[fault]
    assert (topic, start, found, state) == ("clicks", 12_000, tier, expected)
    (window,) = report.differences
    assert (window.expected, window.found - window.expected) == (
        5000,
        {"dropped": -1, "doubled": 1, "both": 0}[fault],
    )
    assert (window.short, window.over) == {
        "dropped": (1, 0),
        "doubled": (0, 1),
        "both": (1, 1),
    }[fault]
    assert window.parts[0].process == f"{producer.process:016x}"


def test_a_producer_that_was_killed_leaves_its_last_window_uncertain(pipeline):
    alive, killed = pipeline.producer(), pipeline.producer()
    offset = 0
    for number in range(4):
        for producer in (alive, killed):
            if producer is alive or number < 3:
                offset = pipeline.count("cluster:a", pipeline.send(producer, [b"x"] * 9), offset)
        pipeline.clock.now += 1
        alive.publish()
        if number < 2:
            killed.publish()
    alive.publish(closing=True)
    report = pipeline.report()
    assert [(each.start_ms, each.state) for each in report.windows] == [
        (10_000, "complete"),
        (11_000, "complete"),
        (12_000, "uncertain"),
        (13_000, "complete"),
    ]
    assert report.differences == []


def test_a_killed_producer_hides_no_difference_of_another(pipeline):
    alive, killed = pipeline.producer(), pipeline.producer()
    pipeline.send(killed, [b"x"])
    sent = pipeline.send(alive, [b"y"] * 9)
    alive.publish(closing=True)
    pipeline.count("cluster:a", sent[1:])
    (window,) = pipeline.report().windows
    assert (window.state, window.short) == ("short", 1)


def test_a_producer_that_is_silent_after_its_last_report_is_uncertain_though_all_agrees(pipeline):
    producer = pipeline.producer()
    sent = pipeline.send(producer, [b"x"] * 9)
    producer.publish()  # within the window, and then it is killed
    pipeline.count("cluster:a", sent)
    (window,) = pipeline.report().windows
    assert (window.state, window.found, window.expected) == ("uncertain", 9, 9)


@pytest.mark.parametrize(("arrived", "state"), [(0, "complete"), (1, "uncertain"), (2, "complete")])
def test_messages_whose_outcome_is_unknown(pipeline, arrived, state):
    producer = pipeline.producer()
    certain = pipeline.send(producer, [b"x"] * 3)
    unknown = pipeline.send(producer, [b"y"] * 2, certain=False)
    producer.publish(closing=True)
    pipeline.count("cluster:a", certain + unknown[:arrived])
    (window,) = pipeline.report().windows
    assert (window.state, window.expected, window.unknown) == (state, 3, 2)


def test_more_than_all_that_may_have_arrived_is_over(pipeline):
    producer = pipeline.producer()
    unknown = pipeline.send(producer, [b"y"] * 2, certain=False)
    producer.publish(closing=True)
    pipeline.count("cluster:a", unknown * 2)
    (window,) = pipeline.report().windows
    assert window.state == "over"


def test_a_tier_that_has_not_counted_that_far_is_behind_and_not_short(pipeline):
    producer = pipeline.producer()
    sent = pipeline.send(producer, [b"x"] * 9)
    producer.publish(closing=True)
    pipeline.count("cluster:a", sent[:5])
    counter = pipeline.counter("cluster:a")
    counter.reached("clicks", "0-0")
    counter.publish()
    counter._ends.clear()
    (window,) = pipeline.report().windows
    assert window.state == "behind"


def test_a_window_is_open_until_its_messages_have_had_time(pipeline):
    producer = pipeline.producer()
    pipeline.send(producer, [b"x"] * 9)
    pipeline.counter("cluster:a")._opened("clicks", "0-0", 0, 0, "", 0)
    pipeline.clock.now = -89.0  # the report comes 100 s later
    (window,) = [*pipeline.report().windows, None][:1]
    assert window is None or window.state == "open"


@pytest.mark.parametrize("killed_at", range(1, 8))
def test_what_a_killed_counter_counts_again_counts_once(pipeline, killed_at):
    producer = pipeline.producer()
    sent = pipeline.send(producer, [b"x"] * 90)
    producer.publish(closing=True)
    size = len(encode_message_set(sent[:1]))
    first = pipeline.counter("cluster:a")
    committed = 0
    for number in range(killed_at):
        pipeline.count("cluster:a", sent[10 * number : 10 * (number + 1)], 10 * number * size)
        if number % 3 != 2:
            first.publish()
        if number == killed_at // 2:
            committed = first.published_to("clicks", "0-0") or 0
    del pipeline.tiers["cluster:a"]  # without a last report
    begin = committed // size
    pipeline.count("cluster:a", sent[begin:55], committed)
    pipeline.counter("cluster:a").publish()
    pipeline.count("cluster:a", sent[55:], 55 * size)
    for shuffle in (None, 1, 2, 3):
        (window,) = pipeline.report(shuffle).windows
        assert (window.state, window.found) == ("complete", 90)


def test_retention_that_was_quicker_is_short_and_named(pipeline):
    producer = pipeline.producer()
    sent = pipeline.send(producer, [b"x"] * 9)
    producer.publish(closing=True)
    size = len(encode_message_set(sent[:1]))
    pipeline.count("cluster:a", sent[:2])
    pipeline.counter("cluster:a").add_lost("clicks", "0-0", 2 * size, 5 * size)
    pipeline.count("cluster:a", sent[5:], 5 * size)
    report = pipeline.report()
    assert (report.windows[0].state, report.windows[0].short) == ("short", 3)
    (loss,) = report.losses
    assert (loss.tier, loss.topic, loss.log, loss.start, loss.end, loss.why) == (
        *("cluster:a", "clicks", "0-0", 2 * size, 5 * size, "lost"),
    )


def test_ranges_that_no_report_has_make_uncertain(pipeline):
    producer = pipeline.producer()
    sent = pipeline.send(producer, [b"x"] * 9)
    producer.publish(closing=True)
    size = len(encode_message_set(sent[:1]))
    pipeline.count("cluster:a", sent[:2])
    pipeline.count("cluster:a", sent[5:], 5 * size)
    report = pipeline.report()
    assert report.windows[0].state == "uncertain"
    assert [(each.why, each.start) for each in report.losses] == [("unknown", 2 * size)]


def test_windows_before_the_counting_began_are_uncertain(pipeline):
    producer = pipeline.producer()
    early = pipeline.send(producer, [b"x"] * 9)
    pipeline.clock.now += 2
    late = pipeline.send(producer, [b"x"] * 9)
    producer.publish(closing=True)
    pipeline.count("cluster:a", early[8:] + late, 800, since_ms=11_500)
    report = pipeline.report()
    assert [each.state for each in report.windows] == ["uncertain", "complete"]


def test_messages_that_others_wrote_into_a_cluster_are_not_compared(pipeline):
    sent, others = stamped(5, 10_000, 77), stamped(3, 10_000, 88)
    pipeline.count("cluster:a", sent)
    pipeline.count("cluster:b", sent + others, log="b")
    (window,) = pipeline.report().windows
    assert (window.state, window.found, window.against) == ("complete", 5, "cluster:a")


def test_a_mirror_that_renames_topics_is_followed(pipeline):
    producer = pipeline.producer()
    sent = pipeline.send(producer, [b"x"] * 9)
    producer.publish(closing=True)
    pipeline.count("cluster:a", sent)
    pipeline.count("mirror:m", sent, log="a/0-0", target_topic="east.clicks")
    pipeline.count("cluster:b", sent[1:], topic="east.clicks", log="b")
    report = pipeline.report()
    assert [(each.topic, each.tier, each.state) for each in report.windows] == [
        ("clicks", "cluster:a", "complete"),
        ("clicks", "cluster:b", "short"),
        ("clicks", "mirror:m", "complete"),
    ]


def test_messages_without_a_stamp_have_totals_only(pipeline):
    pipeline.count("cluster:a", [b"x"] * 9)
    pipeline.count("cluster:b", [b"x"] * 8, log="b")
    report = pipeline.report()
    assert report.windows == []
    (total,) = report.totals
    assert (total.expected, total.found, total.is_equal) == (9, 8, False)


def test_of_mixed_messages_those_without_a_stamp_are_compared_from_the_cluster_on(pipeline):
    producer = pipeline.producer()
    sent = pipeline.send(producer, [b"x"] * 9)
    producer.publish(closing=True)
    pipeline.count("cluster:a", sent)
    pipeline.count("group:g", sent)
    for tier, count in (("cluster:a", 5), ("group:g", 4)):
        records = [Record(n, 20_000, None, b"%d" % n) for n in range(count)]
        pipeline.counter(tier).add_messages("clicks", records)
    report = pipeline.report()
    assert [(each.tier, each.against, each.state, each.found) for each in report.windows] == [
        ("cluster:a", "producers", "complete", 9),
        ("group:g", "producers", "complete", 9),
        ("group:g", "cluster:a", "short", 4),
    ]
    assert report.totals == []


def test_messages_without_a_stamp_are_not_compared_between_clusters_unless_chosen(pipeline):
    for tier, count in (("cluster:a", 5), ("cluster:b", 4), ("group:g", 5)):
        records = [Record(n, 20_000, None, b"%d" % n) for n in range(count)]
        pipeline.counter(tier).add_messages("clicks", records)
    assert pipeline.report().windows == []
    report = pipeline.report(chosen=["cluster:a", "cluster:b", "group:g"])
    assert [(each.tier, each.state) for each in report.windows] == [
        ("cluster:b", "short"),
        ("group:g", "complete"),
    ]


def records_of(pipeline, tier, log, numbers, target_topic=""):
    records = [Record(n, 20_000, None, b"%d" % each) for n, each in enumerate(numbers)]
    data = RecordSet(encode_batch(records), 0)
    ends = {"log": log, "end": len(records), "target_topic": target_topic}
    pipeline.counter(tier).add_records("clicks", data, **ends)


@pytest.mark.parametrize(
    ("numbers", "state"), [(range(5), "complete"), (range(4), "short"), ([*range(5), 2], "over")]
)
def test_a_mirrors_messages_without_a_stamp_are_compared_with_its_source(pipeline, numbers, state):
    records_of(pipeline, "cluster:east", "0-0", range(5))
    records_of(pipeline, "cluster:west", "0-0", range(3))  # and has others besides
    records_of(pipeline, "mirror:m", "east/0", numbers)
    (window,) = pipeline.report().windows
    assert (window.tier, window.against, window.state) == ("mirror:m", "cluster:east", state)


def test_a_mirror_of_several_clusters_is_compared_with_each_by_what_came_from_there(pipeline):
    records_of(pipeline, "cluster:east", "0-0", range(5))
    records_of(pipeline, "cluster:north", "0-0", range(10, 13))
    records_of(pipeline, "cluster:west", "0-0", [*range(5), *range(10, 13)])
    records_of(pipeline, "mirror:m", "east/0", range(4))
    records_of(pipeline, "mirror:m", "north/0", range(10, 13))
    records_of(pipeline, "mirror:m", "south/0", range(20, 23))  # which nobody counts
    assert [(each.against, each.state, each.found) for each in pipeline.report().windows] == [
        ("cluster:east", "short", 4),
        ("cluster:north", "complete", 3),
    ]


def test_a_mirror_of_clusters_that_nobody_counts_is_not_compared_with_another(pipeline):
    records_of(pipeline, "cluster:east", "0-0", range(5))
    records_of(pipeline, "mirror:m", "north/0", range(4))
    assert pipeline.report().windows == []


def test_what_is_mirrored_is_the_measure_of_what_it_is_mirrored_to(pipeline):
    sent = pipeline.send(pipeline.producer(), [b"x"] * 9)  # which reports nothing
    pipeline.count("cluster:z", sent)
    pipeline.count("mirror:m", sent[1:], log="z/0-0")
    pipeline.count("cluster:a", sent[1:], log="a")
    assert [(each.tier, each.against, each.state) for each in pipeline.report().windows] == [
        ("cluster:a", "cluster:z", "short"),
        ("mirror:m", "cluster:z", "short"),
    ]


def test_late_messages_count_in_their_windows_and_are_told(pipeline):
    producer = pipeline.producer()
    sent = pipeline.send(producer, [b"x"] * 9)
    end = pipeline.count("cluster:a", sent[:5])
    counter = pipeline.counter("cluster:a")
    counter.publish()
    pipeline.clock.now += 60
    counter.reached("clicks", "0-0")
    counter.publish()
    pipeline.count("cluster:a", sent[5:], end)
    producer.publish(closing=True)
    (window,) = pipeline.report().windows
    assert (window.state, window.late, window.late_by_ms) == ("complete", 4, 59_000)


def test_many_ranges_are_added_up_as_they_settle(pipeline):
    producer = pipeline.producer()
    offset = 0
    for _ in range(300):
        offset = pipeline.count("cluster:a", pipeline.send(producer, [b"x"]), offset)
        pipeline.counter("cluster:a").publish()
    producer.publish(closing=True)
    (window,) = pipeline.report().windows
    assert (window.state, window.found) == ("complete", 300)


def test_tiers_and_topics_can_be_chosen(pipeline):
    producer = pipeline.producer()
    for topic in ("clicks", "views"):
        sent = pipeline.send(producer, [b"x"] * 9, topic=topic)
        for tier in ("cluster:a", "mirror:m"):
            pipeline.count(tier, sent, topic=topic)
    producer.publish(closing=True)
    report = pipeline.report(chosen=["cluster:a", "mirror:m"], topics=["views"])
    assert [(each.topic, each.against, each.tier) for each in report.windows] == [
        ("views", "cluster:a", "mirror:m")
    ]
    pairs = {(each.against, each.tier) for each in pipeline.report().windows}
    assert pairs == set(itertools.product(["producers"], ["cluster:a", "mirror:m"]))
