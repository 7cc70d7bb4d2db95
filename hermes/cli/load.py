"""`hermes load`: topics into Parquet or Delta, each message once, from cron or by hand."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hermes.cli.load_upkeep import chosen_upkeep, upkeep_options
from hermes.cli.options import JSON_OPTION, TOPIC, zookeeper_option
from hermes.cli.security_options import security_options, spark_options
from hermes.cli.spark_session import require_spark, spark_session
from hermes.cli.terminal import progress, write_json, write_line, write_table
from hermes.config.units import format_bytes
from hermes.errors import DataLossError, LoadError
from hermes.security import ClientSecurity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from hermes.spark.load import LoadProgress, LoadResult


@click.command("load", short_help="Copy new messages to Parquet or Delta.")
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=str),
    required=True,
    metavar="TARGET",
    help="Where to, new or of earlier loads: a directory, s3://BUCKET/PREFIX, or hdfs://...",
)
@click.option(
    "-b",
    "--bootstrap-servers",
    metavar="HOST:PORT,...",
    help="All the brokers: each knows only its own partitions.",
)
@zookeeper_option("ZooKeeper, where the brokers register, instead of the list.")
@click.option(
    "--kafka",
    metavar="HOST:PORT,...",
    help="The brokers' kafka_listen: topics of Kafka's format are then read by Spark's connector "
    "for Kafka, in less time, if its jar is there.",
)
@click.option("--pattern", metavar="REGEX", help="All topics whose whole name matches.")
@click.option(
    "--partition-by",
    type=click.Choice(("day", "hour")),
    help="What a folder holds: a day or an hour of the broker's append time, in UTC; if not given, "
    "as before, and days in a new target.",
)
@click.option(
    "--sink",
    type=click.Choice(("parquet", "delta")),
    help="What the target is; if not given, as before, and a new one is a Delta table where the "
    "package deltalake is installed.",
)
@click.option("--dry-run", is_flag=True, help="Only report what would be copied.")
@click.option(
    "--include-key", is_flag=True, help="Also copy keys of messages, into a Delta table's `key`."
)
@click.option("--include-headers", is_flag=True, help="Also copy headers, into `headers`.")
@click.option(
    "--merge-schema",
    is_flag=True,
    help="Allow a Delta table to gain columns, and to have others that a load lacks.",
)
@upkeep_options
@click.option(
    "--allow-data-loss",
    is_flag=True,
    help="Load what is left where messages are gone or damaged; each such place is reported.",
)
@click.option(
    "--group",
    metavar="GROUP",
    help="Store the offsets for this consumer group as well, for monitoring; needs ZooKeeper.",
)
@click.option(
    "--min-partitions",
    type=click.IntRange(1),
    metavar="N",
    help="Split the work into at least this many tasks, where messages allow it.",
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    envvar="SPARK_MASTER",
    show_envvar=True,
    help="Where Spark runs the tasks.",
)
@click.option("--conf", "settings", multiple=True, metavar="KEY=VALUE", help="A Spark setting.")
@security_options
@JSON_OPTION
@click.argument("topics", metavar="[TOPIC]...", type=TOPIC, nargs=-1)
def command(
    target: str,
    clean_up: bool,
    expire: str | None,
    compact: bool,
    verify: bool,
    master: str,
    settings: tuple[str, ...],
    as_json: bool,
    security: ClientSecurity,
    **chosen: Any,
) -> None:
    """Copy what is new of TOPICs to files, with the offsets in the same commit.

    Run it as often as you like: each message is copied once, whatever ends a run on its way. A
    run that finds another's work undone does that first. Of two concurrent runs one fails.

    With --expire, --compact, --verify or --clean-up nothing is copied; TOPICs then say of which
    topics something expires or is compacted.
    """
    upkeep = chosen_upkeep(clean_up, expire, compact, verify, chosen)
    spark_settings = dict(_setting(each) for each in settings)
    with require_spark(), ExitStack() as stack:
        # Spark takes seconds to start; often there is nothing new, or an argument is wrong.
        session = cache(lambda: stack.enter_context(spark_session(master, spark_settings)))
        storage = _storage(target, spark_settings)
        if upkeep is not None:
            upkeep(target, spark=session, storage=storage, as_json=as_json)
            return
        options = {**_options(**chosen), **spark_options(security)}
        again = True
        while again:
            result = _load(session, target, options, storage, chosen)
            _report(result, target, as_json)
            again = result.repeated and result.committed


def _options(
    topics: tuple[str, ...],
    pattern: str | None,
    bootstrap_servers: str | None,
    zookeeper: str | None,
    kafka: str | None,
    allow_data_loss: bool,
    group: str | None,
    min_partitions: int | None,
    include_key: bool,
    include_headers: bool,
    **_: object,
) -> dict[str, str]:
    if bool(topics) == (pattern is not None):
        raise click.UsageError("name topics, or give --pattern")
    if not (bootstrap_servers or zookeeper):
        raise click.UsageError("give --bootstrap-servers or --zookeeper")
    if bootstrap_servers and zookeeper:
        source = click.get_current_context().get_parameter_source("zookeeper")
        if source is not ParameterSource.ENVIRONMENT:
            raise click.UsageError("--bootstrap-servers and --zookeeper exclude each other")
        zookeeper = None  # the environment's is for all commands, and this one names its brokers
    if group is not None and not zookeeper:
        raise click.UsageError("--group needs --zookeeper")
    given = {
        "subscribe": ",".join(topics) or None,
        "subscribePattern": pattern,
        "hermes.bootstrap.servers": bootstrap_servers,
        "hermes.zookeeper": zookeeper,
        "kafka.bootstrap.servers": kafka,
        "groupId": group,
        "minPartitions": min_partitions,
        "failOnDataLoss": "false" if allow_data_loss else None,
        "includeKey": "true" if include_key else None,
        "includeHeaders": "true" if include_headers else None,
    }
    return {key: str(value) for key, value in given.items() if value is not None}


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise click.UsageError(f"--conf: expected KEY=VALUE, got {text!r}")
    return key, value


def _storage(target: str, settings: dict[str, str]) -> dict[str, str]:
    """The S3 settings among Spark's: the driver needs them before there is a session."""
    from hermes.spark.stores import is_s3

    prefix = "spark.hadoop.fs.s3a."
    return {k: v for k, v in settings.items() if is_s3(target) and k.startswith(prefix)}


def _load(
    session: "Callable[[], SparkSession]",
    target: str,
    options: dict[str, str],
    storage: dict[str, str],
    chosen: dict[str, Any],
) -> "LoadResult":
    from hermes.spark.load import load

    with ExitStack() as stack:
        bar: list[Any] = []
        done = 0

        def show(state: "LoadProgress") -> None:
            nonlocal done
            if not bar:
                bar.append(stack.enter_context(progress(state.total, "tasks")))
            bar[0](state.done - done)
            done = state.done

        try:
            return load(
                session,
                target,
                options,
                partition_by=chosen["partition_by"],
                sink=chosen["sink"],
                dry_run=chosen["dry_run"],
                merge_schema=chosen["merge_schema"],
                progress=show,
                storage=storage,
            )
        except (DataLossError, LoadError) as error:
            # The library names its own option.
            text = str(error).replace("set failOnDataLoss to false", "give --allow-data-loss")
            raise type(error)(text) from error


def _report(result: "LoadResult", target: str, as_json: bool) -> None:
    ranges = [
        {"topic": each.topic, "partition": each.name, "from": start, "to": end}
        for each, (start, end) in sorted(result.ranges.items())
    ]
    if as_json:
        counted = ("number", "committed", "repeated", "messages", "log_bytes", "log_messages")
        document = {key: getattr(result, key) for key in (*counted, "files", "file_bytes")}
        directory = None if result.directory is None else str(result.directory)
        write_json({**document, "directory": directory, "ranges": ranges})
        return
    if result.number is None:
        write_line("nothing new")
        return
    # Where offsets count messages, they don't say how many bytes these are.
    sizes = []
    if result.log_bytes or not result.log_messages:
        sizes.append(f"{format_bytes(result.log_bytes)} of the logs")
    if result.committed:
        what = "load {}, which an earlier run had planned" if result.repeated else "load {}"
        amount = ", ".join([f"{result.messages} messages", *sizes])
        write_line(
            f"{what.format(result.number)}: {amount}, in "
            f"{result.files} files of {format_bytes(result.file_bytes)} in {result.directory}"
        )
    else:
        planned = ", as planned by an earlier run" if result.repeated else ""
        if result.log_messages:
            # Compaction may have left fewer.
            sizes.insert(0, f"up to {result.log_messages} messages")
        write_line(f"load {result.number} would copy {' and '.join(sizes)} to {target}{planned}")
    if ranges:
        write_table([key.upper() for key in ranges[0]], [list(each.values()) for each in ranges])
