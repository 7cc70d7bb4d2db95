"""`hermes groups`: the members of a consumer group, how far it has come, and where it continues."""

from typing import Any, Final

import click

from hermes.cli.exit_codes import fail_for
from hermes.cli.options import JSON_OPTION, TOPIC, YES_OPTION
from hermes.cli.place_options import RESET_POSITION, PartitionPlace
from hermes.cli.registered_cluster import (
    GROUP_ARGUMENT,
    RegisteredCluster,
    group_options,
    inactive_group,
    kafka_groups_of,
)
from hermes.cli.terminal import confirm, write_done, write_json, write_line, write_rows
from hermes.client.kafka_groups import KafkaGroups, KafkaMember, LeaderlessError
from hermes.client.resets import check_inactive, reset_offset
from hermes.coordination.group_state import (
    GroupState,
    delete_group,
    lag_between,
    list_groups,
    read_group,
    read_members,
    store_offsets,
)
from hermes.coordination.kafka_group_state import (
    count_members,
    list_kafka_groups,
    read_kafka_group,
)
from hermes.coordination.kafka_groups import group_node_path
from hermes.coordination.layout import BrokerPartition, GroupPaths
from hermes.errors import SILENT, ClientError, HermesError
from hermes.protocol import NOBODY

# Up to this much of a partition is read to count its messages.
_COUNTED_BYTES: Final = 1024 * 1024
_COLUMNS: Final = ("topic", "partition", "leader", "offset", "end", "lag", "messages", "owner")

_TopicPartition = tuple[str, BrokerPartition]


@click.group("groups", short_help="List, describe, reset and delete consumer groups.")
def command() -> None:
    """List, describe, reset and delete consumer groups.

    Those of Hermes' consumers and Kafka 0.7's are stored in ZooKeeper. Those of Kafka's current
    clients
    are coordinated by brokers with `kafka_listen`: they are found through ZooKeeper, or with -k.
    """


@command.command("list")
@group_options
@JSON_OPTION
def list_(cluster: RegisteredCluster | None, kafka: KafkaGroups | None, as_json: bool) -> None:
    """List the consumer groups; `kind` tells those of Kafka's current clients.

    These are reported by the brokers that coordinate them. Those of a broker that doesn't answer
    are shown as stored in coordination; it is named on stderr, and the status is 1.
    """
    rows: list[dict[str, Any]] = []
    found: dict[str, int] = {}
    faults: list[str] = []
    if cluster is not None:
        # Nothing more is read: a group in disorder must not hide the others.
        rows = [
            {"group": group, "members": len(read_members(cluster.session, group))}
            for group in list_groups(cluster.session)
        ]
        kafka = _reached(cluster, faults)
    if kafka is not None:
        found = dict(kafka.groups())
        faults += kafka.faults
    if cluster is not None and faults:
        missing = [name for name in list_kafka_groups(cluster.session) if name not in found]
        found |= {name: count_members(cluster.session, name) for name in missing}
    rows += [
        {"group": name, "members": count, "kind": "kafka"} for name, count in sorted(found.items())
    ]
    columns = ("group", "members", "kind") if found else ("group", "members")
    write_rows(columns, rows if as_json else [{"kind": "0.7"} | each for each in rows], as_json)
    fail_for(faults)


def _reached(cluster: RegisteredCluster, faults: list[str]) -> KafkaGroups | None:
    try:
        return kafka_groups_of(cluster)
    except SILENT as error:
        faults.append(str(error))
        return None


def _is_kafka(cluster: RegisteredCluster | None, group: str) -> bool:
    if cluster is None:  # -k
        return True
    if cluster.session.get(GroupPaths(group).root) is not None:
        return False
    return cluster.session.get(group_node_path(group)) is not None


def _kafka_with(
    cluster: RegisteredCluster | None, kafka: KafkaGroups | None, group: str
) -> KafkaGroups | None:
    if not _is_kafka(cluster, group):
        return None
    return kafka if cluster is None else kafka_groups_of(cluster)


# -- describe -----------------------------------------------------------------------------------


@command.command("describe", short_help="Show members, owners, offsets and lag.")
@group_options
@JSON_OPTION
@GROUP_ARGUMENT
def describe(
    cluster: RegisteredCluster | None, kafka: KafkaGroups | None, as_json: bool, group: str
) -> None:
    """Show the members of GROUP and, per partition, owner, offset, end and lag.

    The lag is in bytes, as offsets are. In messages it is counted, by reading them, where it is
    at most a megabyte; otherwise it is not shown. Offsets of topics with the format `kafka` count
    messages, and so do both lags.

    What is unknown (a broker doesn't answer, the offset is not a number) is a dash, stderr says
    why, and the status is 1. If it is the broker that coordinates a group of Kafka's current
    clients, members and offsets are shown as stored in coordination.

    A partition keeps its name, BROKER-NUMBER, whoever leads it: where a copy on another broker
    does, `leader` shows which.

    Of groups of Kafka's current clients partitions have Kafka's numbers, and the lag of a topic
    with the format `kafka` is in messages.
    """
    if _is_kafka(cluster, group):
        _describe_kafka(cluster, kafka, as_json, group)
        return
    assert cluster is not None
    state = read_group(cluster.session, group)
    unknown = [str(each) for each in state.unreadable()]
    places = sorted({*state.owners, *state.offsets})
    rows = [_row(cluster, state, place, unknown) for place in places]
    if as_json:
        write_json({"group": group, "members": list(state.members), "partitions": rows})
    else:
        for member in state.members:
            write_line(f"member {member}")
        pairs = zip(rows, places, strict=True)
        has_moved = any(row["leader"] != place[1].broker_id for row, place in pairs)
        names = [each for each in _COLUMNS if has_moved or each != "leader"]
        write_rows(names, rows, as_json=False)
    fail_for([*cluster.faults, *unknown])


def _describe_kafka(
    cluster: RegisteredCluster | None, kafka: KafkaGroups | None, as_json: bool, group: str
) -> None:
    unknown: list[str] = []
    if cluster is not None:
        kafka = _reached(cluster, unknown)
    members, offsets = _kafka_content(cluster, kafka, group, unknown)
    owners = {place: each.name for each in members for place in each.partitions}
    rows = []
    leaderless: dict[str, list[str]] = {}
    for place in sorted({*owners, *offsets}):
        offset, end = offsets.get(place), None
        try:
            end = None if kafka is None else _kafka_end(kafka, place, unknown)
        except LeaderlessError:
            leaderless.setdefault(place[0], []).append(str(place[1]))
        _check_inside(place[0], place[1], offset, end, unknown)
        rows.append(
            {
                "topic": place[0],
                "partition": place[1],
                "offset": offset,
                "end": end,
                "lag": lag_between(offset, end),
                "owner": owners.get(place),
            }
        )
    if as_json:
        names = [each.name for each in members]
        write_json({"group": group, "members": names, "partitions": rows, "kind": "kafka"})
    else:
        for member in members:
            write_line(f"member {member.name}")
        write_rows(("topic", "partition", "offset", "end", "lag", "owner"), rows, as_json=False)
    away = [
        f"the end is unknown: {topic} {', '.join(numbers)}: no broker that is registered has "
        f"{'it' if len(numbers) == 1 else 'them'}: start the one that is down"
        for topic, numbers in leaderless.items()
    ]
    fail_for([*(kafka.faults if kafka is not None else ()), *unknown, *away])


def _kafka_content(
    cluster: RegisteredCluster | None, kafka: KafkaGroups | None, group: str, unknown: list[str]
) -> tuple[list[KafkaMember], dict[tuple[str, int], int]]:
    if kafka is not None:
        try:
            return kafka.members(group), kafka.offsets(group)
        except SILENT as error:
            if cluster is None:
                raise ClientError(f"the broker that has group {group!r}: {error}") from error
    assert cluster is not None
    state = read_kafka_group(cluster.session, group)
    unknown.append(
        f"group {group!r} is shown as stored in coordination: its broker does not answer, and "
        "its clients wait until it is back, or its registration has ended"
    )
    unknown += map(str, state.faults)
    return [KafkaMember(each.name, each.partitions) for each in state.members], state.offsets


def _kafka_end(kafka: KafkaGroups, place: tuple[str, int], unknown: list[str]) -> int | None:
    try:
        return kafka.offset_at(place)
    except SILENT:  # `KafkaGroups.faults` has it, once
        return None
    except LeaderlessError:  # likewise told together
        raise
    except HermesError as error:
        unknown.append(f"the end is unknown: {error}")
        return None


def _row(
    cluster: RegisteredCluster, state: GroupState, place: _TopicPartition, unknown: list[str]
) -> dict[str, Any]:
    topic, partition = place
    offset = _stored(state, place)
    leader = cluster.leader(topic, partition)
    end: int | None = None
    try:
        end = cluster.latest(topic, partition)
    except HermesError as error:
        if not cluster.is_silent(topic, partition):  # else `RegisteredCluster.faults` has it, once
            unknown.append(f"{topic} {partition}: the end is unknown: {error}")
    _check_inside(topic, partition, offset, end, unknown)
    return {
        "topic": topic,
        "partition": str(partition),
        "leader": None if leader == NOBODY else leader,
        "offset": offset,
        "end": end,
        "lag": lag_between(offset, end),
        "messages": _messages(cluster, place, offset, end),
        "owner": state.owners.get(place),
    }


def _check_inside(
    topic: str,
    partition: BrokerPartition | int,
    offset: int | None,
    end: int | None,
    unknown: list[str],
) -> None:
    if offset is not None and end is not None and offset > end:
        unknown.append(
            f"{topic} {partition}: the offset {offset} is beyond the end {end}: was the topic "
            "created again? Where its readers go on is for their auto_offset_reset to say "
            "(auto.offset.reset), or for hermes groups reset"
        )


def _stored(state: GroupState, place: _TopicPartition) -> int | None:
    offset = state.offsets.get(place)
    return offset if isinstance(offset, int) else None


def _messages(
    cluster: RegisteredCluster, place: _TopicPartition, offset: int | None, end: int | None
) -> int | None:
    lag = lag_between(offset, end)
    if offset is None or end is None or lag is None:
        return None
    try:
        if cluster.counts_messages(*place):
            return lag
        if lag > _COUNTED_BYTES:
            return None
        return cluster.count(*place, offset, end)
    except HermesError:  # damage, or retention has deleted them
        return None


# -- reset --------------------------------------------------------------------------------------


@command.command("reset", short_help="Change where an inactive group continues.")
@group_options
@JSON_OPTION
@click.option(
    "-t", "--topic", type=TOPIC, help="One topic; by default all for which the group has offsets."
)
@click.option(
    "-p",
    "--partition",
    "partition_name",
    metavar="BROKER-PARTITION",
    help="One partition; for Kafka clients, its number.",
)
@click.option(
    "--to",
    "position",
    type=RESET_POSITION,
    required=True,
    metavar="WHERE",
    help="earliest, latest, @TIME, an offset, +N or -N: bytes from the stored offset, back to "
    "where a message starts; messages where offsets count these.",
)
@GROUP_ARGUMENT
def reset(
    cluster: RegisteredCluster | None,
    kafka: KafkaGroups | None,
    as_json: bool,
    topic: str | None,
    partition_name: str | None,
    position: PartitionPlace,
    group: str,
) -> None:
    """Change the offsets of GROUP, which must have no members."""
    by_kafka = _kafka_with(cluster, kafka, group)
    if by_kafka is not None:
        _reset_kafka(by_kafka, as_json, topic, partition_name, position, group)
        return
    assert cluster is not None
    state = inactive_group(cluster.session, group)
    places = [
        place
        for place in state.offsets
        if topic in (None, place[0]) and partition_name in (None, str(place[1]))
    ]
    if not places:
        raise HermesError(f"group {group!r} has no such offsets")
    # All are found before any is stored.
    found = {place: _new_offset(cluster, state, place, position) for place in places}
    store_offsets(cluster.session, group, found)
    rows = [
        {
            "topic": place[0],
            "partition": str(place[1]),
            "before": _stored(state, place),
            "now": offset,
        }
        for place, offset in found.items()
    ]
    write_rows(("topic", "partition", "before", "now"), rows, as_json)


def _reset_kafka(
    kafka: KafkaGroups,
    as_json: bool,
    topic: str | None,
    partition_name: str | None,
    position: PartitionPlace,
    group: str,
) -> None:
    check_inactive(group, (each.name for each in kafka.members(group)))
    places = {
        place: offset
        for place, offset in kafka.offsets(group).items()
        if topic in (None, place[0]) and partition_name in (None, str(place[1]))
    }
    if not places:
        raise HermesError(f"group {group!r} has no such offsets")
    found = {}
    for place, offset in places.items():
        try:
            found[place] = kafka.reset(place, offset, position)
        except HermesError as error:
            raise HermesError(f"{error}; nothing was changed") from error
    kafka.store(group, found)
    rows = [
        {"topic": place[0], "partition": place[1], "before": places[place], "now": offset}
        for place, offset in sorted(found.items())
    ]
    write_rows(("topic", "partition", "before", "now"), rows, as_json)


def _new_offset(
    cluster: RegisteredCluster, state: GroupState, place: _TopicPartition, position: PartitionPlace
) -> int:
    topic, partition = place
    try:
        return reset_offset(
            cluster.consumer(topic, partition),
            topic,
            partition.partition,
            state.offsets[place],
            position,
        )
    except HermesError as error:
        raise HermesError(f"{topic} {partition}: {error}; nothing was changed") from error


# -- delete -------------------------------------------------------------------------------------


@command.command("delete", short_help="Delete an inactive group and its offsets.")
@group_options
@JSON_OPTION
@YES_OPTION
@GROUP_ARGUMENT
def delete(
    cluster: RegisteredCluster | None,
    kafka: KafkaGroups | None,
    as_json: bool,
    yes: bool,
    group: str,
) -> None:
    """Delete GROUP, which must have no members, with its offsets. This can't be undone."""
    found = _kafka_with(cluster, kafka, group)
    if found is not None:
        kafka_count = len(found.offsets(group))
        question = f"Delete group {group!r} and its offsets of {kafka_count} partitions for good?"
        confirm(question, yes=yes)
        found.delete(group)
        write_done("deleted", group, as_json)
        return
    assert cluster is not None
    count = len(inactive_group(cluster.session, group).offsets)
    confirm(f"Delete group {group!r} and its offsets of {count} partitions for good?", yes=yes)
    delete_group(cluster.session, group)
    write_done("deleted", group, as_json)
