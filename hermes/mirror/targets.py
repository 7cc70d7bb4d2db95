"""The target cluster: its brokers, the partitions of its topics, and what each has of the sources.

What is asked here may take its time: it is the planner's thread that asks. `send` returns at once.
"""

import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from hermes.client.simple_consumer import SimpleConsumer
from hermes.config.mirror import ClusterAddress
from hermes.coordination.cluster import NodeFaults, read_brokers, read_partition_counts
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.errors import BrokerUnavailableError, ClientError, ConfigError, HermesError
from hermes.mirror.claims import Entry
from hermes.mirror.links import open_link
from hermes.mirror.senders import Sender
from hermes.mirror.state import Troubles
from hermes.protocol import MetadataRequest

_log = logging.getLogger(__name__)

_TIMEOUT_SECONDS: Final = 10.0

_Address = tuple[str, int]


class TargetCluster:
    """Where a mirror writes to. The planner's thread calls all but `send`.

    Args:
        address: where it is.
        troubles: hears of failures of its brokers.

    Attributes:
        session: with its coordination; None without, and before `connect`.
    """

    def __init__(self, address: ClusterAddress, troubles: Troubles) -> None:
        self.address = address
        self.session: Session | None = None
        self._troubles = troubles
        self._faults = NodeFaults(_log, "the mirror's target")
        self._consumers: dict[int, tuple[_Address, SimpleConsumer]] = {}
        self._senders: dict[int, tuple[_Address, Sender]] = {}
        # Partitions stay known while their broker is away, so that what goes to them waits.
        self._partitions: dict[str, tuple[BrokerPartition, ...]] = {}
        self._is_connected = False

    def connect(self) -> None:
        """Find the brokers, if that isn't done.

        Raises:
            HermesError: none can be found; try again.
        """
        if self._is_connected:
            return
        connect = self.address.zookeeper or coordination_of(self.address.brokers)
        if connect:
            session = Session(connect)
            session.start()
            self.session = session
        self._is_connected = True

    def partitions(self, topic: str) -> tuple[BrokerPartition, ...]:
        """The partitions that a topic has, or will have, on all brokers, in order.

        Raises:
            HermesError: they can't be found out now.
        """
        counts = dict[int, int]()
        described: dict[int, int] = {}
        brokers = self._brokers()
        if self.session is not None:
            described = read_partition_counts(self.session, topic, self._faults.note)
        for broker_id in brokers:
            consumer = self._consumers[broker_id][1]
            if consumer.supports(MetadataRequest.TYPE):
                (answer,) = consumer.metadata([topic]).topics
                if answer.partition_count:
                    counts[broker_id] = answer.partition_count
            elif self.session is None:
                raise ConfigError(
                    "target",
                    f"{consumer.address} is a Kafka 0.7, which doesn't tell its partitions: give "
                    "zookeeper instead of brokers",
                )
            else:
                counts[broker_id] = described.get(broker_id, 1)
        found = {BrokerPartition(b, n) for b, count in counts.items() for n in range(count)}
        found |= set(self._partitions.get(topic, ()))
        if not found:
            raise BrokerUnavailableError(f"no broker of the target can take topic {topic!r}")
        self._partitions[topic] = tuple(sorted(found))
        return self._partitions[topic]

    def send(self, entries: Iterable[Entry]) -> None:
        """Have entries sent, in this order; their claims hear of the outcomes."""
        for entry in entries:
            self._senders[entry.target.broker_id][1].put((entry,))

    def close(self) -> None:
        """End all connections. Idempotent."""
        for _, sender in self._senders.values():
            sender.stop()
        self._senders.clear()
        for _, consumer in self._consumers.values():
            consumer.close()
        if self.session is not None:
            self.session.stop()

    # -- inside ---------------------------------------------------------------------------------

    def _brokers(self) -> dict[int, _Address]:
        """The brokers that live, by id, each with what it takes to talk to it."""
        if self.session is not None:
            nodes = read_brokers(self.session, self._faults.note)
            self._faults.looked()
            found = {number: (node.host, node.port) for number, node in nodes.items()}
        else:
            found = dict(map(_identified, self.address.brokers))
        if not found:
            raise BrokerUnavailableError(f"no broker of {self.address} is registered")
        for broker_id, address in found.items():
            self._place(broker_id, address)
        return found

    def _place(self, broker_id: int, address: _Address) -> None:
        former = self._consumers.get(broker_id)
        if former is not None and former[0] == address:
            return
        if former is not None:
            former[1].close()
            self._senders[broker_id][1].stop()
        consumer = SimpleConsumer(*address, timeout_seconds=_TIMEOUT_SECONDS)
        self._consumers[broker_id] = address, consumer
        sender = Sender(f"target broker {broker_id}", partial(open_link, *address), self._troubles)
        self._senders[broker_id] = address, sender


def coordination_of(brokers: Iterable[_Address]) -> str:
    """Ask brokers where their coordination is; empty where they have none.

    Raises:
        HermesError: none of them answers.
    """
    failure: HermesError | None = None
    for address in brokers:
        try:
            with SimpleConsumer(*address, timeout_seconds=_TIMEOUT_SECONDS) as consumer:
                try:
                    return consumer.coordination()
                except (BrokerUnavailableError, TimeoutError):
                    raise
                except HermesError:
                    return ""  # it takes no part in any, or is a Kafka 0.7
        except HermesError as error:
            failure = error
    raise failure or ClientError("no brokers are given")


def _identified(address: _Address) -> tuple[int, _Address]:
    """The id of a broker; of one of Kafka 0.7, which doesn't tell, there is none."""
    with SimpleConsumer(*address, timeout_seconds=_TIMEOUT_SECONDS) as consumer:
        if not consumer.supports(MetadataRequest.TYPE):
            return 0, address
        return consumer.metadata([]).broker_id, address
