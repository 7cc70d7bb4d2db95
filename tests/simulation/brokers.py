"""Simulated brokers: `ServingBroker` itself, on a simulated machine, disk and coordination.

Everything that a broker decides is the product's own: its start and stop, logs, flushes, recovery,
registration, topics, groups, retention, compaction. What is simulated lies below: files, threads,
clocks, sessions; and above, where clients' requests come in as calls (`requests.py`) instead of
bytes. Those of brokers among themselves are bytes (`broker_links.py`).
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any

from broker_links import reaching
from coordination import Coordination, SimulatedSession
from disks import Disk, ProcessFiles
from invariants_today import Books
from machines import Bell, Machine, Process
from network import Network
from twisted.internet.defer import Deferred, succeed
from world import World

from hermes.broker import serving
from hermes.config.broker import BrokerConfig
from hermes.config.loading import parse_broker_config
from hermes.coordination import registration
from hermes.errors import HermesError
from hermes.kafka import wiring
from hermes.kafka.dispatching import Dispatcher, KafkaServer
from hermes.kafka.other_brokers import OtherBroker
from hermes.kafka.replicas.copies import Copies
from hermes.kafka.replicas.copy import Copy
from hermes.kafka.transactions import coordinator
from hermes.listening import OpenPort
from hermes.partition import damage_check
from hermes.plugins import discovery
from hermes.storage import producer_states

__all__ = ["SimulatedBroker", "simulate_brokers"]

#: How long it takes until a process that could not start, or ended, is started again, in µs.
_RESTART_US = 500_000

#: What a broker does by itself comes sooner than in a real one, as a schedule lasts a minute.
_SOONER = {"_COMPACTION_SECONDS": 2.0, "_REOPEN_SECONDS": 1.0, "FIRST_RETENTION_SECONDS": 2.0}


_KAFKA_PORT = 9100


@cache
def config_of(broker_id: int, more: tuple[tuple[str, Any], ...] = ()) -> BrokerConfig:
    """A broker's settings: small segments, and groups that don't wait for long."""
    return parse_broker_config(
        {
            "broker_id": broker_id,
            "log_dir": "/data/logs",
            "listen": f"tcp:{9000 + broker_id}:interface=127.0.0.1",
            "kafka_listen": f"tcp:{_KAFKA_PORT + broker_id}:interface=127.0.0.1",
            "coordination": "zookeeper",
            "zookeeper_connect": "simulated:2181",
            "segment_bytes": 1024,
            "flush_interval": "1s",
            "flush_messages": 1000,
            "retention_check_interval": "3s",
            "metrics_interval": "1h",
            "group_initial_rebalance_delay": "500ms",
            "group_min_session_timeout": "1s",
            "group_consumer_session_timeout": "3s",
            "group_consumer_heartbeat_interval": "500ms",
            "damage_check_rate": 0,
            **dict(more),
        }
    )


class _Port:
    """A listener that nobody connects to; its broker is asked directly."""

    tls = None

    def __init__(self, config: Any, port: int) -> None:
        self.config = config
        self._address = "127.0.0.1", port

    def open(self, factory: object) -> OpenPort:
        return OpenPort(self, self._address)  # type: ignore[arg-type]

    def stopListening(self) -> "Deferred[None]":
        return succeed(None)


class SimulatedBroker:
    """A broker's machine, its disk, and whatever life of it there is now.

    Attributes:
        books: told what a request is about to do.
        run: the `ServingBroker`; None while there is none.
        server: what Kafka's requests are carried out with; `dispatcher` does that by their bytes.
        copies: of partitions that it keeps.
        files: the disk's, as the life that there is has them.
        starts, refusals: how often it was started, and could not start.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        coordination: Coordination,
        broker_id: int,
        books: Books,
        drift: float = 0.0,
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.world = world
        self.network = network
        self.coordination = coordination
        self.id = broker_id
        chance = world.child(f"broker {broker_id}")
        rate = 1.0 + drift * (chance.random() - 0.5)
        self.machine = Machine(world, f"broker{broker_id}", rate, chance.randrange(-500, 500))
        self.disk = Disk(self.machine)
        self.config = config_of(broker_id, tuple(settings.items()))
        self.books = books
        self.run: Any = None
        self.server: KafkaServer | None = None
        self.dispatcher: Dispatcher | None = None
        self.copies: Copies | None = None
        self.files: ProcessFiles | None = None
        self.starts = self.refusals = 0

    @property
    def is_serving(self) -> bool:
        return self.run is not None and self.machine.is_up and not self.run.stopping

    def start(self) -> None:
        if self.machine.is_up:
            return
        self.starts += 1
        self._ended()
        process = self.machine.start()
        process.on_end.append(self._ended)
        process.broker = self  # type: ignore[attr-defined]
        process.start_with(partial(self._begin, process))

    def _ended(self) -> None:
        self.run = self.server = self.dispatcher = self.copies = self.files = None

    def _begin(self, process: Process) -> bool:
        config, files = self.config, self.disk.mount(process)
        self.files = files
        try:
            self.run = serving.ServingBroker(
                config,
                process.clock,
                process.clock.now_ms,
                [_Port(each, 9000 + self.id) for each in config.listen],
                files,
                kafka_listeners=[
                    _Port(each, _KAFKA_PORT + self.id) for each in config.kafka_listen
                ],
                mount_kafka=self._mount,
            )
        except HermesError as error:
            self.refusals += 1
            self.world.note(process, f"doesn't start: {error}")
            self.world.at(0, self._start_again, process)
            return False
        return True

    def _mount(self, run: Any) -> Callable[[Any], Any]:
        factory_of: Any = wiring.mount_kafka(run)
        _, self.dispatcher = factory_of.args
        self.server = self.dispatcher._server
        owners = (getattr(each, "__self__", None) for each in run.on_stopping)
        self.copies = next(each for each in owners if isinstance(each, Copies))
        return lambda policy: None

    def _start_again(self, process: Process) -> None:
        process.kill()
        self.world.at(_RESTART_US, self._restart, process)

    def _restart(self, process: Process) -> None:
        if self.machine.process is process:  # else somebody was quicker
            self.start()

    def stop(self) -> None:
        """Stop it as an operator does, and start it again once it has ended."""
        process = self.machine.process
        if self.is_serving and process is not None and not process.is_starting:
            process.is_stopping = True
            process.at(0, self._stop, process)

    def _stop(self, process: Process) -> None:
        self.world.note(process, "stops")
        self.run.stop().addCallback(lambda _: self.world.at(10_000, self._start_again, process))


# -- what stands for what in the product's modules ------------------------------------------------


class _Pool:
    """Threads, which a process has anyway."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def adjustPoolsize(self, *_: int) -> None:
        pass


class _AtOnce:
    """An executor of the thread that uses it."""

    def __init__(self, threads: int) -> None:
        self.map = map

    def __enter__(self) -> "_AtOnce":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _OwnThread:
    """As `reactors.OwnThread`: calls that follow each other."""

    def __init__(self, reactor: Any, name: str) -> None:
        self._process: Process = reactor.process
        self._due: list[tuple[Any, ...]] = []
        self._is_busy = False

    def call_then(
        self, then: Callable[[Any], object], call: Callable[..., Any], *args: Any
    ) -> None:
        self._due.append((then, call, *args))
        self._next()

    def _next(self) -> None:
        if self._due and not self._is_busy:
            self._is_busy = True
            then, call, *args = self._due.pop(0)
            self._process.call_then(partial(self._ended, then), call, *args)

    def _ended(self, then: Callable[[Any], object], result: Any) -> None:
        self._is_busy = False
        self._next()
        then(result)

    def stop(self, waits: bool = True) -> None:
        self._due.clear()


_entry_points = cache(discovery.entry_points)


def simulate_brokers(
    world: World, coordination: Coordination, brokers: Mapping[int, SimulatedBroker]
) -> None:
    """Have brokers that start from now on live in this world, until it ends.

    `brokers`: those that there are, by their ids.
    """

    def session(
        connect: str, *, on_change: Callable[[], None], session_timeout_seconds: float, **_: Any
    ) -> SimulatedSession:
        return coordination.session(world.process, on_change, session_timeout_seconds)

    def caller_in(reactor: Any, _: object) -> Callable[..., Any]:
        in_thread: Callable[..., Any] = reactor.process.in_thread
        return in_thread

    def bell(reactor: Any, call: Callable[[], None]) -> Bell:
        return Bell(reactor.process, call)

    def copy_hash(copy: Copy) -> int:
        return hash(copy.place)  # else sets of them are in another order each time

    stands_for: dict[Any, dict[str, Any]] = {
        serving: {
            "WorkerThreads": _Pool,
            "ThreadPoolExecutor": _AtOnce,
            "OwnThread": _OwnThread,
            "Bell": bell,
            "caller_in": caller_in,
            "Session": session,
            **_SOONER,
        },
        registration: {"Session": session},
        Copy: {"__hash__": copy_hash},
        OtherBroker: {"_reach": reaching(lambda port: brokers[port - _KAFKA_PORT])},
        # Each look reads the files of all that is installed; nothing is installed meanwhile.
        discovery: {"entry_points": _entry_points},
        damage_check: {"FIRST_ROUND_SECONDS": 1.0, "ROUND_SECONDS": 2.0},
        producer_states: {"CAPTURE_EVERY_BYTES": 700},
        coordinator: {"_PARTITIONS": 2},  # of the state of transactions
    }
    for owner, names in stands_for.items():
        for name, instead in names.items():
            world.at_end.append(partial(setattr, owner, name, getattr(owner, name)))
            setattr(owner, name, instead)
