"""What the simulator holds transactions against: each fault that a history can have is found."""

from collections.abc import Callable
from uuid import UUID

import pytest
from invariants_today import Books, Partition, value_of
from invariants_transactions import Attempt, TransactionBooks
from world import BrokenError, World

from hermes.protocol.records import Record

PLACE = Partition(UUID(int=7), 0)


class Told:
    """One partition, as producers and readers were told of it."""

    def __init__(self) -> None:
        self.world = World(1)
        self.books = Books(self.world)
        self.books.see(PLACE.topic_id, "kept", 1)
        self.transactions = TransactionBooks(self.books)
        self.values: dict[int, bytes] = {}

    def attempt(self, *offsets: int, has_offset: bool = False) -> Attempt:
        """Have a transaction with a message at each of these offsets."""
        made = self.transactions.begin("t")
        made.has_offset = has_offset
        for offset in offsets:
            self.send(made.name, offset)
        return made

    def send(self, producer: str, offset: int) -> None:
        value = self.values[offset] = value_of(*PLACE, producer, offset)
        self.books.acknowledge(PLACE, offset, [(None, value)])

    def end(self, attempt: Attempt, *, commits: bool) -> None:
        attempt.commits_asked += commits
        self.transactions.ended("t", attempt, commits=commits)

    def read(self, *offsets: int, to: int, stable_end: int | None = None) -> None:
        """Have somebody read up to an offset, and get what is at these."""
        records = [Record(each, 0, None, self.values[each]) for each in offsets]
        stable_end = to if stable_end is None else stable_end
        known_end = self.transactions.end_of(PLACE)
        self.transactions.read(PLACE, 0, to, stable_end, records, known_end)

    def check(self, offset: int = 0) -> None:
        self.transactions.check_end({"t": offset})


def committed(told: Told, *offsets: int, has_offset: bool = False) -> Attempt:
    attempt = told.attempt(*offsets, has_offset=has_offset)
    told.end(attempt, commits=True)
    return attempt


def test_what_may_be_is_taken() -> None:
    told = Told()
    committed(told, 0, 1, has_offset=True)
    told.end(told.attempt(3), commits=False)
    unknown = told.attempt(5)
    unknown.commits_asked = 1
    told.send("producer", 6)
    told.read(0, 1, 6, to=7)
    told.check(1)


def _open_one(told: Told) -> None:
    told.attempt(0)
    told.read(0, to=1)


def _aborted(told: Told) -> None:
    told.end(told.attempt(0), commits=False)
    told.read(0, to=1)


def _lost(told: Told) -> None:
    committed(told, 0)
    told.read(to=1)
    told.check()


def _torn(told: Told) -> None:
    unknown = told.attempt(0, 1)
    unknown.commits_asked = 1
    told.read(0, to=2)
    told.check()


def _plain_hidden(told: Told) -> None:
    told.send("producer", 0)
    told.read(to=1)
    told.check()


def _late(told: Told) -> None:
    attempt = told.attempt(0)
    told.read(to=1)  # the last stable offset has passed it
    told.end(attempt, commits=True)
    told.read(0, to=1)


def _stable_end_falls(told: Told) -> None:
    told.read(to=0, stable_end=5)
    told.read(to=0, stable_end=4)


def _beyond_the_stable_end(told: Told) -> None:
    committed(told, 0)
    told.read(0, to=1, stable_end=0)


def _offset_of_aborted(told: Told) -> None:
    told.end(told.attempt(has_offset=True), commits=False)
    told.transactions.told("t", 1, 0)


def _offset_falls(told: Told) -> None:
    committed(told, 0, has_offset=True)
    told.transactions.told("t", 0, told.transactions.floor("t"))


def _offset_lost(told: Told) -> None:
    committed(told, 0, has_offset=True)
    told.check(0)


def _offset_alone(told: Told) -> None:
    unknown = told.attempt(0, has_offset=True)
    unknown.commits_asked = 1
    told.read(to=1)
    told.check(1)


def _two_are_one(told: Told) -> None:
    told.transactions.initialized("t", "one", 5, 0)
    told.transactions.initialized("t", "another", 5, 0)


def _fenced(told: Told) -> None:
    told.transactions.initialized("t", "one", 5, 0)
    told.world.now_us = 10
    told.transactions.initialized("t", "another", 5, 1)
    told.transactions.check_life("t", "one", 11, "a batch")


@pytest.mark.parametrize(
    "play",
    [
        *(_open_one, _aborted, _lost, _torn, _plain_hidden, _late, _stable_end_falls),
        *(_beyond_the_stable_end, _offset_of_aborted, _offset_falls, _offset_lost),
        *(_offset_alone, _two_are_one, _fenced),
    ],
)
def test_each_fault_is_found(play: Callable[[Told], None]) -> None:
    with pytest.raises(BrokenError):
        play(Told())
