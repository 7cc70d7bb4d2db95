"""Reads the events of a cluster: the topic hermes-audit, all partitions of all brokers.

Every partition is read from one place on, once: what comes later is read by the next call. A broker
that is away has its partitions read when it is back. What one process reports is spread over the
partitions, so that they are read side by side, by the events' times: whoever adds them up keeps few
ranges of a log apart.
"""

import heapq
import logging
from collections.abc import Iterator
from typing import Final

from hermes.audit.events import Event, decode_event
from hermes.client import EARLIEST, FetchRequest, SimpleConsumer
from hermes.config.topic import AUDIT_TOPIC
from hermes.coordination.cluster_view import read_brokers, read_partitions
from hermes.coordination.layout import BrokerNode, BrokerPartition
from hermes.coordination.sessions import Session
from hermes.errors import (
    AuditEventError,
    HermesError,
    InvalidNodeError,
    OffsetOutOfRangeBrokerError,
)
from hermes.security import PLAIN, ClientSecurity

_log = logging.getLogger(__name__)

_FETCH_BYTES: Final = 1024 * 1024
_TIMEOUT_SECONDS: Final = 30.0


class EventReader:
    """Reads events; one thread at a time.

    Args:
        session: with the cluster's coordination; started, and stopped by the caller.
        since_ms: events that were stored before need not be read; 0 for all.
        own: the id, place and security of a broker that is reached in a way of its own.

    Attributes:
        unavailable: what couldn't be read in the last call, and why.
    """

    def __init__(
        self,
        session: Session,
        *,
        since_ms: int = 0,
        security: ClientSecurity = PLAIN,
        own: tuple[int, tuple[str, int], ClientSecurity] | None = None,
    ) -> None:
        self._own = own
        self.unavailable: list[str] = []
        self._session = session
        self._since_ms = since_ms
        self._security = security
        self._offsets: dict[BrokerPartition, int] = {}
        self._consumers: dict[BrokerNode, SimpleConsumer] = {}

    def read(self) -> Iterator[Event]:
        """Read what is new, up to the ends of the partitions (CoordinationUnavailableError).

        Who ends the iteration before goes on there with the next one; of each partition an event
        may come again.
        """
        self.unavailable = []
        brokers = read_brokers(self._session, self._note, security=self._security)
        if self._own is not None and self._own[0] in brokers:
            brokers[self._own[0]] = BrokerNode("", *self._own[1])
        partitions = read_partitions(self._session, AUDIT_TOPIC, self._note)
        found = []
        for broker_id, numbers in partitions.items():
            node = brokers.get(broker_id)
            if node is None:
                self.unavailable.append(f"{AUDIT_TOPIC}: broker {broker_id} is not registered")
                continue
            consumer = self._consumer(node)
            found += [self._available(consumer, BrokerPartition(broker_id, n)) for n in numbers]
        yield from heapq.merge(*found, key=lambda event: event.time_ms)

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def _available(self, consumer: SimpleConsumer, partition: BrokerPartition) -> Iterator[Event]:
        try:
            yield from self._read(consumer, partition)
        except HermesError as error:
            self.unavailable.append(f"{AUDIT_TOPIC} {partition}: {error}")

    def _read(self, consumer: SimpleConsumer, partition: BrokerPartition) -> Iterator[Event]:
        offset = self._offsets.get(partition)
        if offset is None:
            offset = self._start(consumer, partition)
        while True:
            request = FetchRequest(AUDIT_TOPIC, partition.partition, offset, _FETCH_BYTES)
            try:
                fetched = consumer.fetch(request)
            except OffsetOutOfRangeBrokerError:
                start = self._earliest(consumer, partition)
                if start == offset:
                    raise
                _log.warning(
                    "%s %s: events up to offset %d are gone", AUDIT_TOPIC, partition, start
                )
                offset = start
                continue
            for message, following in fetched:
                try:
                    yield decode_event(message.payload)
                except AuditEventError as error:
                    _log.debug("%s %s: %s", AUDIT_TOPIC, partition, error)
                self._offsets[partition] = following  # for who ends the iteration at the next one
            self._offsets[partition] = fetched.next_offset
            if fetched.next_offset == offset:
                return
            offset = fetched.next_offset

    def _start(self, consumer: SimpleConsumer, partition: BrokerPartition) -> int:
        if self._since_ms:
            before = consumer.get_offsets_before(AUDIT_TOPIC, partition.partition, self._since_ms)
            if before:
                return before[0]
        return self._earliest(consumer, partition)

    def _earliest(self, consumer: SimpleConsumer, partition: BrokerPartition) -> int:
        found = consumer.get_offsets_before(AUDIT_TOPIC, partition.partition, EARLIEST)
        return found[0] if found else 0

    def _consumer(self, node: BrokerNode) -> SimpleConsumer:
        if node not in self._consumers:
            is_own = self._own is not None and node[1:] == self._own[1]
            security = self._own[2] if self._own is not None and is_own else self._security
            self._consumers[node] = SimpleConsumer(
                node.host,
                node.port,
                timeout_seconds=_TIMEOUT_SECONDS,
                on_corrupt="skip",
                **security.settings(),
            )
        return self._consumers[node]

    def _note(self, fault: InvalidNodeError) -> None:
        self.unavailable.append(str(fault))
