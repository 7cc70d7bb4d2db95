"""The command line: one subcommand per measurement, and `all`."""

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import get_args, get_type_hints

from bench.measurements import (
    attack,
    batches,
    big_log,
    clients,
    connections,
    console,
    fairness,
    fetch,
    figures,
    ingest,
    kafka,
    latency,
    mirror,
    mirror_records,
    processors,
    rates,
    registry,
    replicas,
    replication,
    requests,
    security,
    settle,
    spark,
    spark_data,
    startup,
    through,
    tls,
    waiting,
)
from bench.peers.system import NotInstalled
from bench.support.processes import ProgramFailed
from bench.support.report import Row, rows_as_json, table
from bench.support.settings import Settings

__all__ = ["main"]


@dataclass(frozen=True, slots=True)
class _Measurement:
    """A subcommand: what it measures, and whether `all` includes it."""

    measure: Callable[[Settings], list[Row]]
    summary: str
    in_all: bool = True


_MEASUREMENTS = {
    "ingest": _Measurement(ingest.measure, "unanswered produces against the bare Twisted sink"),
    "fetch": _Measurement(fetch.measure, "fetches against the raw sendfile loop"),
    "tls": _Measurement(
        tls.measure, "the same over TLS, against plain and a bare Twisted TLS sink"
    ),
    "latency": _Measurement(latency.measure, "produce to a waiting consumer at 100 messages/s"),
    "rates": _Measurement(
        rates.measure, "small acknowledged requests at given rates, beside Kafka", in_all=False
    ),
    "waiting": _Measurement(
        waiting.measure, "what the polls of 2,000 waiting consumers cost", in_all=False
    ),
    "fairness": _Measurement(
        fairness.measure, "small requests beside large ones of another connection", in_all=False
    ),
    "processors": _Measurement(
        processors.measure, "several brokers on one machine, and other Pythons", in_all=False
    ),
    "batches": _Measurement(
        batches.measure, "Java's producer, and a hundred topics, beside Kafka", in_all=False
    ),
    "requests": _Measurement(
        requests.measure, "where a small request's instructions go; needs valgrind", in_all=False
    ),
    "replicas": _Measurement(
        replicas.measure, "copies at rest, made anew, and when a broker is lost", in_all=False
    ),
    "replication": _Measurement(
        replication.measure, "topics with three copies, beside Kafka's", in_all=False
    ),
    "mirror": _Measurement(mirror.measure, "a mirror beside a consumer and a producer"),
    "mirror-kafka": _Measurement(
        mirror_records.measure, "the same for Kafka's format, beside confluent-kafka", in_all=False
    ),
    "through": _Measurement(through.measure, "resident memory while gigabytes go in and out"),
    "connections": _Measurement(connections.measure, "resident memory of idle connections"),
    "console": _Measurement(console.measure, "the web console with a thousand topics"),
    "registry": _Measurement(registry.measure, "a thousand schemas from a hundred writers"),
    "security": _Measurement(security.measure, "what access rules and SCRAM cost a connection"),
    "startup": _Measurement(startup.measure, "start-up after a clean stop, many partitions"),
    "settle": _Measurement(settle.measure, "how soon a group of consumers has shared out anew"),
    "attack": _Measurement(attack.measure, "resident memory under hostile clients"),
    "figures": _Measurement(figures.measure, "the paper's section 5, with peers if installed"),
    "clients": _Measurement(clients.measure, "the client library, beside the clients of Kafka"),
    "kafka": _Measurement(kafka.measure, "confluent-kafka on Hermes, Kafka 4 and a mock cluster"),
    "spark": _Measurement(spark.measure, "Spark's batch read, as Arrow and as tuples"),
    "spark-data": _Measurement(
        spark_data.measure, "Spark's reads, writes and loads, beside Parquet"
    ),
    "spark-memory": _Measurement(
        spark.measure_memory, "a query over a large topic in a small heap", in_all=False
    ),
    "big-log": _Measurement(
        big_log.measure, "a large log against an empty one; needs the disk", in_all=False
    ),
}

#: What `all` leaves out unless it is asked for it.
_OF_THE_DISK = ("big-log", "spark-memory")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one measurement, or all of them, and print the table.

    Returns:
        0 when every target was met, 1 when one was not, 2 when something could not be run.
    """
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # stop the children
    settings = Settings(**{f.name: getattr(options, f.name) for f in fields(Settings)})
    names = _chosen(options)
    rows: list[Row] = []
    for name in names:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        try:
            new = _MEASUREMENTS[name].measure(settings)
        except (ProgramFailed, NotInstalled, OSError, RuntimeError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 2
        if not options.json:
            print(table(new), end="\n\n", flush=True)
        rows += new
    if options.json:
        print(rows_as_json(rows))
    elif len(names) > 1:
        print(table(rows))
    return 1 if any(row.met is False for row in rows) else 0


def _chosen(options: argparse.Namespace) -> list[str]:
    if options.measurement != "all":
        return [options.measurement]
    return [
        name
        for name, measurement in _MEASUREMENTS.items()
        if measurement.in_all or (options.big_log and name in _OF_THE_DISK)
    ]


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print JSON, with every single run")
    for name, hint in get_type_hints(Settings, include_extras=True).items():
        kind, doc = get_args(hint)
        option = "--" + name.replace("_", "-")
        if kind is bool:
            common.add_argument(option, action="store_true", help=doc)
            continue
        common.add_argument(
            option,
            type=kind,
            default=getattr(Settings(), name),
            metavar={Path: "PATH", str: "NAMES"}.get(kind, "N"),
            help=f"{doc} (default: %(default)s)",
        )
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="measurement", required=True, metavar="MEASUREMENT")
    for name, measurement in _MEASUREMENTS.items():
        commands.add_parser(name, parents=[common], help=measurement.summary)
    everything = commands.add_parser(
        "all", parents=[common], help="all of them but those that README.md leaves out"
    )
    everything.add_argument(
        "--big-log", action="store_true", help="include what needs the disk: big-log, spark-memory"
    )
    return parser
