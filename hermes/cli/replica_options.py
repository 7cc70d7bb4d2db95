"""What the commands about copies share: how brokers are found, asked, and waited for."""

import time
from collections.abc import Callable, Iterable
from typing import Final

import click

from hermes.cli.options import TOPIC, option_type
from hermes.cli.registered_cluster import kafka_options
from hermes.cli.terminal import status
from hermes.client.kafka_replicas import KafkaReplicas, Partition, parse_place
from hermes.errors import SILENT, ClientError

_POLL_SECONDS: Final = 0.5


PLACES_ARGUMENT: Final = click.argument(
    "places", metavar="[TOPIC:PARTITION]...", nargs=-1, type=option_type(parse_place, "partition")
)
TOPICS_ARGUMENT: Final = click.argument("topics", metavar="[TOPIC]...", nargs=-1, type=TOPIC)


asking: Final = kafka_options(KafkaReplicas, "replicas")


def wait_for(
    replicas: KafkaReplicas, deadline: float, read: Callable[[], Iterable[Partition]]
) -> None:
    while True:
        replicas.forgive()
        try:
            left = [each.place for each in read() if not each.is_settled]
        except SILENT as error:
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
