"""What the commands about copies share: how brokers are found, asked, and waited for."""

import time
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Final

import click

from hermes.cli.options import (
    TOPIC,
    BrokerOption,
    CommandConnection,
    option_type,
    parse_broker,
)
from hermes.cli.registered_cluster import (
    RegisteredCluster,
    add_cluster_options,
    connected_cluster,
    kafka_places,
)
from hermes.cli.terminal import status
from hermes.client.kafka_brokers import UNANSWERED
from hermes.client.kafka_replicas import (
    KafkaReplicas,
    Partition,
    parse_place,
)
from hermes.errors import ClientError

_POLL_SECONDS: Final = 0.5


PLACES_ARGUMENT: Final = click.argument(
    "places", metavar="[TOPIC:PARTITION]...", nargs=-1, type=option_type(parse_place, "partition")
)
TOPICS_ARGUMENT: Final = click.argument("topics", metavar="[TOPIC]...", nargs=-1, type=TOPIC)


def asking(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add -k, -b or -Z, and options of security; the command gets the `cluster`'s copies."""

    @wraps(command)
    def chosen(*args: Any, kafka: BrokerOption | None, **options: Any) -> Any:
        if kafka is None:
            return found(*args, **options)
        options.pop("zookeeper")
        options.pop("broker")
        connection: CommandConnection = options.pop("connection")
        return _closed(command, [(kafka.host, kafka.port)], connection, *args, **options)

    def by_coordination(*args: Any, cluster: RegisteredCluster, **options: Any) -> Any:
        return _closed(command, kafka_places(cluster), cluster.connection, *args, **options)

    found = connected_cluster(by_coordination)
    option = click.option(
        "-k",
        "--kafka",
        type=option_type(parse_broker, "address"),
        metavar="HOST:PORT",
        help="The kafka_listen of any broker of the cluster.",
    )
    return add_cluster_options(option(chosen))


def _closed(
    command: Callable[..., Any],
    places: Iterable[tuple[str, int]],
    connection: CommandConnection,
    /,
    *args: Any,
    **options: Any,
) -> Any:
    replicas = KafkaReplicas(places, connection.timeout_seconds, connection.security)
    click.get_current_context().call_on_close(replicas.close)
    return command(*args, replicas=replicas, **options)


def wait_for(
    replicas: KafkaReplicas, deadline: float, read: Callable[[], Iterable[Partition]]
) -> None:
    while True:
        replicas.forgive()
        try:
            left = [each.place for each in read() if not each.is_settled]
        except UNANSWERED as error:
            if time.monotonic() >= deadline:
                raise
            status(str(error))
        else:
            if not left:
                return
            named = ", ".join(f"{topic}:{number}" for topic, number in left[:5])
            more = f" and {len(left) - 5} more" if len(left) > 5 else ""
            if time.monotonic() >= deadline:
                raise ClientError(
                    f"not in sync: {named}{more}; `hermes replicas list --problems` tells why"
                )
            status(f"not in sync yet: {named}{more}")
        time.sleep(_POLL_SECONDS)
