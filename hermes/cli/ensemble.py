"""What the commands about consumer groups share: a session, and brokers found through it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import click

from hermes.cli.options import coordination_options
from hermes.cli.terminal import note
from hermes.client import LATEST, FetchRequest, SimpleConsumer
from hermes.coordination.cluster import read_brokers
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.errors import HermesError

__all__ = ["GROUP_ARGUMENT", "ZOOKEEPER_OPTION", "Brokers", "connected"]

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

ZOOKEEPER_OPTION: Final[_Decorator] = coordination_options
GROUP_ARGUMENT: Final[_Decorator] = click.argument("group", metavar="GROUP")


@contextmanager
def connected(zookeeper: str, timeout_seconds: float) -> Iterator[Session]:
    """A session for the length of a command."""
    session = Session(
        zookeeper,
        session_timeout_seconds=max(timeout_seconds, 1.0),
        connection_timeout_seconds=timeout_seconds,
    )
    session.start()
    try:
        yield session
    finally:
        session.stop()


class Brokers:
    """Connections to the brokers that are registered, made when they are first needed.

    Args:
        session: where they are registered.
        timeout_seconds: for each request.
    """

    def __init__(self, session: Session, timeout_seconds: float) -> None:
        self._nodes = read_brokers(session, lambda fault: note(str(fault)))
        self._timeout_seconds = timeout_seconds
        self._consumers: dict[int, SimpleConsumer] = {}
        self._stack = ExitStack()

    def of(self, partition: BrokerPartition) -> SimpleConsumer:
        """The broker that has a partition.

        Raises:
            HermesError: it isn't registered.
        """
        broker_id = partition.broker_id
        if broker_id not in self._consumers:
            node = self._nodes.get(broker_id)
            if node is None:
                raise HermesError(f"broker {broker_id} is not registered")
            self._consumers[broker_id] = self._stack.enter_context(
                SimpleConsumer(node.host, node.port, timeout_seconds=self._timeout_seconds)
            )
        return self._consumers[broker_id]

    def latest(self, topic: str, partition: BrokerPartition) -> int:
        """Up to where a partition can be read. Raises HermesError."""
        (offset,) = self.of(partition).get_offsets_before(topic, partition.partition, LATEST)
        return offset

    def count(self, topic: str, partition: BrokerPartition, offset: int, end: int) -> int:
        """Count the messages between two offsets, by reading them. Raises HermesError."""
        if offset == end:
            return 0
        request = FetchRequest(topic, partition.partition, offset, end - offset)
        return sum(1 for _ in self.of(partition).fetch(request))

    def close(self) -> None:
        """Disconnect."""
        self._stack.close()
