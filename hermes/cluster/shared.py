"""What the parts of a broker that carry out requests have in common."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from hermes.cluster.topic_registry import TopicRegistry
from hermes.config.broker import BrokerConfig
from hermes.errors import ConfigError
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger, RecentLines
from hermes.partition.acknowledgements import Acknowledgements
from hermes.partition.flushing import FlushScheduler
from hermes.partition.log_reader import Reader
from hermes.partition.partition import Partitions
from hermes.partition.waiting import WaitingFetches
from hermes.server.authorization import Authorization
from hermes.server.fairness import FairScheduler
from hermes.server.large_responses import LargeResponses
from hermes.server.metrics import Metrics
from hermes.server.refusals import Refusals
from hermes.server.settings import Settings
from hermes.storage import DataDirectory

#: The shares of `request_memory`: of large responses under way, and of fetches that wait.
_LARGE_RESPONSES_SHARE = 0.5
_WAITING_SHARE = 0.5


def no_file() -> NoReturn:
    raise ConfigError("", "this broker was not started with a broker.yaml to read again")


@dataclass(slots=True)
class Shared:
    """One broker's logs, and what bounds the work on them.

    Attributes:
        clock: for timers.
        now_ms: the wall clock, in ms since 1970; for append times.
        in_thread: calls a function in a worker thread and returns its Deferred.
        lines: takes the log lines that clients cause.
        recent_lines: the last lines of the log; None where nobody keeps them.
        read_config: reads broker.yaml again, and checks it as a start would; blocks.
    """

    settings: Settings
    directory: DataDirectory
    topics: TopicRegistry
    flusher: FlushScheduler
    clock: IReactorTime
    now_ms: Callable[[], int]
    in_thread: "Callable[..., Deferred[Any]]"
    recent_lines: RecentLines | None = None
    read_config: Callable[[], BrokerConfig] = field(default=no_file)
    metrics: Metrics = field(default_factory=Metrics)
    authorization: Authorization = field(default=None)  # type: ignore[assignment]
    refusals: Refusals = field(init=False)
    lines: LimitedLog = field(init=False)
    scheduler: FairScheduler = field(init=False)
    large_responses: LargeResponses = field(init=False)
    acknowledgements: Acknowledgements = field(init=False)
    waiting: WaitingFetches = field(init=False)
    reader: Reader = field(init=False)
    partitions: Partitions = field(init=False)

    def __post_init__(self) -> None:
        self.lines = LimitedLog(ModuleLogger(), self.clock.seconds)
        if self.authorization is None:
            self.authorization = Authorization(self.settings, self.clock.seconds)
        self.refusals = Refusals(self.authorization, self.lines, self.metrics)
        self.scheduler = FairScheduler(self.clock)
        self.large_responses = LargeResponses(0, self.clock)
        self.acknowledgements = Acknowledgements(self.clock, self.scheduler, self.flusher)
        self.waiting = WaitingFetches(self.clock, self.scheduler)
        self.flusher.together = self.scheduler.together
        self.flusher.on_committed(self.waiting.committed)
        self.reader = Reader(self.scheduler, self.in_thread)
        self.partitions = Partitions(self.directory, self.metrics, self.flusher, self.now_ms)
        self._settings_changed()
        self.settings.on_change(self._settings_changed)

    @property
    def config(self) -> BrokerConfig:
        return self.settings.config

    def _settings_changed(self) -> None:
        memory_bytes = self.config.request_memory_bytes
        self.large_responses.limit_bytes = int(memory_bytes * _LARGE_RESPONSES_SHARE)
        self.waiting.limit_bytes = int(memory_bytes * _WAITING_SHARE)
