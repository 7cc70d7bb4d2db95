"""The broker as a Twisted service: starts a `ServingBroker`, says when it is ready, stops it."""

import json
import os
import resource
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from hermes._version import __version__
from hermes.broker.serving import FactoryOf, ServingBroker
from hermes.cluster.shared import no_file
from hermes.config.broker import BrokerConfig
from hermes.config.exposure import warnings_of
from hermes.config.listeners import ListenerConfig
from hermes.config.mirror import OwnBroker
from hermes.config.origins import DEFAULT, settings_in_force
from hermes.listening import Address, Listener
from hermes.logs import LogLevels, ModuleLogger, RecentLines
from hermes.quoting import printable
from hermes.server.checks import check_ready_file, check_startable

if TYPE_CHECKING:
    from hermes.web import WebServer

#: How much of the settings one line shows, in characters.
_SETTINGS_LENGTH = 2000


class BrokerService(Service):
    """One broker, from its configuration to its sockets. Nothing is opened before `startService`.

    Args:
        ready_file: written once all ports are open, whatever the configuration says.
        on_ready: called once every port is open and the broker is registered.
        on_fatal: called with a reason when the broker can't continue after its start; stops the
            reactor unless given.
        now_ms: the wall clock, in ms since 1970.
        mount_kafka: makes what serves `kafka_listen`; not needed where that isn't set.
        mount: completes what the HTTP port serves, if there is one: adds to its root, or sets the
            root's fallback. Called at each start, when all other ports are open.
        log_levels: which lines are logged; as the settings say unless given.
        read_config: reads broker.yaml again; blocks.
    """

    name = "hermes"
    _log = ModuleLogger()

    def __init__(
        self,
        config: BrokerConfig,
        reactor: Any,
        *,
        ready_file: str | None = None,
        on_ready: Callable[[], None] = lambda: None,
        on_fatal: Callable[[str], None] | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        mount_kafka: Callable[[ServingBroker], FactoryOf] | None = None,
        mount: Callable[["WebServer", ServingBroker], None] = lambda web, run: None,
        log_levels: LogLevels | None = None,
        read_config: Callable[[], BrokerConfig] = no_file,
    ) -> None:
        self.config = config
        self.on_ready = on_ready
        self.on_fatal = on_fatal or (lambda _: reactor.stop())
        self._reactor = reactor
        self._ready_file = ready_file or config.ready_file
        self._now_ms = now_ms
        self._levels = log_levels or LogLevels(config.log_level, config.log_levels)
        self._recent = RecentLines(self._levels)
        self._read = read_config
        self._run: ServingBroker | None = None  # between start and stop
        self._stopping: ServingBroker | None = None
        check_startable(config)
        self._mount = mount
        self._mount_kafka = mount_kafka
        self._listeners = [Listener(reactor, "listen", each) for each in config.listen]
        self._kafka_listeners = [
            Listener(reactor, "kafka_listen", each) for each in config.kafka_listen or ()
        ]
        self._http_listeners = [
            Listener(reactor, "http_listen", each) for each in config.http_listen or ()
        ]

    @property
    def addresses(self) -> list[Address]:
        """What the ports are bound to, as (host, port) or a UNIX socket's path."""
        return [] if self._run is None else self._run.addresses

    @property
    def kafka_addresses(self) -> list[Address]:
        return [] if self._run is None else self._run.kafka_addresses

    @property
    def http_addresses(self) -> list[Address]:
        return [] if self._run is None or self._run.web is None else self._run.web.addresses

    @property
    def own_broker(self) -> OwnBroker | None:
        """How a mirror beside the broker reaches it, while it runs and demands proof of clients.

        None where it doesn't, and a mirror is as any other.
        """
        run = self._run
        if run is None or run.own is None:
            return None
        assert run.own_client is not None
        host, port, security = run.own_client
        coordination = run.coordination
        is_own = coordination.security == security
        connect = coordination.own_connect_string or ""
        return OwnBroker(self.config.broker_id, (host, port), security, connect, is_own)

    @property
    def zookeeper_connect(self) -> str | None:
        """Where clients find coordination, while it runs; None where there is none."""
        return None if self._run is None else self._run.coordination.connect_string

    def startService(self) -> None:
        """Open the data directory, then the ports; HermesError undoes all of it."""
        raise_descriptor_limit()
        globalLogPublisher.addObserver(self._recent)
        try:
            self._start()
        except BaseException:
            globalLogPublisher.removeObserver(self._recent)
            raise

    def _start(self) -> None:
        if self._ready_file:
            check_ready_file(Path(self._ready_file))
            _remove_left_behind(Path(self._ready_file))
        run = self._run = ServingBroker(
            self.config,
            self._reactor,
            self._now_ms,
            self._listeners,
            kafka_listeners=self._kafka_listeners,
            mount_kafka=self._mount_kafka,
            http_listeners=self._http_listeners,
            mount=self._serve_http,
            recent_lines=self._recent,
            read_config=self._read_config,
            on_settings=self.settings_changed,
        )
        super().startService()  # type: ignore[no-untyped-call]
        # Not before the reactor runs: from then on signals are handled as well.
        self._reactor.callWhenRunning(self._register, run)

    def _serve_http(self, web: "WebServer", run: ServingBroker) -> None:
        from hermes.broker.monitoring import add_resources  # as little needed as `hermes.web`

        add_resources(web, run)
        self._mount(web, run)

    def _register(self, run: ServingBroker) -> None:
        if self._run is run:  # else it was stopped before the reactor ran
            registered = run.coordination.register_embedded(run.listeners, run.broker.topics)
            registered.addCallbacks(
                self._announce, self._registration_failed, callbackArgs=(run,), errbackArgs=(run,)
            )

    def _registration_failed(self, failure: Failure, run: ServingBroker) -> None:
        if self._run is not run:
            return  # stopped meanwhile, which ends the attempt
        self._log.critical(
            "the broker can't be registered and stops: {error}", error=failure.getErrorMessage()
        )
        self.on_fatal(failure.getErrorMessage())

    def _announce(self, _: Any, run: ServingBroker) -> None:
        if self._run is not run:
            return
        if self._ready_file:
            try:
                _write_ready_file(Path(self._ready_file), self.config, run)
            except OSError as error:
                self._log.error("can't write the ready file: {error}", error=error)
        self._log.info(
            "broker {broker_id} is ready: Hermes {version} listening on {where}{others}, "
            "logs in {log_dir}",
            broker_id=self.config.broker_id,
            version=__version__,
            where=", ".join(map(_text, run.addresses)),
            others="".join(
                f", {name} on {', '.join(map(_text, addresses))}"
                for name, addresses in (
                    ("Kafka", run.kafka_addresses),
                    ("HTTP", self.http_addresses),
                )
                if addresses
            ),
            log_dir=str(self.config.log_dir),
        )
        given = [
            f"{each.name}: {each.value}"
            for each in settings_in_force(self.config)
            if each.origin != DEFAULT
        ]
        self._log.info(
            "in force: {settings}; {topics} topics in broker.yaml; else defaults",
            settings=printable(", ".join(given), _SETTINGS_LENGTH),
            topics=len(self.config.topics),
        )
        for setting, listeners in self.config.listeners():
            if not setting.startswith("mirror."):  # its process says so itself
                for text in warnings_of(setting, listeners):
                    self._log.warn("NOT SECURED: {text}", text=text)
        self.on_ready()

    @inlineCallbacks
    def stopService(self) -> "Any":
        """Stop in good order; the Deferred fires when everything is on disk and released."""
        super().stopService()  # type: ignore[no-untyped-call]
        run, self._run = self._run, None
        if run is None:
            return
        self._stopping = run
        yield run.stop()
        if self._ready_file:
            Path(self._ready_file).unlink(missing_ok=True)
        self._log.info("broker {broker_id} has stopped", broker_id=self.config.broker_id)
        globalLogPublisher.removeObserver(self._recent)

    def reload(self, cause: str) -> "Deferred[None]":
        """Read broker.yaml and certificates again, if the broker runs, and log the result.

        `cause` is who asks for it, for the log.
        """
        if self._run is None:
            return succeed(None)
        for listener in self._run.tls_listeners:
            listener.refresh()
        return self._run.cluster.changes.reload_now(cause)

    def settings_changed(self, config: BrokerConfig) -> None:
        self.config = config
        self._levels.use(config.log_level, config.log_levels)

    def _read_config(self) -> BrokerConfig:
        config = self._read()
        check_startable(config)
        return config

    def hurry(self) -> None:
        """Stop waiting for clients, when a stop is under way; flush all the same."""
        if self._stopping is not None:
            self._log.info("told to stop once more: clients are not waited for any longer")
            self._stopping.hurry()


def raise_descriptor_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return soft
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _text(address: Address) -> str:
    return address if isinstance(address, str) else f"{address[0]}:{address[1]}"


def _remove_left_behind(path: Path) -> None:
    """Remove the ready file of a broker that was killed, but not one of a process that runs."""
    try:
        pid = json.loads(path.read_bytes())["pid"]
        os.kill(pid, 0)
        is_running = pid != os.getpid()  # in a container each process is the first one
    except PermissionError:
        is_running = True
    except (OSError, OverflowError, ValueError, TypeError, LookupError):
        is_running = False
    if not is_running:
        with suppress(OSError):
            path.unlink()


def _write_ready_file(path: Path, config: BrokerConfig, run: ServingBroker) -> None:
    """Write the ready file atomically: a reader sees all of it or none."""

    def places(
        listeners: Iterable[ListenerConfig] | None, addresses: list[Address]
    ) -> list[dict[str, str | int]]:
        return [
            {
                **({"path": at} if isinstance(at, str) else {"host": at[0], "port": at[1]}),
                "name": each.name,
                "tls": each.tls is not None,
                "authentication": each.authentication,
            }
            for each, at in zip(listeners or (), addresses, strict=False)
        ]

    content = {
        "broker_id": config.broker_id,
        "version": __version__,
        "pid": os.getpid(),
        "listen": places(config.listen, run.addresses),
        "kafka_listen": places(config.kafka_listen, run.kafka_addresses),
        "http_listen": ([] if run.web is None else places(config.http_listen, run.web.addresses)),
        "log_dir": str(Path(config.log_dir).absolute()),
        "zookeeper_connect": run.coordination.connect_string,
    }
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    # Its directory may be world-writable: a link put there in between is not written through.
    with temporary.open("x", encoding="utf-8") as file:
        file.write(json.dumps(content) + "\n")
    os.replace(temporary, path)
