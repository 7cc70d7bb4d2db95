"""Forty kills of Kafka 4 and Hermes, which take over one data directory from each other.

And a life of Kafka's format that ends at each of its calls of the operating system, or in which
each fails.
"""

import random
import shutil
from pathlib import Path

import pytest
from idempotent_lives import FAULTS as LIFE_FAULTS
from idempotent_lives import live_under_producers
from kafka_disk_lives import MODES, ended, hold_to_the_books, total_calls
from kafka_disk_rounds import Account, SharedDirectory, check_everything, dump, loads
from kafka_failing_lives import FAULTS, live_with, total_failing_calls
from soak import report, seed, times

_BETWEEN = 3000
_TABLE_MESSAGES = 1500


@pytest.mark.soak
def test_either_goes_on_with_what_the_other_has_left(tmp_path: Path) -> None:
    number, rounds = seed(), times(25)
    chance, account, shared = random.Random(number), Account(), SharedDirectory(tmp_path)
    compacted = 0
    try:
        shared.start_kafka()
        with loads(shared.address, number) as (load, table):
            for each in range(rounds):
                for name in ("kafka", "hermes"):
                    is_killed = each % 5 != 1
                    if each or name == "hermes":
                        getattr(shared, f"start_{name}")()
                    load.wait_for_more(_BETWEEN)
                    # Kafka writes down once a minute where logs begin, and before it stops.
                    if chance.random() < 0.6 and (name == "hermes" or not is_killed):
                        account.delete_records(shared.address, load, chance)
                    table.write(chance.randrange(1, _TABLE_MESSAGES))
                    load.wait_for_more(chance.randrange(1, _BETWEEN))
                    if name == "hermes" and each % 2:
                        shared.wait_for_compaction()
                    getattr(shared, f"end_{name}")(is_killed=is_killed)
                account.dumped += dump(shared.data)
            shared.start_hermes()
        check_everything(shared.address, load, table, account)
        assert shared.hermes is not None
        compacted = sum("compaction freed" in line for line in shared.hermes.lines)
        shared.end_hermes(is_killed=True)
        shared.start_kafka()
        check_everything(shared.address, load, table, account)
        shared.end_kafka(is_killed=False)
        shared.check_logs()
    except AssertionError as error:
        error.add_note(f"HERMES_SOAK_SEED={number}")
        raise
    finally:
        shared.end()
    stops = len(range(1, rounds, 5))
    report(
        "a directory of Kafka's and Hermes'",
        seed=number,
        kills_of_each=rounds - stops,
        stops_of_each=stops,
        messages=len(load.acknowledged),
        in_the_table=table.sent,
        cuts=account.cuts,
        compactions=compacted,
        half_exchanged=shared.half_exchanged,
        files_dumped=account.dumped,
        lost=0,
        twice=0,
    )


@pytest.mark.soak
def test_what_was_told_holds_at_whichever_call_it_ended(tmp_path: Path) -> None:
    first_seed, seeds = seed(), times(3)
    total, done = total_calls(tmp_path / "whole"), 0
    for mode in MODES:
        for number in range(total):
            for each in range(seeds if mode == "some lost" else 1):
                path = tmp_path / f"{mode}-{number}-{each}"
                try:
                    hold_to_the_books(
                        *ended(path, number, mode, first_seed + number * seeds + each)
                    )
                except AssertionError as error:
                    error.add_note(f"{path.name}, HERMES_SOAK_SEED={first_seed}")
                    raise
                shutil.rmtree(path)
                done += 1
    report("lives of Kafka's format", seed=first_seed, calls=total, ends=done, broken=0)


@pytest.mark.soak
def test_what_was_told_holds_whichever_call_failed(tmp_path: Path) -> None:
    done = refused = 0
    for fault in FAULTS:
        for number in range(total_failing_calls(tmp_path / f"whole-{fault}", fault)):
            for stays in (False, True):
                path = tmp_path / f"{fault}-{number}-{stays}"
                try:
                    refused += live_with(path, fault, number, stays=stays)
                except BaseException as error:
                    error.add_note(path.name)
                    raise
                shutil.rmtree(path)
                done += 1
    report("faults in lives of Kafka's format", faults=done, refusals=refused, broken=0)


@pytest.mark.soak
def test_each_message_is_there_once_whichever_call_failed(tmp_path: Path) -> None:
    first_seed, seeds = seed(), times(3)
    calls = live_under_producers(tmp_path / "whole", None, 0, first_seed).counted
    lives = failed = done = 0
    for fault in LIFE_FAULTS:
        for number in range(calls):
            for each in range(seeds):
                path = tmp_path / f"{fault}-{number}-{each}"
                own = first_seed + number * seeds + each
                try:
                    outcome = live_under_producers(
                        path, fault, number, own, is_killed=each % 2 == 1
                    )
                    assert not outcome.bumped
                except BaseException as error:
                    error.add_note(f"{path.name}, HERMES_SOAK_SEED={first_seed}")
                    raise
                shutil.rmtree(path)
                lives, failed, done = lives + outcome.lives, failed + outcome.failed, done + 1
    report(
        "faults under idempotent producers",
        seed=first_seed,
        calls=calls,
        faults=done,
        failed=failed,
        lives=lives,
        lost=0,
        twice=0,
    )
