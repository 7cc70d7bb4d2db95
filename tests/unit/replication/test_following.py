"""A follower has one fetch under way, and its answer counts once."""

from itertools import count

import pytest
from kafka_logs import sent

from hermes.errors import InvalidBatchError
from hermes.protocol.kafka_errors import Code
from hermes.protocol.record_batches import BatchRules, placed
from hermes.protocol.record_batches import check_batches as check_sent
from hermes.replication.following import Append, Cut, Following, Rest, Restart, check_batches
from hermes.replication.messages import (
    Answer,
    Diverging,
    LogEnds,
    Records,
    Refused,
    ReplicaFetch,
    StartsLater,
)

ENDS = LogEnds(0, 20, 20)


class Epochs:
    """Epoch 2 from 0 on, 4 from 8 on, 5 from 15 on."""

    def epoch_before(self, offset: int) -> int:
        raise AssertionError("a follower doesn't ask")

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        ends = {2: 8, 4: 15, 5: 20}
        known = max((each for each in ends if each <= epoch), default=-1)
        return known, ends.get(known, -1)


def following() -> Following:
    return Following(3, 33, leader=1, epoch=7, tokens=count(100))


def begun() -> Following:
    follower = following()
    began = ENDS._replace(earliest=4)
    assert follower.fetch(began, 5, 18) == ReplicaFetch(3, 33, 7, 20, 5, 18, 100, earliest=4)
    return follower


def take(follower: Following, answer: Answer, token: int = 100) -> object:
    return follower.answered(token, answer, ENDS, Epochs())


def test_one_fetch_is_under_way_and_none_before_all_is_on_the_disk() -> None:
    follower = following()
    assert follower.fetch(ENDS._replace(flushed_end=19), 5, 18) is None
    assert follower.fetch(ENDS, 5, 18) is not None
    assert follower.fetch(ENDS, 5, 18) is None
    assert take(follower, Records(18, 0)) == Append(18, 0)
    assert follower.fetch(ENDS, 5, 18) is None, "what came isn't appended yet"
    follower.written()
    again = follower.fetch(ENDS, 5, 18)
    assert again is not None
    assert again.token == 101


@pytest.mark.parametrize(
    "answer", [Records(18, 0), Diverging(4, 15, 0), StartsLater(30), Refused(Code.NONE)]
)
def test_an_answer_counts_once_and_only_for_the_fetch_under_way(answer: Answer) -> None:
    follower = following()
    assert take(follower, answer) is None, "there is no fetch"
    follower = begun()
    assert take(follower, answer, 99) is None, "to an earlier one"
    assert take(follower, answer) is not None
    assert take(follower, answer) is None, "again"
    follower = begun()
    follower.broken_off()
    assert take(follower, answer) is None, "on a connection that was lost"


def test_a_refused_fetch_is_made_again_after_a_rest() -> None:
    follower = begun()
    refused = Refused(Code.FENCED_LEADER_EPOCH)
    assert take(follower, refused) == Rest(refused)
    assert follower.fetch(ENDS, 5, 18) is None, "whatever else happens"
    follower.rested()
    assert follower.fetch(ENDS, 5, 18) is not None
    follower.rested()
    assert follower.fetch(ENDS, 5, 18) is None, "one is under way"


@pytest.mark.parametrize(
    ("answer", "command"),
    [
        (Diverging(5, 17, 0), Cut(17)),
        (Diverging(4, 12, 0), Cut(12)),
        (Diverging(4, 18, 0), Cut(15)),
        (Diverging(3, 10, 0), Cut(8)),
        (Diverging(1, 3, 0), Cut(0)),
        # All that the leader has is later than all that is here.
        (Diverging(-1, -1, 6), Cut(6)),
        (Diverging(-1, -1, 30), Cut(0)),
        (StartsLater(30), Restart(30)),
        (StartsLater(20), Restart(20)),
    ],
)
def test_a_log_is_cut_where_both_have_the_last_epoch_in_common(
    answer: Answer, command: object
) -> None:
    assert take(begun(), answer) == command


@pytest.mark.parametrize(
    ("last_epoch", "answer", "command"),
    [
        (5, Diverging(4, 12, 0), Cut(12, is_forced=True)),
        (6, Diverging(4, 12, 0), Cut(12)),
        (5, Diverging(4, 12, 11), Cut(12, is_forced=True)),
        # Nothing that is here is there: the leader ends before it, or has other messages for all.
        (5, Diverging(4, 9, 3), Restart(3)),
        # What is in common of a batch is what the log doesn't show: it begins inside of that.
        (5, Diverging(4, 10, 3), Restart(3)),
        (5, Diverging(-1, -1, 3), Restart(3)),
        (-1, Diverging(-1, -1, 3), Restart(3)),
        (6, Diverging(-1, -1, 3), Cut(10)),
    ],
)
def test_after_an_unclean_election_also_what_was_committed_is_cut(
    last_epoch: int, answer: Answer, command: object
) -> None:
    ends = LogEnds(10, 20, 20, earliest=11)
    follower = Following(3, 33, leader=1, epoch=7, tokens=count(100), unclean_epoch=6)
    assert follower.fetch(ends, last_epoch, 18) is not None
    assert follower.answered(100, answer, ends, Epochs()) == command


# -- what comes -----------------------------------------------------------------------------------


def batch(offset: int, epoch: int, count: int = 1) -> bytes:
    data = sent([b"value"] * count)
    return b"".join(placed(data, check_sent(data, BatchRules(1 << 20)), offset, epoch))


def test_whole_batches_are_found_and_the_beginning_of_one_more_left() -> None:
    data = batch(20, 5, 2) + batch(22, 7)
    found = check_batches(data + batch(23, 7)[:40], 20, 5, 7)
    assert [(each.base_offset, each.next_offset, each.leader_epoch) for each in found] == [
        (20, 22, 5),
        (22, 23, 7),
    ]
    assert check_batches(batch(20, 5)[:-1], 20, 5, 7) == []
    assert check_batches(b"", 20, 5, 7) == []


def test_every_flipped_bit_is_noticed_but_in_the_epoch_that_no_crc_covers() -> None:
    data = batch(20, 5) + batch(21, 5)
    first = len(batch(20, 5))
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 4
        try:
            found = check_batches(bytes(damaged), 20, 5, 5)
        except InvalidBatchError:
            continue
        # A length that grew: the rest is taken for the beginning of one more, and asked for again.
        assert 8 <= place % first < 12
        assert len(found) < 2


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (batch(19, 5), 20),
        (batch(21, 5), 20),
        (batch(20, 4), 20),
        (batch(20, 8), 20),
        (batch(20, 7) + batch(21, 5), 20),
        (batch(20, 5) + batch(20, 5), 20),
    ],
    ids=["before", "a hole", "earlier epoch", "later epoch", "falling epoch", "twice"],
)
def test_what_does_not_follow_is_refused(data: bytes, end: int) -> None:
    with pytest.raises(InvalidBatchError, match="came after"):
        check_batches(data, end, 5, 7)


def test_a_hole_is_believed_where_the_batch_after_it_fits_before_what_comes_next() -> None:
    after = batch(25, 5, 2)
    for following, until in [(b"", 27), (b"", 30), (batch(27, 5)[:8], -1), (batch(31, 5)[:9], 0)]:
        (header,) = check_batches(after + following, 20, 5, 7, until)
        assert header.base_offset == 25
    assert len(check_batches(batch(20, 5) + after + batch(40, 6), 20, 5, 7, 41)) == 3
    # In a log without holes the offset of what comes next says that it was another one.
    for following, until in [(b"", 26), (b"", -1), (batch(26, 5)[:8], 99), (batch(26, 5)[:7], 26)]:
        with pytest.raises(InvalidBatchError, match="came after"):
            check_batches(after + following, 20, 5, 7, until)
    with pytest.raises(InvalidBatchError, match="came after"):
        check_batches(batch(19, 5), 20, 5, 7, 99)
