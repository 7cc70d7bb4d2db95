"""`hermes replicas`: who has copies of partitions, who leads them, and to change both."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

import click

from hermes.cli.exit_codes import fail_for
from hermes.cli.options import JSON_OPTION, YES_OPTION
from hermes.cli.replica_moves import add_broker, drain, move, throttle
from hermes.cli.replica_options import PLACES_ARGUMENT, TOPICS_ARGUMENT, asking, wait_for
from hermes.cli.terminal import confirm, write_json, write_line, write_rows
from hermes.client.kafka_replicas import (
    Broker,
    KafkaReplicas,
    Partition,
    Place,
    lags_of,
    progress_of,
)
from hermes.client.replica_verifying import first_difference
from hermes.config.units import format_bytes
from hermes.errors import ClientError, HermesError
from hermes.protocol import NOBODY


@click.group("replicas", short_help="List, move, elect and compare copies of partitions.")
def command() -> None:
    """List, move, elect and compare copies of partitions of topics with the format `kafka`.

    Any broker of the cluster can be asked: -k names its kafka_listen, or -b or -Z find one.
    docs/replication.md tells how a cluster with copies is run.
    """


for _each in (move, add_broker, drain, throttle):
    command.add_command(_each)


# -- looking ------------------------------------------------------------------------------------


@command.command("list", short_help="Show who has copies, who leads, and who lags.")
@asking
@JSON_OPTION
@click.option("--problems", is_flag=True, help="Only partitions that aren't as they should be.")
@TOPICS_ARGUMENT
def list_(replicas: KafkaReplicas, as_json: bool, problems: bool, topics: tuple[str, ...]) -> None:
    """Show all partitions, or those of TOPICs: leader, epoch, copies, those in sync, lag.

    The lag is what the slowest copy lacks, in messages. `why` tells of copies that aren't in sync:
    the broker is down, is being given one, or is catching up, and how much it has by now.
    """
    brokers = replicas.brokers()
    found = [each for each in replicas.partitions(topics) if not (problems and each.is_settled)]
    ends, sizes = replicas.ends(found, brokers), replicas.sizes(found, brokers)
    rows = []
    for each in found:
        lags = lags_of(each, ends.get(each.place, {}))
        shown = {
            "topic": each.place[0],
            "partition": each.place[1],
            "leader": None if each.leader == NOBODY else each.leader,
            "epoch": each.epoch,
            "replicas": each.replicas,
            "in_sync": sorted(each.in_sync),
            "lag": max(lags.values(), default=None),
            "why": [
                f"{one} {each.why_not_in_sync(one, brokers)}"
                for one in each.replicas
                if one not in each.in_sync
            ],
            "copied_bytes": _copied_bytes(each, sizes.get(each.place, {})),
        }
        rows.append(shown if as_json else shown | _as_texts(shown))
    names = ("topic", "partition", "leader", "epoch", "replicas", "in_sync", "lag", "why")
    write_rows(names, rows, as_json)
    fail_for(replicas.faults)


def _copied_bytes(partition: Partition, sizes: Mapping[int, int]) -> dict[str, tuple[int, int]]:
    found = {each: progress_of(partition, each, sizes) for each in partition.replicas}
    return {str(each): known for each, known in found.items() if known is not None}


def _as_texts(row: dict[str, Any]) -> dict[str, Any]:
    lists = {key: ",".join(map(str, row[key])) for key in ("replicas", "in_sync")}
    why = []
    for each in row["why"]:
        known = row["copied_bytes"].get(each.partition(" ")[0])
        has = f": {format_bytes(known[0])} of {format_bytes(known[1])}" if known else ""
        why.append(each + has)
    return {**lists, "why": "; ".join(why) or None}


@command.command("wait", short_help="Wait until all copies are in sync.")
@asking
@click.option(
    "--in-sync",
    is_flag=True,
    default=True,
    help="Until all are led, in sync, and none moves (the default).",
)
@click.option(
    "--within",
    "within_seconds",
    type=click.FloatRange(0),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long; the status is 1 if they aren't by then.",
)
@TOPICS_ARGUMENT
def wait(
    replicas: KafkaReplicas, in_sync: bool, within_seconds: float, topics: tuple[str, ...]
) -> None:
    """Wait until all copies of all partitions, or of TOPICs, are in sync.

    Between two restarts of brokers this tells that the next one can go.
    """
    deadline = time.monotonic() + within_seconds
    wait_for(replicas, deadline, lambda: replicas.partitions(topics))


# -- electing -----------------------------------------------------------------------------------


@command.command("elect", short_help="Have preferred leaders lead, or any copy at all.")
@asking
@JSON_OPTION
@click.option(
    "--unclean",
    is_flag=True,
    help="Partitions without a leader get one that may LACK MESSAGES that were acknowledged.",
)
@YES_OPTION
@PLACES_ARGUMENT
def elect(
    replicas: KafkaReplicas, as_json: bool, unclean: bool, yes: bool, places: tuple[Place, ...]
) -> None:
    """Have the first of its brokers lead each partition, or those that are named.

    With --unclean partitions that nobody leads are led by whoever is there: what only others have
    is lost for good. So they must be named, and it is shown first what each copy has.
    """
    if unclean:
        if not places:
            raise click.UsageError("--unclean takes partitions, each named: clicks:0")
        _confirm_unclean(replicas, places, yes=yes)
    found = replicas.elect(places or None, is_unclean=unclean)
    known = {each.place: each for each in replicas.partitions()} if found else {}
    for place, why in sorted(found.items()):
        leader = known[place].leader if place in known else None
        if as_json:
            topic, number = place
            done = {"topic": topic, "partition": number, "elected": not why, "leader": leader}
            write_json(done)
        elif not why:
            write_line(f"elected {leader} for {place[0]}:{place[1]}")
    fail_for([f"{topic}:{number}: {why}" for (topic, number), why in sorted(found.items()) if why])


def _confirm_unclean(replicas: KafkaReplicas, places: Iterable[Place], *, yes: bool) -> None:
    brokers = replicas.brokers()
    known = {each.place: each for each in replicas.partitions([topic for topic, _ in places])}
    for place in places:
        each = known.get(place)
        if each is None or each.leader != NOBODY:
            continue  # that is what it will be refused for
        has = []
        for one in each.replicas:
            if one not in brokers:
                has.append(f"broker {one} is down")
                continue
            try:
                start, end = replicas.bounds(brokers[one], place)
                has.append(f"broker {one} has offsets {start} to {end}")
            except ClientError as error:
                has.append(f"broker {one} does not tell ({error})")
        confirm(
            f"{place[0]}:{place[1]}: {', '.join(has)}. Messages that only others have are lost "
            "for good. Elect one that is there?",
            yes=yes,
        )


# -- comparing ----------------------------------------------------------------------------------


@command.command("verify", short_help="Compare copies, batch by batch.")
@asking
@JSON_OPTION
@TOPICS_ARGUMENT
def verify(replicas: KafkaReplicas, as_json: bool, topics: tuple[str, ...]) -> None:
    """Compare all copies with those of their leaders, by offset, epoch and CRC.

    Everything is read that both have, up to what is committed. Of compacted topics those messages
    are compared that both still have. The status is 1 if any copy differs, or wasn't compared.
    """
    brokers = replicas.brokers()
    rows, faults = [], []
    for each in replicas.partitions(topics):
        is_compacted = len(each.replicas) > 1 and replicas.is_compacted(each.place[0])
        for other in each.replicas:
            if other == each.leader:
                continue
            row = _compared(replicas, brokers, each, other, is_compacted=is_compacted)
            rows.append(row)
            if row["result"] != "equal":
                topic, number = each.place
                faults.append(f"{topic}:{number} on broker {other}: {row['result']}")
    write_rows(("topic", "partition", "broker", "start", "end", "result"), rows, as_json)
    fail_for(faults)


def _compared(
    replicas: KafkaReplicas,
    brokers: dict[int, Broker],
    partition: Partition,
    other: int,
    *,
    is_compacted: bool,
) -> dict[str, Any]:
    (topic, number), start, end = partition.place, None, None
    result = "equal"
    try:
        if partition.leader not in brokers:
            raise ClientError("not compared: nobody leads")
        if other not in brokers:
            raise ClientError("not compared: the broker is down")
        both = brokers[partition.leader], brokers[other]
        bounds = [replicas.bounds(each, partition.place) for each in both]
        start, end = max(each for each, _ in bounds), min(each for _, each in bounds)
        if start > end:
            leads, has = (f"{first} to {last}" for first, last in bounds)
            raise ClientError(f"not compared: it has offsets {has}, and the leader {leads}")
        ours, theirs = (replicas.batches(each, partition.place, start, end) for each in both)
        found = first_difference(ours, theirs, is_compacted=is_compacted)
        result = f"differs: {found}" if found else "equal"
    except HermesError as error:
        result = str(error)
    return {
        "topic": topic,
        "partition": number,
        "broker": other,
        "start": start,
        "end": end,
        "result": result,
    }
