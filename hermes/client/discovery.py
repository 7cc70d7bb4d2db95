"""Brokers and partitions for producers, from ZooKeeper: what is known is read again on changes."""

import logging
import threading

from hermes.client.routing import Brokers, Target, TopicPartitions
from hermes.coordination.cluster import NodeFaults, read_brokers, read_partitions
from hermes.coordination.sessions import Session
from hermes.errors import BrokerUnavailableError, CoordinationError
from hermes.security import PLAIN, ClientSecurity

_log = logging.getLogger(__name__)


class ZooKeeperMetadata:
    """The partitions registered in ZooKeeper; see `hermes.client.routing.MetadataProvider`.

    As in Kafka 0.7, a topic that no broker has yet is sent to partition 0 of any of them.

    Raises:
        CoordinationUnavailableError: ZooKeeper can't be reached.
    """

    def __init__(
        self,
        connect: str,
        brokers: Brokers,
        *,
        security: ClientSecurity = PLAIN,
        coordination_security: ClientSecurity = PLAIN,
        session_timeout_seconds: float,
        connection_timeout_seconds: float,
    ) -> None:
        self._brokers = brokers
        self._known: dict[str, TopicPartitions] = {}
        self._stale: dict[str, TopicPartitions] = {}
        self._changes = 0
        self._lock = threading.Lock()
        self._faults = NodeFaults(_log, "the producer's view of the brokers")
        self._security = security
        self._session = Session(
            connect,
            security=coordination_security,
            session_timeout_seconds=session_timeout_seconds,
            connection_timeout_seconds=connection_timeout_seconds,
            on_change=self._changed,
        )
        self._session.start(_log.warning)

    def partitions(self, topic: str) -> TopicPartitions:
        """See `MetadataProvider`; what was known stays in use while ZooKeeper doesn't answer."""
        known = self._known.get(topic)
        if known is not None:
            return known
        with self._lock:
            known = self._known.get(topic)
            return known if known is not None else self._learn(topic)

    def forget(self, topic: str) -> None:
        """See `MetadataProvider`."""
        known = self._known.pop(topic, None)
        if known is not None:
            self._stale[topic] = known

    def close(self) -> None:
        """Disconnect from ZooKeeper. Idempotent."""
        self._session.stop()

    def _changed(self) -> None:
        """Something may have changed; called in kazoo's threads, so nothing may wait here."""
        self._changes += 1
        for topic in list(self._known):
            self.forget(topic)

    def _learn(self, topic: str) -> TopicPartitions:
        changes, before = self._changes, self._stale.get(topic)
        if before is not None and self._session.session_id is None:
            return before  # when the connection is back, `_changed` is called
        try:
            partitions = self._read(topic)
        except (CoordinationError, BrokerUnavailableError) as error:  # a broker may be restarting
            if before is None:
                raise
            _log.warning("using the known partitions of topic %r: %s", topic, error)
            return before
        self._stale[topic] = partitions
        if changes == self._changes:
            self._known[topic] = partitions
        return partitions

    def _read(self, topic: str) -> TopicPartitions:
        note = self._faults.note
        brokers = read_brokers(self._session, note, watch=True, security=self._security)
        partitions = read_partitions(self._session, topic, note, watch=True)
        for broker_id, node in brokers.items():
            self._brokers.place(broker_id, node.host, node.port)
        targets = [
            Target(broker_id, number)
            for broker_id, numbers in partitions.items()
            if broker_id in brokers
            for number in numbers
        ]
        if not targets:
            targets = [Target(broker_id, 0) for broker_id in brokers]
        if not targets:
            raise BrokerUnavailableError(
                f"no broker is registered in ZooKeeper, for topic {topic!r}"
            )
        return TopicPartitions(tuple(targets), is_counted=True)
