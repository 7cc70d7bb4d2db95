"""`hermes transactions`: who has one under way, and to abort those that nobody ends."""

from collections.abc import Sequence
from typing import Any, Final

import click

from hermes.cli.exit_codes import fail_for
from hermes.cli.options import JSON_OPTION, YES_OPTION
from hermes.cli.registered_cluster import kafka_options
from hermes.cli.terminal import (
    confirm,
    format_time_ms,
    write_done,
    write_json,
    write_line,
    write_rows,
)
from hermes.client.kafka_transactions import (
    OPEN_STATES,
    CoordinatedTransaction,
    KafkaTransactions,
    LoggedTransaction,
)

_ASKING: Final = kafka_options(KafkaTransactions, "transactions")
_IDLE_OPTION: Final = click.option(
    "--idle",
    "idle_seconds",
    type=click.IntRange(0),
    default=900,
    show_default=True,
    metavar="SECONDS",
    help="With --hanging: those whose producer has sent nothing for so long.",
)

_COLUMNS: Final = ("id", "state", "producer", "epoch", "coordinator", "since", "partitions")
_HANGING_COLUMNS: Final = ("topic", "partition", "offset", "producer", "epoch", "last")


@click.group("transactions", short_help="List, describe and abort transactions.")
def command() -> None:
    """List, describe and abort transactions of Kafka's clients.

    Any broker of the cluster can be asked: -k names its kafka_listen, or -b or -Z find one.

    A transaction hangs that is open in a partition, and that no coordinator knows of any more: it
    is never ended, and keeps consumers that read committed from what follows. Looking for them
    takes `describe` of all transactional ids, and `consume` of the topics.
    """


# -- looking ------------------------------------------------------------------------------------


@command.command("list", short_help="Show transactional ids, or what hangs.")
@_ASKING
@JSON_OPTION
@click.option("--open", "is_open", is_flag=True, help="Only those under way or being ended.")
@click.option("--hanging", "are_hanging", is_flag=True, help="Those that nobody will end.")
@_IDLE_OPTION
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
def list_(
    transactions: KafkaTransactions,
    as_json: bool,
    is_open: bool,
    are_hanging: bool,
    idle_seconds: int,
    topics: tuple[str, ...],
) -> None:
    """Show transactional ids with their states, and since when a transaction is open.

    With --hanging show which transactions hang, in all topics or in TOPICs, and where they begin.
    """
    faults: list[str] = []
    if are_hanging:
        found = transactions.hanging(topics, idle_seconds * 1000, faults)
        write_rows(_HANGING_COLUMNS, [_hanging_row(each) for each in found], as_json)
    elif topics:
        raise click.UsageError("topics are for --hanging")
    else:
        rows = [_row(each) for each in transactions.all(OPEN_STATES if is_open else ())]
        if not as_json:
            rows = [{**row, "partitions": len(row["partitions"])} for row in rows]
        write_rows(_COLUMNS, rows, as_json)
    fail_for([*transactions.faults, *faults])


@command.command("describe", short_help="Show what is in a transaction.")
@_ASKING
@JSON_OPTION
@click.argument("name", metavar="ID")
def describe(transactions: KafkaTransactions, as_json: bool, name: str) -> None:
    """Show the transaction of the transactional id ID, and the partitions in it.

    A group whose offsets are part of it is shown as __consumer_offsets/GROUP.
    """
    row = _row(transactions.describe(name))
    if as_json:
        write_json(row)
        return
    shown = {**row, "partitions": ", ".join(row["partitions"]) or None}
    width = max(map(len, shown))
    for key, value in shown.items():
        write_line(f"{key.ljust(width)}  {'-' if value is None else value}")


def _row(each: CoordinatedTransaction) -> dict[str, Any]:
    return {
        "id": each.name,
        "state": each.state,
        "producer": each.producer_id,
        "epoch": each.epoch,
        "coordinator": each.coordinator,
        "timeout_seconds": each.timeout_ms / 1000,
        "since": None if each.started_ms is None else format_time_ms(each.started_ms),
        "partitions": [f"{topic}:{number}" for topic, number in each.places],
    }


def _hanging_row(each: LoggedTransaction) -> dict[str, Any]:
    topic, number = each.place
    return {
        "topic": topic,
        "partition": number,
        "offset": each.start_offset,
        "producer": each.producer_id,
        "epoch": each.epoch,
        "last": format_time_ms(each.last_ms),
    }


# -- aborting -----------------------------------------------------------------------------------


@command.command("abort", short_help="Abort transactions, and fence their producers.")
@_ASKING
@JSON_OPTION
@YES_OPTION
@click.option("--hanging", "are_hanging", is_flag=True, help="NAMEs are topics: all that hangs.")
@_IDLE_OPTION
@click.argument("names", metavar="[NAME]...", nargs=-1)
def abort(
    transactions: KafkaTransactions,
    as_json: bool,
    yes: bool,
    are_hanging: bool,
    idle_seconds: int,
    names: tuple[str, ...],
) -> None:
    """Abort what the transactional ids NAMEs have under way; their producers can't go on.

    With --hanging abort what hangs, in all topics or in those that are named.
    """
    if are_hanging:
        _abort_hanging(transactions, names, idle_seconds, as_json=as_json, yes=yes)
        return
    if not names:
        raise click.UsageError("which transactional ids? Or --hanging")
    confirm(f"Abort what {', '.join(names)} has under way, and fence the producer?", yes=yes)
    for name in names:
        transactions.abort(name)
        write_done("aborted", name, as_json)


def _abort_hanging(
    transactions: KafkaTransactions,
    topics: Sequence[str],
    idle_seconds: int,
    *,
    as_json: bool,
    yes: bool,
) -> None:
    faults: list[str] = []
    found = transactions.hanging(topics, idle_seconds * 1000, faults)
    shown = [f"{each.place[0]}:{each.place[1]} from offset {each.start_offset}" for each in found]
    if found:
        confirm(f"Abort {', '.join(shown)}?", yes=yes)
    for each, text in zip(found, shown, strict=True):
        transactions.end(each)
        write_done("aborted", text, as_json)
    fail_for([*transactions.faults, *faults])
