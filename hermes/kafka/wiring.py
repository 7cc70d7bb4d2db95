"""How a broker gets Kafka's protocol: what `kafka_listen` serves is made here."""

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred

from hermes.broker.serving import FactoryOf, ServingBroker
from hermes.cluster.cluster_part import ClusterPart
from hermes.cluster.own_requests import OwnRequests
from hermes.cluster.producer_ids import ProducerIds
from hermes.cluster.topic_changes import TopicChanges
from hermes.cluster.topic_cluster import TopicCluster
from hermes.cluster.topics import KafkaTopics
from hermes.coordination.sessions import Session
from hermes.kafka.connection import KafkaFactory
from hermes.kafka.dispatching import Around, Dispatcher
from hermes.kafka.group_wiring import mount_groups
from hermes.kafka.monitoring import series
from hermes.kafka.serving import KafkaServer


def mount_kafka(run: ServingBroker, around: Around | None = None) -> FactoryOf:
    """Make what serves the ports for Kafka's clients, which are about to open.

    Args:
        around: see `Dispatcher`.

    Returns:
        What makes the factory of a listener, by its policy.
    """
    topics = KafkaTopics(
        run.shared,
        lambda: run.listeners,
        run.broker.mirroring.cluster_id,
        has_cluster=run.coordination.is_wanted,
    )
    run.shared.topics.owns = topics.owns
    changes, deletions = run.broker.changes, run.broker.deletions
    topic_changes = TopicChanges(run.shared, topics, changes, deletions)
    claim: Callable[[int], int] = run.directory.claim_producer_ids
    if topics.has_cluster:
        part = ClusterPart(run.shared, topics, changes, deletions, topic_changes.create)
        cluster = _cluster(run, part)
        topic_changes.use_cluster(part)
        OwnRequests(run.shared, topics, topic_changes).take_from(changes, deletions)
        claim = partial(run.directory.claim_producer_ids, elsewhere=cluster.claim_producer_ids)
    producer_ids = ProducerIds(claim, run.in_thread)
    groups = mount_groups(run, topics, partial(_connect, run))
    server = KafkaServer(run.shared, topics, topic_changes, producer_ids, groups)
    dispatcher = Dispatcher(server, around)
    run.more_series.append(partial(series, dispatcher.kinds))
    return partial(KafkaFactory, run.connections, dispatcher)


def _connect(run: ServingBroker, on_change: Callable[[], None] = lambda: None) -> Session | None:
    """A session with coordination that has not been started; None while there can't be one."""
    coordination, config = run.coordination, run.config
    address = coordination.own_connect_string
    if address is None or not coordination.is_registered:
        return None
    return Session(
        address,
        security=coordination.security,
        session_timeout_seconds=config.zookeeper_session_timeout_ms / 1000,
        connection_timeout_seconds=config.zookeeper_connection_timeout_ms / 1000,
        on_change=on_change,
    )


def _cluster(run: ServingBroker, part: ClusterPart) -> TopicCluster:
    """What keeps up with the cluster's topics, from when the broker has started."""

    def stop() -> "Deferred[None]":
        part.stop()
        return cluster.stop()

    cluster = TopicCluster(
        run.config.broker_id,
        partial(_connect, run),
        run.reactor.callFromThread,
        run.in_thread,
        part.seen,
    )
    part.begin(cluster)
    run.on_started.append(cluster.start)
    run.on_stopping.append(stop)
    return cluster
