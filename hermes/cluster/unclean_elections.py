"""Has partitions led by copies that may lack messages, where their topics' settings allow it.

That is where nobody in sync has been there for `replica_lag_time`: whoever only restarts is waited
for. The first of the copies that are there leads, on its own broker's word.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from hermes.cluster.cluster_part import ClusterPart
from hermes.cluster.cluster_topics import ClusterTopic, ClusterTopics
from hermes.cluster.replica_changes import ReplicaChanges
from hermes.cluster.shared import Shared
from hermes.cluster.topic_cluster import ClusterState
from hermes.errors import HermesError, WrongStateError
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.replication.state import PartitionState, TopicReplicas, unclean

_Place = tuple[str, int]

#: The pause before what failed is tried again.
_RETRY_SECONDS: Final = 5.0


class UncleanElections:
    """Lives in the reactor's thread."""

    def __init__(
        self, shared: Shared, topics: ClusterTopics, changes: ReplicaChanges, part: ClusterPart
    ) -> None:
        self._shared = shared
        self._topics = topics
        self._changes = changes
        self._since: dict[_Place, float] = {}  # since when nobody in sync is there
        self._timer: IDelayedCall | None = None
        self._log = LimitedLog(ModuleLogger(), shared.clock.seconds)
        self._lives: Mapping[int, int] = {}
        self._nodes: Mapping[str, TopicReplicas] = {}
        part.observe(self._look_at_all)
        shared.settings.on_topic_change(lambda name: self._look([name]))

    def stop(self) -> None:
        self._since = {}
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def _look_at_all(self, state: ClusterState) -> None:
        # Who is in sync goes with its session, or leaves it to somebody, who may be gone.
        before, self._nodes = self._nodes, state.contents.replicas
        if self._since or state.lives != self._lives:
            self._lives = state.lives
            self._look(self._topics.names())
        elif changed := [n for n, node in self._nodes.items() if before.get(n) is not node]:
            self._look(changed)

    def _look(self, names: Sequence[str]) -> None:
        now, before, looked_at = self._shared.clock.seconds(), self._since, set(names)
        self._since = {place: since for place, since in before.items() if place[0] not in looked_at}
        self._since |= {place: before.get(place, now) for place in self._unled(names)}
        if self._since and (self._timer is None or not self._timer.active()):
            wait = min(self._since.values()) + self._patience() - now
            self._timer = self._shared.clock.callLater(max(wait, 0), self._elect_due)

    def _patience(self) -> float:
        return self._shared.config.replica_lag_ms / 1000

    def _unled(self, names: Sequence[str]) -> Iterator[_Place]:
        """The partitions of these topics that this broker may lead for want of anybody in sync."""
        for name in names:
            topic = self._topics.get(name)
            if topic is None or not topic.copies:
                continue
            if not self._shared.config.topic(name).unclean_leader_election:
                continue
            for number, state in enumerate(topic.copies):
                if state is not None and self._is_first(state, self._topics.lives):
                    yield name, number

    def _is_first(self, state: PartitionState, lives: Mapping[int, int]) -> bool:
        if state.leader in lives or state.sound & lives.keys():
            return False
        others = (e for e in state.replicas if e in lives and e not in state.isr)
        return next(others, None) == self._topics.broker_id

    def _elect_due(self) -> None:
        due = self._shared.clock.seconds() - self._patience()
        by_topic: dict[str, list[int]] = {}
        for (name, number), since in self._since.items():
            if since <= due:
                by_topic.setdefault(name, []).append(number)
        for name, numbers in by_topic.items():
            topic = self._topics.get(name)
            if topic is not None:
                Deferred.fromCoroutine(self._elect(topic, numbers))
        if self._since:
            later = _RETRY_SECONDS if by_topic else min(self._since.values()) - due
            self._timer = self._shared.clock.callLater(later, self._elect_due)

    async def _elect(self, topic: ClusterTopic, numbers: list[int]) -> None:
        me, befores = self._topics.broker_id, dict[int, PartitionState]()

        def change(number: int, state: PartitionState) -> PartitionState:
            lives = self._topics.lives
            if not self._is_first(state, lives):
                raise WrongStateError("a copy in sync is back")
            befores[number] = state
            return unclean(state, me, lives[me])

        def sole(number: int) -> PartitionState:
            raise WrongStateError("it has one copy")

        changes = {each: (lambda state, number=each: change(number, state)) for each in numbers}
        try:
            refused = await self._changes.change(topic, changes, sole)
        except HermesError:
            return  # tried again
        for number, before in befores.items():
            if number not in refused:
                self._log.error(
                    "unclean",
                    "{topic}-{number} is led here, though this copy wasn't in sync, as "
                    "unclean_leader_election allows: what only brokers {isr} had of it is lost",
                    topic=topic.name,
                    number=number,
                    isr=sorted(before.isr),
                )
