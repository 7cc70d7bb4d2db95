"""A broker inside a test: real sockets, real files, ready in milliseconds, any number of times.

    def test_clicks():
        with running_broker() as broker:
            with Producer(ProducerConfig(broker_list=broker.broker_list)) as producer:
                ...

With `tls` and `users` it authenticates its clients, so that a test can try an application's
security; the certificates are made for it, and removed with it.

For an application that talks to Kafka, `running_kafka` is the same with Kafka's protocol, with
topics, and with failures on demand:

    def test_clicks():
        with running_kafka(topics=["clicks"]) as kafka:
            producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
            ...

In pytest, `pytest_plugins = ["hermes.testing.fixtures"]` provides the fixtures `hermes_broker` and
`hermes_kafka`.

Twisted's global reactor runs only once per process, and not at all in most programs that use the
client. So each broker here has its own reactor, in its own thread.
"""

import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import maybeDeferred
from twisted.python.failure import Failure

from hermes.broker import BrokerService
from hermes.broker.clocks import use_monotonic_clock
from hermes.config.addresses import BrokerAddress
from hermes.config.loading import parse_broker_config
from hermes.errors import ArgumentError, ConfigError, HermesError
from hermes.keywords import explains_keywords
from hermes.protocol import check_kafka_topic_name
from hermes.reactors import make_reactor, release_reactor
from hermes.tap import mount_kafka, mount_registry

if TYPE_CHECKING:
    from hermes.testing.faults import Faults

__all__ = ["RunningBroker", "RunningKafka", "running_broker", "running_kafka"]

_STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A running broker.

    Example:
        with running_broker() as broker, SimpleConsumer(broker.host, broker.port) as consumer:
            print(consumer.metadata().version)

    Attributes:
        host: an address of the loopback interface.
        log_dir: its data directory.
        zookeeper_connect: where it is registered, for `ProducerConfig` and `ConsumerConfig`; None
            unless the settings have `coordination: embedded` or `zookeeper`.
        http: the address of its metrics, its health and, at `/registry`, its schema registry, as
            `http://HOST:PORT`; None unless the settings have `http_listen`, for instance
            `tcp:0:interface=127.0.0.1`. With TLS it begins with `https`.
        tls_ca: the certificate of the authority that has signed the broker's; None without TLS.
        bootstrap_servers: for Kafka's clients, as `HOST:PORT`; None unless the settings have
            `kafka_listen`.
    """

    host: str
    port: int
    log_dir: Path
    broker_id: int
    zookeeper_connect: str | None
    http: str | None = None
    tls_ca: Path | None = None
    clients: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    bootstrap_servers: str | None = None

    @property
    def address(self) -> str:
        """`HOST:PORT`, or `[IPV6]:PORT`, for whatever takes a broker's address."""
        return str(BrokerAddress(self.host, self.port))

    @property
    def broker_list(self) -> str:
        """For `ProducerConfig(broker_list=...)`: `ID:HOST:PORT`."""
        return f"{self.broker_id}:{self.address}"

    def client_settings(self, name: str | None = None) -> dict[str, str]:
        """What a client needs to connect, for whatever takes `tls_ca`, `user`, `password` and more.

        Example:
            ProducerConfig(broker_list=broker.broker_list, **broker.client_settings("writer"))

        Args:
            name: one of the `users` or `certificates`; None for a client without credentials.

        Raises:
            KeyError: there is no user of this name.
        """
        trusted = {} if self.tls_ca is None else {"tls_ca": str(self.tls_ca)}
        return trusted if name is None else {**trusted, **self.clients[name]}


@dataclass(frozen=True, slots=True)
class RunningKafka(RunningBroker):
    """A running broker that Kafka's clients can use.

    Example:
        with running_kafka(topics={"orders": 3}) as kafka:
            producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})

    Attributes:
        bootstrap_servers: as `HOST:PORT`.
        faults: what goes wrong with their requests; nothing until a test says so.
    """

    bootstrap_servers: str = ""
    faults: "Faults" = field(kw_only=True, repr=False)


@explains_keywords
@contextmanager
def running_broker(
    log_dir: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    tls: bool = False,
    users: Mapping[str, str] | None = None,
    certificates: Sequence[str] = (),
) -> Iterator[RunningBroker]:
    """Run a broker for as long as the context lasts.

    Example:
        with running_broker(settings={"num_partitions": 4}) as broker:
            producer = Producer(ProducerConfig(broker_list=broker.broker_list))

    Args:
        log_dir: its data directory, which is kept; None for a temporary one.
        settings: what its broker.yaml would contain; by default it listens on a free port of the
            loopback interface, without coordination. `{"coordination": "embedded"}` is for
            consumer groups, and uses a free port as well.
        tls: whether its ports take TLS only, with a certificate of its own: for localhost,
            127.0.0.1 and ::1.
        users: passwords by name; with any, its ports ask for a user and a password. `access` of
            the settings says what each may do; without that, everything.
        certificates: the names of clients that get a certificate; with any, its ports take TLS, and
            ask for one. Not together with `users`.

    Yields:
        The broker, ready to serve.

    Raises:
        ConfigError: a setting is wrong.
        HermesError: it could not start; the text says why.
    """
    with _running(log_dir, settings, tls=tls, users=users, certificates=certificates) as found:
        yield RunningBroker(**found)


@explains_keywords
@contextmanager
def running_kafka(
    topics: Mapping[str, int] | Iterable[str] = (),
    settings: Mapping[str, Any] | None = None,
    *,
    log_dir: Path | None = None,
    tls: bool = False,
    users: Mapping[str, str] | None = None,
    certificates: Sequence[str] = (),
) -> Iterator[RunningKafka]:
    """Run a broker that speaks Kafka's protocol for as long as the context lasts.

    Example:
        with running_kafka(topics={"clicks": 4}) as kafka:
            kafka.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
            producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})

    Args:
        topics: the topics to create at the start, with how many partitions they have; a list is of
            topics with one. Others are created when a client asks for them.
        settings: see `running_broker`, and so for `log_dir`, `tls` and `certificates`. What they
            say of one of the topics is added to these, and wins. Unless they say otherwise, all
            topics have Kafka's format.
        log_dir: its data directory, which is kept; None for a temporary one.
        tls: whether its ports take TLS only.
        users: passwords by name; clients use SASL with SCRAM-SHA-256.
        certificates: the names of clients that get a certificate.

    Yields:
        The broker, ready to serve.

    Raises:
        ArgumentError: the topics are a single string.
        InvalidTopicError: Kafka doesn't allow a topic's name.
        ConfigError: a setting is wrong.
        HermesError: it could not start; the text says why.
    """
    from hermes.testing.faults import Faults

    if isinstance(topics, str):
        raise ArgumentError(f"topics: expected a list of names, got {topics!r}")
    counts = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
    for name in counts:  # a broker goes on without such a topic, with a line in its log
        check_kafka_topic_name(name)
    values = {
        "kafka_listen": "tcp:0:interface=127.0.0.1",
        "format": "kafka",
        "group_initial_rebalance_delay": "0s",  # a test's members come when they come
        **(settings or {}),
    }
    created = {name: {"partitions": count, "format": "kafka"} for name, count in counts.items()}
    values["topics"] = created | {
        name: {**created.get(name, {}), **own} if isinstance(own, Mapping) else own
        for name, own in values.get("topics", {}).items()
    }
    faults = Faults()
    with _running(
        log_dir, values, tls=tls, users=users, certificates=certificates, faults=faults
    ) as found:
        yield RunningKafka(**found, faults=faults)


@contextmanager
def _running(
    log_dir: Path | None,
    settings: Mapping[str, Any] | None,
    *,
    tls: bool,
    users: Mapping[str, str] | None,
    certificates: Sequence[str],
    faults: "Faults | None" = None,
) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        if log_dir is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-"))
            log_dir = Path(folder, "log")
        values = {
            "broker_id": 0,
            "listen": "tcp:0:interface=127.0.0.1",
            "coordination": "none",
            "coordination_listen": "tcp:0:interface=127.0.0.1",
            "log_dir": str(log_dir),
            **(settings or {}),
        }
        secured = None
        if tls or users or certificates:
            from hermes.testing.securing import Secured  # libraries that most tests don't need

            secret = stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-secret-"))
            has_tls = tls or bool(certificates)
            secured = Secured(Path(secret), users or {}, certificates, has_tls=has_tls)
            values = secured.settings(values)
        config = parse_broker_config(values, "settings")
        thread = stack.enter_context(_ReactorThread(config, faults))
        address = thread.service.addresses[0]
        if isinstance(address, str):
            raise ConfigError("listen", "expected a TCP port first; clients need one")
        connect = thread.service.zookeeper_connect
        ports = [each for each in thread.service.http_addresses if not isinstance(each, str)]
        scheme = "http" if secured is None or secured.tls_ca is None else "https"
        http = f"{scheme}://{BrokerAddress(*ports[0])}" if ports else None
        kafka = [each for each in thread.service.kafka_addresses if not isinstance(each, str)]
        yield {
            "host": address[0],
            "port": address[1],
            "log_dir": Path(config.log_dir),
            "broker_id": config.broker_id,
            "zookeeper_connect": connect,
            "http": http,
            "tls_ca": None if secured is None else secured.tls_ca,
            "clients": {} if secured is None else secured.clients,
            "bootstrap_servers": str(BrokerAddress(*kafka[0])) if kafka else None,
        }


class _ReactorThread:
    """A broker's service, on a reactor that runs in a thread."""

    def __init__(self, config: Any, faults: "Faults | None" = None) -> None:
        self._faults = faults
        self._reactor = make_reactor()
        self._started = threading.Event()
        try:
            use_monotonic_clock(self._reactor)
            self.service = BrokerService(
                config,
                self._reactor,
                on_ready=self._started.set,
                on_fatal=self._give_up,
                mount_kafka=partial(mount_kafka, around=None if faults is None else faults.around),
                mount=partial(mount_registry, self._reactor, config),
            )
        except BaseException:
            release_reactor(self._reactor)
            raise
        self._is_stopping = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="hermes-test-broker", daemon=True)

    def __enter__(self) -> "_ReactorThread":
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(self, *exception: object) -> None:
        self._reactor.callFromThread(self._stop)
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            text = f"the broker did not stop within {_STOP_SECONDS:g} s"
            raise HermesError(text) from self._failure
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self.service.startService()
        except BaseException as error:
            self._failure = error
            self._reactor.iterate()  # closes ports that were open already
        else:
            self._reactor.run(installSignalHandlers=False)
        finally:
            release_reactor(self._reactor)
            self._started.set()

    def _give_up(self, reason: str) -> None:
        self._failure = HermesError(reason)
        self._stop()

    def _stop(self) -> None:
        if self._is_stopping:  # a broker may give up while its test ends
            return
        self._is_stopping = True
        if self._faults is not None:
            self._faults.end_delays()

        def stopped(outcome: Any) -> None:
            if isinstance(outcome, Failure) and self._failure is None:
                self._failure = outcome.value
            self._reactor.stop()

        maybeDeferred(self.service.stopService).addBoth(stopped)
