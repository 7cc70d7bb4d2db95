"""`twistd hermes`: the composition root, where a configuration becomes a running broker.

The only module that imports the global reactor. `hermes.twistd` comes before it, reads the
configuration and validates it.
"""

import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

from twisted.application.service import IService
from twisted.internet.defer import inlineCallbacks
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThread
from twisted.logger import ILogObserver, LogLevel
from twisted.python.failure import Failure
from twisted.python.logfile import LogFile

from hermes import logs
from hermes.broker import BrokerService
from hermes.broker.clocks import use_monotonic_clock
from hermes.config.addresses import BrokerAddress
from hermes.config.broker import BrokerConfig
from hermes.config.listeners import ListenerConfig
from hermes.errors import ConfigError, HermesError
from hermes.reactors import lighten

if TYPE_CHECKING:
    from hermes.broker.serving import FactoryOf, ServingBroker
    from hermes.broker.sidecar_process import SidecarProcess
    from hermes.config.embedded_mirror import EmbeddedMirror
    from hermes.console import RegistryRecords
    from hermes.kafka.dispatching import Around
    from hermes.web import WebServer

__all__ = ["log_observer", "make_service", "mount_kafka", "mount_registry", "twistd_options"]

#: A full garbage collection that takes longer has looked mostly at objects that live for ever.
_LONG_COLLECTION_SECONDS = 0.005

#: Python's own but for the last, which is 10: what isn't frozen is looked at while it is little.
_COLLECTION_THRESHOLDS = (700, 10, 3)

_log = logs.ModuleLogger(namespace="hermes.tap")


#: twistd's own options, for `log_observer`, which it calls without arguments, and what that made.
twistd_options: dict[str, Any] = {}

_log_levels = logs.LogLevels("info", {})


def log_observer() -> ILogObserver:
    """Make the process's log observer, by broker.yaml and twistd's own options.

    The file is the one that twistd itself would use; SIGUSR1 rotates it, and so does its size. On
    standard output there is nothing to rotate, and the signal has no effect.
    """
    path, is_daemon = twistd_options["logfile"], not twistd_options["nodaemon"]
    file: Any = sys.stdout
    if path == "-" and is_daemon:
        _exit("a daemon can't log to standard output: leave --logfile out, or give -n")
    if path == "-" or not (path or is_daemon):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    else:
        file = LogFile.fromFullPath(path or "twistd.log")  # type: ignore[no-untyped-call]
        signal.signal(signal.SIGUSR1, lambda *_: _in_reactor(file.rotate))
    output = twistd_options["output"] = logs.LogOutput(file, _log_levels, as_json=False)
    _use_log_settings(twistd_options["config"])
    return output


def _use_log_settings(config: BrokerConfig) -> None:
    _log_levels.use(config.log_level, config.log_levels)
    is_debugged = _log_levels.lowest == "debug"
    logging.getLogger("hermes").setLevel(logging.DEBUG if is_debugged else logging.INFO)
    output: logs.LogOutput | None = twistd_options.get("output")
    if output is not None:
        output.as_json = config.log_format == "json"
        if isinstance(output.file, LogFile):
            output.file.rotateLength = config.log_rotate_bytes
            output.file.maxRotatedFiles = config.log_keep_files


def _in_reactor(function: Callable[[], object]) -> None:
    from twisted.internet import reactor

    cast(IReactorFromThreads, reactor).callFromThread(function)


def make_service(
    config: BrokerConfig, read_config: Callable[[], BrokerConfig], ready_file: str | None
) -> IService:
    """Build the broker's service, or end the process with one line that says why not.

    Args:
        read_config: reads broker.yaml again; blocks.
        ready_file: written once all ports are open, whatever the settings say.
    """
    from twisted.internet import reactor  # only here; everything else gets it as an argument

    use_monotonic_clock(reactor)
    lighten(reactor)
    try:
        return _ExitingService(
            config,
            reactor,
            pid_file=twistd_options.get("pidfile"),
            log_levels=_log_levels,
            read_config=read_config,
            ready_file=ready_file,
            mount_kafka=mount_kafka,
            mount=partial(_mount, reactor, config),
        )
    except HermesError as error:
        _exit(str(error))


def mount_kafka(run: "ServingBroker", around: "Around | None" = None) -> "FactoryOf":
    """Make the factories for the ports of `kafka_listen`.

    Args:
        run: the broker, whose ports are about to open.
        around: wraps each request in a test.
    """
    from hermes.kafka.wiring import mount_kafka  # few brokers need it

    return mount_kafka(run, around)


def _mount(reactor: Any, config: BrokerConfig, web: "WebServer", run: Any) -> None:
    """Serve the console and the schema registry beside metrics and health."""
    if run.own_client is not None:
        _mount_console(reactor, config, web, run)
        mount_registry(reactor, config, web, run)


def mount_registry(reactor: Any, config: BrokerConfig, web: "WebServer", run: Any) -> None:
    """Serve the schema registry beside metrics and health, if the settings say so."""
    here = run.own_client
    if here is None or not config.registry:
        return
    from hermes.cluster.advertising import own_host
    from hermes.registry.home import HomeBroker
    from hermes.registry.wiring import broker_store, serve_registry, url_of

    def connect() -> str | None:
        found: str | None = run.coordination.own_connect_string
        return found

    url = ""
    if config.coordination != "none":
        for listener, address in _reachable_ports(config, web):
            url = url_of(address, lambda: config.advertised_host or own_host(), listener)
            break
    own = HomeBroker(config.broker_id, *here)
    store = broker_store(config, own, url, connect, lambda: run.coordination.security)
    served = serve_registry(web, reactor, store)
    run.on_stopping.append(served.close)
    run.more_series.append(served.metrics.series)


def _reachable_ports(
    config: BrokerConfig, web: "WebServer"
) -> "list[tuple[ListenerConfig, tuple[str, int]]]":
    """The HTTP ports that other registries can ask: first those that need no credentials."""
    ports = [
        (listener, address)
        for listener, address in zip(config.http_listen or (), web.addresses, strict=True)
        if not isinstance(address, str)
    ]
    return sorted(ports, key=lambda each: each[0].tls is not None or each[0].demands_proof)


def _own_records(config: BrokerConfig, web: "WebServer", run: Any) -> "RegistryRecords | None":
    """Reads messages by the schemas of the registry beside the console, as any client."""
    ports = _reachable_ports(config, web)
    if not (config.registry and ports):
        return None
    from hermes.console import RegistryRecords
    from hermes.registry.wiring import url_of

    listener, address = ports[0]
    url = url_of(address, lambda: "::1" if address[0] == "::" else "127.0.0.1", listener)
    try:
        if run.own is None:
            return RegistryRecords(url)
        return RegistryRecords(run.own.serve_http(run.reactor, web), run.own.security, name=url)
    except ModuleNotFoundError:  # fastavro, which is an extra
        return None


def _mount_console(reactor: Any, config: BrokerConfig, web: "WebServer", run: Any) -> None:
    """Serve the console beside metrics and health.

    Where it would be open to others without a password, a page says why it isn't served.
    """
    from hermes.console import ClusterClient, Password, serve_console
    from hermes.security import PLAIN
    from hermes.web import ErrorPage

    host, port, security = run.own_client
    connect_as = config.connect_as
    path = config.console_password_file
    password = None if path is None else Password(path)
    cluster = ClusterClient(
        BrokerAddress(host, port),
        security=security,
        elsewhere=lambda: PLAIN if connect_as is None else connect_as.security(),
        coordination=lambda: (run.coordination.own_connect_string or "", run.coordination.security),
        broker_id=config.broker_id,
        kafka=run.own_kafka_client,
    )
    try:
        serve_console(
            web,
            reactor,
            cluster,
            setting="http_listen",
            password=password,
            may_act=lambda: run.config.console_actions,
            records=_own_records(config, web, run),
            broker_config=lambda: run.config,
        )
    except ConfigError as error:
        _log.warn("the console is not served: {error}", error=error)
        web.root.fallback = ErrorPage(403, f"the console is not served: {error}")


class _ExitingService(BrokerService):
    """A broker whose failed start ends the process with one line and status 1."""

    def __init__(
        self, config: BrokerConfig, reactor: Any, pid_file: str | None, **options: Any
    ) -> None:
        def end(reason: str) -> None:
            sys.stderr.write(f"hermes: {reason}\n")
            sys.stderr.flush()
            reactor.addSystemEventTrigger("after", "shutdown", self._remove_pid_file)
            reactor.addSystemEventTrigger("after", "shutdown", os._exit, 1)
            reactor.stop()

        super().__init__(config, reactor, on_fatal=end, on_ready=self._run_mirror, **options)
        self._pid_file = pid_file
        self._mirror: SidecarProcess | None = None

    def startService(self) -> None:
        logging.getLogger("hermes").addHandler(_ToTwisted())
        _use_log_settings(self.config)
        try:
            super().startService()
            _collect_briefly()
            had_terminal = os.isatty(0)
            signal.signal(
                signal.SIGHUP, lambda *_: _in_reactor(lambda: self._hang_up(had_terminal))
            )
        except (HermesError, OSError) as error:
            self._remove_pid_file()
            _exit(str(error))

    def _hang_up(self, had_terminal: bool) -> None:
        """Read broker.yaml again; but stop if SIGHUP means that the terminal was closed."""
        if had_terminal and not os.isatty(0):
            self._reactor.stop()
        else:
            self.reload("SIGHUP")

    def settings_changed(self, config: BrokerConfig) -> None:
        super().settings_changed(config)
        _use_log_settings(config)
        self._run_mirror()

    def _run_mirror(self) -> None:
        """Run broker.yaml's mirror beside the broker, with the settings of now."""
        mirror = self.config.mirror
        if self._mirror is None:
            if mirror is None:
                return
            from hermes.broker.sidecar_process import SidecarProcess

            command = "from hermes.cli import main; main()"
            self._mirror = SidecarProcess(
                "mirror", [sys.executable, "-c", command, "mirror", "--supervised"]
            )
        self._mirror.use(None if mirror is None else self._line_of(mirror))

    def _line_of(self, mirror: "EmbeddedMirror") -> bytes:
        config = self.config
        return mirror.line(
            self._here(),
            allow_insecure=config.allow_insecure,
            users_file=config.users_file,
            own=self.own_broker,
        )

    def _here(self) -> dict[str, object]:
        connect_as = self.config.connect_as
        more = {} if connect_as is None else {"connect_as": connect_as.as_given()}
        if self.zookeeper_connect is not None:
            return {"zookeeper": self.zookeeper_connect, **more}
        hosts = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
        addresses = (each for each in self.addresses if not isinstance(each, str))
        here = [f"{hosts.get(host, host)}:{port}" for host, port in addresses]
        return {"brokers": here[:1], **more}

    def _remove_pid_file(self) -> None:
        """Do what twistd doesn't when the process ends by itself."""
        if self._pid_file:
            with suppress(OSError):
                os.unlink(self._pid_file)

    @inlineCallbacks
    def stopService(self) -> Any:
        """Stop; after another signal, clients are no longer waited for."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: _in_reactor(self.hurry))
        if self._mirror is not None:  # it ends in good order while its target is there
            yield deferToThread(self._mirror.stop, self.config.stop_timeout_ms / 1000)
        yield super().stopService()


def _collect_briefly() -> None:
    """Keep full garbage collections to a few milliseconds, however many objects live for ever."""
    # They scan all objects, every log included, and stop everything until they are done. So what
    # exists now is frozen, and later what has made a collection slow: logs that were created since.
    # Little of this ever becomes garbage that only a collection could find: what requests and
    # connections leave has no reference cycles.
    began = 0.0

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.thread_time()
        elif info["generation"] == 2 and time.thread_time() - began > _LONG_COLLECTION_SECONDS:
            gc.freeze()

    gc.callbacks.append(collected)
    gc.set_threshold(*_COLLECTION_THRESHOLDS)
    gc.freeze()
    gc.enable()  # twistd's options have disabled it


class _ToTwisted(logging.Handler):
    """Passes standard logging of modules that don't know Twisted to Twisted's log."""

    def emit(self, record: logging.LogRecord) -> None:
        level = LogLevel.levelWithName(record.levelname.lower().replace("warning", "warn"))
        fault: dict[str, Any] = {}
        if record.exc_info and record.exc_info[0] is not None:
            kind, error, traceback = record.exc_info
            fault["log_failure"] = Failure(error, kind, traceback)  # type: ignore[no-untyped-call]
        logs.ModuleLogger(namespace=record.name).emit(
            level, "{message}", message=record.getMessage(), **fault
        )


def _exit(message: str) -> NoReturn:
    sys.stderr.write(f"hermes: {message}\n")
    raise SystemExit(1)
