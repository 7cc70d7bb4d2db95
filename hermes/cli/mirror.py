"""`hermes mirror`: run one, see what it does, and where topics come from."""

import json
import logging
import sys
import time
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import click

from hermes.cli import mirror_translate
from hermes.cli.exit_codes import debugging, fail_for
from hermes.cli.options import JSON_OPTION, TOPIC
from hermes.cli.registered_cluster import RegisteredCluster, cluster_options
from hermes.cli.security_options import security_options
from hermes.cli.terminal import (
    format_time_ms,
    write_done,
    write_json,
    write_line,
    write_rows,
)
from hermes.config.embedded_mirror import parse_line
from hermes.config.mirror import MirrorConfig, load_mirror_config
from hermes.config.setting import named_source
from hermes.config.units import format_bytes
from hermes.coordination.mirrors import (
    MOST_BYTES,
    MirroredPartition,
    MirrorProcess,
    problems_of,
    read_mirrors,
)
from hermes.coordination.origins import forget_origins, list_origins
from hermes.errors import (
    HermesError,
    InvalidNodeError,
    NotAuthenticatedError,
    NotAuthorizedError,
)
from hermes.mirror import Mirror
from hermes.quoting import printable
from hermes.security import ClientSecurity

_COLUMNS: Final = (
    *("source", "topic", "partition", "target_topic", "position", "end", "lag_bytes"),
    *("rate_bytes", "error"),
)
_HTTP_SECONDS: Final = 10.0
_LONGEST_LINE: Final = 2000
_THIS_MACHINE: Final = ("localhost", "127.0.0.1", "::1")


@click.group(
    "mirror",
    invoke_without_command=True,
    short_help="Mirror topics of other clusters into this one.",
)
@click.option(
    "--config",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="What to mirror: mirror.yaml.",
)
@click.option("--check", is_flag=True, help="Only check the file, and exit.")
@click.option("--supervised", is_flag=True, hidden=True, help="Run for a broker.")
@click.pass_context
def command(ctx: click.Context, path: Path | None, check: bool, supervised: bool) -> None:
    """Mirror topics of other clusters into this one, until Ctrl-C or SIGTERM.

    Several processes with the same file, on one machine or many, share the work. SIGHUP lets a
    process read its file again. The log goes to stderr.
    """
    if ctx.invoked_subcommand is not None:
        if path or check or supervised:
            raise click.UsageError("--config is for running a mirror, without a further command")
        return
    if supervised:
        _run_supervised()
    elif path is None:
        raise click.UsageError(
            "missing option '--config', or a command: status, ask, translate, origins"
        )
    else:
        _run(path, check=check)


def _run(path: Path, *, check: bool) -> None:
    config = _load(path)
    if check:
        click.echo(f"{path} is in order: mirror {config.name}")
        return
    from hermes.mirror.process import run_mirror  # Twisted, which the others don't need

    _log_to_stderr("%(asctime)s %(levelname)s %(message)s")
    run_mirror(config, reload=lambda: _load(path))


def _load(path: Path) -> MirrorConfig:
    config = load_mirror_config(path)
    with named_source(str(path)):
        Mirror(config)
    return config


def _run_supervised() -> None:
    """Run with the settings that a broker sends on stdin, until it closes that."""
    from hermes.mirror.process import run_mirror

    _log_to_stderr("%(levelname)s %(message)s")
    logging.raiseExceptions = False  # who would read them has gone
    config = parse_line(sys.stdin.buffer.readline())
    run_mirror(config, until_closed=sys.stdin.buffer)


def _log_to_stderr(format_: str) -> None:
    """Log what operators need, escaped: names come from anybody."""
    level = logging.DEBUG if debugging() else logging.INFO
    logging.basicConfig(format=format_, level=logging.WARNING, force=True)
    logging.getLogger("hermes").setLevel(level)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_EscapingFormatter(format_))


class _EscapingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """A traceback keeps its lines."""
        record.msg, record.args = printable(record.getMessage(), _LONGEST_LINE), None
        return super().format(record)


# -- status -------------------------------------------------------------------------------------


@command.command("status", short_help="Show the state of mirrors: processes, lag, rates, errors.")
@cluster_options
@JSON_OPTION
@click.argument("name", required=False)
def status(cluster: RegisteredCluster, as_json: bool, name: str | None) -> None:
    """Show the mirrors that write to a cluster, or the one called NAME.

    -b and -Z are the target's: there each process of a mirror reports every few seconds. With
    --json a line is a process, with all its partitions.

    The status is 1 when something is wrong: with a source or the target, with a partition, a topic
    that is refused, a mirror without a process. Stderr says what.
    """
    mirrors, faults = read_mirrors(cluster.session)
    if name is not None and name not in mirrors:
        raise HermesError(f"there is no mirror {name!r} ({', '.join(mirrors) or 'nor any other'})")
    now_ms = time.time_ns() // 1_000_000
    wrong = [str(fault) for fault in faults]
    for mirror, processes in mirrors.items():
        if name in (None, mirror):
            _show(processes, as_json, now_ms)
            wrong += problems_of(mirror, processes, now_ms)
    if not mirrors and not as_json:
        write_line("no mirror writes to this cluster")
    fail_for(wrong)


@command.command("ask", short_help="Show the same for a single process, over HTTP.")
@JSON_OPTION
@security_options
@click.argument("address", metavar="HOST:PORT")
def ask(as_json: bool, address: str, security: ClientSecurity) -> None:
    """Show what the mirror process does whose `http_listen` is at an address.

    For a target without coordination, where `hermes mirror status` finds nothing.
    """
    url = f"{'https' if security.uses_tls else 'http'}://{address}/status"
    try:
        with _open(url, security) as answer:
            content = answer.read(MOST_BYTES + 1)
        shown = json.loads(content)
        process = MirrorProcess.parse(f"/mirrors/{shown['mirror']}/{shown['process']}", content)
    except HTTPError as error:
        with error:
            refused = {401: NotAuthenticatedError, 403: NotAuthorizedError}.get(error.code)
        text = f"{url} does not show {security.whom} what a mirror does: {error}"
        raise (refused or HermesError)(text) from error
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        raise HermesError(f"{url} does not show what a mirror does: {error}") from error
    except InvalidNodeError as error:
        raise HermesError(f"{url}: {error}") from error
    now_ms = time.time_ns() // 1_000_000
    _show([process], as_json, now_ms)
    fail_for(list(problems_of(process.mirror, [process], now_ms)))


def _open(url: str, security: ClientSecurity) -> Any:
    """Request a page; the password is sent only by TLS, or within this machine."""
    handlers: list[Any] = [ProxyHandler({})]
    if security.uses_tls:
        handlers.append(HTTPSHandler(context=security.ssl_context()))
    request, host = Request(url), urlsplit(url).hostname
    if security.user is not None:
        if not (security.uses_tls or host in _THIS_MACHINE):
            raise HermesError(f"{url} would get the password in clear: give --tls-ca, or --tls")
        both = f"{security.user}:{security.password}".encode()
        request.add_unredirected_header("Authorization", f"Basic {b64encode(both).decode()}")
    return build_opener(*handlers).open(request, timeout=_HTTP_SECONDS)


def _show(processes: Sequence[MirrorProcess], as_json: bool, now_ms: int) -> None:
    for each in processes:
        if as_json:
            write_json(asdict(each))
            continue
        write_line(_headline(each, now_ms))
        if each.partitions:
            write_rows(_COLUMNS, [_row(row) for row in each.partitions], as_json=False)
        if each.count > len(each.partitions):
            write_line(f"and {each.count - len(each.partitions)} more partitions")


def _headline(process: MirrorProcess, now_ms: int) -> str:
    sources = ", ".join(process.sources) or "no source yet"
    told = [
        f"{process.messages} messages",
        format_bytes(process.mirrored_bytes),
        f"{format_bytes(round(process.rate_bytes))}/s",
        f"{format_bytes(process.lag_bytes)} behind",
    ]
    if process.duplicates:
        told.append(f"{process.duplicates} sent twice and kept once")
    if process.damaged:
        told.append(f"{process.damaged} damaged messages skipped")
    if process.lost_bytes:
        told.append(f"{format_bytes(process.lost_bytes)} lost at the source")
    return (
        f"mirror {process.mirror} from {sources}: {process.process}, pid {process.pid}, since "
        f"{format_time_ms(process.started_ms)}, {max(now_ms - process.time_ms, 0) // 1000} s ago: "
        + ", ".join(told)
    )


def _row(row: MirroredPartition) -> dict[str, Any]:
    shown = asdict(row) | {"lag_bytes": row.lag_bytes, "rate_bytes": round(row.rate_bytes)}
    return {**shown, "error": row.error or None}


command.add_command(mirror_translate.command)


# -- origins ------------------------------------------------------------------------------------


@command.command("origins", short_help="Show from which clusters topics were mirrored.")
@cluster_options
@JSON_OPTION
@click.option(
    "--forget",
    "topic",
    type=TOPIC,
    metavar="TOPIC",
    help="Forget where this topic comes from: it may be mirrored back from then on.",
)
def origins(cluster: RegisteredCluster, as_json: bool, topic: str | None) -> None:
    """Show of each topic that mirrors have written which clusters it comes from, by their ids.

    No mirror sends a topic back to one of these. To turn a mirror round, stop it, and forget the
    topic where it was written to.
    """
    if topic is not None:
        was_known = topic in mirror_translate.record_origins(cluster, forget=topic)
        if not (forget_origins(cluster.session, topic) or was_known):
            raise HermesError(f"topic {topic!r} comes from nowhere else")
        write_done("forgotten", topic, as_json)
        return
    found = {**list_origins(cluster.session), **mirror_translate.record_origins(cluster)}
    rows = [
        {"topic": each, "cluster": cluster_id, "mirror": mirror}
        for each, known in found.items()
        if not isinstance(known, InvalidNodeError)
        for cluster_id, mirror in known.items()
    ]
    write_rows(("topic", "cluster", "mirror"), rows, as_json)
    fail_for([each for each in found.values() if isinstance(each, InvalidNodeError)])
