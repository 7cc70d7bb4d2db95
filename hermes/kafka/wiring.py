"""How a broker gets Kafka's protocol: what `kafka_listen` serves is made here."""

from functools import partial

from hermes.broker.serving import FactoryOf, ServingBroker
from hermes.kafka.connection import KafkaFactory
from hermes.kafka.dispatching import Around, Dispatcher, KafkaServer
from hermes.kafka.fetch import Fetches
from hermes.kafka.group_wiring import mount_groups
from hermes.kafka.monitoring import series
from hermes.kafka.produce import Produces


def mount_kafka(run: ServingBroker, around: Around | None = None) -> FactoryOf:
    """What makes the factory of a listener, by its policy; for `around` see `Dispatcher`."""
    groups = mount_groups(run, run.cluster.topics, run.new_session)
    server = KafkaServer(run.shared, run.cluster, groups)
    server.produces, server.fetches = Produces(server), Fetches(server)
    dispatcher = Dispatcher(server, around)
    run.more_series.append(partial(series, dispatcher.kinds))
    return partial(KafkaFactory, run.connections, dispatcher)
