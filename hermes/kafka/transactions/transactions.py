"""What requests about transactions work with, whichever broker coordinates these."""

from collections.abc import Collection, Mapping
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from hermes.cluster.cluster import Cluster
from hermes.cluster.shared import Shared
from hermes.errors import HermesError
from hermes.groups.coordinator import GroupCoordinator
from hermes.kafka.transactions.coordinator import PATIENCE_SECONDS, TransactionCoordinator
from hermes.kafka.transactions.ending import Ending
from hermes.kafka.transactions.markers import Markers
from hermes.kafka.transactions.remote import RemoteBrokers
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.transactions.deciding import EPOCH_GROWS, Producer
from hermes.transactions.state import Place

_PAUSE_SECONDS: Final = 0.02


class Transactions:
    """Lives in the reactor's thread.

    Args:
        remote: None where this is the only broker.
    """

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        markers: Markers,
        ending: Ending,
        remote: RemoteBrokers | None,
        broker_id: int,
        clock: IReactorTime,
    ) -> None:
        self.coordinator = coordinator
        self.markers = markers
        self.ending = ending
        self._remote = remote
        self._broker_id = broker_id
        self._clock = clock

    @classmethod
    def of(
        cls,
        shared: Shared,
        cluster: Cluster,
        groups: GroupCoordinator,
        remote: RemoteBrokers | None,
    ) -> "Transactions":
        """Those of a broker that has these parts."""
        topics = cluster.topics
        markers = Markers(shared, topics, groups)
        ending = Ending(shared.clock, topics, markers, groups.local.coordinator_for, remote)
        coordinator = TransactionCoordinator(
            shared, topics, cluster.topic_changes, cluster.producer_ids, ending
        )
        return cls(coordinator, markers, ending, remote, shared.config.broker_id, shared.clock)

    def stop(self) -> "Deferred[None]":
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self.coordinator.stop()
        if self._remote is not None:
            await self._remote.stop()

    async def join(
        self, transactional_id: str, producer: Producer, places: Collection[Place], *, adds: bool
    ) -> Mapping[Place, Code]:
        """Take places into a producer's transaction, or find out whether they are in it.

        `adds`: whether the producer leaves that to the brokers (KIP-890); else it has done so.
        """
        broker_id = await self.coordinator.coordinator_of(transactional_id)
        if broker_id == self._broker_id:
            return await self.join_here(transactional_id, producer, places, adds=adds)
        if broker_id >= 0 and self._remote is not None:
            try:
                return await self._join_there(
                    self._remote, broker_id, transactional_id, producer, places, adds
                )
            except HermesError:
                pass
        return dict.fromkeys(places, Code.COORDINATOR_NOT_AVAILABLE)

    async def _join_there(
        self,
        remote: RemoteBrokers,
        broker_id: int,
        transactional_id: str,
        producer: Producer,
        places: Collection[Place],
        adds: bool,
    ) -> Mapping[Place, Code]:
        """The other broker waits for nothing, since other transactions' joins would, too."""
        end = self._clock.seconds() + PATIENCE_SECONDS
        while True:
            codes = await remote.add_partitions(
                broker_id, transactional_id, producer, places, verify_only=not adds
            )
            is_concurrent = Code.CONCURRENT_TRANSACTIONS in codes.values()
            if not is_concurrent or self._clock.seconds() >= end:
                return codes
            await deferLater(self._clock, _PAUSE_SECONDS)

    async def join_here(
        self,
        transactional_id: str,
        producer: Producer,
        places: Collection[Place],
        *,
        adds: bool,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> Mapping[Place, Code]:
        """The same, where this broker coordinates it."""
        try:
            if not adds:
                return await self.coordinator.joined(transactional_id, producer, places)
            await self.coordinator.join(
                transactional_id, producer, places, EPOCH_GROWS, patience_seconds
            )
        except KafkaError as error:
            return dict.fromkeys(places, error.code)
        return dict.fromkeys(places, Code.NONE)
