"""A leader counts what followers have in its epoch, and finds what is committed by that."""

import math
from dataclasses import replace

import pytest

from hermes.protocol.kafka_errors import Code
from hermes.replication.leading import LeaderSettings, Leading
from hermes.replication.messages import Diverging, LogEnds, Refused, ReplicaFetch, StartsLater
from hermes.replication.state import PartitionState

STATE = PartitionState((1, 2, 3), 1, 11, 7, frozenset({1, 2, 3}))
LIVES = {1: 11, 2: 22, 3: 33}
ENDS = LogEnds(0, 20, 20)
SETTINGS = LeaderSettings(min_insync=2, lag_seconds=10, trust_seconds=4)


class Epochs:
    """Epoch 5 from 0 on, 7 from 10 on; nothing is before the start."""

    def __init__(self, start: int = 0) -> None:
        self.start = start

    def epoch_before(self, offset: int) -> int:
        if offset <= self.start:
            return -1
        return 7 if offset > 10 else 5

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        if epoch < (7 if self.start >= 10 else 5):
            return -1, -1
        return (7, 20) if epoch >= 7 else (5, 10)


def leading(state: PartitionState = STATE, **changed: int) -> Leading:
    settings = SETTINGS._replace(**changed)  # type: ignore[arg-type]
    return Leading(1, state, start=10, high_watermark=8, settings=settings, now=100)


def fetch(
    broker: int, offset: int, last_epoch: int = 7, epoch: int = 7, earliest: int = 0
) -> ReplicaFetch:
    return ReplicaFetch(broker, LIVES[broker], epoch, offset, last_epoch, 0, 1, earliest=earliest)


def has(
    leader: Leading,
    broker: int,
    offset: int,
    now: float = 101,
    end: int = 20,
    answered_at: float = -math.inf,
    earliest: int = 0,
) -> None:
    leader.fetched(fetch(broker, offset, earliest=earliest), end, now, answered_at)


# -- fetches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "life", "code"),
    [
        (fetch(2, 20, epoch=6), 22, Code.FENCED_LEADER_EPOCH),
        (fetch(2, 20, epoch=8), 22, Code.UNKNOWN_LEADER_EPOCH),
        (fetch(2, 20)._replace(broker_id=9), 22, Code.NOT_LEADER_OR_FOLLOWER),
        (fetch(2, 20), 23, Code.STALE_BROKER_EPOCH),
        (fetch(2, 20), None, Code.STALE_BROKER_EPOCH),
    ],
)
def test_who_asks_in_another_epoch_or_life_is_refused(
    asked: ReplicaFetch, life: int | None, code: Code
) -> None:
    assert leading().judge(asked, life, ENDS, Epochs()) == Refused(code)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "answer"),
    [
        (20, 7, None),
        (11, 7, None),
        (10, 5, None),
        (0, -1, None),
        (9, 5, None),
        (21, 7, Diverging(7, 20, 0)),
        (15, 6, Diverging(5, 10, 0)),
        (12, 5, Diverging(5, 10, 0)),
        (9, 7, Diverging(7, 20, 0)),
        (9, 3, Diverging(-1, -1, 0)),
    ],
)
def test_histories_part_where_another_epoch_is_before_an_offset(
    offset: int, last_epoch: int, answer: object
) -> None:
    assert leading().judge(fetch(2, offset, last_epoch), 22, ENDS, Epochs()) == answer


@pytest.mark.parametrize(
    ("offset", "last_epoch", "answer"),
    [
        (9, 5, StartsLater(10)),
        # What is before the start can't be told to be the same, so none of it stays.
        (10, 5, StartsLater(10)),
        (10, -1, None),
        (11, 7, None),
        (12, -1, None),
    ],
)
def test_before_the_start_nothing_is_known(offset: int, last_epoch: int, answer: object) -> None:
    ends = ENDS._replace(start=10)
    assert leading().judge(fetch(2, offset, last_epoch), 22, ends, Epochs(10)) == answer


# -- what is committed ----------------------------------------------------------------------------


def test_what_all_in_sync_have_flushed_in_this_epoch_is_committed() -> None:
    leader = leading()
    assert leader.advance(20, LIVES, 101) == 8, "nobody has fetched yet"
    has(leader, 2, 20)
    assert leader.advance(20, LIVES, 101) == 8
    has(leader, 3, 15)
    assert leader.advance(20, LIVES, 101) == 15
    assert leader.advance(12, LIVES, 101) == 15, "it never goes back"
    has(leader, 3, 20)
    assert leader.advance(18, LIVES, 101) == 18, "the leader's own disk counts, too"


def test_no_end_is_told_before_what_the_epoch_began_with_is_committed() -> None:
    leader = leading()
    has(leader, 2, 20)
    has(leader, 3, 9)
    leader.advance(20, LIVES, 101)
    assert not leader.is_end_known
    has(leader, 3, 10)
    leader.advance(20, LIVES, 101)
    assert leader.is_end_known


def test_nothing_is_committed_while_too_few_are_in_sync() -> None:
    leader = leading(replace(STATE, isr=frozenset({1})))
    assert not leader.has_enough
    assert leader.advance(20, LIVES, 101) == 8
    assert leading(replace(STATE, replicas=(1,), isr=frozenset({1}))).has_enough, "all there are"


def test_while_a_change_is_unknown_old_and_new_members_count() -> None:
    leader = leading(replace(STATE, isr=frozenset({1, 2})))
    has(leader, 2, 20)
    leader.proposed({1, 2, 3})
    assert leader.largest_isr == {1, 2, 3}
    assert leader.advance(20, LIVES, 101) == 8
    leader.settled(replace(STATE, isr=frozenset({1, 2})))
    assert leader.advance(20, LIVES, 101) == 20

    leader = leading()
    has(leader, 2, 20)
    leader.proposed({1, 2})
    assert leader.advance(20, LIVES, 101) == 8, "who is being taken out counts still"
    leader.settled(replace(STATE, isr=frozenset({1, 2})))
    assert leader.advance(20, LIVES, 101) == 20


def test_a_new_life_counts_from_what_it_says() -> None:
    leader = leading()
    has(leader, 2, 20)
    has(leader, 3, 20)
    leader.fetched(fetch(3, 12)._replace(life=34), 20, 102)
    assert leader.advance(20, LIVES, 102) == 12


def test_an_earlier_fetch_that_comes_late_takes_nothing_back() -> None:
    leader = leading()
    for offset in (20, 12):
        has(leader, 2, offset)
        has(leader, 3, offset)
    assert leader.advance(20, LIVES, 101) == 20


def test_what_is_committed_waits_for_who_is_about_to_get_in_sync() -> None:
    leader = leading(replace(STATE, isr=frozenset({1, 2})))
    has(leader, 2, 20)
    has(leader, 3, 12, end=12)  # it had all there was
    assert leader.advance(20, LIVES, 101) == 12
    assert leader.advance(20, LIVES, 112) == 20, "but not for ever"
    has(leader, 3, 20, now=113)
    assert leader.advance(20, {1: 11, 2: 22}, 113) == 20


# -- what is deleted ------------------------------------------------------------------------------


def test_what_each_who_may_lead_has_deleted_is_deleted() -> None:
    leader = leading()
    assert leader.low_watermark(6) == 0, "nobody has said yet"
    has(leader, 2, 20, earliest=6)
    assert leader.low_watermark(6) == 0
    has(leader, 3, 9, earliest=4)
    assert leader.low_watermark(6) == 4
    has(leader, 3, 9, earliest=8)
    assert leader.low_watermark(6) == 6

    leader.settled(replace(STATE, isr=frozenset({1, 2})))
    has(leader, 3, 20, earliest=0)
    assert leader.low_watermark(6) == 6
    leader.proposed({1, 2, 3})
    assert leader.low_watermark(6) == 0, "it may be in sync by now"


# -- who is in sync -------------------------------------------------------------------------------


def test_who_lags_or_is_not_registered_goes() -> None:
    leader = leading()
    assert leader.due_change(LIVES, 110) is None, "each has its time from the epoch's begin on"
    assert leader.due_change({1: 11, 2: 22}, 100) == replace(STATE, isr=frozenset({1, 2}))
    has(leader, 2, 20, now=105)
    has(leader, 3, 19, now=105)
    assert leader.due_change(LIVES, 111) == replace(STATE, isr=frozenset({1, 2}))


def test_who_had_all_at_its_last_fetch_keeps_up_under_load() -> None:
    leader = leading()
    for now in range(101, 131):
        for broker in (2, 3):
            has(leader, broker, now, now=now, end=now + 1)
    assert leader.due_change(LIVES, 130.5) is None


@pytest.mark.parametrize(
    ("end", "joins"), [(20, True), (10, True), (9, False)], ids=["all", "the start", "less"]
)
def test_who_has_what_the_epoch_began_with_joins(end: int, joins: bool) -> None:
    state = replace(STATE, isr=frozenset({1, 2}))
    leader = leading(state)
    has(leader, 2, 20)
    has(leader, 3, end)
    assert leader.due_change(LIVES, 102) == (STATE if joins else None)
    assert leader.due_change({1: 11, 2: 22, 3: 34}, 102) is None, "that life is over"


def test_who_shows_what_was_deleted_does_not_join() -> None:
    leader = leading(replace(STATE, isr=frozenset({1, 2})))
    has(leader, 2, 20)
    has(leader, 3, 20, earliest=4)
    assert leader.due_change(LIVES, 102, earliest=5) is None
    has(leader, 3, 20, earliest=5)
    assert leader.due_change(LIVES, 102, earliest=5) == STATE


def test_who_would_have_to_go_at_once_does_not_join() -> None:
    leader = leading(replace(STATE, isr=frozenset({1, 2})))
    has(leader, 2, 30, now=120, end=30)
    has(leader, 3, 15, now=120, end=30)
    assert leader.due_change(LIVES, 120) is None


def test_who_lacks_what_is_committed_is_not_in_sync() -> None:
    leader = leading()
    for broker in (2, 3):
        has(leader, broker, 20)
    assert leader.advance(20, LIVES, 101) == 20
    again = fetch(3, 15)._replace(life=34)
    leader.fetched(again, 20, 102)
    lives = {**LIVES, 3: 34}
    assert leader.due_change(lives, 102) == replace(STATE, isr=frozenset({1, 2}))
    assert not leader.rests(lives, 102)


def test_of_changes_one_is_under_way() -> None:
    leader = leading()
    leader.proposed({1, 2})
    assert leader.due_change({1: 11}, 100) is None


def test_who_has_left_joins_once_it_fetches_again() -> None:
    leader = leading()
    has(leader, 3, 20)
    has(leader, 2, 20)
    leader.learned(replace(STATE, isr=frozenset({1, 2})))
    assert leader.due_change(LIVES, 102) is None
    has(leader, 3, 20, now=102)
    assert leader.due_change(LIVES, 102) == STATE


# -- whether it leads still -----------------------------------------------------------------------


def test_a_leader_is_confirmed_by_its_lease_or_by_all_who_could_lead_instead() -> None:
    leader = leading()
    assert leader.is_confirmed(100, has_lease=True)
    assert not leader.is_confirmed(100, has_lease=False)
    has(leader, 2, 20, now=102)
    has(leader, 3, 20, now=102)
    assert not leader.is_confirmed(102, has_lease=False), "they may have fetched long ago"
    has(leader, 2, 20, now=103, answered_at=101)
    has(leader, 3, 20, now=103, answered_at=102)
    assert leader.is_confirmed(105, has_lease=False)
    assert not leader.is_confirmed(105.1, has_lease=False)
    alone = leading(replace(STATE, isr=frozenset({1})))
    assert alone.is_confirmed(1000, has_lease=False)
    alone.proposed({1, 2})
    assert not alone.is_confirmed(1000, has_lease=False), "another may be in sync by now"


def test_it_led_at_a_time_where_all_who_could_have_followed_it_since() -> None:
    leader = leading()
    has(leader, 2, 20, now=101)
    has(leader, 3, 20, now=102)
    assert not leader.led_at(100), "these fetches may have been sent before"
    leader.fetched(fetch(2, 20), 20, 103, answered_at=101.5)
    assert not leader.led_at(100)
    leader.fetched(fetch(3, 20), 20, 103, answered_at=102.5)
    assert leader.led_at(101.5)
    assert not leader.led_at(102)
    has(leader, 2, 20, now=104)
    assert leader.led_at(101.5), "on another connection"
    assert leading(replace(STATE, isr=frozenset({1}))).led_at(1000)


# -- rest -----------------------------------------------------------------------------------------


def test_nothing_is_due_while_all_have_all_and_the_first_leads() -> None:
    leader = leading()
    for each in (2, 3):
        has(leader, each, 20)
    assert leader.rests(LIVES, 111)
    assert not leader.rests(LIVES, 112), "they lag"
    assert not leader.rests({1: 11, 2: 22}, 111), "one is gone"
    leader.proposed({1, 2, 3})
    assert not leader.rests(LIVES, 111), "nobody knows who is in sync"


@pytest.mark.parametrize(
    "state",
    [
        replace(STATE, replicas=(2, 1, 3)),
        replace(STATE, isr=frozenset({1, 2})),
        replace(STATE, adding=frozenset({3})),
        replace(STATE, removing=frozenset({3})),
    ],
    ids=["another is the first", "one lags", "one comes", "one goes"],
)
def test_something_may_be_due_as_time_goes_by(state: PartitionState) -> None:
    leader = leading(state)
    for each in (2, 3):
        has(leader, each, 20)
    assert not leader.rests(LIVES, 101)


def test_as_many_are_enough_while_copies_are_added_as_were_before() -> None:
    """A topic with one copy gets two more: what it takes meanwhile is what it has taken before."""
    only = PartitionState((1, 2, 3), 1, 11, 7, frozenset({1}), adding=frozenset({2, 3}))
    leader = leading(only)
    assert leader.has_enough
    assert leader.advance(20, LIVES, 101) == 20
    moved = replace(only, isr=frozenset({1, 2, 3}), adding=frozenset())
    assert leading(moved).has_enough
    assert not leading(replace(moved, isr=frozenset({1}))).has_enough
