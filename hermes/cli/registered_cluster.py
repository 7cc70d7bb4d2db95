"""What the commands about consumer groups share: ZooKeeper, and the brokers registered there."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cached_property, partial, wraps
from typing import Any, Final

import click
from click.core import ParameterSource

from hermes.cli.options import (
    BrokerOption,
    CommandConnection,
    Decorator,
    broker_option,
    kafka_option,
    zookeeper_option,
)
from hermes.cli.security_options import connection_options
from hermes.cli.terminal import note
from hermes.client import LATEST, FetchRequest, SimpleConsumer
from hermes.client.kafka_brokers import KafkaBrokers
from hermes.client.kafka_groups import KafkaGroups
from hermes.client.resets import check_inactive
from hermes.coordination.cluster_view import (
    leaders_of,
    read_brokers,
    read_listeners,
    suitable_listeners,
)
from hermes.coordination.group_state import GroupState, read_group
from hermes.coordination.layout import BrokerNode, BrokerPartition, check_node_name
from hermes.coordination.sessions import Session
from hermes.errors import SILENT, ClientError, HermesError, NoCoordinationError
from hermes.protocol import NOBODY, MetadataRequest


class NotRegisteredError(HermesError):
    """Coordination doesn't list the broker that a partition is on."""


def start_session(connect: str, connection: CommandConnection) -> Session:
    """Connect to ZooKeeper; the caller stops the session. Stderr says when that takes a while.

    The connection's timeout is how long to try, and, from a second on, the session's. Raises
    HermesError if nothing answers there, or refuses; nothing remains.
    """
    session = Session(
        connect,
        session_timeout_seconds=max(connection.timeout_seconds, 1.0),
        connection_timeout_seconds=connection.timeout_seconds,
        security=connection.security,
    )
    session.start(note)
    return session


class RegisteredCluster:
    """A session, and connections to the registered brokers, each made when first needed.

    A broker that did not report an end is not asked again: each attempt may take the whole timeout.
    """

    def __init__(self, zookeeper: str, connection: CommandConnection) -> None:
        self.connect = zookeeper
        self.connection = connection
        self._consumers: dict[int, SimpleConsumer] = {}
        self._counting: dict[tuple[int, str], bool] = {}
        self._leaders: dict[str, dict[BrokerPartition, int]] = {}
        self._silent: dict[int, HermesError] = {}
        self._stack = ExitStack()

    @cached_property
    def session(self) -> Session:
        session = start_session(self.connect, self.connection)
        self._stack.callback(session.stop)
        return session

    def leader(self, topic: str, partition: BrokerPartition) -> int:
        """The broker that leads a partition, which need not be that of its name; -1 for none."""
        if topic not in self._leaders:
            self._leaders[topic] = leaders_of(self.session, topic, lambda fault: note(str(fault)))
        return self._leaders[topic].get(partition, partition.broker_id)

    def consumer(self, topic: str, partition: BrokerPartition) -> SimpleConsumer:
        """A consumer of the broker that leads a partition. Raises HermesError for none."""
        broker_id = self.leader(topic, partition)
        if broker_id == NOBODY:
            raise ClientError("nobody leads it: start the brokers that have copies of it")
        if broker_id not in self._consumers:
            node = self._nodes.get(broker_id)
            if node is None:
                raise NotRegisteredError(
                    f"broker {broker_id} is not registered: it is down, or gone for good"
                )
            broker = BrokerOption(node.host, node.port)
            self._consumers[broker_id] = self._stack.enter_context(broker.consumer(self.connection))
        return self._consumers[broker_id]

    def latest(self, topic: str, partition: BrokerPartition) -> int:
        """The offset up to which a partition can be read. Raises HermesError."""
        broker_id = self.leader(topic, partition)
        if broker_id in self._silent:
            raise self._silent[broker_id]
        try:
            consumer = self.consumer(topic, partition)
            return consumer.get_offsets_before(topic, partition.partition, LATEST)[0]
        except (*SILENT, NotRegisteredError) as error:
            self._silent[broker_id] = error
            raise

    @property
    def faults(self) -> list[str]:
        """Which brokers did not report their partitions' ends, and why: one line for each."""
        return [
            str(error)
            if isinstance(error, NotRegisteredError)
            else f"broker {broker_id} does not answer: {error}"
            for broker_id, error in self._silent.items()
        ]

    def is_silent(self, topic: str, partition: BrokerPartition) -> bool:
        return self.leader(topic, partition) in self._silent

    def counts_messages(self, topic: str, partition: BrokerPartition) -> bool:
        """Whether the topic's offsets do, and not bytes. Raises HermesError."""
        key = self.leader(topic, partition), topic
        if key not in self._counting:
            consumer = self.consumer(topic, partition)
            is_known = consumer.supports(MetadataRequest.TYPE)
            topics = consumer.metadata([topic]).topics if is_known else ()
            self._counting[key] = any(each.holds_records for each in topics)
        return self._counting[key]

    def count(self, topic: str, partition: BrokerPartition, offset: int, end: int) -> int:
        """Count the messages between two offsets, by reading them. Raises HermesError."""
        if offset == end:
            return 0
        request = FetchRequest(topic, partition.partition, offset, end - offset)
        return sum(1 for _ in self.consumer(topic, partition).fetch(request))

    def close(self) -> None:
        self._stack.close()

    @cached_property
    def _nodes(self) -> dict[int, BrokerNode]:
        return read_brokers(self.session, lambda fault: note(str(fault)))


def group_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """As `cluster_options`, with -k for a broker that only serves Kafka's clients.

    The command gets a `cluster` and `kafka`, of which the first is None if -k is given, and the
    other if it isn't.
    """

    @wraps(command)
    def chosen(*args: Any, kafka: BrokerOption | None, **options: Any) -> Any:
        if kafka is None:
            try:
                return with_cluster(*args, **options)
            except NoCoordinationError as error:
                raise ClientError(
                    f"{error}, so it has no groups of Hermes' consumers; give -k, the address of "
                    "its kafka_listen, for those of Kafka's"
                ) from error
        options.pop("zookeeper")
        options.pop("broker")
        connection: CommandConnection = options.pop("connection")
        groups = KafkaGroups([kafka], connection.timeout_seconds, connection.security)
        click.get_current_context().call_on_close(groups.close)
        return command(*args, cluster=None, kafka=groups, **options)

    with_cluster = connected_cluster(partial(command, kafka=None))
    option = kafka_option("A broker's kafka_listen: groups of Kafka clients only.")
    return add_cluster_options(option(chosen))


def kafka_options(kind: type[KafkaBrokers], name: str) -> Decorator:
    """Add -k, -b or -Z, and those of security; the command gets the brokers by this name."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        def asked(
            places: Iterable[tuple[str, int]],
            connection: CommandConnection,
            /,
            *args: Any,
            **options: Any,
        ) -> Any:
            brokers = kind(places, connection.timeout_seconds, connection.security)
            click.get_current_context().call_on_close(brokers.close)
            return command(*args, **{name: brokers}, **options)

        @wraps(command)
        def chosen(*args: Any, kafka: BrokerOption | None, **options: Any) -> Any:
            if kafka is None:
                return found(*args, **options)
            options.pop("zookeeper")
            options.pop("broker")
            connection: CommandConnection = options.pop("connection")
            return asked([kafka], connection, *args, **options)

        def by_coordination(*args: Any, cluster: RegisteredCluster, **options: Any) -> Any:
            return asked(kafka_places(cluster), cluster.connection, *args, **options)

        found = connected_cluster(by_coordination)
        option = kafka_option("The kafka_listen of any broker of the cluster.")
        return add_cluster_options(option(chosen))

    return decorate


def kafka_places(cluster: RegisteredCluster) -> list[tuple[str, int]]:
    """Where registered brokers serve Kafka's clients, by listeners that this client can use."""
    listeners = read_listeners(cluster.session, lambda fault: note(str(fault)))
    return [
        (each.host, each.port)
        for broker in listeners.values()
        for each in suitable_listeners(broker.kafka, cluster.connection.security)
    ]


def kafka_groups_of(cluster: RegisteredCluster) -> "KafkaGroups | None":
    """Connect to the coordinators of a cluster's groups of Kafka's consumers.

    None where no registered broker has a listener that this client can use; HermesError where
    none of these can be reached.
    """
    places = kafka_places(cluster)
    if not places:
        return None
    groups = KafkaGroups(places, cluster.connection.timeout_seconds, cluster.connection.security)
    click.get_current_context().call_on_close(groups.close)
    return groups


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add -Z, -b (for a broker that knows its ZooKeeper), --timeout, and those of security.

    The command gets a `cluster`, which is closed after it.
    """
    return add_cluster_options(wraps(command)(connected_cluster(command)))


def add_cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what `connected_cluster` needs."""
    zookeeper = zookeeper_option("ZooKeeper; several servers separated by commas.")
    return zookeeper(broker_option(required=False)(connection_options(command)))


def connected_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """Call a command with the `cluster` that options name."""

    def connected(
        *args: Any,
        zookeeper: str | None,
        broker: BrokerOption | None,
        connection: CommandConnection,
        **options: Any,
    ) -> Any:
        ctx = click.get_current_context()
        if zookeeper is None and broker is None:
            raise click.UsageError("missing option '-b' / '--broker', or '-Z' / '--zookeeper'")
        given = {
            name: ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
            for name in ("zookeeper", "broker")
        }
        if given["zookeeper"] and given["broker"]:
            raise click.UsageError("-b and -Z exclude each other: a broker knows its ZooKeeper")
        if broker is not None and (zookeeper is None or given["broker"]):
            zookeeper = coordination_of(broker, connection)
        assert zookeeper is not None
        cluster = RegisteredCluster(zookeeper, connection)
        ctx.call_on_close(cluster.close)
        return command(*args, cluster=cluster, **options)

    return connected


def coordination_of(broker: BrokerOption, connection: CommandConnection) -> str:
    """Ask a broker where its groups are coordinated. Raises HermesError."""
    with broker.consumer(connection) as consumer:
        return consumer.coordination()


def _check_group(_: click.Context, __: click.Parameter, group: str) -> str:
    check_node_name("group", group)
    return group


GROUP_ARGUMENT: Final = click.argument("group", metavar="GROUP", callback=_check_group)


def inactive_group(session: Session, group: str) -> GroupState:
    """Read a group that is about to be changed; GroupActiveError if it has members."""
    state = read_group(session, group)
    check_inactive(group, state.members)
    return state
