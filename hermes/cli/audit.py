"""`hermes audit`: whether every message is everywhere, once."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from hermes.audit.checking import DEFAULT_GRACE_SECONDS, Audit, ClusterAddress
from hermes.audit.comparing import DIFFERENT, Report, Window
from hermes.audit.counting import DEFAULT_WINDOW_MS
from hermes.audit.producers import TIER_NAME
from hermes.cli.exit_codes import sigterm_as_exit
from hermes.cli.listener_options import (
    ALLOW_INSECURE_OPTION,
    LISTENER_TYPE,
    RULES_OPTION,
    USERS_FILE_OPTION,
    check_served,
    read_rules,
)
from hermes.cli.options import JSON_OPTION, QUIET_OPTION, TOPIC, option_type
from hermes.cli.registered_cluster import RegisteredCluster, cluster_options
from hermes.cli.terminal import (
    format_time_ms,
    note,
    status,
    write_json,
    write_line,
    write_rows,
)
from hermes.client.places import parse_time_ms
from hermes.config.listeners import ListenerConfig
from hermes.config.units import parse_duration
from hermes.coordination.layout import check_node_name
from hermes.coordination.topic_filters import Whitelist
from hermes.errors import ConfigError, HermesError
from hermes.security import AccessRule

#: The exit codes beside those of all commands.
EXIT_DIFFERENT: Final = 3
EXIT_UNCERTAIN: Final = 4

# How far metrics look back, and how often.
_LOOKED_BACK_MS: Final = 24 * 3_600_000
_LOOK_SECONDS: Final = 10.0
# What is older than that is forgotten by starting over.
_AFRESH_SECONDS: Final = 6 * 3_600.0

# Why ranges of a log aren't counted that end the command with EXIT_DIFFERENT.
_GONE: Final = ("lost", "missing", "cut", "set back")

_COLUMNS: Final = ("topic", "tier", "window", "state", "expected", "found", "why")
_SUMMARY: Final = (
    *("topic", "tier", "against", "complete", "short", "over", "changed", "uncertain", "behind"),
    *("open", "messages", "missing", "doubled", "late", "since"),
)


# -- options ------------------------------------------------------------------------------------


def _parse_since(text: str) -> Callable[[int], int]:
    """Parse `@TIME`, or a duration before now, into a function from now to a time, both in ms."""
    if text.startswith("@"):
        moment = parse_time_ms(text[1:])
        return lambda _: moment
    try:
        duration = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{error}, or @TIME") from None
    return lambda now_ms: now_ms - duration


def _parse_cluster(text: str) -> ClusterAddress:
    name, equals, connect = text.partition("=")
    if not (name and equals and connect):
        raise ValueError(f"expected NAME=HOST:PORT[/CHROOT], got {text!r}")
    return ClusterAddress(_parse_name(name), connect)


def _parse_name(text: str) -> str:
    try:
        check_node_name("the cluster's name", text)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    if not TIER_NAME.fullmatch(f"cluster:{text}"):
        raise ValueError(f"{text!r}: expected letters, digits, '.', '_' and '-'")
    return text


def _parse_tier(text: str) -> str:
    if not TIER_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a tier: expected producers, cluster:NAME, ...")
    return text


_WINDOW_OPTION: Final = click.option(
    "--window",
    "window_seconds",
    type=click.FloatRange(0.001, 86_400),
    default=DEFAULT_WINDOW_MS / 1000,
    show_default=True,
    metavar="SECONDS",
    help="How long windows are: the same as the producers'.",
)
_NAME_OPTION: Final = click.option(
    "--name",
    type=option_type(_parse_name, "name"),
    default="main",
    show_default=True,
    metavar="NAME",
    help="What the cluster is called: its tier is cluster:NAME.",
)
_ALSO_OPTION: Final = click.option(
    "--also",
    type=option_type(_parse_cluster, "cluster"),
    multiple=True,
    metavar="NAME=HOST:PORT[/CHROOT]",
    help="A further cluster, by the ZooKeeper where it is coordinated. May be repeated.",
)


# -- the commands -------------------------------------------------------------------------------


@click.group(
    "audit", invoke_without_command=True, short_help="Prove that no message is lost or doubled."
)
@cluster_options
@_NAME_OPTION
@_ALSO_OPTION
@click.option(
    "-t",
    "--topic",
    "topics",
    type=TOPIC,
    multiple=True,
    metavar="TOPIC",
    help="Only this topic; may be repeated.",
)
@click.option(
    "--tier",
    "chosen",
    type=option_type(_parse_tier, "tier"),
    multiple=True,
    metavar="TIER",
    help="Compare this tier; the first one given is what the others are compared with.",
)
@click.option(
    "--since",
    type=option_type(_parse_since, "since"),
    default="24h",
    show_default=True,
    metavar="DURATION|@TIME",
    help="Leave out windows that began earlier.",
)
@click.option(
    "--grace",
    "grace_seconds",
    type=click.FloatRange(0, 86_400),
    default=DEFAULT_GRACE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long messages may take to get everywhere; until then their window stays open.",
)
@_WINDOW_OPTION
@click.option(
    "--count/--no-count",
    "counts",
    default=True,
    help="Whether to count the clusters first, or only to read what others have counted.",
)
@click.option(
    "-f", "--follow", is_flag=True, help="Keep running, and report each window when it ends."
)
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 86_400),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How often --follow looks.",
)
@click.option("-a", "--all", "shows_all", is_flag=True, help="Show complete windows as well.")
@click.option(
    "--strict",
    is_flag=True,
    help="End with 4 if windows are uncertain or behind, or none is compared.",
)
@QUIET_OPTION
@JSON_OPTION
@click.pass_context
def command(
    ctx: click.Context,
    /,
    cluster: RegisteredCluster,
    name: str,
    also: tuple[ClusterAddress, ...],
    window_seconds: float,
    since: Callable[[int], int],
    grace_seconds: float,
    counts: bool,
    follow: bool,
    **options: Any,
) -> None:
    """Compare what producers sent with what each tier has: clusters, mirrors, groups, Spark.

    The cluster of -b or -Z is counted first: what is new since the last time, once. What is not
    complete is shown, window by window, and a line for each topic and tier.

    The exit status is 0 if no window differs, 3 if one is short, over or changed, or messages were
    lost by retention; with --strict 4 if some are uncertain or not counted yet.
    """
    clusters = [ClusterAddress(name, cluster.connect, cluster.connection.security)]
    clusters += [replace(each, security=cluster.connection.security) for each in also]
    if len({each.name for each in clusters}) < len(clusters):
        raise click.UsageError("two clusters have the same name: give --name")
    if ctx.invoked_subcommand is not None:
        ctx.obj = clusters, window_seconds
        return
    now_ms = time.time_ns() // 1_000_000
    auditing = Audit(
        clusters,
        since_ms=max(since(now_ms), 0),
        grace_seconds=grace_seconds,
        window_ms=round(window_seconds * 1000),
    )
    with sigterm_as_exit(), auditing as audit:
        run = _AuditRun(audit, **options)
        if counts:
            run.count()
        if follow:
            run.follow()
        else:
            run.once()


@command.command("count", short_help="Count clusters continuously.")
@click.option(
    "--whitelist", metavar="REGEX", help="Only topics whose whole name matches; all by default."
)
@click.option(
    "-l",
    "--http-listen",
    "listeners",
    type=LISTENER_TYPE,
    multiple=True,
    metavar="ENDPOINT",
    help="Compare as well, and serve metrics there: tcp:9095:interface=127.0.0.1.",
)
@ALLOW_INSECURE_OPTION
@USERS_FILE_OPTION
@RULES_OPTION
@QUIET_OPTION
@click.pass_obj
def count(
    clusters: tuple[list[ClusterAddress], float],
    whitelist: str | None,
    listeners: tuple[ListenerConfig, ...],
    allow_insecure: bool,
    users_file: Path | None,
    rules: Path | None,
    quiet: bool,
) -> None:
    """Count the messages of the clusters as they come, until Ctrl-C or SIGTERM.

    Give -b or -Z, --name, --also and --window before `count`. Several processes share the work, as
    members of the group hermes-audit-NAME; one that dies is replaced by the others.
    """
    check_served("--http-listen", listeners, allow_insecure=allow_insecure, users_file=users_file)
    addresses, window_seconds = clusters
    topics = None if whitelist is None else Whitelist(whitelist)
    window_ms = round(window_seconds * 1000)
    with sigterm_as_exit(), Audit(addresses, topics=topics, window_ms=window_ms) as audit:
        audit.start_counting()
        status("counting; Ctrl-C ends it", quiet=quiet)
        if listeners:
            _serve(addresses, window_ms, listeners, users_file, read_rules(rules))
        threading.Event().wait()


def _serve(
    addresses: Sequence[ClusterAddress],
    window_ms: int,
    listeners: Sequence[ListenerConfig],
    users_file: Path | None,
    access: Sequence[AccessRule] | None,
) -> None:
    from hermes.audit.serving import LastReport, mount_audit  # Twisted, for this alone
    from hermes.web import WebThread

    def make() -> Audit:
        now_ms = time.time_ns() // 1_000_000
        return Audit(addresses, since_ms=now_ms - _LOOKED_BACK_MS, window_ms=window_ms)

    last = LastReport(make, _AFRESH_SECONDS)
    web = WebThread(
        "--http-listen",
        listeners,
        lambda made, reactor: mount_audit(made, reactor, last),
        users_file=users_file,
        access=access,
    )
    web.start()
    places = [each if isinstance(each, str) else f"{each[0]}:{each[1]}" for each in web.addresses]
    note(f"metrics are served at {', '.join(places)}")
    problem = ""
    try:
        while True:
            try:
                last.look()
                problem = ""
            except HermesError as error:
                if str(error) != problem:  # once, not every few seconds
                    problem = str(error)
                    note(problem)
            time.sleep(_LOOK_SECONDS)
    finally:
        web.stop()
        last.close()


@dataclass(slots=True)
class _AuditRun:
    audit: Audit
    topics: Sequence[str]
    chosen: Sequence[str]
    interval: float
    shows_all: bool
    strict: bool
    quiet: bool
    as_json: bool
    told: dict[tuple[str, str, str, int], tuple[Any, ...]] = field(default_factory=dict)

    def count(self) -> None:
        status("counting", quiet=self.quiet)
        for fault in self.audit.count():
            note(fault)

    def once(self) -> None:
        report = self._look()
        self._check_tiers(report)
        windows = [each for each in report.windows if self.shows_all or _is_news(each)]
        if self.as_json:
            _write_report(report, windows)
        else:
            _show_report(report, windows)
        if report.differences or any(each.why in _GONE for each in report.losses):
            raise click.exceptions.Exit(EXIT_DIFFERENT)
        unsure = [each for each in report.windows if each.state in ("uncertain", "behind")]
        if self.strict and (unsure or not report.windows):
            raise click.exceptions.Exit(EXIT_UNCERTAIN)

    def follow(self) -> None:
        while True:
            for window in self._look().windows:
                key = (window.topic, window.tier, window.against, window.start_ms)
                told = (window.state, window.expected, window.found, window.late)
                if window.state == "open" or self.told.get(key) == told:
                    continue
                is_news = self.shows_all or _is_news(window) or key in self.told
                self.told[key] = told
                if is_news:
                    self._tell(window)
            time.sleep(self.interval)

    def _tell(self, window: Window) -> None:
        if self.as_json:
            write_json(_shown(window))
        else:
            row = _row(window)
            write_line("  ".join(str(row[key]) for key in _COLUMNS if row[key] != ""))

    def _look(self) -> Report:
        report = self.audit.look(self.chosen, self.topics)
        for fault in self.audit.unavailable:
            note(fault)
        return report

    def _check_tiers(self, report: Report) -> None:
        missing = [each for each in self.chosen if each not in self.audit.tiers.topics]
        if missing:
            known = ", ".join(self.audit.tiers.names()) or "none has"
            raise HermesError(f"tier {missing[0]} has not reported ({known})")
        if self.audit.tiers.refused:
            note(
                f"{self.audit.tiers.refused} events have windows of another length than "
                f"{report.window_ms / 1000:g} s, and were left out: see --window"
            )


def _is_news(window: Window) -> bool:
    return window.state in (*DIFFERENT, "uncertain", "behind")


def _row(window: Window) -> dict[str, Any]:
    return {
        "topic": window.topic,
        "tier": window.tier,
        "window": _time(window.start_ms),
        "state": _state(window),
        "expected": window.expected,
        "found": window.found,
        "why": _why(window),
    }


def _state(window: Window) -> str:
    if window.state == "short":
        return f"short by {window.short}"
    if window.state == "over":
        return f"over by {window.over}"
    if window.state == "changed":
        return f"{window.short} or more missing, {window.over} or more doubled"
    return window.state


def _why(window: Window) -> str:
    parts = [f"late: {window.late} by {timedelta(milliseconds=window.late_by_ms)}"] * bool(
        window.late
    )
    for part in window.parts[:3]:
        what = part.why or f"{part.difference:+d}"
        parts.append(f"{part.who}: {what}" if part.who else what)
    if len(window.parts) > 3:
        parts.append(f"and {len(window.parts) - 3} processes more")
    return "; ".join(parts)


def _time(time_ms: int) -> str:
    return format_time_ms(time_ms).replace(".000Z", "Z")


def _show_report(report: Report, windows: Sequence[Window]) -> None:
    if windows:
        write_rows(_COLUMNS, [_row(each) for each in windows], as_json=False)
        write_line("")
    summaries = _summaries(report)
    if summaries:
        # Columns that say nothing would make the lines too long to read.
        shown = [key for key in _SUMMARY if any(row[key] for row in summaries)]
        write_rows(shown, summaries, as_json=False)
    for each in report.losses:
        write_line(
            f"{each.tier}: topic {each.topic} log {each.log}: offsets {each.start} to {each.end}: "
            + {
                "lost": "lost, retention was quicker",
                "damaged": "damaged, and skipped",
                "cut": "were counted, and are gone: the log lost its end, or was created anew",
                "missing": "some offsets have no message, though nothing is compacted",
                "set back": "the group was set back, and gets them again",
            }.get(each.why, "no report mentions them")
        )
    for (tier, topic), count in report.damaged.items():
        write_line(f"{tier}: topic {topic}: {count} damaged messages were skipped")
    for (tier, topic), count in report.removed.items():
        write_line(
            f"{tier}: topic {topic}: {count} messages were compacted away before they were counted"
        )
    for total in report.totals:
        write_line(
            f"{total.tier}: topic {total.topic}: {total.found} messages without a stamp, "
            f"{total.against} has {total.expected} (totals only"
            + (")" if total.is_equal else "; not the same)")
        )
    if not (summaries or report.totals):
        write_line("nothing to compare: no two tiers have reported on a topic")


def _summaries(report: Report) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for each in report.windows:
        row = rows.setdefault(
            (each.topic, each.tier, each.against),
            dict.fromkeys(_SUMMARY, 0)
            | {"topic": each.topic, "tier": each.tier, "against": each.against, "since": None},
        )
        row[each.state] += 1
        row["messages"] += each.found
        row["late"] += each.late
        if each.state in DIFFERENT:
            row["missing"] += each.short
            row["doubled"] += each.over
            row["since"] = row["since"] or _time(each.start_ms)
    return list(rows.values())


def _shown(window: Window) -> dict[str, Any]:
    return {"kind": "window", **asdict(window), "start": _time(window.start_ms)}


def _write_report(report: Report, windows: Sequence[Window]) -> None:
    for each in windows:
        write_json(_shown(each))
    for row in _summaries(report):
        write_json({"kind": "summary", **row})
    for loss in report.losses:
        write_json({"kind": "loss", **asdict(loss)})
    for (tier, topic), count in report.damaged.items():
        write_json({"kind": "damaged", "tier": tier, "topic": topic, "count": count})
    for (tier, topic), count in report.removed.items():
        write_json({"kind": "compacted", "tier": tier, "topic": topic, "count": count})
    for total in report.totals:
        write_json({"kind": "total", **asdict(total)})
