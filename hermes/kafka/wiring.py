"""How a broker gets Kafka's protocol: what `kafka_listen` serves is made here."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from hermes.broker.serving import FactoryOf, ServingBroker
from hermes.coordination.listeners import BrokerListeners
from hermes.groups.coordinator import GroupCoordinator
from hermes.kafka.connection import KafkaFactory
from hermes.kafka.dispatching import Around, Dispatcher, KafkaServer
from hermes.kafka.fetching.plain_fetches import Fetches
from hermes.kafka.group_wiring import mount_groups
from hermes.kafka.monitoring import series
from hermes.kafka.other_brokers import OtherBroker
from hermes.kafka.outgoing import OutgoingLimits
from hermes.kafka.producing.produces import Produces
from hermes.kafka.replicas.copies import Copies
from hermes.kafka.replicas.copy_metrics import ReplicaMetrics
from hermes.kafka.transactions.remote import RemoteBrokers
from hermes.kafka.transactions.transaction_metrics import series as transaction_series
from hermes.kafka.transactions.transactions import Transactions
from hermes.security import CLUSTER, PLAIN, ClientSecurity, Operation
from hermes.server.clients import Client

#: Another broker, by what it says of itself; None where it can't be reached.
_Other: TypeAlias = Callable[[BrokerListeners], OtherBroker | None]

#: What an answer may have beside its largest batch.
_BESIDE_BYTES: Final = 8 << 20


def mount_kafka(run: ServingBroker, around: Around | None = None) -> FactoryOf:
    """What makes the factory of a listener, by its policy; for `around` see `Dispatcher`."""
    groups = mount_groups(run, run.cluster.topics, run.new_session)
    server = KafkaServer(run.shared, run.cluster, groups)
    server.produces, server.fetches = Produces(server), Fetches(server)
    own = run.config.replicate_as
    other = partial(_other_broker, run, PLAIN if own is None else own.security("replicate_as"))
    if run.cluster.topics.has_cluster:
        server.replicas = _mount_copies(run, other).serving
    server.transactions = _mount_transactions(run, groups, other)
    dispatcher = Dispatcher(server, around)
    run.more_series.append(partial(series, dispatcher.kinds, server.fetch_sessions))
    return partial(KafkaFactory, run.connections, dispatcher)


def _mount_copies(run: ServingBroker, other: _Other) -> Copies:
    refusals = run.shared.refusals

    def may_replicate(client: Client) -> bool:
        return not refusals.is_on or refusals.permits(client, Operation.REPLICATE, CLUSTER)

    copies = Copies(
        run.shared,
        run.cluster.replica_tree,
        run.coordination.lease_of,
        run.cluster.refreshed,
        other,
        may_replicate,
        run.cluster.topics.throttle_of,
    )
    metrics = ReplicaMetrics(copies)
    run.cluster.observe(copies.use)
    run.cluster.observe(metrics.use)
    run.more_series.append(metrics.series)
    run.flusher.on_flushed(copies.flushed)
    run.on_reopened.append(copies.reopened)
    run.on_leaving.append(copies.leave)
    run.on_stopping.append(copies.stop)
    return copies


def _mount_transactions(
    run: ServingBroker, groups: GroupCoordinator, other: _Other
) -> Transactions:
    topics = run.cluster.topics
    remote = RemoteBrokers(topics, other) if topics.has_cluster else None
    transactions = Transactions.of(run.shared, run.cluster, groups, remote)
    run.more_series.append(partial(transaction_series, transactions, run.shared))
    run.on_started.append(transactions.coordinator.begin)
    run.on_stopping.append(transactions.stop)
    return transactions


def _other_broker(
    run: ServingBroker, security: ClientSecurity, listeners: BrokerListeners
) -> OtherBroker | None:
    if not listeners.kafka:
        return None
    config, kafka = run.config, listeners.kafka
    named = [each for each in kafka if each.name == config.replication_listener]
    listener = (named or kafka)[0]
    # A leader sends a batch whole, however large a producer may send it.
    usual, largest = OutgoingLimits(), config.max_request_bytes + _BESIDE_BYTES
    limits = replace(usual, response_bytes=max(usual.response_bytes, largest))
    place = listener.host, listener.port
    return OtherBroker(run.reactor, *place, run.in_thread, security, limits)
