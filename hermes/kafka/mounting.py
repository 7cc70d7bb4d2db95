"""How a broker gets Kafka's protocol: what `kafka_listen` serves is made here."""

from functools import partial

from hermes.broker.serving import FactoryOf, ServingBroker
from hermes.kafka.connection import KafkaFactory
from hermes.kafka.dispatching import Around, Dispatcher
from hermes.kafka.groups.building import mount_groups
from hermes.kafka.monitoring import series
from hermes.kafka.producer_ids import ProducerIds
from hermes.kafka.serving import KafkaServer
from hermes.kafka.topics import KafkaTopics


def mount_kafka(run: ServingBroker, around: Around | None = None) -> FactoryOf:
    """Make what serves the ports for Kafka's clients.

    Args:
        run: the broker, whose ports are about to open.
        around: stands around each handler; see `Dispatcher`.

    Returns:
        What makes the factory of a listener, by its policy.
    """
    topics = KafkaTopics(
        run.shared, run.broker.changes, lambda: run.listeners, run.broker.mirroring.cluster_id
    )
    producer_ids = ProducerIds(run.directory.claim_producer_ids, run.in_thread)
    groups = mount_groups(run, lambda: (run.config.broker_id,))
    server = KafkaServer(run.shared, topics, producer_ids, groups)
    run.on_stopping.append(server.waits.end)
    dispatcher = Dispatcher(server, around)
    run.more_series.append(partial(series, dispatcher.kinds))
    return partial(KafkaFactory, run.connections, dispatcher)
