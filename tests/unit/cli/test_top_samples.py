from hermes.cli.top_samples import LagSample, Sample, TopicSample, lag_rows, topic_rows
from hermes.coordination.layout import BrokerPartition

HERE, THERE, AWAY = BrokerPartition(0, 0), BrokerPartition(1, 0), BrokerPartition(2, 0)


def sample(seconds, ends, offsets=None, counting=()):
    return Sample(
        seconds,
        ends,
        {place: end // 2 for place, end in ends.items()},
        {topic: sum(each[0] == topic for each in ends) for topic, _ in ends},
        {"search": offsets or {}},
        {"search": 2},
        set(counting),
        {place.broker_id for _, place in ends},
    )


BEFORE = sample(
    10.0,
    {("clicks", HERE): 1000, ("clicks", THERE): 500, ("views", HERE): 800, ("idle", HERE): 60},
    {("clicks", HERE): 900, ("clicks", AWAY): 5, ("idle", HERE): 50},
)
NOW = sample(
    12.0,
    {("clicks", HERE): 1400, ("clicks", THERE): 500, ("views", HERE): 100, ("idle", HERE): 60},
    {("clicks", HERE): 1000, ("clicks", AWAY): 5, ("idle", HERE): 50},
)


def test_topics_that_grow_fastest_come_first_and_a_new_log_is_new():
    assert topic_rows(NOW, BEFORE) == [
        TopicSample("clicks", 2, 950, 200.0),
        TopicSample("views", 1, 50, 50.0),
        TopicSample("idle", 1, 30, 0.0),
    ]


def test_the_first_look_knows_no_rates():
    assert [row.bytes_per_second for row in topic_rows(NOW, None)] == [None, None, None]
    assert [row.change_per_second for row in lag_rows(NOW, None)] == [None, None]


def test_groups_that_are_furthest_behind_come_first():
    assert lag_rows(NOW, BEFORE) == [
        LagSample("search", "clicks", 2, 400, None, 150.0),
        LagSample("search", "idle", 2, 10, None, 0.0),
    ]


def test_an_offset_beyond_the_end_is_of_another_log_and_says_nothing_of_the_lag():
    place = "clicks", HERE
    before = sample(10.0, {place: 1000}, {place: 900, ("clicks", THERE): 5})
    again = sample(12.0, {place: 100, ("clicks", THERE): 7}, {place: 900, ("clicks", THERE): 5})
    assert lag_rows(again, before)[0].lag_bytes == 2
    assert lag_rows(sample(12.0, {place: 100}, {place: 900}), None) == []


def test_where_offsets_count_messages_rates_are_those_of_sizes_and_lags_are_in_messages():
    place = "orders", HERE
    before = sample(10.0, {place: 1000}, {place: 990}, ["orders"])
    now = sample(12.0, {place: 2000}, {place: 1500}, ["orders"])
    assert topic_rows(now, before) == [TopicSample("orders", 1, 1000, 250.0)]
    assert lag_rows(now, before) == [LagSample("search", "orders", 2, None, 500, 245.0)]


def test_a_topic_that_comes_back_in_the_other_format_is_another_one():
    place = "orders", HERE
    before = sample(10.0, {place: 1000}, {place: 990})
    now = sample(12.0, {place: 2000}, {place: 1500}, ["orders"])
    assert lag_rows(now, before) == [LagSample("search", "orders", 2, None, 500, None)]


def test_what_a_broker_holds_that_comes_back_is_neither_written_nor_a_change():
    here, there = ("clicks", HERE), ("clicks", THERE)
    offsets = {here: 900, there: 100}
    both = sample(12.0, {here: 1400, there: 500}, offsets)
    one = sample(10.0, {here: 1000}, offsets)
    assert topic_rows(both, one) == [TopicSample("clicks", 2, 950, 200.0)]
    assert lag_rows(both, one) == [LagSample("search", "clicks", 2, 900, None, None)]
    gone = sample(14.0, {here: 1400}, offsets)
    assert topic_rows(gone, both) == [TopicSample("clicks", 1, 700, 0.0)]
    assert lag_rows(gone, both) == [LagSample("search", "clicks", 2, 500, None, None)]


def test_a_partition_that_another_broker_leads_now_goes_on_by_its_name():
    ends = {("clicks", AWAY): 1000}
    before, now = (sample(seconds, ends, counting=["clicks"]) for seconds in (10.0, 12.0))
    before.answered, now.answered = {0, 2}, {0}  # its own broker is down since
    now.sizes["clicks", AWAY] += 100
    assert topic_rows(now, before)[0].bytes_per_second == 50.0
    later = sample(14.0, ends, counting=["clicks"])
    later.answered, later.sizes["clicks", AWAY] = {0}, now.sizes["clicks", AWAY] + 100
    assert topic_rows(later, now)[0].bytes_per_second == 50.0
