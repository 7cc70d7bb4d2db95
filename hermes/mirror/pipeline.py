"""A mirror: sources on one side, the target on the other, and the thread that plans between them.

Planning is what must be known before the first byte of a claim is fetched: where in the target it
goes, what of it is there already, and so where to begin. It asks both clusters, and is done again
after every failure.
"""

import heapq
import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any, Final

from hermes.config.mirror import MirrorConfig
from hermes.coordination.filters import Blacklist, TopicFilter, Whitelist
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.errors import ConfigError, HermesError, InvalidTopicError
from hermes.mirror.claims import Entry, Plan, SourceClaim
from hermes.mirror.routing import make_route
from hermes.mirror.sources import Source
from hermes.mirror.state import PartitionFigures, Troubles
from hermes.mirror.targets import TargetCluster
from hermes.mirror.throttle import Throttle
from hermes.protocol import EARLIEST, LATEST, check_topic_name

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 5.0
_COVER_SECONDS: Final = 1.0
_LONGEST_PAUSE: Final = 5.0


class Mirror:
    """One process of a mirror.

    Example:
        mirror = Mirror(load_mirror_config("mirror.yaml"))
        mirror.start()
        ...
        mirror.stop()

    What can go wrong while it runs resumes by itself, and stands in `errors` meanwhile.

    Args:
        config: what it does.
        make_guard: makes what refuses loops for a source, of its name, its cluster's id and its
            session; None: nothing is refused.
        counter: the audit's `TierCounter`, or None.

    Attributes:
        failed: what ended it by itself; None so far.
        refused: why topics are not mirrored, by source and topic.

    Raises:
        ConfigError: a topic can't have the name that it would get, or the list of topics can't be
            used.
    """

    def __init__(
        self,
        config: MirrorConfig,
        *,
        make_guard: Callable[[str, str, Session | None], Any] | None = None,
        counter: Any = None,
    ) -> None:
        self.config = config
        self.counter = counter
        self.skips_damage = config.damaged == "skip"
        self.failed: HermesError | None = None
        self.refused: dict[str, str] = {}
        self._make_guard = make_guard
        self._guards: dict[str, Any] = {}
        self._troubles = Troubles(_log)
        self._target = TargetCluster(config.target, self._troubles)
        self._figures: dict[tuple[str, str, BrokerPartition], PartitionFigures] = {}
        self._due: list[tuple[float, int, SourceClaim]] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="hermes-mirror", daemon=True)
        topics, throttle = _check_topics(config), Throttle(config.throttle_bytes)
        self._sources = {
            each.name: Source(
                each,
                f"hermes-mirror-{config.name}",
                topics,
                max(config.buffer_bytes // len(config.sources), 1),
                self,
                partial(self._make_claim, each.name),
                self._troubles,
                throttle,
            )
            for each in config.sources
        }

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()
        for source in self._sources.values():
            source.start()

    def stop(self) -> None:
        """Let what is on its way arrive, commit, leave all to others. Bounded, idempotent."""
        with self._changed:
            if self._is_stopping:
                return
            self._is_stopping = True
            self._changed.notify()
        for source in self._sources.values():
            source.stop()
        self._thread.join()
        self._target.close()

    def wait(self, seconds: float) -> bool:
        """Wait; returns early, with True, when it has ended by itself."""
        with self._changed:
            return self._changed.wait_for(lambda: self.failed is not None, seconds)

    def figures(self) -> list[PartitionFigures]:
        """What it counts, by partition; of those that others read now as well."""
        return list(self._figures.values())

    @property
    def errors(self) -> dict[str, str]:
        """What is wrong now with sources, the target and their brokers."""
        return self._troubles.now()

    @property
    def target_session(self) -> Session | None:
        """With the target's coordination; None without, and before it is reached."""
        return self._target.session

    # -- what claims report ---------------------------------------------------------------------

    def send(self, entries: Iterable[Entry]) -> None:
        """See `Surroundings`."""
        self._target.send(entries)

    def plan(self, claim: SourceClaim, pause_seconds: float) -> None:
        """See `Surroundings`."""
        with self._changed:
            due = time.monotonic() + pause_seconds
            heapq.heappush(self._due, (due, next(self._numbers), claim))
            self._changed.notify()

    def has_room(self) -> None:
        """See `Surroundings`."""
        for source in self._sources.values():
            source.wake_fetchers()

    def trouble(self, claim: SourceClaim, text: str) -> None:
        """See `Surroundings`."""
        claim.figures.error = text
        if text:
            self._troubles.begin(str(claim), text)
        else:
            self._troubles.end(str(claim))

    def note(self, text: str) -> None:
        """See `Surroundings`."""
        self._troubles.note(text)

    # -- planning -------------------------------------------------------------------------------

    def _make_claim(
        self, source: str, topic: str, partition: BrokerPartition, *rest: Any
    ) -> SourceClaim:
        place = (source, topic, partition)
        figures = self._figures.get(place)
        if figures is None:
            target_topic = self.config.topics.target_of(topic)
            figures = PartitionFigures(source, topic, str(partition), target_topic)
            self._figures[place] = figures
        return SourceClaim(source, figures, self, topic, partition, *rest)

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                while not self._is_stopping and not self._is_due():
                    self._changed.wait(self._seconds_left())
                if self._is_stopping:
                    return
            try:
                self._target.connect()
            except HermesError as error:
                self._troubles.begin("target", str(error))
                failures += 1
                self._pause(min(0.2 * failures, _LONGEST_PAUSE))
                continue
            failures = 0
            self._troubles.end("target")
            with self._changed:
                _, _, claim = heapq.heappop(self._due)
            self._plan(claim)

    def _is_due(self) -> bool:
        return bool(self._due) and self._due[0][0] <= time.monotonic()

    def _seconds_left(self) -> float | None:
        return max(0.0, self._due[0][0] - time.monotonic()) if self._due else None

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping, seconds)

    def _plan(self, claim: SourceClaim) -> None:
        if claim.is_revoked or claim.plan is not None:
            return
        try:
            plan, offset = self._made_plan(claim)
        except HermesError as error:
            self.trouble(claim, str(error))
            claim.failures += 1
            self.plan(claim, min(0.2 * 2 ** min(claim.failures, 5), _LONGEST_PAUSE))
        except Exception as error:
            _log.exception("%s: planning failed", claim)
            self.trouble(claim, repr(error))
            self.plan(claim, _LONGEST_PAUSE)
        else:
            self.trouble(claim, "")
            claim.begin(plan, offset)

    def _made_plan(self, claim: SourceClaim) -> tuple[Plan, int]:
        source = self._sources[claim.source]
        topic = self.config.topics.target_of(claim.topic)
        targets = self._target.partitions(topic)
        route = make_route(
            self.config.partitioning, source.index(claim), f"{claim.topic}/{claim.partition}"
        )
        offset = claim.anew if claim.anew is not None else claim.acknowledged
        if offset is None:
            time_ms = EARLIEST if self.config.start == "smallest" else LATEST
            offset = source.offset(claim, time_ms)
        return Plan("", topic, targets, route, [offset] * len(targets)), offset


def _check_topics(config: MirrorConfig) -> TopicFilter:
    """What chooses the topics, once all names that can be checked by now are."""
    try:
        for name in config.topics.map.values():
            check_topic_name(name)
        check_topic_name(config.topics.prefix + "x")
    except InvalidTopicError as error:
        raise ConfigError("topics", str(error)) from error
    if config.blacklist:
        return Blacklist(config.blacklist)
    return Whitelist(config.whitelist or ".*")
