"""Has markers written wherever a decided transaction wants them, again and again until all are."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from hermes.cluster.cluster_topics import ClusterTopics
from hermes.errors import HermesError
from hermes.kafka.transactions.markers import Markers
from hermes.kafka.transactions.remote import RemoteBrokers
from hermes.kafka.transactions.state_log import StateLog
from hermes.logs import ModuleLogger
from hermes.protocol.kafka_errors import Code
from hermes.protocol.transaction_markers import Marker
from hermes.transactions.state import Place, Transaction, group_at

_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 1.0

#: A place that answers so needs no marker, or none any more: its producer has begun anew there.
_DONE: Final = frozenset(
    {Code.NONE, Code.INVALID_PRODUCER_EPOCH, Code.UNSUPPORTED_FOR_MESSAGE_FORMAT}
)

#: Called once all markers are written; KafkaError: that couldn't be stored now.
Then = Callable[[], Awaitable[None]]


class Unended(NamedTuple):
    """A transaction that was decided then (ms since 1970), and the places that want its marker."""

    since_ms: int
    left: set[Place]


class Ending:
    """Lives in the reactor's thread.

    Args:
        coordinator_for: which broker coordinates a group; None for nobody now.
        remote: None where this is the only broker.
    """

    _log = ModuleLogger()

    def __init__(
        self,
        clock: IReactorTime,
        topics: ClusterTopics,
        markers: Markers,
        coordinator_for: Callable[[str], int | None],
        remote: RemoteBrokers | None,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._markers = markers
        self._coordinator_for = coordinator_for
        self._remote = remote
        self._under_way: dict[Deferred[None], Unended] = {}
        self._is_stopped = False

    def begin(self, log: StateLog, name: str, decided: Transaction, then: Then) -> None:
        """End a decided transaction, for as long as `log` is current."""
        unended = Unended(decided.updated_ms, set(decided.places))
        running = Deferred.fromCoroutine(self._run(log, decided, unended.left, then))
        self._under_way[running] = unended

        def ended(result: Any) -> None:
            del self._under_way[running]
            if isinstance(result, Failure) and not self._is_stopped:
                self._log.failure("ending the transaction of {name} failed", result, name=name)
                log.is_doubtful = True  # so that it begins anew

        running.addBoth(ended)

    def stop(self) -> None:
        self._is_stopped = True
        for each in list(self._under_way):
            each.cancel()

    @property
    def under_way(self) -> Collection[Unended]:
        """What has been decided, and isn't ended."""
        return self._under_way.values()

    async def _run(self, log: StateLog, decided: Transaction, left: set[Place], then: Then) -> None:
        pause = _FIRST_PAUSE_SECONDS
        marker = Marker(decided.producer_id, decided.epoch, decided.is_committed, log.epoch)
        while log.is_current:
            if left:
                left -= await self._write(marker, decided.version, left)
            if not left:
                try:
                    await then()
                    return
                except HermesError:
                    pass
            await deferLater(self._clock, pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        log.is_doubtful = True  # should it come to be current again: this is to begin anew then

    async def _write(self, marker: Marker, version: int, places: set[Place]) -> set[Place]:
        """Have markers written; the places that want none any more."""
        gone, by_broker = set[Place](), dict[tuple[int, bool], list[Place]]()
        for place in places:
            broker_id = self._broker_of(place)
            if broker_id is None:
                gone.add(place)
            elif broker_id >= 0:
                by_broker.setdefault((broker_id, group_at(place) is None), []).append(place)
        asked = [
            Deferred.fromCoroutine(self._ask(broker_id, marker, version, some))
            for (broker_id, _), some in by_broker.items()
        ]
        for codes in await gatherResults(asked, consumeErrors=True):
            gone |= {place for place, code in codes.items() if code in _DONE}
        return gone

    async def _ask(
        self, broker_id: int, marker: Marker, version: int, places: list[Place]
    ) -> Mapping[Place, Code]:
        if broker_id == self._topics.broker_id:
            return await self._markers.write(marker, version, places)
        if self._remote is None:
            return {}
        try:
            return await self._remote.write_markers(broker_id, marker, version, places)
        except HermesError:
            return {}

    def _broker_of(self, place: Place) -> int | None:
        """Who writes the marker of a place: -1 for nobody now; None where the place is gone."""
        group = group_at(place)
        if group is not None:
            coordinator = self._coordinator_for(group)
            return -1 if coordinator is None else coordinator
        name, number = place
        topic = self._topics.get(name)
        if topic is None:
            return None if self._topics.is_known else -1
        return topic.leader(number) if number < len(topic.partitions) else None
