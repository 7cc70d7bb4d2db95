"""One seed, one schedule: what is simulated, what befalls it, and whether all that must hold did.

run_schedule(7).broken          None, or what doesn't hold
run_schedule(7, mutation="x")   the same with a rule of the product's broken
"""

import gc
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from typing import Any, NamedTuple, Protocol

from histories import History
from machines import KilledError
from simulated_threading import simulated_threads
from twisted.logger import formatEvent, globalLogPublisher
from world import World

__all__ = ["MUTATIONS", "SCENES", "Mutation", "Outcome", "Scene", "run_schedule"]


class Scene(Protocol):
    """What a schedule simulates.

    Attributes:
        busy_us: how long troubles come.
        calm_us: how long all may take until it has come to rest without them.
        acknowledged, elections, cuts: what there was, for `Outcome`; so is `histories`, where
            there is one.
    """

    busy_us: int
    calm_us: int
    acknowledged: int
    elections: int
    cuts: int

    def begin(self) -> None:
        """Have everything started, as events."""

    def calm(self) -> None:
        """Let troubles end, and clients begin nothing new."""

    def check_end(self) -> None:
        """After `calm_us` without troubles: hold everything against what was told."""


class Mutation(NamedTuple):
    """A rule of the product's, and what breaks it.

    Attributes:
        rule: in words.
        scene: where it matters.
        seeds: within how many of them, from 0 on, it is found.
        broken: breaks the rule until it is left.
    """

    rule: str
    scene: str
    seeds: int
    broken: Callable[[], AbstractContextManager[object]]


#: What clients did with partitions, by name, and what was in them by offset at the end.
Histories = dict[str, tuple[History, Mapping[int, int]]]


@dataclass
class Outcome:
    """Attributes:
    events: how many there were; faults: how many were asked for, left out or not.
    broken: what doesn't hold; None when all does.
    histories: of partitions for porcupine, by name, with what is in them at the end.
    trace: what happened, where something is broken or a trace was asked for.
    """

    seed: int
    scene: str
    events: int
    acknowledged: int
    elections: int
    cuts: int
    faults: int
    broken: str | None
    trace: list[str]
    histories: Histories


#: What schedules leave is collected after so many of them.
_COLLECTED = 20

_runs = count()

#: The modules that add to the tables below when they are imported.
_MODULES: tuple[str, ...] = (
    *("today", "replica_scene", "copies_scene", "transactions_scene"),
    *("mutations", "mutations_today", "mutations_transactions"),
)

#: What can be simulated, by name.
SCENES: dict[str, Callable[[World], Scene]] = {}

#: Which of them seeds play, in turn: so each has its share of any thousand.
_TURNS = (
    *("today", *["replicas"] * 3, "copies", *["replicas"] * 3),
    *("today", *["replicas"] * 3, "copies", "replicas", "transactions", "replicas"),
)

#: By name.
MUTATIONS: dict[str, Mutation] = {}


def load() -> None:
    """Have all scenes and mutations in the tables."""
    for name in _MODULES:
        import_module(name)


def run_schedule(
    seed: int,
    mutation: str | None = None,
    without: frozenset[int] = frozenset(),
    limit: int | None = None,
    *,
    scene: str | None = None,
    traced: bool = False,
) -> Outcome:
    """Run what a seed says; again, with a trace, where something breaks.

    Args:
        mutation: of `MUTATIONS`: then its scene is played, whatever the seed says.
        without: the numbers of faults that are left out.
        limit: end after so many events, without looking whether all came to rest.
        scene: which to play; else the seed says.
    """
    load()
    changed = None if mutation is None else MUTATIONS[mutation]
    name = scene or (_TURNS[seed % len(_TURNS)] if changed is None else changed.scene)
    outcome = _run(seed, name, changed, without, limit, traced)
    if outcome.broken is not None and not traced:
        return _run(seed, name, changed, without, limit, True)
    return outcome


def _run(
    seed: int,
    name: str,
    mutation: Mutation | None,
    without: frozenset[int],
    limit: int | None,
    traced: bool,
) -> Outcome:
    world = World(f"{name}/{seed}", without=without, traced=traced)
    with ExitStack() as stack:
        stack.enter_context(_silent_ends())
        stack.enter_context(_no_collections())
        if mutation is not None:
            stack.enter_context(mutation.broken())
        stack.enter_context(_watched_log(world))
        stack.enter_context(simulated_threads(world))
        scene = SCENES[name](world)
        scene.begin()
        world.run(scene.busy_us, most=limit)
        if limit is None or world.happened < limit:
            scene.calm()
            world.run(scene.busy_us + scene.calm_us, most=limit)
        if world.broken is None and (limit is None or world.happened < limit):
            with world.breaking():
                scene.check_end()
        return Outcome(
            seed,
            name,
            world.happened,
            scene.acknowledged,
            scene.elections,
            scene.cuts,
            len(world.faults),
            world.broken,
            world.trace,
            getattr(scene, "histories", {}),
        )


@contextmanager
def _no_collections() -> Iterator[None]:
    """Have nothing of an earlier schedule's collected during this one, where it might act."""
    was_enabled = gc.isenabled()
    if next(_runs) % _COLLECTED == 0:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _silent_ends() -> Iterator[None]:
    """Have coroutines that a killed process has left be ended without a word."""

    def hook(unraisable: Any) -> None:
        if unraisable.exc_type is not KilledError:
            before(unraisable)

    before, sys.unraisablehook = sys.unraisablehook, hook
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextmanager
def _watched_log(world: World) -> Iterator[None]:
    """Have failures that the product only logs break the run, and its lines be in the trace."""

    def observe(event: dict[str, Any]) -> None:
        failure = event.get("log_failure")
        if failure is not None and not failure.check(KilledError):
            world.breaks(f"{formatEvent(event)}: {failure.getTraceback()}")
        elif world.is_traced:
            world.note(world.process, formatEvent(event))

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if world.is_traced:
                world.note(world.process, record.getMessage())

    handler, logger = Handler(), logging.getLogger("hermes")
    globalLogPublisher.addObserver(observe)
    logger.addHandler(handler)
    propagates, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = propagates
        logger.removeHandler(handler)
        globalLogPublisher.removeObserver(observe)
