"""`hermes topics`: which topics a broker has and what they hold; create, alter and delete them."""

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import Any, Final

import click

from hermes.cli.options import (
    BROKER_OPTION,
    JSON_OPTION,
    TOPICS_ARGUMENT,
    YES_OPTION,
    BrokerOption,
    CommandConnection,
    option_type,
)
from hermes.cli.registered_cluster import RegisteredCluster, coordination_of, kafka_places
from hermes.cli.replica_moves import give_copies
from hermes.cli.security_options import connection_options
from hermes.cli.terminal import (
    confirm,
    note,
    write_done,
    write_json,
    write_rows,
    write_table,
)
from hermes.client import SimpleConsumer
from hermes.client.kafka_replicas import KafkaReplicas
from hermes.config.kinds import FORMAT_0_7, FORMAT_KAFKA, MAX_PARTITIONS
from hermes.config.topic import MOST_COPIES
from hermes.config.units import format_bytes
from hermes.errors import ClientError, TopicExistsError
from hermes.protocol import ErrorCode, MetadataRequest, TopicMetadata, error_for

_RESET_ALL: Final = "all"


def _parse_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(
            f"{text!r} is not a setting: expected NAME=VALUE such as retention_time=30d"
        )
    return name, value


_SET_OPTION: Final = click.option(
    "--set",
    "settings",
    type=option_type(_parse_setting, "setting"),
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting as in broker.yaml, such as retention_time=30d; may be given several times.",
)
_PARTITIONS_OPTION: Final = click.option(
    "--partitions",
    type=click.IntRange(1, MAX_PARTITIONS),
    metavar="N",
    help="How many partitions; the broker's num_partitions unless given. They never become fewer.",
)


_REPLICAS_OPTION: Final = click.option(
    "--replicas",
    type=click.IntRange(1, MOST_COPIES),
    metavar="N",
    help="How many brokers have a copy of each partition, with the format `kafka`; "
    "default_replication_factor unless given.",
)


@click.group("topics", short_help="List, describe, create, alter and delete topics.")
def command() -> None:
    """List, describe, create, alter and delete topics (Hermes only; Kafka 0.7 can't be asked)."""


@command.command("create", short_help="Create topics with settings of their own.")
@BROKER_OPTION
@JSON_OPTION
@connection_options
@_PARTITIONS_OPTION
@_REPLICAS_OPTION
@_SET_OPTION
@click.option(
    "--if-not-exists",
    is_flag=True,
    help="Leave topics that exist as they are, and end with status 0.",
)
@TOPICS_ARGUMENT
def create(
    broker: BrokerOption,
    as_json: bool,
    connection: CommandConnection,
    partitions: int | None,
    replicas: int | None,
    settings: tuple[tuple[str, str], ...],
    if_not_exists: bool,
    topics: tuple[str, ...],
) -> None:
    """Create TOPICs. Their settings win over broker.yaml, and are kept in the data directory.

    In a cluster, create a topic in format `kafka` once, on any broker with kafka_listen; create
    0.7-format topics on every broker that should host them. Copies of a topic's partitions are on
    different brokers, in different racks where broker.yaml names any.

    Example: hermes topics create -b localhost --partitions 8 --set retention_time=30d clicks
    """
    with _connected(broker, connection, "create a topic") as consumer:
        for topic in dict.fromkeys(topics):
            done = "created"
            try:
                consumer.create_topic(topic, _given(settings, partitions, replicas))
            except TopicExistsError:
                if not if_not_exists:
                    raise
                done = "exists"
            write_done(done, topic, as_json)


@command.command("alter", short_help="Change settings of topics.")
@BROKER_OPTION
@JSON_OPTION
@connection_options
@_PARTITIONS_OPTION
@_REPLICAS_OPTION
@_SET_OPTION
@click.option(
    "--reset",
    multiple=True,
    metavar="NAME",
    help="A setting that is to follow broker.yaml again, or `all`; may be given several times.",
)
@TOPICS_ARGUMENT
def alter(
    broker: BrokerOption,
    as_json: bool,
    connection: CommandConnection,
    partitions: int | None,
    replicas: int | None,
    settings: tuple[tuple[str, str], ...],
    reset: tuple[str, ...],
    topics: tuple[str, ...],
) -> None:
    """Set or reset settings of TOPICs, while the broker runs.

    What is set wins over broker.yaml until it is reset. Example: hermes topics alter -b localhost
    --set retention_time=7d --reset flush_messages clicks

    --replicas gives partitions more copies, or fewer, while they are served: `hermes replicas wait`
    tells when that is done.
    """
    given = _given(settings, partitions)
    if not given and not reset and replicas is None:
        raise click.UsageError("nothing to alter: give --partitions, --replicas, --set or --reset")
    if replicas is not None:
        with closing(_replicas_of(broker, connection)) as cluster:
            give_copies(cluster, topics, replicas, as_json=as_json)
    if not given and not reset:
        return
    with _connected(broker, connection, "alter a topic") as consumer:
        for topic in dict.fromkeys(topics):
            consumer.alter_topic(topic, given, None if _RESET_ALL in reset else reset)
            write_done("altered", topic, as_json)


def _replicas_of(broker: BrokerOption, connection: CommandConnection) -> KafkaReplicas:
    with closing(RegisteredCluster(coordination_of(broker, connection), connection)) as cluster:
        places = kafka_places(cluster)
    return KafkaReplicas(places, connection.timeout_seconds, connection.security)


def _given(
    settings: tuple[tuple[str, str], ...], partitions: int | None, replicas: int | None = None
) -> dict[str, object]:
    counts = {"partitions": partitions, "replicas": replicas}
    return {**dict(settings), **{key: each for key, each in counts.items() if each is not None}}


@command.command("list")
@BROKER_OPTION
@JSON_OPTION
@connection_options
def list_(broker: BrokerOption, as_json: bool, connection: CommandConnection) -> None:
    """List the topics of a broker.

    Of a topic with the format `kafka` a broker of a cluster has some partitions: these are counted,
    and a note on stderr says so.
    """
    with _connected(broker, connection, "list its topics") as consumer:
        topics = sorted(consumer.metadata().topics, key=lambda each: each.topic)
        rows = [
            (each.topic, _format(each), len(each.numbers), each.copies, _size_bytes(each))
            for each in topics
        ]
        _note_shares(consumer, broker, topics)
    if not as_json:
        table = [(*each[:-1], format_bytes(each[-1])) for each in rows]
        write_table(("TOPIC", "FORMAT", "PARTITIONS", "REPLICAS", "SIZE"), table)
        return
    names = ("topic", "format", "partitions", "replicas", "size_bytes")
    for each in rows:
        write_json(dict(zip(names, each, strict=True)))


@command.command("describe", short_help="Show the partitions or settings of topics.")
@BROKER_OPTION
@JSON_OPTION
@connection_options
@click.option("--settings", is_flag=True, help="Show settings, and where each comes from.")
@TOPICS_ARGUMENT
def describe(
    broker: BrokerOption,
    as_json: bool,
    connection: CommandConnection,
    settings: bool,
    topics: tuple[str, ...],
) -> None:
    """Show the partitions of TOPICs: where they begin, up to where they can be read, their size.

    Partitions that were never written to have no offsets.
    """
    if settings:
        with _connected(broker, connection, "describe settings") as consumer:
            _describe_settings(consumer, as_json, topics)
        return
    with _connected(broker, connection, "describe a topic") as consumer:
        described = consumer.metadata(list(dict.fromkeys(topics))).topics
        for each in described:
            _check_exists(each)
        found = [(each.topic, each.copies, _partition_values(each)) for each in described]
        _note_shares(consumer, broker, described)
    if as_json:
        for topic, copies, partitions in found:
            write_json({"topic": topic, "replicas": copies, "partitions": partitions})
        return
    rows = [
        (topic, values.pop("partition"), copies, *values.values())
        for topic, copies, partitions in found
        for values in partitions
    ]
    write_table(("TOPIC", "PARTITION", "REPLICAS", "EARLIEST", "LATEST", "BYTES"), rows)


@command.command("delete", short_help="Delete topics and their messages.")
@BROKER_OPTION
@JSON_OPTION
@connection_options
@YES_OPTION
@TOPICS_ARGUMENT
def delete(
    broker: BrokerOption,
    as_json: bool,
    connection: CommandConnection,
    yes: bool,
    topics: tuple[str, ...],
) -> None:
    """Delete TOPICs on a broker, with all their messages. This can't be undone.

    A topic with the format `kafka` is deleted on all brokers of a cluster.

    All are looked up, and asked about, before the first is deleted.
    """
    with _connected(broker, connection, "delete a topic") as consumer:
        for name in dict.fromkeys(topics):
            (described,) = consumer.metadata([name]).topics
            _check_exists(described)
            where = f"on {broker}, {format_bytes(_size_bytes(described))}"
            count = _sharers(consumer, [described])
            if count > 1:
                where = f"on all {count} brokers of the cluster"
            confirm(f"Delete topic {name!r} {where}, for good?", yes=yes)
        for name in dict.fromkeys(topics):
            consumer.delete_topic(name)
            write_done("deleted", name, as_json)


def _describe_settings(consumer: SimpleConsumer, as_json: bool, topics: tuple[str, ...]) -> None:
    rows = [
        {
            "topic": topic,
            "setting": each.name,
            "value": each.value,
            "origin": each.origin,
        }
        for topic in dict.fromkeys(topics)
        for each in consumer.describe_settings(topic)
    ]
    write_rows(("topic", "setting", "value", "origin"), rows, as_json)


@contextmanager
def _connected(
    broker: BrokerOption, connection: CommandConnection, purpose: str
) -> Iterator[SimpleConsumer]:
    with broker.consumer(connection) as consumer:
        if not consumer.supports(MetadataRequest.TYPE):
            raise ClientError(
                f"{broker} is a broker of Kafka 0.7, which can't {purpose}; its topics are "
                "directories in its log.dir, and nodes of /brokers/topics in ZooKeeper "
                "(`hermes offsets` and `hermes consume` work with it)"
            )
        yield consumer


def _check_exists(topic: TopicMetadata) -> None:
    if topic.error == ErrorCode.UNKNOWN_TOPIC:
        raise ClientError(f"there is no topic {topic.topic!r} (hermes topics list shows all)")
    if topic.error != ErrorCode.NONE:
        raise error_for(topic.error, f"topic {topic.topic!r}")


def _note_shares(
    consumer: SimpleConsumer, broker: BrokerOption, topics: Iterable[TopicMetadata]
) -> None:
    count = _sharers(consumer, topics)
    if count > 1:
        note(
            f"{broker} is one of {count} brokers: of topics with the format kafka only its own "
            "partitions are shown; the others have the rest"
        )


def _sharers(consumer: SimpleConsumer, topics: Iterable[TopicMetadata]) -> int:
    """How many brokers share the topics with Kafka's format among these; 0 without such a one."""
    return len(consumer.brokers()) if any(each.holds_records for each in topics) else 0


def _format(topic: TopicMetadata) -> str:
    return FORMAT_KAFKA if topic.holds_records else FORMAT_0_7


def _size_bytes(topic: TopicMetadata) -> int:
    return sum(each.size_bytes for each in topic.partitions)


def _partition_values(topic: TopicMetadata) -> list[dict[str, Any]]:
    known = {each.partition: asdict(each) for each in topic.partitions}
    missing = {"earliest": None, "high_watermark": None, "size_bytes": 0}
    return [known.get(number, {"partition": number, **missing}) for number in topic.numbers]
