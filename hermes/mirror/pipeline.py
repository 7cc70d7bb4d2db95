"""A mirror: sources on one side, the target on the other, and what their parts report."""

import logging
import threading
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from hermes.config.mirror import MirrorConfig
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.coordination.topic_filters import Blacklist, TopicFilter, Whitelist
from hermes.errors import ConfigError, InvalidTopicError
from hermes.mirror.figures import PartitionFigures, Problems
from hermes.mirror.group_carrier import GroupCarrier
from hermes.mirror.kafka_target import KafkaTarget
from hermes.mirror.mirror_source import MirrorSource
from hermes.mirror.planning import MakeGuard, Planner
from hermes.mirror.planning_queries import Target
from hermes.mirror.source_claim import SourceClaim, TargetAppend
from hermes.mirror.target_cluster import TargetCluster
from hermes.mirror.throttle import BandwidthLimit
from hermes.protocol import check_topic_name

_log = logging.getLogger(__name__)

# What Hermes keeps for itself, the audit's events and schemas, is of one cluster.
_OWN_TOPICS: Final = "hermes-.*"
_COVER_SECONDS: Final = 1.0
# How old what is known of the end of a source's partition may be: a fetch that waited.
_END_KNOWN_MS: Final = 2_000


class Mirror:
    """One process of a mirror.

        mirror = Mirror(load_mirror_config("mirror.yaml"))
        mirror.start()
        ...
        mirror.stop()

    After any failure while it runs it resumes by itself; `errors` has what is wrong meanwhile.

    Args:
        make_guard: makes what refuses loops in a source; called when the ids of both clusters are
            known. None: nothing is refused.
        counter: the audit's `TierCounter`, or None.

    Raises:
        ConfigError: a topic can't have the name that it would get, or the list of topics can't be
            used.
    """

    def __init__(
        self,
        config: MirrorConfig,
        *,
        make_guard: MakeGuard | None = None,
        counter: Any = None,
    ) -> None:
        self.config = config
        self.counter = counter
        self.skips_damage = config.damaged == "skip"
        self._problems = Problems(_log)
        kind = KafkaTarget if config.target.kafka else TargetCluster
        self._target: Target = kind(config.target, self._problems)
        self._figures: dict[tuple[str, str, BrokerPartition], PartitionFigures] = {}
        self._is_stopping = False
        self._stopped = threading.Event()
        self._covering = threading.Thread(target=self._cover, name="hermes-covering", daemon=True)
        topics, throttle = _check_topics(config), BandwidthLimit(config.throttle_bytes)
        self._sources = {
            each.name: MirrorSource(
                each,
                f"hermes-mirror-{config.name}",
                topics,
                max(config.buffer_bytes // len(config.sources), 1),
                self,
                partial(self._make_claim, each.name),
                self._problems,
                throttle,
            )
            for each in config.sources
        }
        self._planner = Planner(
            config, self._target, self._sources, self._problems, self.set_error, make_guard
        )

        self._carrier = None
        if config.groups:
            known = (self._sources, self._target, self._figures, self._problems)
            self._carrier = GroupCarrier(config, *known)

    def start(self) -> None:
        self._planner.start()
        if self._carrier is not None:
            self._carrier.start()
        if self.counter is not None:
            self._covering.start()
        for source in self._sources.values():
            source.start()

    def stop(self) -> None:
        """Let what is on its way arrive, commit, leave all to others. Bounded, idempotent."""
        if self._is_stopping:
            return
        self._is_stopping = True
        for source in self._sources.values():
            source.drain()
        self._stopped.set()
        if self._carrier is not None:
            self._carrier.stop()
        self._cover_once()
        for source in self._sources.values():
            source.stop()
        self._planner.stop()
        if self._covering.is_alive():
            self._covering.join()
        self._target.close()

    def figures(self) -> list[PartitionFigures]:
        """By partition, also of those that others read now."""
        return list(self._figures.values())

    @property
    def errors(self) -> dict[str, str]:
        return self._problems.now()

    @property
    def refused(self) -> dict[str, str]:
        """Why topics are not mirrored, by `SOURCE: TOPIC`."""
        return dict(self._planner.refused)

    @property
    def target_id(self) -> str:
        """The UUID of the target's cluster; empty before it is reached."""
        return self._target.cluster_id

    @property
    def target_session(self) -> Session | None:
        """With the target's coordination; None without, and before it is reached."""
        return self._target.session

    # -- what claims report ---------------------------------------------------------------------

    def send(self, entries: Iterable[TargetAppend]) -> None:
        self._target.send(entries)

    def plan(self, claim: SourceClaim, pause_seconds: float) -> None:
        self._planner.add(claim, pause_seconds)

    def has_room(self) -> None:
        for source in self._sources.values():
            source.wake_fetchers()

    def set_error(self, claim: SourceClaim, text: str) -> None:
        with claim.lock:
            if claim.is_lost:  # somebody else's by now, or gone: nobody would end it
                return
            claim.figures.error = text
            if text:
                self._problems.begin(str(claim), text)
            else:
                self._problems.end(str(claim))

    def released(self, claim: SourceClaim) -> None:
        claim.figures.error = ""
        self._problems.forget(str(claim))

    def is_compacted(self, claim: SourceClaim) -> bool:
        return self._sources[claim.source].is_compacted(claim.topic)

    def note(self, text: str) -> None:
        self._problems.note(text)

    # -- inside ---------------------------------------------------------------------------------

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

    def _cover(self) -> None:
        """Have the audit's counts published, so that offsets may be committed up to there."""
        while not self._stopped.wait(_COVER_SECONDS):
            self._cover_once()

    def _cover_once(self) -> None:
        if self.counter is None:
            return
        claims = [claim for source in self._sources.values() for claim in source.stream.claims()]
        for claim in claims:
            end = claim.figures.end
            if end is not None and claim.acknowledged == end:
                self.counter.reached(claim.topic, claim.log, end, ago_ms=_END_KNOWN_MS)
        if self.counter.publish():
            # Where a stored range ends, and nowhere else: there a restart's ranges join it.
            for claim in claims:
                offset = self.counter.published_to(claim.topic, claim.log)
                if offset is not None:
                    claim.cover(offset)


def _check_topics(config: MirrorConfig) -> TopicFilter:
    """What chooses the topics, once all names that can be checked by now are."""
    try:
        for name in config.topics.map.values():
            check_topic_name(name)
        check_topic_name(config.topics.prefix + "x")
    except InvalidTopicError as error:
        raise ConfigError("topics", str(error)) from error
    if config.whitelist:
        return Whitelist(config.whitelist)
    return Blacklist(",".join(filter(None, (_OWN_TOPICS, config.blacklist))))
