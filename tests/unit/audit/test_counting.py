"""Counting of a tier: ranges, reports, and reports that fail."""

from audited import MemoryPublisher, stamped

from hermes.audit.counting import TierCounter
from hermes.audit.events import Alive, CountsEvent, Gap
from hermes.audit.set_counting import count_set
from hermes.protocol import Codec, encode_message, encode_message_set


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def made(publisher, clock=None):
    return TierCounter("mirror:m", publisher, window_ms=1000, clock=clock or Clock())


def counted(data):
    found = {}
    damaged = count_set(data, 1000, found)
    return {key: count for key, (count, _) in found.items()}, damaged


def test_compressed_sets_are_opened():
    inner = encode_message_set(stamped(3), Codec.GZIP)
    nested = encode_message_set([b"plain"]) + inner
    for data in (inner, inner + nested, encode_message_set(stamped(3), Codec.SNAPPY)):
        found, plain = {}, {}
        assert count_set(data, 1000, found) == 0
        count_set(encode_message_set(stamped(3)), 1000, plain)
        many = found[5000, 1][0] // 3
        assert found[5000, 1] == (3 * many, plain[5000, 1][1] * many % 2**64)


def test_old_messages_are_counted():
    data = encode_message(b"old", magic=0) + encode_message_set(stamped(1))
    assert counted(data) == ({(0, 0): 1, (5000, 1): 1}, 0)


def test_what_is_damaged_is_skipped_and_counted():
    good = encode_message_set(stamped(2))
    wrong = bytearray(encode_message_set(stamped(1)))
    wrong[-1] ^= 1
    assert counted(good + wrong + good) == ({(5000, 1): 4}, 1)
    broken = bytearray(encode_message_set(stamped(5), Codec.GZIP))
    broken[-9] ^= 1
    broken[6:10] = encode_message(bytes(broken[10:]))[6:10]
    assert counted(good + broken + good) == ({(5000, 1): 4}, 1)
    assert counted(good + b"\xff" * 40 + good) == ({(5000, 1): 4}, 1)


def test_an_incomplete_message_at_the_end_is_left():
    assert counted(encode_message_set(stamped(2))[:-1]) == ({(5000, 1): 1}, 0)


def test_neighbouring_ranges_are_one_report():
    publisher = MemoryPublisher()
    counter = made(publisher)
    data = encode_message_set(stamped(2))
    counter.add_set("clicks", data, log="a/0-0", start=0, end=100, since_ms=0)
    counter.add_set("clicks", data, log="a/0-0", start=100, end=200)
    counter.add_set("clicks", data, log="a/0-1", start=0, end=100)
    counter.add_set("clicks", data, log="a/0-0", start=300, end=400)
    assert counter.publish()
    ranges = {(each.log, each.start, each.end): each for each in publisher.counts()}
    assert set(ranges) == {("a/0-0", 0, 200), ("a/0-0", 300, 400), ("a/0-1", 0, 100)}
    assert ranges["a/0-0", 0, 200].windows[5000, 1][0] == 4
    assert ranges["a/0-0", 0, 200].since_ms == 0
    assert ranges["a/0-1", 0, 100].since_ms is None


def test_payloads_are_counted_without_a_range():
    publisher = MemoryPublisher()
    counter = made(publisher)
    counter.add_payloads("clicks", stamped(3))
    counter.add_payloads("clicks", [])
    counter.publish()
    (event,) = publisher.counts()
    assert (event.log, event.windows[5000, 1][0]) == ("", 3)


def test_topics_of_hermes_are_not_counted():
    publisher = MemoryPublisher()
    counter = made(publisher)
    counter.add_payloads("hermes-audit", stamped(3))
    counter.reached("hermes-audit", "a/0-0", 5)
    counter.publish()
    assert publisher.counts() == []


def test_gaps_end_the_range_before_them():
    publisher = MemoryPublisher()
    counter = made(publisher)
    data = encode_message_set(stamped(1))
    counter.add_set("clicks", data, log="a/0-0", start=0, end=50)
    counter.add_lost("clicks", "a/0-0", 50, 70)
    counter.add_damaged("clicks", "a/0-0", 70, 90)
    counter.add_set("clicks", data, log="a/0-0", start=90, end=140)
    counter.reached("clicks", "a/0-0")
    counter.publish()
    bodies = [each.body for each in publisher.events()]
    assert [(each.start, each.end) for each in bodies[:4]] == [
        (0, 50),
        (50, 70),
        (70, 90),
        (90, 140),
    ]
    assert [each.why for each in bodies if isinstance(each, Gap)] == ["lost", "damaged"]
    assert bodies[4:] == [Alive(False, reached={"clicks": {"a/0-0": (140, 1_000_000)}})]


def test_the_end_of_a_log_is_known_after_a_report():
    publisher, clock = MemoryPublisher(), Clock()
    counter = made(publisher, clock)
    counter.reached("clicks", "a/0-0")  # nothing was counted
    counter.add_set("clicks", encode_message_set(stamped(1)), log="a/0-0", start=0, end=50)
    counter.publish()
    clock.now += 1
    counter.reached("clicks", "a/0-0")
    counter.publish()
    assert publisher.events()[-1].body.reached == {"clicks": {"a/0-0": (50, 1_001_000)}}


def test_a_report_that_failed_is_sent_again_as_it_was():
    publisher = MemoryPublisher()
    counter = made(publisher)
    counter.add_payloads("clicks", stamped(1))
    publisher.fails = publisher.stores = True
    assert not counter.publish()
    counter.add_payloads("clicks", stamped(2))
    assert not counter.publish()
    publisher.fails = False
    assert counter.publish()
    by_sequence = {each.sequence: each.body for each in publisher.events()}
    assert len(publisher.payloads) > len(by_sequence)
    counts = [each for each in by_sequence.values() if isinstance(each, CountsEvent)]
    assert [each.windows[5000, 1][0] for each in counts] == [1, 2]
    assert sorted(by_sequence) == list(range(len(by_sequence)))


def test_a_counter_says_that_it_lives_and_that_it_ends():
    publisher, clock = MemoryPublisher(), Clock()
    counter = made(publisher, clock)
    for _ in range(3):
        assert counter.publish()
    clock.now += 1
    counter.publish()
    counter.close()
    assert [each.body.closed for each in publisher.events()] == [False, False, True]


def test_many_windows_take_several_events_of_one_range():
    publisher = MemoryPublisher()
    counter = made(publisher)
    many = [each for window in range(4500) for each in stamped(1, window * 1000)]
    counter.add_set("clicks", encode_message_set(many), log="a/0-0", start=0, end=9)
    counter.add_payloads("clicks", many)
    counter.publish()
    ranged = [each for each in publisher.counts() if each.log]
    assert [each.part for each in ranged] == [(0, 3), (1, 3), (2, 3)]
    assert sum(len(each.windows) for each in ranged) == 4500
    alone = [each for each in publisher.counts() if not each.log]
    assert {each.part for each in alone} == {(0, 1)}
    assert sum(len(each.windows) for each in alone) == 4500
    assert max(map(len, publisher.payloads)) < 200_000


def test_what_may_be_committed_is_where_a_stored_range_ends():
    publisher = MemoryPublisher()
    counter = made(publisher)
    data = encode_message_set(stamped(1))
    counter.add_set("clicks", data, log="a/0-0", start=0, end=50)
    assert counter.published_to("clicks", "a/0-0") is None
    publisher.fails = True
    counter.publish()
    counter.add_set("clicks", data, log="a/0-0", start=50, end=100)
    assert counter.published_to("clicks", "a/0-0") is None
    publisher.fails = False
    counter.publish()
    assert counter.published_to("clicks", "a/0-0") == 100
    counter.add_lost("clicks", "a/0-0", 100, 130)
    counter.publish()
    assert counter.published_to("clicks", "a/0-0") == 130
    assert {(each.start, each.end) for each in publisher.counts()} == {(0, 50), (50, 100)}


def test_a_report_on_a_log_says_nothing_of_the_one_that_was_made_anew():
    publisher = MemoryPublisher()
    counter = made(publisher)
    one = encode_message_set([b"x"])

    def count(start):
        counter.add_set("clicks", one, log="0-0", start=start, end=start + len(one))

    count(0)
    count(len(one))
    assert counter.publish()
    count(0)  # anew
    assert counter.published_to("clicks", "0-0") is None
    count(len(one))
    publish = publisher.publish

    def published(payloads):
        publish(payloads)
        count(0)  # and once more, while this is stored

    publisher.publish = published
    assert counter.publish()
    assert counter.published_to("clicks", "0-0") is None
    publisher.publish = publish
    assert counter.publish()
    assert counter.published_to("clicks", "0-0") == len(one)
