"""One result that several wait for."""

from twisted.internet.defer import CancelledError
from twisted.python.failure import Failure

from hermes.announcement import Announcement


def test_all_who_wait_are_told_once() -> None:
    known, told = Announcement[int](), list[int]()
    for _ in range(2):
        known.wait().addCallback(told.append)
    assert len(known) == 2
    known.tell(7)
    known.tell(8)
    assert (told, len(known)) == ([7, 7], 0)


def test_who_waits_again_waits_for_the_next_time() -> None:
    known, told = Announcement[int](), list[int]()

    def again(result: int) -> None:
        told.append(result)
        known.wait().addCallback(again)

    known.wait().addCallback(again)
    known.tell(1)
    known.tell(2)
    assert (told, len(known)) == ([1, 2], 1)


def test_who_cancels_or_goes_on_by_itself_stops_nobody() -> None:
    known, told = Announcement[int](), list[object]()
    cancelled, fired, other = known.wait(), known.wait(), known.wait()
    cancelled.addErrback(lambda failure: told.append(failure.type))
    cancelled.cancel()
    fired.callback(0)
    other.addCallback(told.append)
    known.tell(7)
    assert told == [CancelledError, 7]


def test_a_failure_is_told_as_one() -> None:
    known, told = Announcement[int](), list[object]()
    known.wait().addErrback(lambda failure: told.append(failure.value))
    error = ValueError("nothing")
    known.tell(Failure(error))
    assert told == [error]
