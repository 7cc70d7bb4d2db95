"""Diagnoses a broker's machine and set-up: one check after the other, nothing changed.

A check yields findings; one that finds nothing wrong says what it has seen.
"""

import errno
import fcntl
import os
import resource
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from importlib import metadata, util
from pathlib import Path
from typing import Final, Literal, NamedTuple

from hermes import __version__
from hermes.cli.copies_diagnosis import find_about_copies
from hermes.cli.options import BrokerOption, CommandConnection
from hermes.cli.registered_cluster import start_session
from hermes.cli.security_options import require_known
from hermes.cli.terminal import format_time_ms
from hermes.config.broker import BrokerConfig
from hermes.config.endpoints import read_endpoint
from hermes.config.exposure import warnings_of
from hermes.config.listeners import ListenerConfig
from hermes.config.loading import load_broker_config
from hermes.config.units import format_bytes
from hermes.coordination.cluster_view import read_brokers, read_listeners
from hermes.coordination.embedded.snapshots import condition_of, snapshot_path
from hermes.coordination.embedded.store import FILE_NAME
from hermes.coordination.group_state import list_groups
from hermes.coordination.kafka_group_state import list_kafka_groups
from hermes.coordination.layout import BrokerNode
from hermes.coordination.sessions import Session
from hermes.errors import (
    ConfigError,
    CoordinationNotAuthorizedError,
    HermesError,
    StorageError,
)
from hermes.extras import outdated_requirements
from hermes.protocol.core import KIND
from hermes.security import PLAIN
from hermes.server.checks import (
    check_certificates,
    check_ownership,
    check_startable,
    wrong_name,
)
from hermes.storage.files import FileLayer
from hermes.storage.layout import (
    CLEAN_SHUTDOWN_MARKER,
    LOCK_NAME,
    OWN_FILES,
    RESTORE_MARKER,
    list_partitions,
    partition_directory,
)

_LEAST_FREE_SHARE: Final = 0.05
_LEAST_FREE_INODES: Final = 1000
_FUTURE_SECONDS: Final = 60
_SOON_SECONDS: Final = 14 * 86_400
#: What a client gives on the command line to be served, by a listener's `authentication`.
_PROOFS: Final = {"scram": "--user", "tls": "--tls-certificate"}
# Hermes is younger than this: an earlier clock has never been set.
_EARLIEST_CLOCK: Final = datetime(2025, 1, 1, tzinfo=UTC).timestamp()
_OTHER_DESCRIPTORS: Final = 200
_KINDS: Final = {
    errno.EADDRINUSE: "another process uses it: stop that one, or choose another port",
    errno.EACCES: "this user may not open it: choose a port above 1023",
    errno.EADDRNOTAVAIL: "this machine has no such address: correct `interface`",
}


class Diagnosis(NamedTuple):
    """A check's finding. `level`: `ok`, `notice` (worth knowing) or `problem` (to be put right)."""

    area: str
    level: Literal["ok", "notice", "problem"]
    text: str


def check_installation() -> Iterator[Diagnosis]:
    found = ", ".join(f"{name} {metadata.version(name)}" for name in ("Twisted", "kazoo", "click"))
    python = ".".join(map(str, sys.version_info[:3]))
    yield Diagnosis("versions", "ok", f"hermes {__version__}, Python {python}, {found}")
    for text in outdated_requirements():
        yield Diagnosis("versions", "problem", text)
    if KIND != "compiled":
        text = "the loops over messages are not compiled, so everything is several times slower: "
        yield Diagnosis("versions", "notice", f"{text}install Hermes where there is a C compiler")
    if util.find_spec("twisted.plugins.hermes_plugin") is None:
        text = "`twistd hermes` is not known: install Hermes once more, as docs/install.md says"
        yield Diagnosis("versions", "problem", text)


def check_clock(now: float | None = None) -> Iterator[Diagnosis]:
    now = time.time() if now is None else now
    shown = format_time_ms(int(now * 1000))
    if now < _EARLIEST_CLOCK:
        text = f"it is {shown}, which can't be: set the clock, or offsets by time are wrong"
        yield Diagnosis("clock", "problem", text)
    else:
        yield Diagnosis("clock", "ok", f"it is {shown}")


def read_config(path: Path) -> tuple[BrokerConfig | None, list[Diagnosis]]:
    config = None
    try:
        config = load_broker_config(path)
        check_startable(config)
        check_ownership(config)
        for _ in check_certificates(config):
            pass
    except ConfigError as error:
        return config, [Diagnosis("configuration", "problem", str(error))]
    except OSError as error:
        text = f"{path}: {error.strerror or error}"
        return None, [Diagnosis("configuration", "problem", text)]
    return config, [Diagnosis("configuration", "ok", f"a broker can start with {path}")]


# -- the data directory -------------------------------------------------------------------------


def holder_of(log_dir: Path) -> str | None:
    try:
        with open(log_dir / LOCK_NAME, encoding="ascii", errors="replace") as file:
            try:
                # Shared, since somebody else may be looking.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.readline().strip() or "?"
    except OSError:
        pass
    return None


def check_data(config: BrokerConfig, holder: str | None) -> Iterator[Diagnosis]:
    """Check the data directory, without reading its files' contents."""
    log_dir = config.log_dir
    if not log_dir.is_dir():
        yield Diagnosis("data", "ok", f"{log_dir} does not exist; the first start makes it")
        return
    try:
        partitions, others = list_partitions(os.fspath(log_dir), FileLayer())
    except OSError as error:
        yield Diagnosis("data", "problem", f"{log_dir}: {error.strerror}: give it to this user")
        return
    use = f"used by process {holder}" if holder else "used by no broker"
    yield Diagnosis("data", "ok", f"{log_dir}: {len(partitions)} partitions, {use}")
    if RESTORE_MARKER in others:
        text = f"{log_dir} holds a restore that was not finished: delete it, and restore again"
        yield Diagnosis("data", "problem", text)
    if partitions and not holder and CLEAN_SHUTDOWN_MARKER not in others:
        text = "the last stop was not a clean one; the next start recovers"
        yield Diagnosis("data", "notice", text)
    for name in others:
        if not name.startswith((CLEAN_SHUTDOWN_MARKER, *OWN_FILES, "lost+found")):
            yield Diagnosis("data", "notice", f"{log_dir / name} is none of Hermes': left alone")
    directories = [log_dir / partition_directory(*each) for each in partitions]
    yield from _check_access(directories)
    if config.coordination == "embedded":
        yield from _check_coordination_file(log_dir / FILE_NAME, is_used=holder is not None)


def _check_access(directories: list[Path]) -> Iterator[Diagnosis]:
    refused: list[Path] = []
    newest = (0.0, Path())
    for directory in directories:
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
            refused.append(directory)
            continue
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                path = Path(entry.path)
                with suppress(FileNotFoundError):  # deleted, or renamed by a flush
                    newest = max(newest, (entry.stat(follow_symlinks=False).st_mtime, path))
                    if not os.access(path, os.R_OK | os.W_OK) and os.path.lexists(path):
                        refused.append(path)
    if refused:
        text = f"{refused[0]} can't be read and written by this user"
        more = f", and {len(refused) - 1} others" if len(refused) > 1 else ""
        yield Diagnosis("data", "problem", f"{text}{more}: run as the broker's user, or chown")
    if newest[0] > time.time() + _FUTURE_SECONDS:
        when = format_time_ms(int(newest[0] * 1000))
        text = f"{newest[1]} was written at {when}, in the future: was the clock set back?"
        yield Diagnosis("clock", "problem", text)


def _check_coordination_file(path: Path, *, is_used: bool) -> Iterator[Diagnosis]:
    snapshot = snapshot_path(path)
    for each in (snapshot,) if is_used else (path, snapshot):
        if each.exists():
            try:
                found = condition_of(each)
            except StorageError as error:
                text = f"{error}: see `hermes coordination restore --help`"
                yield Diagnosis("coordination", "problem", text)
            else:
                text = f"{each.name}: {found.nodes} nodes, {found.groups} groups"
                if found.taken_ms is not None:
                    text += f", as they were at {format_time_ms(found.taken_ms)}"
                yield Diagnosis("coordination", "ok", text)


def check_disk(config: BrokerConfig) -> Iterator[Diagnosis]:
    place = config.log_dir.absolute()
    while not place.exists():
        place = place.parent
    found = os.statvfs(place)
    free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    shown = f"{format_bytes(free)} of {format_bytes(size)} are free at {place}"
    if found.f_flag & os.ST_RDONLY:
        yield Diagnosis("disk", "problem", f"{place} is mounted read-only: mount it for writing")
    elif free < config.topic("").segment_bytes:
        what = "less than one segment"
        yield Diagnosis("disk", "problem", f"{shown}, {what}: make room, or lower retention_bytes")
    elif free < size * _LEAST_FREE_SHARE:
        yield Diagnosis("disk", "notice", f"{shown}: make room before it is full")
    else:
        yield Diagnosis("disk", "ok", shown)
    if found.f_files and found.f_favail < _LEAST_FREE_INODES:
        text = f"{found.f_favail} more files can be made at {place}: delete some, or make it larger"
        yield Diagnosis("disk", "problem", text)


def check_limits(config: BrokerConfig) -> Iterator[Diagnosis]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = config.max_connections + config.max_open_segments + _OTHER_DESCRIPTORS
    if hard != resource.RLIM_INFINITY and hard < wanted:
        text = (
            f"a process may have {hard} descriptors, but max_connections and max_open_segments "
            f"may take {wanted}: raise the limit (LimitNOFILE, ulimit -Hn), or lower them"
        )
        yield Diagnosis("limits", "notice", text)
    else:
        yield Diagnosis("limits", "ok", "there are enough descriptors")
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest != resource.RLIM_INFINITY and largest < config.topic("").segment_bytes:
        text = f"a file may have {format_bytes(largest)}, less than segment_bytes: ulimit -f"
        yield Diagnosis("limits", "problem", text)


# -- security -----------------------------------------------------------------------------------


def check_security(config: BrokerConfig) -> Iterator[Diagnosis]:
    dangers = [text for setting, each in config.listeners() for text in warnings_of(setting, each)]
    for text in dangers:
        yield Diagnosis("security", "notice", text)
    if not dangers:
        others = [
            f"{setting} {each}"
            for setting, listeners in config.listeners()
            for each in listeners
            if not each.is_loopback
        ]
        text = "other machines can't reach this broker"
        if others:
            text = f"other machines need TLS and authentication: {', '.join(others)}"
        yield Diagnosis("security", "ok", text)
    yield from _check_ends(config)


def _check_ends(config: BrokerConfig) -> Iterator[Diagnosis]:
    with suppress(ConfigError):  # which `read_config` has said
        for checked in check_certificates(config):
            if checked.missing_name:
                text = f"{checked.where}: {wrong_name(checked)}"
                yield Diagnosis("security", "problem", text)
            end = checked.end_seconds
            left = end - time.time()
            text = f"{checked.where}: its certificate ends on {format_time_ms(int(end * 1000))}"
            if left <= 0:
                yield Diagnosis("security", "problem", f"{text}: renew it")
            elif left < _SOON_SECONDS:
                yield Diagnosis("security", "notice", f"{text}: renew it, no restart is needed")
            else:
                yield Diagnosis("security", "ok", text)


# -- ports and coordination ---------------------------------------------------------------------


def check_ports(
    config: BrokerConfig, holder: str | None, connection: CommandConnection
) -> Iterator[Diagnosis]:
    served = [("listen", each) for each in config.listen]
    others = [("kafka_listen", each) for each in config.kafka_listen or ()]
    others += [("http_listen", each) for each in config.http_listen or ()]
    if config.coordination == "embedded":
        others.append(("coordination_listen", config.coordination_listen))
    for setting, listener in served + others:
        place = tcp_place(listener)
        if place is None or not place.port:
            continue
        if holder is None:
            yield _check_free(setting, place)
        elif setting == "listen":
            yield from _check_listener(listener, place, connection, config.broker_id)
        else:
            yield _check_open(setting, place, connection.timeout_seconds)


def tcp_place(listener: ListenerConfig) -> BrokerOption | None:
    endpoint = read_endpoint(listener.endpoint)
    if not (endpoint.is_tcp and endpoint.port.isdigit()):
        return None
    return BrokerOption(endpoint.interface, int(endpoint.port))


def _check_listener(
    listener: ListenerConfig,
    place: BrokerOption,
    connection: CommandConnection,
    broker_id: int,
) -> Iterator[Diagnosis]:
    tls, authentication = listener.tls is not None, listener.authentication
    for each in (connection.security, PLAIN):
        if each.fits(tls, authentication):
            # A certificate is for the name by which clients know the broker.
            host, port = listener.advertised_place if tls else ("", None)
            address = BrokerOption(host or place.host, port or place.port)
            yield from check_broker(address, connection._replace(security=each), broker_id)
            return
    options = ["--tls-ca" if tls else "", _PROOFS.get(authentication, "")]
    wanted = " and ".join(filter(None, options))
    yield _check_open("listen", place, connection.timeout_seconds)
    yield Diagnosis("broker", "ok", f"{place} was not asked: give {wanted} to look further")


def _check_free(setting: str, place: BrokerOption) -> Diagnosis:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((place.host, place.port))
        except (OSError, OverflowError) as error:
            reason = _KINDS.get(getattr(error, "errno", 0) or 0, str(error))
            return Diagnosis("ports", "problem", f"{setting}: port {place.port}: {reason}")
    return Diagnosis("ports", "ok", f"{setting}: port {place.port} is free")


def _check_open(setting: str, place: BrokerOption, timeout: float) -> Diagnosis:
    try:
        socket.create_connection((place.host or "localhost", place.port), timeout).close()
    except OSError as error:
        text = f"{setting}: port {place.port} can't be reached though the broker runs: {error}"
        return Diagnosis("ports", "problem", text)
    return Diagnosis("ports", "ok", f"{setting}: port {place.port} is open")


def check_broker(
    place: BrokerOption,
    connection: CommandConnection,
    broker_id: int | None = None,
) -> Iterator[Diagnosis]:
    address = place._replace(host=place.host or "localhost")
    try:
        with address.consumer(connection) as consumer:
            answer = require_known(consumer.metadata([]), address)
    except HermesError as error:
        yield Diagnosis("broker", "problem", str(error))
        return
    yield Diagnosis("broker", "ok", f"{address} is broker {answer.broker_id}, {answer.version}")
    if broker_id not in (None, answer.broker_id):
        text = (
            f"{address} is broker {answer.broker_id}, not {broker_id}: it has another broker.yaml"
        )
        yield Diagnosis("broker", "problem", text)
    if answer.version != __version__:
        text = f"{address} runs Hermes {answer.version}, this is {__version__}: restart it"
        yield Diagnosis("versions", "notice", text)


def check_coordination(
    connect: str,
    connection: CommandConnection,
    config: BrokerConfig | None,
    holder: str | None,
) -> Iterator[Diagnosis]:
    faults: list[str] = []
    try:
        session = start_session(connect, connection)
        try:
            brokers = read_brokers(session, lambda fault: faults.append(str(fault)))
            groups = _counted_groups(session)
            listeners = read_listeners(session, lambda fault: None)

            def is_embedded() -> bool:
                is_own = config is not None and config.coordination == "embedded"
                return is_own or any(_embeds(each, connection) for each in brokers.values())

            copies = list(find_about_copies(session, listeners, config, is_embedded=is_embedded))
        finally:
            session.stop()
    except HermesError as error:
        yield Diagnosis("coordination", "problem", f"{error}: is it running, and that its address?")
        return
    shown = ", ".join(f"{number} at {node.host}:{node.port}" for number, node in brokers.items())
    yield Diagnosis("coordination", "ok", f"{connect} has the brokers {shown or 'none'}{groups}")
    for fault in faults:
        yield Diagnosis("coordination", "problem", f"{fault}: delete that node")
    for level, found in copies:
        yield Diagnosis("copies", level, found)
    if config is None:
        return
    if holder and config.broker_id not in brokers:
        text = f"broker {config.broker_id} runs, but is not registered: see its log"
        yield Diagnosis("coordination", "problem", text)
    if not holder and config.broker_id in brokers:
        text = f"broker_id {config.broker_id} is taken by {brokers[config.broker_id].host}"
        yield Diagnosis("coordination", "problem", f"{text}: give this broker another one")


def _embeds(broker: BrokerNode, connection: CommandConnection) -> bool:
    try:
        with BrokerOption(broker.host, broker.port).consumer(connection) as consumer:
            settings = consumer.describe_settings()
    except HermesError:  # it doesn't answer, or not this user: then it isn't known
        return False
    return any((each.name, each.value) == ("coordination", "embedded") for each in settings)


def _counted_groups(session: Session) -> str:
    """How many groups there are, of Hermes' and of Kafka's clients; "" where that isn't known."""
    try:
        count = len(list_groups(session)) + len(list_kafka_groups(session))
    except CoordinationNotAuthorizedError:
        return ""
    return f", and {count} groups"
