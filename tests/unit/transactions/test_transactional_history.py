"""The checks that tests of transactional clients rely on find what they are there to find."""

from typing import Any

import pytest
from transactional_history import (
    Assigned,
    History,
    Message,
    Outcome,
    Polled,
    Sent,
    Step,
    Transaction,
)


def send(value: str, offset: int | None = None, partition: int = 0) -> Sent:
    return Sent(partition, value, offset)


def poll(*messages: tuple[int, str], partition: int = 0) -> Polled:
    return Polled([Message(partition, *each) for each in messages])


def done(
    process: str,
    begin: int,
    *steps: Step,
    end: int | None = None,
    outcome: Outcome = "committed",
    group: str | None = None,
) -> Transaction:
    """One that takes no time, unless it is said."""
    return Transaction(process, outcome, begin, begin if end is None else end, steps, group)


AB = [done("p", 1, send("a", 0)), done("p", 2, send("b", 2))]
FINAL = [Message(0, 0, "a"), Message(0, 2, "b")]


def findings(*transactions: Transaction, final: list[Message] = FINAL) -> set[str]:
    return set(History(transactions, final).findings())


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert not findings(
        *AB,
        done("q", 3, poll((0, "a")), poll((2, "b")), group="g"),
        done("r", 3, poll((0, "a")), outcome="aborted", group="g"),
        done("r", 4, poll((0, "a"), (2, "b")), outcome="aborted", group="g"),
        done("s", 3, Assigned([0]), poll((2, "b")), Assigned([0]), poll((0, "a"))),
        done("t", 3, send("c", 3), outcome="aborted"),
        done("t", 4, send("d"), outcome="unknown"),
        done("u", 4, poll((0, "a"), (2, "b")), outcome="unknown", group="g"),
    )


def test_messages_of_transactions_at_the_same_time_may_stand_between_each_other() -> None:
    crossed = [
        done("p", 1, send("a", 0), send("b", 2), send("c", 1, partition=1), end=5),
        done("q", 2, send("d", 1), send("e", 0, partition=1), end=4),
    ]
    logs = [(0, 0, "a"), (0, 1, "d"), (0, 2, "b"), (1, 0, "e"), (1, 1, "c")]
    assert not findings(*crossed, final=[Message(*each) for each in logs])


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("two values at an offset", [done("q", 3, poll((0, "a"), (2, "a")))]),
        ("duplicate", [done("q", 3, poll((0, "a"), (1, "a"), (2, "b")))]),
        ("sent by nobody", [done("q", 3, poll((0, "a"), (1, "x")))]),
        ("lost", [done("q", 3, send("c", 3))]),
        ("lost", [done("q", 3, send("c"))]),
        (
            "aborted read",
            [done("q", 1, send("c"), outcome="aborted"), done("r", 2, poll((3, "c")))],
        ),
        ("own read", [done("q", 1, send("c", 3), poll((3, "c")))]),
        ("inverted send", [done("q", 3, send("c", 1))]),
        ("inverted send", [done("q", 1, send("c", 4), send("d", 3), end=2)]),
        ("read from the future", [done("q", 0, poll((0, "a")))]),
        ("inverted poll", [done("q", 3, poll((2, "b"), (0, "a")))]),
        ("inverted poll", [done("q", 3, poll((2, "b"))), done("q", 4, poll((2, "b")))]),
        ("skipped poll", [done("q", 3, poll((0, "a"), (3, "c")))]),
        ("skipped poll", [done("q", 3, poll((0, "a"))), done("q", 4, poll((3, "c")))]),
        ("consumed twice", [done(each, 3, poll((0, "a")), group="g") for each in "qr"]),
        ("never consumed", [done("q", 3, poll((2, "b")), group="g")]),
    ],
)
def test_what_is_wrong_is_found(kind: str, wrong: list[Transaction]) -> None:
    assert kind in findings(*AB, *wrong)


def test_a_torn_transaction_is_found() -> None:
    torn = done("q", 3, send("c", 3), send("d"), outcome="unknown")
    assert findings(*AB, torn, final=[*FINAL, Message(0, 3, "c")]) == {"lost"}
    assert not findings(*AB, torn, final=[*FINAL, Message(0, 3, "c"), Message(0, 4, "d")])


def test_offsets_that_were_lost_with_what_was_kept_are_found() -> None:
    kept = done("q", 3, poll((0, "a")), send("c", 3), outcome="unknown", group="g")
    again = done("r", 4, poll((0, "a")), group="g")
    assert findings(*AB, kept, again, final=[*FINAL, Message(0, 3, "c")]) == {"consumed twice"}
    assert not findings(*AB, kept, again)


def test_what_was_consumed_by_an_aborted_transaction_is_consumed_again() -> None:
    aborted = done("q", 3, poll((0, "a")), outcome="aborted", group="g")
    assert findings(*AB, aborted, done("r", 4, poll((2, "b")), group="g")) == {"never consumed"}


def test_two_that_read_from_each_other_are_found() -> None:
    final = [Message(0, 0, "a"), Message(1, 0, "b")]
    two: list[Any] = [
        done("p", 1, send("a", 0), poll((0, "b"), partition=1), end=9),
        done("q", 1, send("b", 0, partition=1), poll((0, "a")), end=9),
    ]
    assert findings(*two, final=final) == {"cycle"}


def test_what_is_read_on_a_way_round_through_time_is_found() -> None:
    """The third was over before the first began, and has read from it by way of the second."""
    final = [Message(0, 0, "a"), Message(1, 0, "b")]
    round_trip = [
        done("p", 5, send("a", 0), end=9),
        done("q", 1, poll((0, "a")), send("b", 0, partition=1), end=9),
        done("r", 2, poll((0, "b"), partition=1), end=3),
    ]
    assert findings(*round_trip, final=final) == {"read from the future"}


def test_where_a_client_reads_on_after_an_abort() -> None:
    def reads(outcome: Outcome, *then: tuple[int, str]) -> set[str]:
        return findings(
            *AB,
            done("q", 3, poll((0, "a"))),
            done("q", 4, poll((2, "b")), outcome=outcome),
            done("q", 5, send("c", 3), poll(*then)),
            final=[*FINAL, Message(0, 3, "c")],
        )

    assert not reads("aborted", (2, "b"))
    assert reads("aborted", (0, "a")) == {"inverted poll"}
    assert reads("committed", (2, "b")) == {"inverted poll"}
