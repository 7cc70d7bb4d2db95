"""Runs schedules of the simulator, on all processors, and says what broke; see `scripts/simulate`.

Each schedule is one seed's. The last line counts what they did; the status is 1 if any broke. Of
the first one that broke the trace is printed, shrunk, with the command that repeats it.
"""

import argparse
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from subprocess import PIPE, Popen
from typing import Any, NamedTuple

from schedule import MUTATIONS, SCENES, Outcome, load, run_schedule
from shrinking import shrunk
from twisted.logger import globalLogBeginner

#: How many schedules one process runs before it tells.
_AT_ONCE = 25

#: How many lines of a trace are printed, the last ones.
_TRACE_LINES = 200


class Totals(NamedTuple):
    """What some schedules did. `histories`: a line for porcupine for each."""

    schedules: int = 0
    events: int = 0
    acknowledged: int = 0
    elections: int = 0
    cuts: int = 0
    broken: tuple[tuple[int, str], ...] = ()
    histories: tuple[str, ...] = ()

    def plus(self, other: "Totals") -> "Totals":
        sums = [one + another for one, another in zip(self, other, strict=True)]  # type: ignore[operator]
        return Totals(*sums)

    def line(self) -> str:
        return (
            f"{self.schedules} schedules, {self.events} events, {self.acknowledged} acknowledged, "
            f"{self.elections} elections, {self.cuts} cuts, {len(self.broken)} broken"
        )


#: `run_schedule` of the scene and the mutation that the command line names.
Run = Callable[..., Outcome]


def ran(seeds: Sequence[int], run: Run, has_histories: bool, goes_on: bool) -> Totals:
    """Run these seeds' schedules; `goes_on`: also after one that breaks."""
    totals = Totals()
    for seed in seeds:
        outcome = run(seed)
        broken = () if outcome.broken is None else ((seed, outcome.broken),)
        lines = tuple(_lines(outcome)) if has_histories else ()
        counts = outcome.events, outcome.acknowledged, outcome.elections, outcome.cuts
        totals = totals.plus(Totals(1, *counts, broken, lines))
        if broken and not goes_on:
            break
    return totals


def _lines(outcome: Outcome) -> Iterator[str]:
    for name, (history, final) in outcome.histories.items():
        operations = history.for_porcupine(final)
        yield json.dumps({"name": f"seed {outcome.seed}, {name}", "operations": operations})


def run_all(seeds: range, run: Run, jobs: int, checker: Any | None, *, goes_on: bool) -> Totals:
    """Run them in several processes; `goes_on`: also after one that breaks."""
    totals = Totals()
    parts = (seeds[first : first + _AT_ONCE] for first in range(0, len(seeds), _AT_ONCE))
    with ProcessPoolExecutor(jobs) as pool:
        begun = (pool.submit(ran, part, run, checker is not None, goes_on) for part in parts)
        under_way = deque(islice(begun, 2 * jobs))
        while under_way:
            found = under_way.popleft().result()
            if checker is not None:
                checker.writelines(f"{line}\n" for line in found.histories)
            totals = totals.plus(found._replace(histories=()))
            if goes_on or not totals.broken:
                under_way += islice(begun, 1)
    return totals


def told(outcome: Outcome, without: frozenset[int], given: argparse.Namespace) -> Iterator[str]:
    """The end of a broken schedule, and how to repeat it."""
    if len(outcome.trace) > _TRACE_LINES:
        yield f"({len(outcome.trace) - _TRACE_LINES} lines before)"
    yield from outcome.trace[-_TRACE_LINES:]
    yield f"seed {outcome.seed}: {outcome.broken}"
    words = ["scripts/simulate", "1", str(outcome.seed)]
    if given.mutation is not None:
        words += ["--mutation", given.mutation]
    if given.scene is not None:
        words += ["--scene", given.scene]
    if without:
        words += ["--without", ",".join(map(str, sorted(without)))]
    yield f"Again: {' '.join(words)}"


def main() -> int:
    load()
    # Else Twisted prints what is critical, which disks that fail are all the time.
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False)
    parser = argparse.ArgumentParser(
        prog="scripts/simulate", description="Run schedules of the simulator, one for each seed."
    )
    parser.add_argument("count", type=int, nargs="?", default=1000, help="how many (1000)")
    parser.add_argument("first_seed", type=int, nargs="?", default=1)
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="break a rule of the design")
    parser.add_argument("--scene", choices=sorted(SCENES), help="play this one with every seed")
    parser.add_argument("--list-mutations", action="store_true", help="name the rules, and end")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many processes")
    parser.add_argument("--keep-going", action="store_true", help="run all, however many break")
    parser.add_argument("--no-trace", action="store_true", help="don't shrink what broke")
    parser.add_argument("--trace", action="store_true", help="print the trace of the one schedule")
    parser.add_argument(
        "--without",
        type=lambda text: frozenset(map(int, text.split(","))),
        default=frozenset(),
        help="the numbers of faults that are left out of the one schedule",
    )
    given = parser.parse_args()
    if given.list_mutations:
        for name, mutation in MUTATIONS.items():
            print(f"{name}: {mutation.rule} (found within {mutation.seeds} seeds)")  # noqa: T201
        return 0
    if (given.without or given.trace) and given.count != 1:
        parser.error("--without and --trace are for one schedule: COUNT must be 1")
    if given.mutation and given.scene:
        parser.error("a mutation has its scene: leave --scene out")
    run = partial(run_schedule, mutation=given.mutation, scene=given.scene)
    if given.count == 1:
        return _run_one(given, run)
    return _run_many(given, run)


def _run_one(given: argparse.Namespace, run: Run) -> int:
    outcome = run(given.first_seed, without=given.without, traced=given.trace)
    if given.trace and outcome.broken is None:
        print(*outcome.trace, sep="\n")  # noqa: T201
    if outcome.broken is not None:
        print(*told(outcome, given.without, given), sep="\n")  # noqa: T201
    counts = outcome.events, outcome.acknowledged, outcome.elections, outcome.cuts
    broken = () if outcome.broken is None else ((outcome.seed, outcome.broken),)
    print(Totals(1, *counts, broken).line())  # noqa: T201
    return int(outcome.broken is not None)


def _run_many(given: argparse.Namespace, run: Run) -> int:
    seeds = range(given.first_seed, given.first_seed + given.count)
    program = os.environ.get("HERMES_PORCUPINE")
    checking = Popen([program], stdin=PIPE, text=True) if program else None
    into = checking and checking.stdin
    totals = run_all(seeds, run, given.jobs, into, goes_on=given.keep_going)
    is_broken = bool(totals.broken)
    if checking is not None and checking.stdin is not None:
        checking.stdin.close()
        is_broken |= bool(checking.wait())
    for seed, what in totals.broken:
        print(f"seed {seed}: {what}")  # noqa: T201
    if totals.broken and not given.no_trace:
        seed = totals.broken[0][0]

        def again(without: frozenset[int], limit: int) -> Outcome:
            return run(seed, without=without, limit=limit)

        found = shrunk(run(seed), again)
        print(*told(found.outcome, found.without, given), sep="\n")  # noqa: T201
    print(totals.line())  # noqa: T201
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
