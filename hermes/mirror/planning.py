"""What must be known before the first byte of a claim is fetched, in a thread of its own.

That is where its messages go, what of them is there already, and so where to begin. It is found out
again after every failure. Where the target keeps positions of sources, these decide: it has
everything before them, on disk, so that nothing is sent twice, whatever was committed.

A source's partition is called `<cluster id>/<topic>/<broker>-<partition>` there. When its log was
created anew, or the target's partitions have become others in the middle of something, the same
offsets mean something else: then `#2` is added, `#3` the next time, and the highest counts.
"""

import heapq
import logging
import threading
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Final, Protocol

from hermes.client.mirrored import source_name
from hermes.config.mirror import MirrorConfig
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.errors import HermesError
from hermes.mirror.claims import Plan, SourceClaim
from hermes.mirror.routing import Route, make_route
from hermes.mirror.sources import Source
from hermes.mirror.state import Troubles
from hermes.mirror.targets import TargetCluster
from hermes.protocol import EARLIEST, LATEST

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 5.0
_LONGEST_PAUSE: Final = 2.0


class Guard(Protocol):
    """Refuses what would make messages go round; see `hermes.mirror.loops.LoopGuard`."""

    def admit(self, topic: str, target_topic: str) -> str:
        """Why a topic may not be mirrored; empty when it may."""


#: Makes the guard of a source.
MakeGuard = Callable[[str, str, Session | None], Guard]


class Planner:
    """Plans claims, one after the other.

    Args:
        config: what the mirror does.
        target: where it writes to.
        sources: what it reads, by name.
        troubles: hears of what can't be reached.
        tell: called with a claim and what keeps it from going on; empty when it goes on.
        make_guard: makes what refuses loops in a source, of the source's name, its cluster's id
            and the session with its coordination; None: nothing is refused.

    Attributes:
        refused: why topics are not mirrored, by `SOURCE: TOPIC`.
    """

    def __init__(
        self,
        config: MirrorConfig,
        target: TargetCluster,
        sources: Mapping[str, Source],
        troubles: Troubles,
        tell: Callable[[SourceClaim, str], None],
        make_guard: MakeGuard | None,
    ) -> None:
        self.refused: dict[str, str] = {}
        self._config = config
        self._target = target
        self._sources = sources
        self._troubles = troubles
        self._tell = tell
        self._make_guard = make_guard
        self._guards: dict[str, Guard] = {}
        self._due: list[tuple[float, int, SourceClaim]] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._is_stopping = False
        self._next_look = 0.0
        self._thread = threading.Thread(target=self._run, name="hermes-mirror", daemon=True)

    def start(self) -> None:
        """Begin to plan."""
        self._thread.start()

    def stop(self) -> None:
        """Plan nothing more, and wait until the thread has ended."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def add(self, claim: SourceClaim, pause_seconds: float) -> None:
        """Plan a claim, after a pause at the earliest; returns at once."""
        with self._changed:
            due = time.monotonic() + pause_seconds
            heapq.heappush(self._due, (due, next(self._numbers), claim))
            self._changed.notify()

    # -- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            claim = self._next()
            if self._is_stopping:
                return
            try:
                self._target.connect()
                self._troubles.end("target")
            except HermesError as error:
                self._troubles.begin("target", str(error))
                if claim is not None:
                    self.add(claim, _LONGEST_PAUSE)
                continue
            if claim is not None:
                self._plan(claim)
            if time.monotonic() >= self._next_look:
                self._next_look = time.monotonic() + _LOOK_SECONDS
                self._look()

    def _next(self) -> SourceClaim | None:
        """Wait for a claim that is due, or until it is time to look."""
        with self._changed:
            while not self._is_stopping:
                now = time.monotonic()
                if self._due and self._due[0][0] <= now:
                    return heapq.heappop(self._due)[2]
                if self._next_look <= now:
                    return None
                until = min(self._next_look, self._due[0][0] if self._due else self._next_look)
                self._changed.wait(until - now)
        return None

    def _plan(self, claim: SourceClaim) -> None:
        if claim.is_revoked or claim.plan is not None:
            return
        try:
            reason = self._admit(claim)
            if not reason:
                plan, offset = self._made(claim)
        except HermesError as error:
            self._put_off(claim, str(error))
        except Exception as error:
            _log.exception("%s: planning failed", claim)
            self._put_off(claim, repr(error))
        else:
            if reason:
                self._put_off(claim, reason, _LOOK_SECONDS)
            else:
                self._tell(claim, "")
                claim.begin(plan, offset)

    def _put_off(self, claim: SourceClaim, text: str, seconds: float = 0.0) -> None:
        self._tell(claim, text)
        claim.failures += 1
        self.add(claim, seconds or min(0.1 * 2 ** min(claim.failures, 6), _LONGEST_PAUSE))

    def _look(self) -> None:
        """See whether claims that are under way have to be planned anew."""
        claims = [claim for source in self._sources.values() for claim in source.stream.claims()]
        self.refused = {
            name: reason
            for name, reason in self.refused.items()
            if any(name == f"{each.source}: {each.topic}" for each in claims)
        }
        for claim in claims:
            plan, epoch = claim.plan, claim.epoch
            if plan is None:
                continue
            try:
                if self._admit(claim):
                    claim.restart(epoch, None)
                elif plan.targets != self._target.partitions(plan.topic):
                    claim.is_draining = True
                    if claim.is_idle():
                        claim.restart(epoch, None)
            except HermesError as error:
                _log.debug("looking at %s: %s", claim, error)

    # -- a plan ---------------------------------------------------------------------------------

    def _admit(self, claim: SourceClaim) -> str:
        if self._make_guard is None:
            return ""
        guard = self._guards.get(claim.source)
        if guard is None:
            source = self._sources[claim.source]
            guard = self._make_guard(source.name, source.cluster_id(), source.session)
            self._guards[claim.source] = guard
        reason = guard.admit(claim.topic, claim.figures.target_topic)
        if reason:
            self.refused[f"{claim.source}: {claim.topic}"] = reason
        else:
            self.refused.pop(f"{claim.source}: {claim.topic}", None)
        return reason

    def _made(self, claim: SourceClaim) -> tuple[Plan, int]:
        """Make a plan, and say where to begin."""
        source, topic = self._sources[claim.source], claim.figures.target_topic
        targets = self._target.partitions(topic)
        name = source_name(source.cluster_id(), claim.topic, *claim.partition)
        route = make_route(self._config.partitioning, source.index(claim), name)
        if not self._target.is_exact(targets):
            offset = self._first(claim)
            return Plan("", topic, targets, route, [offset] * len(targets)), offset
        return self._exact(claim, name, topic, targets, route)

    def _exact(
        self,
        claim: SourceClaim,
        name: str,
        topic: str,
        targets: tuple[BrokerPartition, ...],
        route: Route,
    ) -> tuple[Plan, int]:
        told = self._target.positions(topic)
        generation, places = _latest(name, told)
        if claim.anew is not None:
            offset, is_new, generation = claim.anew, True, generation + 1
        elif not places:
            offset, is_new, generation = self._first(claim), True, 1
        elif route.is_single:
            offset, is_new = max(places.values()), False
        elif places.keys() == set(targets):
            offset = max(min(places.values()), claim.acknowledged or 0)
            is_new = False
        else:
            offset, is_new, generation = self._first(claim), True, generation + 1
            self._troubles.note(
                f"{claim}: the target's partitions were others; what is behind {offset} may be "
                "there already, and come once more"
            )
        source = name if generation == 1 else f"{name}#{generation}"
        home = targets[route.home(len(targets))]
        if is_new:
            places = {}
        wanted = [home] if route.is_single else targets
        unknown = [each for each in wanted if each not in places]
        behind = [each for each in wanted if route.is_single and places.get(each, offset) < offset]
        for target in (*unknown, *behind):
            self._target.open(topic, target, source, places.get(target, offset), offset)
        reached = [offset if route.is_single else places.get(target, offset) for target in targets]
        return Plan(source, topic, targets, route, reached), offset

    def _first(self, claim: SourceClaim) -> int:
        """Where to begin as far as the source knows."""
        if claim.anew is not None:
            return claim.anew
        if claim.acknowledged is not None:
            return claim.acknowledged
        time_ms = EARLIEST if self._config.start == "smallest" else LATEST
        return self._sources[claim.source].offset(claim, time_ms)


def _latest(
    name: str, told: Mapping[BrokerPartition, Mapping[str, int]]
) -> tuple[int, dict[BrokerPartition, int]]:
    """The highest generation of a source that the target has, with its positions; 0 for none."""
    found: dict[int, dict[BrokerPartition, int]] = {}
    for target, positions in told.items():
        for source, position in positions.items():
            plain, _, generation = source.partition("#")
            if plain == name and (not generation or generation.isdecimal()):
                found.setdefault(int(generation or 1), {})[target] = position
    highest = max(found, default=0)
    return highest, found.get(highest, {})
