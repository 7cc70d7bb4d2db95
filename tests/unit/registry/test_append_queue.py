"""Events between a writer and the topic."""

import threading
from concurrent.futures import Future

import pytest

from hermes.registry.append_queue import AppendQueue, dropped
from hermes.registry.errors import RegistryError
from hermes.registry.events import ModeChanged
from hermes.registry.log_records import decode_record
from hermes.registry.replica import ReplicaPosition

EVENT = ModeChanged("s", "READONLY")


@pytest.fixture
def appends() -> AppendQueue:
    return AppendQueue(threading.Condition())


def code(future: "Future[None]") -> int:
    error = future.exception(0)
    assert isinstance(error, RegistryError)
    return error.code


def test_a_batch_is_a_chain_behind_what_was_known(appends: AppendQueue) -> None:
    append = appends.for_new_writer()
    futures = [append(EVENT) for _ in range(3)]
    records = [
        decode_record(each) for each in appends.next_batch(ReplicaPosition(70, 5, "before", 60))
    ]
    assert [each.number for each in records if each] == [6, 7, 8]
    chain = [each.after for each in records if each]
    assert chain == ["before", *(each.id for each in records[:2] if each)]
    assert (appends.are_queued, appends.are_outstanding) == (False, True)
    for each in records:
        assert each is not None
        assert appends.settle(each.id)
        assert not appends.settle(each.id)
    assert [future.result(0) for future in futures] == [None] * 3
    assert not appends.settle("another's")


def test_a_batch_is_bounded(appends: AppendQueue) -> None:
    append = appends.for_new_writer()
    for _ in range(3):
        append(ModeChanged("s" * 400_000, "READONLY"))
    assert len(appends.next_batch(ReplicaPosition())) == 2
    assert len(appends.next_batch(ReplicaPosition())) == 1
    for _ in range(300):
        append(EVENT)
    assert len(appends.next_batch(ReplicaPosition())) == 256


def test_only_the_latest_writer_appends(appends: AppendQueue) -> None:
    old = appends.for_new_writer()
    queued = old(EVENT)
    new = appends.for_new_writer()
    assert code(old(EVENT)) == 50003
    assert not queued.done()  # it was decided before, and is still to be written
    assert not new(EVENT).done()
    assert len(appends.next_batch(ReplicaPosition())) == 2


def test_what_is_given_up_fails_all_of_it(appends: AppendQueue) -> None:
    append = appends.for_new_writer()
    sent = append(EVENT)
    appends.next_batch(ReplicaPosition())
    queued = append(EVENT)
    appends.give_up(dropped("the home is gone"))
    assert (code(sent), code(queued), code(append(EVENT))) == (50003, 50003, 50003)
    assert (appends.are_queued, appends.are_outstanding) == (False, False)


def test_what_no_message_can_hold_is_refused_with_all_that_stands_on_it(
    appends: AppendQueue,
) -> None:
    append = appends.for_new_writer()
    appends.max_message_bytes = 1000
    before = append(EVENT)
    assert code(append(ModeChanged("s" * 1000, "READONLY"))) == 50001
    assert code(append(EVENT)) == 50003
    assert not before.done()
    assert len(appends.next_batch(ReplicaPosition())) == 1
