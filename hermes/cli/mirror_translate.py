"""`hermes mirror translate`: where a consumer group continues in the target of a mirror."""

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import click

from hermes.cli.exit_codes import fail_for
from hermes.cli.options import (
    JSON_OPTION,
    BrokerOption,
    CommandConnection,
    option_type,
    parse_broker,
)
from hermes.cli.registered_cluster import (
    RegisteredCluster,
    cluster_options,
    kafka_groups_of,
    start_session,
)
from hermes.cli.terminal import note, write_rows
from hermes.client.kafka_groups import KafkaGroups
from hermes.client.mirrored import MirroredPartitions, source_name
from hermes.client.translation import TranslatedPlace, translate
from hermes.coordination.cluster_id import cluster_id
from hermes.coordination.cluster_view import (
    leaders_of,
    read_brokers,
    read_topics,
    record_names,
)
from hermes.coordination.group_state import read_group, store_offsets
from hermes.coordination.layout import BrokerPartition, check_node_name
from hermes.coordination.origins import list_origins
from hermes.coordination.sessions import Session
from hermes.errors import HermesError, InvalidNodeError, UnknownTopicError
from hermes.mirror.group_carrier import mirrored_names
from hermes.mirror.kafka_cluster import KafkaCluster, kafka_partition
from hermes.mirror.kafka_origins import KafkaOrigins, kafka_cluster_of
from hermes.protocol import NOBODY

_COLUMNS: Final = ("topic", "partition", "offset", "unread", "ahead")


class _GroupPositions(NamedTuple):
    """`cluster_id`: the source's. `places`: next offsets by the name of the source partition.

    `shown`: the same partitions for people.
    """

    cluster_id: str
    places: dict[str, int]
    shown: dict[str, str]


@click.command("translate", short_help="Find a group's place in the target of a mirror.")
@click.option(
    "--from",
    "source",
    metavar="HOST:PORT[/CHROOT]",
    help="ZooKeeper of the cluster in which the group reads now.",
)
@click.option(
    "--from-kafka",
    "kafka_source",
    type=option_type(parse_broker, "address"),
    metavar="HOST:PORT",
    help="A broker of that cluster by Kafka's protocol, for a group of Kafka's clients.",
)
@click.option("-g", "--group", required=True, help="The group there.")
@click.option("--to-group", help="The group's name in the target; by default the same.")
@click.option("--commit", is_flag=True, help="Store the places for the group in the target.")
@cluster_options
@JSON_OPTION
def command(
    cluster: RegisteredCluster,
    as_json: bool,
    source: str | None,
    kafka_source: BrokerOption | None,
    group: str,
    to_group: str | None,
    commit: bool,
) -> None:
    """Show where a group of the source cluster continues in the target, -b or -Z.

    Give --from for groups of Hermes' own clients, or --from-kafka for those of Kafka's: these are
    stored where the target's brokers have kafka_listen. The options of TLS and users are for both
    clusters.

    At these places it misses nothing. Where a mirror copies byte for byte they are exact; where
    several partitions go into one, or messages by key, it may see some messages again: those of
    the partitions in which it has read furthest. UNREAD counts partitions of the source that the
    group has no offset of, AHEAD those that it has read further than they are mirrored.

    With --commit the places are stored for the group, which must have no members. The status is 1
    when a partition can't be translated, and nothing is stored then.
    """
    if (source is None) == (kafka_source is None):
        raise click.UsageError("give one of --from and --from-kafka")
    origins: Mapping[str, Mapping[str, str] | InvalidNodeError]
    if source is not None:
        for name in (group, to_group or group):
            check_node_name("group", name)
        session = start_session(source, cluster.connection)
        try:
            reader = _read(session, group)
        finally:
            session.stop()
        origins = {**list_origins(cluster.session), **record_origins(cluster)}
    else:
        assert kafka_source is not None
        reader = _read_kafka(kafka_source, cluster.connection, group)
        origins = record_origins(cluster)
    faults: list[str] = []
    found = dict(_translate_all(cluster, reader, origins, faults))
    rows = [
        {
            "topic": topic,
            "partition": str(partition),
            "offset": place.offset,
            "unread": len(place.unread),
            "ahead": len(place.ahead),
        }
        for (topic, partition), place in sorted(found.items())
    ]
    write_rows(_COLUMNS, rows, as_json)
    faults += [f"{each}: nothing of it is in the target" for each in reader.shown.values()]
    fail_for(faults)
    if commit:
        offsets = {place: translated.offset for place, translated in found.items()}
        if source is not None:
            store_offsets(cluster.session, to_group or group, offsets)
        else:
            _store_kafka(cluster, to_group or group, offsets)
        note(f"stored for group {to_group or group}")


def _read(session: Session, group: str) -> _GroupPositions:
    state, source_id = read_group(session, group), cluster_id(session)
    places, shown = {}, {}
    numbers = {topic: mirrored_names(session, topic) for topic, _ in state.offsets}
    for (topic, partition), offset in state.offsets.items():
        if isinstance(offset, InvalidNodeError):
            raise offset
        name = source_name(source_id, topic, *numbers[topic].get(partition, partition))
        places[name], shown[name] = offset, f"{topic} {partition}"
    if not places:
        raise HermesError(f"group {group!r} has no offsets in the source")
    return _GroupPositions(source_id, places, shown)


def _read_kafka(place: BrokerOption, connection: CommandConnection, group: str) -> _GroupPositions:
    source = KafkaCluster([(place.host, place.port)], connection.security)
    groups = KafkaGroups([place], connection.timeout_seconds, connection.security)
    try:
        source_id, offsets = source.cluster_id(), groups.offsets(group)
    finally:
        source.close()
        groups.close()
    if not offsets:
        raise HermesError(f"group {group!r} has no offsets in the source")
    names = {
        source_name(source_id, topic, *kafka_partition(number)): (f"{topic} {number}", offset)
        for (topic, number), offset in offsets.items()
    }
    places = {name: offset for name, (_, offset) in names.items()}
    return _GroupPositions(source_id, places, {name: shown for name, (shown, _) in names.items()})


def _store_kafka(
    cluster: RegisteredCluster, group: str, offsets: Mapping[tuple[str, BrokerPartition], int]
) -> None:
    groups = kafka_groups_of(cluster)
    if groups is None:
        raise HermesError("no broker of the target serves Kafka's clients: set kafka_listen")
    groups.store(
        group, {(topic, place.partition): offset for (topic, place), offset in offsets.items()}
    )


def record_origins(
    cluster: RegisteredCluster, forget: str | None = None
) -> Mapping[str, Mapping[str, str]]:
    """The origins of a cluster's topics of Kafka's format, before one's are forgotten."""
    security = cluster.connection.security
    kafka = kafka_cluster_of(cluster.session, security, lambda fault: note(str(fault)))
    if kafka is None:
        return {}
    try:
        origins = KafkaOrigins(kafka)
        before = origins.all()
        if forget is not None:
            origins.forget(forget)
        return before
    finally:
        kafka.close()


def _translate_all(
    cluster: RegisteredCluster,
    reader: _GroupPositions,
    origins: Mapping[str, Mapping[str, str] | InvalidNodeError],
    faults: list[str],
) -> Iterator[tuple[tuple[str, BrokerPartition], TranslatedPlace]]:
    """Translate into all partitions that hold some of `reader.shown`, and remove it from there."""
    session = cluster.session
    wanted = {shown.rpartition(" ")[0] for shown in reader.shown.values()}
    for topic, known in origins.items():
        if isinstance(known, InvalidNodeError) or reader.cluster_id in known:
            wanted.add(topic)
    topics = sorted(wanted & set(read_topics(session)))

    def on_fault(fault: InvalidNodeError) -> None:
        faults.append(str(fault))

    brokers = read_brokers(session, on_fault)
    led = {topic: leaders_of(session, topic, on_fault) for topic in topics}
    for topic, leaders in led.items():
        faults += _unasked(session, topic, leaders, brokers)
    # A partition keeps its name, whoever leads it.
    names = {
        (topic, leader, place.partition): place
        for topic, leaders in led.items()
        for place, leader in leaders.items()
    }
    for broker_id in brokers.keys() & {leader for _, leader, _ in names}:
        node = brokers[broker_id]
        with MirroredPartitions(
            node.host,
            node.port,
            timeout_seconds=cluster.connection.timeout_seconds,
            security=cluster.connection.security,
        ) as partitions:
            if not partitions.is_supported():
                faults.append(f"broker {broker_id} keeps no positions of sources: not of Hermes")
                continue
            for topic in topics:
                for number, place in _translate_topic(partitions, topic, reader):
                    named = names.get((topic, broker_id, number))
                    yield (topic, named or BrokerPartition(broker_id, number)), place


def _unasked(
    session: Session,
    topic: str,
    leaders: Mapping[BrokerPartition, int],
    brokers: Container[int],
) -> Iterator[str]:
    """Name the partitions that may have something of the source, and nobody can be asked of."""
    names: Sequence[BrokerPartition] = ()
    with suppress(InvalidNodeError):  # which has been said
        names = record_names(session, topic)
    for place in sorted({*names, *leaders}):
        if leaders.get(place, NOBODY) not in brokers:
            yield f"{topic} {place}: nobody who is there has it, so what it has isn't known"


def _translate_topic(
    partitions: MirroredPartitions, topic: str, reader: _GroupPositions
) -> Iterator[tuple[int, TranslatedPlace]]:
    try:
        told = partitions.positions(topic)
    except UnknownTopicError:
        return
    for each in told:
        here = {name.partition("#")[0] for name in each.positions} & reader.places.keys()
        if not here:
            continue
        place = translate(partitions.source_map(topic, each.partition), reader.places)
        if place is not None:
            for name in here:
                reader.shown.pop(name, None)
            yield each.partition, place
