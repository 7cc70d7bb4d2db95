"""Plans a claim, in a thread of its own, before its first byte is fetched.

A plan says where its messages go, what of them is there already, and so where to begin. It is made
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Final

from hermes.client.mirrored import source_name
from hermes.config.mirror import MirrorConfig
from hermes.coordination.layout import BrokerPartition
from hermes.errors import ConfigError, HermesError
from hermes.mirror.figures import Problems
from hermes.mirror.in_step import TopicsInStep
from hermes.mirror.loop_guard import LoopGuard, Origins
from hermes.mirror.mirror_source import MirrorSource
from hermes.mirror.planning_queries import ClusterQueries, Target, empty_set, latest_generation
from hermes.mirror.routing import RoutingPlan, make_route
from hermes.mirror.source_claim import HOLDS_RECORDS, SourceClaim
from hermes.protocol import EARLIEST, LATEST, MirroredSet, SourceFlags

_log = logging.getLogger(__name__)

_RECHECK_SECONDS: Final = 5.0
_LONGEST_PAUSE: Final = 2.0
_ROUND_CLAIMS: Final = 256

#: Makes the guard of a source: of its name, its cluster's id, its origins and the target's.
MakeGuard = Callable[[str, str, Origins | None, Origins | None], LoopGuard]


class Planner:
    """Plans claims, one after the other.

    Args:
        set_error: called with a claim and what keeps it from going on; empty when it goes on.
        make_guard: None: nothing is refused.

    Attributes:
        refused: why topics are not mirrored, by `SOURCE: TOPIC`.
    """

    def __init__(
        self,
        config: MirrorConfig,
        target: Target,
        sources: Mapping[str, MirrorSource],
        problems: Problems,
        set_error: Callable[[SourceClaim, str], None],
        make_guard: MakeGuard | None,
    ) -> None:
        self.refused: dict[str, str] = {}
        self._config = config
        self._target = target
        self._sources = sources
        self._problems = problems
        self._set_error = set_error
        self._make_guard = make_guard
        self._in_step = TopicsInStep(config.in_step or (), lambda: target.kafka, problems)
        self._guards: dict[str, LoopGuard] = {}
        self._due: list[tuple[float, int, SourceClaim]] = []
        self._numbers = count()
        # How often in a row a claim couldn't be planned.
        self._postponed: dict[SourceClaim, int] = {}
        self._changed = threading.Condition()
        self._is_stopping = False
        self._next_recheck = 0.0
        self._thread = threading.Thread(target=self._run, name="hermes-mirror", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
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
            claims = self._next()
            if self._is_stopping:
                return
            try:
                self._target.connect()
                self._problems.end("target")
            except HermesError as error:
                self._problems.begin("target", str(error))
                for claim in claims:
                    self.add(claim, _LONGEST_PAUSE)
                self._next_recheck = time.monotonic() + _LONGEST_PAUSE
                continue
            self._plan(claims)
            if time.monotonic() >= self._next_recheck:
                self._next_recheck = time.monotonic() + _RECHECK_SECONDS
                self._recheck()

    def _next(self) -> list[SourceClaim]:
        with self._changed:
            while not self._is_stopping:
                now = time.monotonic()
                due: list[SourceClaim] = []
                while self._due and self._due[0][0] <= now and len(due) < _ROUND_CLAIMS:
                    due.append(heapq.heappop(self._due)[2])
                if due or self._next_recheck <= now:
                    return due
                until = min(
                    self._next_recheck, self._due[0][0] if self._due else self._next_recheck
                )
                self._changed.wait(until - now)
        return []

    def _plan(self, claims: Sequence[SourceClaim]) -> None:
        """Plan some claims; what they have in common is asked once."""
        queries = ClusterQueries(self._target, self._sources, self._in_step)
        made: list[tuple[SourceClaim, RoutingPlan, int]] = []
        unknown: list[tuple[BrokerPartition, MirroredSet, SourceClaim]] = []
        for claim in claims:
            if claim.is_revoked or claim.plan is not None:
                self._postponed.pop(claim, None)
                continue
            with self._postponing_on_errors(claim):
                holds_records = queries.holds_records(claim)
                reason = HOLDS_RECORDS if holds_records else self._admit(claim)
                if reason:
                    self._postpone(claim, reason, _RECHECK_SECONDS)
                    continue
                plan, offset, sets = self._make_plan(claim, queries)
                made.append((claim, plan, offset))
                unknown += [(target, each, claim) for target, each in sets]
        failed = self._target.open([(target, each) for target, each, _ in unknown])
        failures = {claim: failed[n] for n, (_, _, claim) in enumerate(unknown) if n in failed}
        for claim, plan, offset in made:
            if claim in failures:
                self._postpone(claim, str(failures[claim]))
            else:
                if self._postponed.pop(claim, 0):
                    self._set_error(claim, "")
                claim.begin(plan, offset)

    @contextmanager
    def _postponing_on_errors(self, claim: SourceClaim) -> Iterator[None]:
        try:
            yield
        except HermesError as error:
            self._postpone(claim, str(error))
        except Exception as error:
            _log.exception("%s: planning failed", claim)
            self._postpone(claim, repr(error))

    def _postpone(self, claim: SourceClaim, text: str, seconds: float = 0.0) -> None:
        self._set_error(claim, text)
        pauses = self._postponed[claim] = self._postponed.get(claim, 0) + 1
        self.add(claim, seconds or min(0.1 * 2 ** min(pauses, 6), _LONGEST_PAUSE))

    def _recheck(self) -> None:
        claims = [claim for source in self._sources.values() for claim in source.stream.claims()]
        self.refused = {
            name: reason
            for name, reason in self.refused.items()
            if any(name == f"{each.source}: {each.topic}" for each in claims)
        }
        queries = ClusterQueries(self._target, self._sources, self._in_step)
        for claim in claims:
            plan, epoch = claim.plan, claim.epoch
            if plan is None:
                continue
            try:
                if self._admit(claim):
                    claim.restart(epoch, None)
                elif plan.targets != queries.targets(claim):
                    claim.is_draining = True
                    if claim.is_idle():
                        claim.restart(epoch, None)
            except HermesError as error:
                _log.debug("looking at %s: %s", claim, error)
            except Exception:  # all claims need the thread
                _log.exception("%s: planning failed", claim)

    # -- a plan ---------------------------------------------------------------------------------

    def _admit(self, claim: SourceClaim) -> str:
        if self._make_guard is None:
            return ""
        guard = self._guards.get(claim.source)
        if guard is None:
            source = self._sources[claim.source]
            kept = source.origins(), self._target.origins(of_records=claim.holds_records)
            guard = self._make_guard(source.name, source.cluster_id(), *kept)
            self._guards[claim.source] = guard
        reason = guard.admit(claim.topic, claim.figures.target_topic)
        if reason:
            self.refused[f"{claim.source}: {claim.topic}"] = reason
        else:
            self.refused.pop(f"{claim.source}: {claim.topic}", None)
        return reason

    def _make_plan(
        self, claim: SourceClaim, queries: ClusterQueries
    ) -> tuple[RoutingPlan, int, list[tuple[BrokerPartition, MirroredSet]]]:
        source, topic = self._sources[claim.source], claim.figures.target_topic
        if claim.holds_records and self._config.partitioning.rule != "index":
            raise ConfigError("partitioning", "topics of Kafka's format are mirrored by index only")
        targets = queries.targets(claim)
        name = source_name(source.cluster_id(), claim.topic, *claim.partition)
        route = make_route(self._config.partitioning, queries.index(claim), name)
        if not self._target.is_exact(topic, targets):
            if not source.keeps_offsets:
                raise ConfigError(
                    "sources",
                    f"{source.name} has no coordination, and the target keeps no positions: "
                    "nothing would know how far it is",
                )
            offset = self._first_offset(claim)
            return RoutingPlan("", topic, targets, route, [offset] * len(targets)), offset, []
        generation, places = latest_generation(name, queries.positions(topic))
        is_new = False
        if claim.start_over_at is not None:
            offset, is_new = claim.start_over_at, True
        elif not places:
            offset, is_new = self._first_offset(claim), True
        elif route.is_single:
            offset = max(places.values())
        elif places.keys() == set(targets):
            offset = max(min(places.values()), claim.acknowledged or 0)
        else:
            offset, is_new = self._first_offset(claim), True
            if not claim.is_draining:  # then all before it has arrived, and nothing behind it
                self._problems.note(
                    f"{claim}: the target's partitions were others; what is behind {offset} may "
                    "be there already, and come once more"
                )
        if is_new:
            generation, places = generation + 1, {}
        source_text = name if generation == 1 else f"{name}#{generation}"
        if route.is_single:
            home = targets[route.home(len(targets))]
            behind = [home] if places.get(home) != offset else []
            reached = [offset] * len(targets)
        else:
            behind = [target for target in targets if target not in places]
            reached = [places.get(target, offset) for target in targets]
        kind = SourceFlags.RECORDS if claim.holds_records else SourceFlags.NONE
        sets = [
            (
                target,
                empty_set(topic, target, source_text, places.get(target, offset), offset, kind),
            )
            for target in behind
        ]
        if self._config.audit and claim.acknowledged is None:
            # Nothing was ever committed: what is there was not counted for certain.
            offset = min(offset, self._first_offset(claim))
        return RoutingPlan(source_text, topic, targets, route, reached), offset, sets

    def _first_offset(self, claim: SourceClaim) -> int:
        if claim.start_over_at is not None:
            return claim.start_over_at
        if claim.acknowledged is not None:
            return claim.acknowledged
        time_ms = EARLIEST if self._config.start == "smallest" else LATEST
        return self._sources[claim.source].offset(claim, time_ms)
