"""`hermes replay`: messages of a topic once more, into another topic."""

from collections.abc import Collection
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from hermes.cli.batch_sender import BatchSender, choose_acks
from hermes.cli.dead_letters import DeadLetters
from hermes.cli.letter_options import count_letters, letter_options, print_preview
from hermes.cli.options import (
    BROKER_OPTION,
    JSON_OPTION,
    MAX_EXPANDED_OPTION,
    PARTITION_OPTION,
    QUIET_OPTION,
    SIZE,
    TOPIC,
    BrokerOption,
    CommandConnection,
    acks_option,
    compress_option,
    option_type,
    parse_broker,
    topic_option,
)
from hermes.cli.partition_reader import PartitionReader, read_partitions
from hermes.cli.place_options import BEGINNING, END, START, PartitionPlace, start_option
from hermes.cli.retrying import Retrying
from hermes.cli.security_options import connection_options
from hermes.cli.start_positions import check_one_partition, find_position, noted_ranges
from hermes.cli.stored_topics import StoredTopics
from hermes.cli.terminal import note, progress, status
from hermes.cli.topic_copy import Copy, CopyPlan, sort_by_partition
from hermes.cli.topic_source import TopicSource
from hermes.client import SyncProducer
from hermes.client.admin import create_topic
from hermes.client.conversations import metadata
from hermes.client.rate_pacing import Pace
from hermes.client.retrying.redrive import LetterFilter
from hermes.errors import ClientError, TopicExistsError
from hermes.protocol import Acks, Codec, CreateTopicRequest, ErrorCode, MetadataRequest

_MAX_WAIT_MS: Final = 1000


@click.command("replay", short_help="Copy a topic's messages into another topic.")
@BROKER_OPTION
@topic_option("What to read.")
@click.option(
    "--to",
    "new_topic",
    type=TOPIC,
    metavar="TOPIC",
    help="Where to write; needed without --dead-letters.",
)
@click.option(
    "--dead-letters",
    is_flag=True,
    help="Write the payloads of dead letters, each to the topic where it was published.",
)
@letter_options
@click.option(
    "--to-group",
    is_flag=True,
    help="Give dead letters to their group alone, in its first retry topic.",
)
@click.option(
    "--preview", is_flag=True, help="Count the chosen dead letters by reason, and write nothing."
)
@click.option(
    "--from",
    "other_broker",
    type=option_type(parse_broker, "host:port"),
    metavar="HOST:PORT",
    help="Read from another broker than the one that is written to.",
)
@click.option(
    "--log-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Read the segments of a data directory (a restored backup, say) instead of a broker.",
)
@PARTITION_OPTION
@start_option("Where to begin: see consume.")
@click.option(
    "--until",
    type=START,
    default="end",
    show_default=True,
    metavar="END",
    help="Where to end: end (as it is now), an offset, or @TIME. What starts there isn't copied.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="At most N messages per second.",
)
@click.option(
    "--byte-rate", type=SIZE, metavar="SIZE", help="At most so many bytes of payloads per second."
)
@click.option(
    "--to-partition",
    type=click.IntRange(-1, 2**31 - 1),
    metavar="N",
    help="Write all to one partition, or with -1 to any. Else to the one with the same number.",
)
@acks_option("flushed", "What to wait for.")
@compress_option("Compress what is written.")
@click.option("--skip-corrupt", is_flag=True, help="Skip damaged messages instead of giving up.")
@JSON_OPTION
@QUIET_OPTION
@MAX_EXPANDED_OPTION
@connection_options
@click.pass_context
def command(
    ctx: click.Context,
    broker: BrokerOption,
    topic: str,
    new_topic: str | None,
    dead_letters: bool,
    letter_filter: LetterFilter | None,
    to_group: bool,
    preview: bool,
    other_broker: BrokerOption | None,
    log_dir: Path | None,
    partition: int | None,
    start: PartitionPlace,
    until: PartitionPlace,
    rate: float | None,
    byte_rate: int | None,
    to_partition: int | None,
    acks_name: str,
    codec: Codec,
    skip_corrupt: bool,
    as_json: bool,
    quiet: bool,
    max_expanded_bytes: int,
    connection: CommandConnection,
) -> None:
    r"""Copy the messages of a topic, or a range of them, into another topic.

    Each partition is copied in order, into the one with the same number. A topic that doesn't exist
    is created with the format, the partitions and the own settings of the one that is read. It ends
    where the topic ended when the command began. A broker that becomes unavailable is waited for,
    for up to two minutes; then some messages may be copied twice. If it ends early it says where to
    go on.

    \b
    Examples:
      hermes replay -t clicks --to clicks-again -o @2026-05-22T10:00 --until @2026-05-22T11:00
      hermes replay -t clicks --to trial --rate 500
      hermes replay -t clicks --to clicks --log-dir /tmp/restored -p 0 -o 81920
      hermes replay -t orders.billing.dead --dead-letters
      hermes replay -t orders.billing.dead --dead-letters --reason Timeout --preview
    """
    if new_topic is None and not dead_letters:
        raise click.UsageError("give --to, or --dead-letters")
    if (letter_filter or to_group or preview) and not dead_letters:
        raise click.UsageError(
            "--reason, --origin, --failed-since, --failed-until, --max-attempts, --to-group and "
            "--preview choose among dead letters: give --dead-letters"
        )
    if to_group and new_topic is not None:
        raise click.UsageError("--to and --to-group exclude each other")
    if other_broker is not None and log_dir is not None:
        raise click.UsageError("--from and --log-dir exclude each other")
    if topic == new_topic and log_dir is None and other_broker in (None, broker):
        raise click.UsageError("a topic can't be copied into itself: give another --to")
    if until.kind == "last":
        raise click.UsageError("--until is end, an offset, or @TIME")
    acks_given = ctx.get_parameter_source("acks_name") is not ParameterSource.DEFAULT
    with ExitStack() as stack:
        producer = stack.enter_context(broker.producer(connection))
        acks = choose_acks(producer, acks_name, is_required=acks_given)
        if log_dir is not None:
            source = TopicSource(StoredTopics(log_dir), topic, partition)
        else:
            consumer = (other_broker or broker).consumer(
                connection, max_expanded_bytes=max_expanded_bytes
            )
            source = TopicSource(stack.enter_context(consumer), topic, partition)
        plans = _plans(source, start, until, skip_corrupt=skip_corrupt)
        retrying = Retrying(120, quiet=quiet)
        readers = [plan.reader for plan in plans.values()]
        if preview:
            chunks = read_partitions(source.consumer, readers, _MAX_WAIT_MS, retrying)
            print_preview(count_letters(chunks, letter_filter or LetterFilter()), as_json)
            return
        letters = None
        if dead_letters:
            letters = DeadLetters(
                producer, new_topic, to_partition, to_group=to_group, chosen=letter_filter
            )
        if new_topic is not None:
            _create_missing(producer, new_topic, source, quiet=quiet)
        if to_partition is None and new_topic is not None and not dead_letters:
            _check_partitions(producer, new_topic, plans)
        make = partial(_sender, producer, acks, codec)
        sort = (
            letters.sort if letters else partial(sort_by_partition, new_topic or "", to_partition)
        )
        copy = Copy(plans, sort, make, Pace(rate, byte_rate))
        total = sum(max(plan.end - plan.start, 0) for plan in plans.values())
        try:
            with progress(total, "replaying", quiet=quiet) as advance:
                for chunk in read_partitions(source.consumer, readers, _MAX_WAIT_MS, retrying):
                    copy.add(chunk, advance)
            copy.finish()
        except BaseException:
            copy.note_position()
            raise
    if letters is not None and letters.left_out:
        note(f"{letters.left_out} messages were no dead letters, and left out")
    if letters is not None and letters.others:
        note(f"{letters.others} dead letters were not chosen")
    where = "the retry topic of their group" if to_group else new_topic
    copy.report(topic, where, as_json)


def _plans(
    source: TopicSource, start: PartitionPlace, until: PartitionPlace, *, skip_corrupt: bool
) -> dict[int, CopyPlan]:
    ranges, exists = noted_ranges(source)
    if not exists:
        raise ClientError(source.missing_text())
    check_one_partition(ranges, start, until)
    plans = {}
    for number, available in ranges.items():
        first = find_position(source, number, available, start)
        end = available.end if until == END else find_position(source, number, available, until)[0]
        if until == BEGINNING:
            end = available.earliest
        reader = PartitionReader(
            source,
            number,
            first.offset,
            end=max(end, first.offset),
            drop=first.drop,
            skip_corrupt=skip_corrupt,
        )
        plans[number] = CopyPlan(reader, first.offset, end)
    return plans


def _create_missing(
    producer: SyncProducer, topic: str, source: TopicSource, *, quiet: bool
) -> None:
    """Create the target topic like the source, unless it exists."""
    # The first send would otherwise create it with the broker's defaults: in the other format, or
    # with fewer partitions.
    if CreateTopicRequest.TYPE not in producer.channel.versions():
        return
    (described,) = producer.channel.run(metadata([topic])).topics
    if described.error != ErrorCode.UNKNOWN_TOPIC:
        return
    settings = source.settings()
    try:
        producer.channel.run(create_topic(topic, settings))
    except TopicExistsError:  # somebody was faster
        return
    shown = ", ".join(f"{name} {value}" for name, value in settings.items())
    status(f"created topic {topic!r}, as {source.topic!r} is: {shown}", quiet=quiet)


def _check_partitions(producer: SyncProducer, topic: str, wanted: Collection[int]) -> None:
    if MetadataRequest.TYPE not in producer.channel.versions():
        return
    (described,) = producer.channel.run(metadata([topic])).topics
    numbers = described.numbers
    missing = sorted(set(wanted).difference(numbers))
    if missing and not isinstance(numbers, range):
        raise ClientError(
            f"of topic {topic!r} this broker of the cluster has no partition "
            f"{', '.join(map(str, missing))}: give --to-partition, one of "
            f"{', '.join(map(str, numbers))}"
        )
    if missing:
        raise ClientError(
            f"topic {topic!r} has {len(numbers)} partitions, {max(wanted) + 1} are needed: "
            "give --to-partition, or create it with more"
        )


def _sender(
    producer: SyncProducer, acks: Acks | None, codec: Codec, topic: str, partition: int
) -> BatchSender:
    return BatchSender(producer, topic, partition, acks, codec, Retrying(120), noun="message")
