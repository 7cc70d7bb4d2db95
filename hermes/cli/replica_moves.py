"""`hermes replicas move`, `add-broker`, `drain` and `throttle`: who is to have copies."""

from collections.abc import Iterable, Sequence
from typing import Final

import click

from hermes.cli.exit_codes import fail_for
from hermes.cli.options import JSON_OPTION, SIZE, TOPIC, option_type
from hermes.cli.replica_options import asking, wait_for
from hermes.cli.terminal import write_json, write_line
from hermes.client.kafka_replicas import (
    KafkaReplicas,
    Partition,
    Place,
    parse_brokers,
    parse_place,
)
from hermes.client.replica_plans import Plan, onto, with_copies, without
from hermes.config.topic import MOST_COPIES
from hermes.errors import ClientError

_UNLIMITED: Final = "unlimited"

_BROKER_ID: Final = click.argument("broker_id", metavar="ID", type=click.IntRange(0))
_PLAN_OPTION: Final = click.option(
    "--plan", "is_plan", is_flag=True, help="Show what would be moved, and change nothing."
)


@click.command("move", short_help="Move partitions, or give them more or fewer copies.")
@asking
@JSON_OPTION
@_PLAN_OPTION
@click.option(
    "--topics",
    type=option_type(lambda text: tuple(map(TOPIC, text.split(","))), "topics"),
    metavar="TOPIC,...",
    help="All partitions of these, with --replicas.",
)
@click.option(
    "--replicas",
    "count",
    type=click.IntRange(1, MOST_COPIES),
    metavar="N",
    help="How many copies each is to have.",
)
@click.option("--cancel", is_flag=True, help="Undo the move that is under way.")
@click.argument(
    "place",
    metavar="[TOPIC:PARTITION]",
    required=False,
    type=option_type(parse_place, "partition"),
)
@click.argument(
    "brokers", metavar="[BROKERS]", required=False, type=option_type(parse_brokers, "brokers")
)
def move(
    replicas: KafkaReplicas,
    as_json: bool,
    is_plan: bool,
    topics: tuple[str, ...] | None,
    count: int | None,
    cancel: bool,
    place: Place | None,
    brokers: tuple[int, ...] | None,
) -> None:
    """Move a partition to BROKERS, the preferred leader first; or change how many copies there are.

    It goes on while the partition is served: `hermes replicas wait` tells when it is done.

    Examples: hermes replicas move -k localhost:9092 clicks:0 1,2,3

    hermes replicas move -k localhost:9092 --topics clicks,visits --replicas 3
    """
    if topics is None:
        if place is None or (brokers is None) is not cancel or count is not None:
            raise click.UsageError(
                "give a partition and its brokers (clicks:0 1,2,3), a partition and --cancel, or "
                "--topics and --replicas"
            )
        before = _one(replicas.partitions([place[0]]), place)
        _carry_out(replicas, {place: brokers}, [before], as_json=as_json, is_plan=is_plan)
        return
    if count is None or place is not None or cancel:
        raise click.UsageError("with --topics goes --replicas, and nothing else")
    give_copies(replicas, topics, count, as_json=as_json, is_plan=is_plan)


def give_copies(
    replicas: KafkaReplicas,
    topics: Iterable[str],
    count: int,
    *,
    as_json: bool,
    is_plan: bool = False,
) -> None:
    """Begin to give all partitions of topics so many copies."""
    known = replicas.partitions()
    wanted = set(topics)
    chosen = [each for each in known if each.place[0] in wanted]
    for name in wanted - {each.place[0] for each in chosen}:
        raise ClientError(f"there is no topic {name!r}")
    plan = with_copies(chosen, count, known, replicas.racks())
    _carry_out(replicas, plan, known, as_json=as_json, is_plan=is_plan)


def _one(partitions: Iterable[Partition], place: Place) -> Partition:
    for each in partitions:
        if each.place == place:
            return each
    raise ClientError(f"topic {place[0]!r} has no partition {place[1]}")


def _carry_out(
    replicas: KafkaReplicas,
    plan: dict[Place, tuple[int, ...] | None] | Plan,
    known: Iterable[Partition],
    *,
    as_json: bool,
    is_plan: bool,
) -> None:
    before = {each.place: each for each in known}
    refused = {} if is_plan or not plan else replicas.move(plan)
    for place in sorted(plan):
        if place in refused:
            continue
        was, target = before[place], plan[place]
        after = was.had if target is None else target
        if as_json:
            topic, number = place
            row = {"topic": topic, "partition": number, "from": was.target, "to": after}
            write_json({**row, "done": not is_plan})
        else:
            verb = "would move" if is_plan else "moves"
            write_line(f"{verb} {place[0]}:{place[1]} from {_ids(was.target)} to {_ids(after)}")
    fail_for([f"{topic}:{number}: {why}" for (topic, number), why in sorted(refused.items())])


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


@click.command("add-broker", short_help="Give a new broker its share of copies.")
@asking
@JSON_OPTION
@_PLAN_OPTION
@_BROKER_ID
def add_broker(replicas: KafkaReplicas, as_json: bool, is_plan: bool, broker_id: int) -> None:
    """Move copies to the broker ID, until it has as many as the others.

    Start the broker first. Partitions keep as many copies, and as many racks, as they had.
    """
    racks = replicas.racks()
    if broker_id not in racks:
        raise ClientError(
            f"broker {broker_id} is not registered: start it, with kafka_listen and the "
            f"coordination of the others; there are {_ids(sorted(racks))}"
        )
    known = replicas.partitions()
    plan = onto(broker_id, _movable(replicas, known), racks)
    _carry_out(replicas, plan, known, as_json=as_json, is_plan=is_plan)


def _movable(replicas: KafkaReplicas, known: Sequence[Partition]) -> list[Partition]:
    """Those that can be elsewhere: in 0.7's format each stays where it is.

    Who has copies can. Of the others it is found by asking for what is so already.
    """
    sole = {each.place: each.target for each in known if len(each.replicas) == 1}
    refused = replicas.move(sole) if sole else {}
    return [each for each in known if each.place not in refused]


@click.command("drain", short_help="Leave a broker nothing, so that it can go.")
@asking
@JSON_OPTION
@_PLAN_OPTION
@click.option("--no-wait", is_flag=True, help="End as soon as the moves have begun.")
@_BROKER_ID
def drain(
    replicas: KafkaReplicas, as_json: bool, is_plan: bool, no_wait: bool, broker_id: int
) -> None:
    """Move all copies of the broker ID to the others, and wait until it has none.

    It need not run: what it has is copied from others then. Ctrl-C ends the waiting, not the moves.
    """
    known = replicas.partitions()
    movable = _movable(replicas, known)
    plan = without(broker_id, movable, replicas.racks())
    _carry_out(replicas, plan, known, as_json=as_json, is_plan=is_plan)
    if is_plan:
        return
    fixed = {each.place for each in known} - {each.place for each in movable}
    left = [each for each in known if each.place in fixed]
    if not no_wait:
        going = {each.place for each in known if broker_id in each.removing}
        _wait_for_moves(replicas, sorted(going.union(plan)))
        left = replicas.partitions()  # a move may have been undone, a topic created
    fail_for(
        [
            _why_left(each.place, broker_id, is_fixed=each.place in fixed)
            for each in left
            if broker_id in each.replicas
        ]
    )


def _why_left(place: Place, broker_id: int, *, is_fixed: bool) -> str:
    topic, number = place
    if is_fixed:
        return (
            f"{topic}:{number} stays on broker {broker_id}: a topic with Kafka 0.7's format; have "
            "`hermes mirror` copy it elsewhere, or delete it"
        )
    return (
        f"{topic}:{number} is on broker {broker_id}: it was put there meanwhile; drain it once more"
    )


def _wait_for_moves(replicas: KafkaReplicas, places: Sequence[Place]) -> None:
    wanted = set(places)

    def read() -> list[Partition]:
        found = [each for each in replicas.partitions() if each.place in wanted]
        return [each for each in found if each.is_moving]

    wait_for(replicas, float("inf"), read)


def _parse_rate(text: str) -> int | None:
    rate: int | None = None if text == _UNLIMITED else SIZE(text)
    return rate


@click.command("throttle", short_help="Bound how fast copies are made.")
@asking
@click.argument("rate", metavar="RATE", type=option_type(_parse_rate, "rate"))
@click.argument(
    "brokers", metavar="[BROKERS]", required=False, type=option_type(parse_brokers, "brokers")
)
def throttle(replicas: KafkaReplicas, rate: int | None, brokers: tuple[int, ...] | None) -> None:
    """Let each broker, or BROKERS, send and fetch RATE a second for moves, such as 10MB.

    `unlimited` takes the bound away. Copies that are in sync are never throttled.
    """
    replicas.throttle(sorted(replicas.brokers()) if brokers is None else brokers, rate)
