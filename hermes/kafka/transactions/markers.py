"""Writes the markers that are for this broker: of partitions that it leads, and of its groups."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred, gatherResults

from hermes.announcement import Announcement
from hermes.cluster.cluster_topics import ClusterTopics
from hermes.cluster.shared import Shared
from hermes.errors import HermesError
from hermes.groups.coordinator import GroupCoordinator
from hermes.partition.acknowledgements import AppendedEnd, Safety
from hermes.protocol.kafka_errors import MAY_BE_STORED, Code, KafkaError, code_of
from hermes.protocol.transaction_markers import Marker
from hermes.server.fairness import cooperatively
from hermes.server.outcomes import settled
from hermes.storage.producer_states import ProducerStates
from hermes.transactions.deciding import EPOCH_GROWS
from hermes.transactions.state import Place, group_at

_CODES = {
    Safety.FLUSHED: Code.NONE,
    Safety.ENDED: Code.NOT_LEADER_OR_FOLLOWER,
    Safety.UNKNOWN: MAY_BE_STORED,
    Safety.LATE: Code.REQUEST_TIMED_OUT,
}


#: How long another broker waits for the stores of groups: it asks about other transactions' groups
#: together with these, or afterwards.
_GROUPS_SECONDS: Final = 0.5

#: Of how many groups and producers the last marker is remembered. What comes late does so within
#: seconds, on a connection that ends with this broker: so it need not be on a disk.
_MOST_LAST: Final = 10_000


class Markers:
    """Lives in the reactor's thread."""

    def __init__(self, shared: Shared, topics: ClusterTopics, groups: GroupCoordinator) -> None:
        self._shared = shared
        self._topics = topics
        self._groups = groups
        # Ends under way, of groups and producers: another would take the same offsets once more.
        self._ending: set[tuple[str, int]] = set()
        # Their last markers; those of long ago are forgotten first.
        self._last: dict[tuple[str, int], Marker] = {}

    async def write(
        self,
        marker: Marker,
        version: int,
        places: Collection[Place],
        timeout_seconds: float | None = None,
    ) -> Mapping[Place, Code]:
        """End a producer's transaction in these places; what became of each, once it is on disk.

        `version`: of transactions, as the producer knows them.
        """
        codes: dict[Place, Code] = {}
        appended: dict[Place, AppendedEnd] = {}

        def append(place: Place) -> None:
            try:
                appended[place] = self._append(marker, version, place)
            except HermesError as error:
                codes[place] = code_of(error)

        partitions = [each for each in places if group_at(each) is None]
        await settled(cooperatively(self._shared.scheduler, partitions, append))
        groups = {each: group for each in places if (group := group_at(each)) is not None}
        if groups:
            is_patient = timeout_seconds is None
            seconds = None if is_patient else _GROUPS_SECONDS
            codes |= await self._end_in(groups, marker, version, seconds)
        safety_of = await self._shared.acknowledgements.flushed(
            [*appended.values()], timeout_seconds
        )
        for place, each in appended.items():
            codes[place] = _CODES[safety_of(each)]
        return codes

    async def _end_in(
        self,
        groups: Mapping[Place, str],
        marker: Marker,
        version: int,
        timeout_seconds: float | None,
    ) -> Mapping[Place, Code]:
        """End it in groups; those that take longer are ended all the same, and asked for again."""
        codes = dict.fromkeys(groups, Code.CONCURRENT_TRANSACTIONS)

        async def end(place: Place, group: str) -> None:
            key = group, marker.producer_id
            if key in self._ending:
                return
            last = self._last.get(key)
            if last is not None and (code := _of_late(marker, version, last)) is not None:
                codes[place] = code
                return
            self._ending.add(key)
            try:
                codes[place] = await self._groups.end_transaction(
                    group, marker.producer_id, commits=marker.is_commit
                )
            finally:
                self._ending.discard(key)
            if codes[place] is Code.NONE:
                self._last.pop(key, None)
                self._last[key] = marker
                if len(self._last) > _MOST_LAST:
                    del self._last[next(iter(self._last))]

        over = Announcement[Any]()
        told = over.wait()
        ends = [Deferred.fromCoroutine(end(*each)) for each in groups.items()]
        gatherResults(ends, consumeErrors=True).addBoth(over.tell)
        if timeout_seconds is not None:
            told.addTimeout(timeout_seconds, self._shared.clock, lambda *_: None)
        await told
        return dict(codes)

    def _append(self, marker: Marker, version: int, place: Place) -> AppendedEnd:
        partition = self._topics.partition(*place)
        log = partition.log
        if log.producers is None:  # it was deleted, and made again in 0.7's format
            raise KafkaError(Code.UNSUPPORTED_FOR_MESSAGE_FORMAT)
        if _has(log.producers, marker, version):
            return AppendedEnd(log, log.openings, log.end_offset)
        end = partition.append_marker(marker, version)
        return AppendedEnd(log, log.openings, end)


def _of_late(marker: Marker, version: int, last: Marker) -> Code | None:
    """What is said of a marker after which another one has come to a group; None of a new one.

    As a partition's log has it: an earlier coordinator, who was asleep, may have sent it. Else it
    would end the producer's next transaction.
    """
    if marker.coordinator_epoch < last.coordinator_epoch:
        return Code.TRANSACTION_COORDINATOR_FENCED
    if version >= EPOCH_GROWS and marker.producer_epoch <= last.producer_epoch:
        return Code.NONE
    return None


def _has(producers: ProducerStates, marker: Marker, version: int) -> bool:
    """Whether the marker was written before: an answer was lost, or the coordinator is a new one.

    By its epoch, which no batch of the transaction had. Without that nothing tells a marker from
    its repetition, and it is written again.
    """
    known = producers.states.get(marker.producer_id)
    if known is None or version < EPOCH_GROWS:
        return False
    return known.epoch == marker.producer_epoch and known.transaction_start < 0
