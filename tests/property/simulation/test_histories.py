"""Histories of a partition are held against a log: each fault is found, and a true one passes."""

import json
import subprocess
from collections.abc import Callable
from random import Random

import pytest
from fetched_tools import fetched
from histories import Append, History

Spoil = Callable[[History, dict[int, int]], None]


def a_true_history(seed: int, clients: int = 4, count: int = 60) -> tuple[History, dict[int, int]]:
    """What clients of a log are told; some answers are lost on their way."""
    random = Random(seed)
    history, log = History(), dict[int, int]()
    now = 0
    for value in range(count):
        called, now = now, now + random.randrange(50, 90)
        client = random.randrange(clients)
        operation = history.append(client, called, value)
        outcome = random.random()
        if outcome < 0.1:
            operation.refused(now)
            continue
        if outcome < 0.9 or random.random() < 0.5:  # else it was lost on the way there
            log[len(log)] = value
        if outcome < 0.8:
            operation.acknowledged(now, len(log) - 1)
        if log and random.random() < 0.5:
            offset = random.randrange(len(log))
            poll = history.poll(clients, called + random.randrange(60), offset)
            poll.answered(now + 10, {at: log[at] for at in range(offset, len(log))})
        if random.random() < 0.3:
            history.look(clients + 1, now).answered(now + 1, len(log))
    return history, log


def lost(history: History, log: dict[int, int]) -> None:
    kept = next(each for each in history.operations if isinstance(each, Append) and each.offset)
    log[kept.offset] = 4711


def doubled(history: History, log: dict[int, int]) -> None:
    log[len(log)] = log[2]


def reordered(history: History, log: dict[int, int]) -> None:
    for value, offset in ((9000, 101), (9001, 100)):
        history.append(50, 100_000 + value, value)
        log[offset] = value


def refused_and_there(history: History, log: dict[int, int]) -> None:
    history.append(7, 100_000, 8000).refused(100_001)
    log[len(log)] = 8000


def seen_and_gone(history: History, log: dict[int, int]) -> None:
    history.poll(9, 100_000, len(log)).answered(100_001, {len(log): 8000})


def changed(history: History, log: dict[int, int]) -> None:
    history.poll(9, 100_000, 1).answered(100_001, {1: 8000})
    history.poll(9, 100_000, 1).answered(100_001, {1: log[1]})


def a_hole(history: History, log: dict[int, int]) -> None:
    history.poll(9, 100_000, 1).answered(100_001, {1: log[1], 3: log[3]})


def the_end_went_back(history: History, log: dict[int, int]) -> None:
    history.look(9, 100_000).answered(100_001, len(log) // 2)


FAULTS: list[Spoil] = [
    lost,
    doubled,
    reordered,
    refused_and_there,
    seen_and_gone,
    changed,
    a_hole,
    the_end_went_back,
]


@pytest.mark.parametrize("seed", range(20))
def test_a_true_history_passes(seed: int) -> None:
    history, log = a_true_history(seed)

    assert history.problems(log) == []
    assert history.acknowledged > 20


@pytest.mark.parametrize("spoil", FAULTS)
def test_each_fault_is_found(spoil: Spoil) -> None:
    history, log = a_true_history(1)
    spoil(history, log)

    problems = history.problems(log)

    assert any(
        each.startswith(spoil.__name__.split("_and")[0].replace("_", " ")) for each in problems
    )


def test_what_is_before_the_start_may_be_gone() -> None:
    history, log = a_true_history(1)
    kept = {offset: value for offset, value in log.items() if offset >= 10}

    assert history.problems(kept, start=10) == []
    assert history.problems(kept)


def porcupine(*histories: tuple[str, History, dict[int, int]]) -> subprocess.CompletedProcess[str]:
    lines = [
        json.dumps({"name": name, "operations": history.for_porcupine(log)})
        for name, history, log in histories
    ]
    program = fetched("HERMES_PORCUPINE", "porcupine-*/porcupine", "ensure_porcupine")
    return subprocess.run(
        [program], input="\n".join(lines), text=True, capture_output=True, check=False
    )


def test_porcupine_finds_what_no_log_could_have_answered() -> None:
    true = [(f"true {seed}", *a_true_history(seed)) for seed in range(20)]
    spoilt = []
    for spoil in (lost, changed, the_end_went_back):
        history, log = a_true_history(1)
        spoil(history, log)
        spoilt.append((spoil.__name__, history, log))

    assert porcupine(*true).stdout == "20 histories, 0 not linearizable\n"
    found = porcupine(*true, *spoilt)

    assert found.returncode == 1
    assert found.stdout.splitlines()[:-1] == [f"not linearizable: {name}" for name, _, _ in spoilt]
