"""The checks that tests of churn rely on find what they are there to find."""

import pytest
from group_history import History, disorder, late_hand_outs, repetitions, unreleased_takes

SECOND = 1_000_000_000


def history(*lines: str, deeds: tuple[tuple[str, int], ...] = ()) -> History:
    """An account whose times are in seconds."""
    scaled = []
    for line in lines:
        *words, when = line.split()
        scaled.append(" ".join([*words, str(round(float(when) * SECOND))]))
    return History(scaled, [(deed, when * SECOND) for deed, when in deeds])


CLEAN = [
    history("take 0-0 10", "0-0 0 1 11", "0-0 11 2 12", "give 0-0 20"),
    history("take 0-0 21", "0-0 22 3 22"),
]
KILLED = [
    history("take 0-0 10", "0-0 0 1 11", "0-0 11 2 12", deeds=(("kill", 12),)),
    history("take 0-0 21", "0-0 11 2 22"),
]
STOPPED = [
    history(
        *("take 0-0 10", "0-0 0 1 11", "0-0 11 2 25", "lost 26"),
        deeds=(("stop", 12), ("resume", 25)),
    ),
    history("take 0-0 21", "0-0 11 2 22"),
]


@pytest.mark.parametrize("members", [CLEAN, KILLED, STOPPED])
def test_what_may_happen_is_found_right(members: list[History]) -> None:
    assert not unreleased_takes(members)
    assert not disorder(members)
    assert not repetitions(members)[1]
    assert max(late_hand_outs(members).values(), default=0) <= 1


def test_repetitions_are_counted_by_cause() -> None:
    assert repetitions(CLEAN) == ({}, [])
    assert repetitions(KILLED) == ({"kill": 1}, [])
    assert repetitions(STOPPED) == ({"late": 1}, [])


def test_two_owners_are_found() -> None:
    members = [history("take 0-0 10", "give 0-0 30"), history("take 0-0 21")]
    assert unreleased_takes(members) == [
        "0-0: taken by 1 at 21000000000, 0 has had it since 10000000000"
    ]


def test_a_former_owner_that_goes_on_is_found() -> None:
    members = [
        history("take 0-0 10", "0-0 0 1 22", "0-0 11 2 23"),
        history("take 0-0 21"),
    ]
    assert late_hand_outs(members) == {(0, "0-0", 21 * SECOND): 2}


def test_who_was_killed_before_it_could_say_that_it_owns_is_no_former_owner() -> None:
    killed = history("take 0-0 10", "give 0-0 20", "0-0 0 1 40", "0-0 11 2 40.001")
    members = [killed, history("take 0-0 21", deeds=(("kill", 30),))]
    assert late_hand_outs(members) == {(0, "0-0", 21 * SECOND): 2}
    killed.registered = [("0-0", 39 * SECOND)]
    assert not late_hand_outs(members)


def test_who_was_stopped_before_it_could_say_that_it_owns_took_it_before() -> None:
    stopped = history("take 0-0 23.1", "lost 23.2", deeds=(("stop", 10), ("resume", 23)))
    owner = history("take 0-0 21", "0-0 0 1 24", "0-0 11 2 25", "give 0-0 30")
    assert unreleased_takes([stopped, owner])
    assert late_hand_outs([stopped, owner])
    stopped.registered = [("0-0", 10 * SECOND)]
    assert not unreleased_takes([stopped, owner])
    assert not late_hand_outs([stopped, owner])


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["take 0-0 10", "0-0 11 2 11", "0-0 0 1 12"], "went back"),
        (["take 0-0 10", "0-0 0 1 11", "0-0 0 1 12"], "went back"),
        (["take 0-0 10", "0-0 0 2 11", "0-0 11 1 12"], "not in the order of sending"),
        (["0-0 0 1 11", "take 0-0 11.2", "0-0 0 2 12"], "two messages at offset 0"),
    ],
)
def test_disorder_is_found(lines: list[str], complaint: str) -> None:
    (found,) = disorder([history(*lines)])
    assert complaint in found


def test_a_repetition_that_no_kill_explains_is_found() -> None:
    members = [
        history("take 0-0 10", "0-0 0 1 11", "give 0-0 12", deeds=(("leave", 12), ("kill", 30))),
        history("take 0-0 13", "0-0 0 1 14"),
    ]
    assert len(repetitions(members)[1]) == 1
