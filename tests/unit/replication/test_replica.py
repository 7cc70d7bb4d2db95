"""A replica plays the part that the node, its session and its log leave to it."""

from dataclasses import replace
from itertools import count, product
from typing import TypeVar

import pytest

from hermes.errors import WrongStateError
from hermes.protocol import NOBODY
from hermes.replication.electing import Refusals
from hermes.replication.following import Cut
from hermes.replication.leading import LeaderSettings
from hermes.replication.messages import Diverging, LogEnds, ReplicaFetch
from hermes.replication.replica import (
    TRANSITIONS,
    BeginEpoch,
    Change,
    Command,
    EndEpoch,
    Event,
    Fetch,
    LogFacts,
    Replica,
    Role,
)
from hermes.replication.state import (
    NO_LIFE,
    PartitionState,
    forfeited,
    handed_over,
    led_by,
    left,
    resigned,
    unclean,
)

LED = PartitionState((1, 2), 1, 11, 7, frozenset({1, 2}))
FOLLOWED = replace(LED, leader=2, life=22)
LIVES = {1: 11, 2: 22}
FACTS = LogFacts(LogEnds(0, 20, 20), 5, 18)

Found = TypeVar("Found")


class Epochs:
    def epoch_before(self, offset: int) -> int:
        return 5

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        return 5, 20


class Played:
    """A replica of broker 1, and the node that it changes."""

    def __init__(self, state: PartitionState, *, is_whole: bool = True) -> None:
        self.replica = Replica(1, LeaderSettings(lag_seconds=10), count(1), Refusals())
        self.now, self.version = 100.0, 0
        self.state = state
        self.replica.registered(11)
        self.replica.opened(is_whole=is_whole)
        self.learn(state)

    def learn(self, state: PartitionState, lives: dict[int, int] | None = None) -> None:
        self.state, self.version = state, self.version + 1
        self.replica.learned(state, self.version, LIVES if lives is None else lives)

    def due(self, facts: LogFacts = FACTS) -> list[Command]:
        return self.replica.due(facts, self.now)

    def advance(self) -> None:
        """Commit what may be by now."""
        assert self.replica.leading is not None
        self.replica.leading.advance(FACTS.ends.flushed_end, self.replica.lives, self.now)

    def only(self, kind: type[Found]) -> Found:
        (found,) = [each for each in self.due() if isinstance(each, kind)]
        return found

    def carry_out(self, change: Change) -> PartitionState:
        self.state, self.version = change.make(self.state), self.version + 1
        self.replica.change_ended(self.state, self.version, is_done=True)
        return self.state


def test_from_every_state_each_event_leads_somewhere() -> None:
    assert set(TRANSITIONS) == set(product(Role, Event))
    assert {role for (before, _), role in TRANSITIONS.items() if before is Role.LEAVING} == {
        Role.LEAVING
    }


def test_who_is_named_in_this_life_leads_from_its_end_on() -> None:
    played = Played(LED)
    assert played.due() == [BeginEpoch(7)]
    assert played.replica.role is Role.LEADING
    assert played.replica.takes_appends
    assert played.replica.leading is not None
    assert (played.replica.leading.start, played.replica.leading.high_watermark) == (20, 18)
    assert played.due() == []


def test_who_follows_fetches_from_its_end() -> None:
    played = Played(FOLLOWED)
    assert played.due() == [Fetch(2, ReplicaFetch(1, 11, 7, 20, 5, 18, 1))]
    assert played.replica.role is Role.FOLLOWING
    assert played.due() == [], "one fetch is under way"
    played.learn(replace(FOLLOWED, epoch=8))
    assert played.only(Fetch).fetch.epoch == 8


def test_nothing_is_done_before_all_that_matters_is_known() -> None:
    replica = Replica(1, LeaderSettings(), count(1), Refusals())
    replica.learned(LED, 1, LIVES)
    assert replica.due(FACTS, 100) == []
    replica.opened(is_whole=True)
    assert replica.due(FACTS, 100) == []
    assert replica.role is Role.OFFLINE
    replica.registered(11)
    assert replica.due(FACTS, 100) == [BeginEpoch(7)]


def test_what_stood_there_before_a_copy_was_deleted_is_no_news() -> None:
    """It may name this broker leader, in this life, of a log that is gone."""
    replica = Replica(1, LeaderSettings(), count(1), Refusals(), version=5)
    replica.registered(11)
    replica.opened(is_whole=True)
    replica.learned(LED, 4, LIVES)
    assert replica.due(FACTS, 100) == []
    assert replica.role is Role.OFFLINE
    replica.learned(FOLLOWED, 6, LIVES)
    assert isinstance(replica.due(FACTS, 100)[0], Fetch)


def test_nobody_is_taken_for_gone_by_sessions_older_than_the_node() -> None:
    played = Played(replace(FOLLOWED, leader=NOBODY, life=0))
    change = played.only(Change)
    lives = {1: 11, 3: 33}
    played.learn(played.state, lives)
    led = led_by(played.state, 2, 22)  # broker 2 has registered meanwhile, and was quicker
    with pytest.raises(WrongStateError):
        change.make(led)
    played.replica.change_ended(led, played.version + 1, is_done=False)
    played.now += 1
    assert not [each for each in played.due() if isinstance(each, Change)]
    played.learn(led, lives)
    assert isinstance(played.only(Change), Change), "it is gone, as has been read since"


def test_a_new_life_needs_an_epoch_of_its_own() -> None:
    played = Played(LED)
    played.due()
    played.replica.registered(12)
    assert isinstance(played.due()[0], EndEpoch)
    assert played.replica.role is Role.FOLLOWING
    played = Played(replace(LED, life=10))
    change = played.only(Change)
    assert change.make(played.state) == led_by(played.state, 1, 11)
    played.carry_out(change)
    assert played.due() == [BeginEpoch(8)]


def test_a_log_that_was_out_of_service_leads_no_epoch_that_it_had_led() -> None:
    played = Played(replace(LED, isr=frozenset({1})))
    played.due()
    played.replica.lost()
    assert played.due() == [EndEpoch()], "nobody else could lead"
    assert played.replica.role is Role.OFFLINE
    played.replica.opened(is_whole=True)
    assert played.carry_out(played.only(Change)).epoch == 8
    assert played.due() == [BeginEpoch(8)]


def test_no_epoch_is_led_that_is_over_in_the_log() -> None:
    """A single copy that a Kafka has written gets others: whoever made its state couldn't know."""
    played = Played(replace(LED, epoch=4))
    assert played.replica.role is Role.OFFLINE
    assert played.carry_out(played.only(Change)).epoch == 5, "in which the log's last batch is"
    assert played.replica.role is Role.FOLLOWING
    assert played.carry_out(played.only(Change)).epoch == 6
    assert played.due() == [BeginEpoch(6)]
    later = FACTS._replace(last_epoch=6)
    assert played.due(later) == [], "what it appends itself doesn't end it"
    assert played.replica.role is Role.LEADING


@pytest.mark.parametrize("leader", [1, 2])
def test_who_is_out_of_service_leaves_two_in_sync(leader: int) -> None:
    three = replace(LED, replicas=(1, 2, 3), leader=leader, isr=frozenset({1, 2, 3}))
    three = replace(three, life=LIVES[leader])
    played = Played(three)
    played.learn(three, {**LIVES, 3: 33})
    played.due()
    played.replica.lost()
    (change,) = (each for each in played.due() if not isinstance(each, EndEpoch))
    assert isinstance(change, Change)
    assert played.carry_out(change) == left(three, 1)
    assert played.state.leader == (NOBODY if leader == 1 else 2)


def test_who_is_out_of_service_leaves_no_single_one_in_sync() -> None:
    """Its disk may be gone: then this one has what was committed, and leads when it is back."""
    played = Played(FOLLOWED)
    played.due()
    played.replica.lost()
    played.learn(FOLLOWED, {1: 11})
    assert played.due() == []
    assert played.replica.role is Role.OFFLINE
    played.replica.opened(is_whole=True)
    assert played.carry_out(played.only(Change)) == led_by(FOLLOWED, 1, 11)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_leader_out_of_service_lets_who_is_in_sync_lead_and_take_it_out(
    is_restarted: bool,
) -> None:
    led = replace(LED, life=LED.life - is_restarted)
    played = Played(led)
    if not is_restarted:
        played.due()
    played.replica.lost()
    gone = played.carry_out(played.only(Change))
    assert gone == resigned(led, 1) == replace(led, leader=NOBODY, life=NO_LIFE)
    assert played.due() == [], "the other one may be out of service, too"
    played.replica.opened(is_whole=True)
    played.learn(gone)
    assert played.carry_out(played.only(Change)) == led_by(gone, 1, 11)


def test_the_only_one_in_sync_stays_leader_out_of_service() -> None:
    alone = replace(LED, isr=frozenset({1}))
    played = Played(alone)
    played.due()
    played.replica.lost()
    assert played.due() == [EndEpoch()]


def test_a_copy_that_is_not_whole_starts_over_in_an_epoch_that_counted_nothing_of_it() -> None:
    played = Played(FOLLOWED, is_whole=False)
    change = played.only(Change)
    assert played.replica.role is Role.OFFLINE
    assert change.make(FOLLOWED) == forfeited(FOLLOWED, 1)
    # Nobody knows whether it was done: once more.
    played.replica.change_ended(forfeited(FOLLOWED, 1), 9, is_done=False)
    assert played.carry_out(played.only(Change)).epoch == 8
    played.due()
    assert played.replica.role is Role.FOLLOWING


def test_a_follower_whose_log_is_damaged_is_given_up_once_nobody_counts_on_it() -> None:
    played = Played(FOLLOWED)
    played.due()
    played.replica.damaged()
    change = played.only(Change)
    # Somebody else tells of the epoch first: in that it hasn't all of what it had.
    played.learn(forfeited(FOLLOWED, 1))
    assert played.due() == []
    played.state = FOLLOWED
    assert not played.replica.is_given_up
    # Nobody knows whether it was done: once more.
    played.replica.change_ended(forfeited(FOLLOWED, 1), 9, is_done=False)
    played.state, played.version = forfeited(FOLLOWED, 1), 9
    assert not played.replica.is_given_up
    assert played.carry_out(played.only(Change)).epoch == 9
    assert (change.what, played.replica.is_given_up) == ("forfeit", True)
    # Each epoch that it began now would cut short what others fetch, itself before all.
    played.replica.damaged()
    assert played.only(Fetch).fetch.epoch == 9
    # Another log takes its place.
    played.replica.lost()
    assert not played.replica.is_given_up
    played.replica.opened(is_whole=True)
    played.due()
    assert played.replica.role is Role.FOLLOWING


def test_a_leader_whose_log_is_damaged_hands_over_first() -> None:
    played = Played(LED)
    played.due()
    assert played.replica.leading is not None
    played.replica.leading.fetched(ReplicaFetch(2, 22, 7, 20, 5, 18, 1), 20, 100)
    played.advance()
    played.replica.damaged()
    assert played.carry_out(played.only(Change)) == handed_over(LED, 1, 2, 22)
    played.replica.damaged()
    assert played.carry_out(played.only(Change)) == forfeited(handed_over(LED, 1, 2, 22), 1)
    assert played.replica.is_given_up


def test_who_asks_to_lead_need_not_be_looked_at_before_that_is_known() -> None:
    played = Played(replace(FOLLOWED, replicas=(1, 2)))
    played.learn(played.state, {1: 11})
    change = played.only(Change)
    assert (change.what, change.of) == ("lead", played.state)
    assert (played.replica.is_changing, played.replica.is_candidate) == (True, False)
    played.replica.change_ended(played.state, played.version, is_done=False)
    assert (played.replica.is_changing, played.replica.is_candidate) == (False, True)


def test_a_leader_that_can_append_no_more_hands_over_and_stays_in_sync() -> None:
    played = Played(LED)
    played.due()
    played.replica.hand_over(100)
    played.due()
    assert not played.replica.takes_appends
    played.now += 1
    assert played.carry_out(played.only(Change)) == handed_over(LED, 1, 2, 22)
    assert played.only(Fetch).to == 2


def test_a_leader_whose_heir_falls_out_of_sync_goes_on() -> None:
    played = Played(LED)
    played.due()
    played.replica.hand_over(100)
    played.due()
    assert not played.replica.takes_appends
    played.learn(replace(LED, isr=frozenset({1})))
    played.now += 60
    assert not [each for each in played.due() if isinstance(each, Change)]
    assert played.replica.takes_appends


def test_a_leader_that_nobody_else_can_follow_goes_on() -> None:
    played = Played(replace(LED, isr=frozenset({1})))
    played.due()
    played.replica.hand_over(100)
    played.due()
    assert played.replica.takes_appends


@pytest.mark.parametrize(
    ("isr", "lives"), [({1}, LIVES), ({1, 2}, {1: 11})], ids=["others lag", "others are away"]
)
def test_a_damaged_log_that_nobody_else_has_stays_in_service(
    isr: set[int], lives: dict[int, int]
) -> None:
    played = Played(replace(LED, isr=frozenset(isr)))
    played.learn(played.state, lives)
    played.due()
    played.replica.damaged()
    assert not any(isinstance(each, Change) and each.what != "isr" for each in played.due())
    assert played.replica.takes_appends


def test_a_doubted_copy_is_given_up_once_another_one_is_there() -> None:
    played = Played(LED)
    played.learn(replace(LED, life=9), {1: 11})
    played.replica.doubted(played.now)
    played.now += 9
    assert played.due() == [], "it may lack something"
    before = played.state
    played.learn(before)
    assert played.carry_out(played.only(Change)) == forfeited(before, 1)
    played.learn(replace(played.state, isr=frozenset({1, 2})), {1: 11})
    assert played.carry_out(played.only(Change)).leader == 1, "it has had all since"


@pytest.mark.parametrize(("isr", "waits"), [({1, 2}, 10), ({1}, 0)], ids=["others", "it alone"])
def test_a_doubted_copy_leads_where_no_other_one_comes(isr: set[int], waits: float) -> None:
    played = Played(replace(LED, life=9, isr=frozenset(isr)))
    played.learn(played.state, {1: 11})
    played.replica.doubted(played.now)
    played.now += waits
    assert played.carry_out(played.only(Change)).life == 11


def test_the_last_copy_that_is_not_whole_waits_for_an_operator() -> None:
    played = Played(replace(LED, isr=frozenset({1})), is_whole=False)
    after = played.carry_out(played.only(Change))
    assert (after.leader, after.isr, after.is_lacking) == (NOBODY, {1}, True)
    assert played.due() == []
    assert played.replica.role is Role.OFFLINE


def test_an_operator_lets_a_copy_lead_that_is_not_whole_once() -> None:
    played = Played(replace(LED, isr=frozenset({1})), is_whole=False)
    played.learn(unclean(played.state, 1, 12))
    lacks = played.carry_out(played.only(Change))
    assert lacks.is_lacking, "in another life: it may have lost more"
    played.learn(unclean(played.state, 1, 11))
    after = played.carry_out(played.only(Change))
    assert after.epoch == after.unclean_epoch + 1
    assert played.only(BeginEpoch).epoch == after.epoch
    played.replica.lost(is_whole=False)
    assert played.carry_out(played.only(Change)).is_lacking
    assert [each for each in played.due() if isinstance(each, Change)] == []


def test_while_its_log_is_cut_it_leads_nothing() -> None:
    played = Played(FOLLOWED)
    token = played.only(Fetch).fetch.token
    answer = Diverging(5, 15, 0)
    assert played.replica.answered(token, answer, FACTS.ends, Epochs()) == Cut(15)
    played.learn(replace(LED, epoch=8))
    assert played.due() == []
    assert played.replica.role is Role.OFFLINE
    played.replica.cut()
    assert played.due() == [BeginEpoch(8)]


def test_when_nobody_leads_it_takes_its_turn() -> None:
    state = replace(LED, replicas=(2, 1), leader=NOBODY, life=0)
    played = Played(state)
    assert played.due() == []
    played.now += 0.15
    change = played.only(Change)
    assert change.make(state) == led_by(state, 1, 11)
    with pytest.raises(WrongStateError, match="another state"):
        change.make(led_by(state, 2, 22))


def test_what_was_read_earlier_replaces_nothing() -> None:
    played = Played(FOLLOWED)
    played.learn(replace(FOLLOWED, epoch=8))
    played.replica.learned(FOLLOWED, 1, LIVES)
    assert played.replica.state == replace(FOLLOWED, epoch=8)


def test_of_changes_one_is_under_way_and_both_states_count_meanwhile() -> None:
    played = Played(LED)
    played.learn(LED, {1: 11})
    change = next(each for each in played.due() if isinstance(each, Change))
    assert change.isr == frozenset({1})
    assert played.replica.leading is not None
    assert played.replica.leading.largest_isr == {1, 2}
    assert played.due() == []
    played.carry_out(change)
    assert played.replica.leading.largest_isr == {1}


@pytest.mark.parametrize("count", [2, 3])
def test_a_leader_that_stops_hands_over_and_then_leaves(count: int) -> None:
    """But of two: the other one may have lost its disk, and nobody knows it yet."""
    brokers = tuple(range(1, count + 1))
    state = replace(LED, replicas=brokers, isr=frozenset(brokers))
    played = Played(state)
    played.learn(state, {each: 11 * each for each in brokers})
    played.due()
    played.replica.stopping(played.now)
    assert not played.replica.takes_appends
    assert played.due() == [], "the successor hasn't all yet"
    assert played.replica.leading is not None
    for follower in brokers[1:]:
        fetch = ReplicaFetch(follower, 11 * follower, 7, 20, 5, 18, 1)
        played.replica.leading.fetched(fetch, 20, played.now)
    played.advance()
    assert not played.replica.may_stop
    change = played.only(Change)
    assert played.carry_out(change) == handed_over(state, 1, 2, 22)
    end, *others = played.due()
    assert end == EndEpoch()
    changes = [each for each in others if isinstance(each, Change)]
    for each in changes:
        assert not played.replica.may_stop
        assert each.make(played.state) == left(played.state, 1)
        played.carry_out(each)
    assert len(changes) == (count > 2)
    assert played.replica.may_stop
    played.due()
    assert (played.replica.following is None) == (count > 2), "who has left isn't taken in again"


@pytest.mark.parametrize("comes_up", [True, False])
def test_leadership_goes_back_to_who_is_preferred(comes_up: bool) -> None:
    state = replace(LED, replicas=(2, 1, 3))
    played = Played(state)
    played.due()
    assert played.replica.leading is not None
    played.now += 60
    for broker, life in ((2, 22), (3, 33)):
        fetch = ReplicaFetch(broker, life, 7, 19, 5, 18, 1)
        played.replica.leading.fetched(fetch, 19, played.now)
    assert played.due() == []
    assert not played.replica.takes_appends
    if not comes_up:
        played.now += 1
        played.due()
        assert played.replica.takes_appends, "it waits for long again"
        return
    for broker, life in ((2, 22), (3, 33)):
        fetch = ReplicaFetch(broker, life, 7, 20, 5, 18, 1)
        played.replica.leading.fetched(fetch, 20, played.now)
    played.advance()
    assert played.carry_out(played.only(Change)) == handed_over(state, 1, 2, 22)


def test_who_has_no_copy_any_more_is_dismissed_for_good() -> None:
    played = Played(LED)
    played.due()
    played.learn(PartitionState((2,), 2, 22, 8, frozenset({2})))
    assert played.due() == [EndEpoch()]
    assert played.replica.role is Role.LEAVING
    played.learn(replace(LED, epoch=9))
    assert played.due() == []
    assert played.replica.role is Role.LEAVING
