"""Producer ids: one each, a block at a time, however many ask while one is taken."""

from twisted.internet.defer import Deferred, succeed

from hermes.cluster.producer_ids import BLOCK_IDS, ProducerIds
from hermes.errors import StorageError


def take(ids):
    taken = []
    Deferred.fromCoroutine(ids.take()).addBoth(taken.append)
    return taken


def test_a_block_is_given_out_before_the_next_is_taken():
    firsts = iter([5000, 9000])
    ids = ProducerIds(lambda count: next(firsts), lambda function, *args: succeed(function(*args)))

    taken = [take(ids)[0] for _ in range(BLOCK_IDS + 2)]

    assert taken == [*range(5000, 5000 + BLOCK_IDS), 9000, 9001]


def test_those_who_ask_meanwhile_wait_for_the_same_block():
    waiting = []

    def in_thread(function, *args):
        waiting.append(Deferred())
        return waiting[-1]

    ids = ProducerIds(lambda count: 0, in_thread)
    taken = [take(ids) for _ in range(BLOCK_IDS + 1)]
    assert len(waiting) == 1

    waiting[0].callback(100)

    assert sorted(each[0] for each in taken if each) == list(range(100, 100 + BLOCK_IDS))
    assert len(waiting) == 2, "the last one needs another block"
    waiting[1].callback(7000)
    assert taken[-1] == [7000]


def test_one_who_gets_none_hears_why_and_the_next_tries_again():
    answers = iter([StorageError("full"), 40])

    def in_thread(function, *args):
        answer = next(answers)
        deferred = Deferred()
        if isinstance(answer, Exception):
            deferred.errback(answer)
        else:
            deferred.callback(answer)
        return deferred

    ids = ProducerIds(lambda count: 0, in_thread)

    (failure,) = take(ids)
    assert failure.check(StorageError)
    assert take(ids) == [40]
