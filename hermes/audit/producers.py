"""The callback handler `audit`: stamps what a producer sends, counts it, and reports the counts.

A message counts for certain once the broker has acknowledged it, and as unknown if nobody knows
what became of it: it failed after it was sent, or nothing acknowledges it. `covered_ms` in the
reports is the time before which nothing stamped is still on its way, so that whoever reads them
knows which windows are whole, and which one a producer that was killed has left open.
"""

import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from zope.interface import implementer

from hermes.audit.counting import DEFAULT_WINDOW_MS, OWN_TOPICS
from hermes.audit.events import Alive, CountsEvent, Gap, Tallies
from hermes.audit.publishing import Outbox, Publisher, SendsEvents, new_process
from hermes.client import ProducerConfig, SendResult
from hermes.errors import ConfigError, HermesError
from hermes.interfaces import ICallbackHandler, IPayloadObserver
from hermes.protocol import core, encode_message_set
from hermes.protocol.stamps import Stamper

_log = logging.getLogger(__name__)

#: Names of tiers: as in the output and the arguments of `hermes audit`.
TIER_NAME: Final = re.compile(r"[a-z]+(:[\w.-]{1,200})?")


class ProducerTier:
    """Stamps and counts the messages of one producer. Threads may share it."""

    def __init__(
        self,
        publisher: SendsEvents,
        *,
        tier: str = "producers",
        window_ms: int = DEFAULT_WINDOW_MS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.process = new_process()
        self._outbox = Outbox(
            tier, publisher, window_ms=window_ms, clock=clock, process=self.process
        )
        self._window_ms = window_ms
        self._stamper = Stamper(self.process, socket.gethostname())
        self._lock = threading.Lock()
        self._publishing = threading.Lock()
        self._last_ms = 0
        # Of each thread, or whatever is sending, the time of the first stamp that has no outcome.
        self._sending_since: dict[object, int] = {}
        self._certain: dict[str, Tallies] = {}
        self._unknown: dict[str, Tallies] = {}

    def stamped(self, topic: str, payloads: list[bytes], sender: object = None) -> list[bytes]:
        """Put stamps before payloads; the sender is this thread unless another one is given."""
        if topic.startswith(OWN_TOPICS):
            return payloads
        with self._lock:
            # A clock that is set back must not write into windows that were reported as whole.
            self._last_ms = max(self._last_ms, self._outbox.now_ms())
            self._sending_since.setdefault(sender or threading.get_ident(), self._last_ms)
            return self._stamper.stamped(payloads, self._last_ms)

    def settled(self, sent: Sequence[tuple[str, list[bytes], bool]], sender: object = None) -> None:
        """Count all payloads that a sender has stamped and sent.

        `sent`: of each list that `stamped` gave, if it was sent, the topic, the list, and whether
        the broker has acknowledged it.
        """
        by_kind: dict[tuple[str, bool], list[bytes]] = {}
        for topic, payloads, is_certain in sent:
            by_kind.setdefault((topic, is_certain), []).extend(payloads)
        sets = [(*kind, encode_message_set(payloads)) for kind, payloads in by_kind.items()]
        with self._lock:
            for topic, is_certain, data in sets:
                if not topic.startswith(OWN_TOPICS):
                    tallies = self._certain if is_certain else self._unknown
                    core.tally(data, 0, self._window_ms, tallies.setdefault(topic, {}))
            self._sending_since.pop(sender or threading.get_ident(), None)

    def publish(self, *, closing: bool = False) -> bool:
        with self._publishing:
            if not self._outbox.send([]):
                return False
            return self._outbox.send(self._take(closing))

    def _take(self, closing: bool) -> list[CountsEvent | Gap | Alive]:
        with self._lock:
            certain, self._certain = self._certain, {}
            unknown, self._unknown = self._unknown, {}
            self._last_ms = max(self._last_ms, self._outbox.now_ms())
            covered = min(self._sending_since.values(), default=self._last_ms)
        topics = sorted(certain.keys() | unknown.keys())
        bodies: list[CountsEvent | Gap | Alive] = [
            CountsEvent(topic, windows=certain.get(topic, {}), unknown=unknown.get(topic, {}))
            for topic in topics
        ]
        return [*bodies, Alive(closing, covered)]


class ReportingProducer:
    """The tier of one producer, with a thread that reports at the end of each window."""

    def __init__(self, audit_to: ProducerConfig, *, tier: str, window_ms: int) -> None:
        self._publisher = Publisher(audit_to)
        self._publisher.open()
        self._window_seconds = window_ms / 1000
        self.tier = ProducerTier(self._publisher, tier=tier, window_ms=window_ms)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hermes-audit", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        if not self.tier.publish(closing=True):
            _log.error(
                "audit: the last counts of this producer could not be stored: its last windows "
                "stay uncertain"
            )
        self._publisher.close()

    def _run(self) -> None:
        """Report at once, so that the producer is known to live, and at the end of each window."""
        while True:
            try:
                self.tier.publish()
            except HermesError:
                _log.exception("audit: reporting failed")
            window = self._window_seconds
            if self._closed.wait(window - time.time() % window):
                return


@implementer(ICallbackHandler, IPayloadObserver)
class AuditHandler:
    """The callback handler `audit` of a producer: see docs/audit.md.

    Args:
        window: how long windows are, in seconds; the same in all tiers.
        tier: as what the counts are reported: `producers`, or `producers:NAME` where producers of
            several clusters report to one.
        audit_to: of a producer whose events belong elsewhere: a `ProducerConfig` of that cluster,
            or what its `zookeeper_connect` would be. None for the producer's own cluster.
    """

    #: The application still learns of failures from `flush` and `close`.
    reports_failures = False

    def __init__(
        self,
        window: float = DEFAULT_WINDOW_MS / 1000,
        tier: str = "producers",
        audit_to: Any = None,
    ) -> None:
        if isinstance(window, bool) or not isinstance(window, int | float) or window < 0.001:
            raise ConfigError(
                "callback_handler_options.window", f"expected seconds, got {window!r:.80}"
            )
        if not (isinstance(tier, str) and TIER_NAME.fullmatch(tier)):
            raise ConfigError(
                "callback_handler_options.tier",
                f"expected producers or producers:NAME, got {tier!r:.80}",
            )
        if isinstance(audit_to, str):
            audit_to = ProducerConfig(zookeeper_connect=audit_to)
        if not isinstance(audit_to, ProducerConfig | None):
            raise ConfigError(
                "callback_handler_options.audit_to",
                f"expected a ProducerConfig or HOST:PORT, got {audit_to!r:.80}",
            )
        self._window_ms = round(window * 1000)
        self._tier_name = tier
        self._audit_to = audit_to
        self._producer: ReportingProducer | None = None

    # -- IPayloadObserver -----------------------------------------------------------------------

    def on_open(self, config: ProducerConfig) -> None:
        self._producer = ReportingProducer(
            self._audit_to or config, tier=self._tier_name, window_ms=self._window_ms
        )

    def after_encode(self, topic: str, payloads: list[bytes]) -> list[bytes]:
        return payloads if self._producer is None else self._producer.tier.stamped(topic, payloads)

    def after_outcomes(self, sent: Sequence[tuple[str, list[bytes], Any]]) -> None:
        if self._producer is not None:
            self._producer.tier.settled([(*each[:2], _is_acknowledged(each[2])) for each in sent])

    # -- ICallbackHandler -----------------------------------------------------------------------

    def before_enqueue(self, item: Any) -> Any:
        return item

    def after_enqueue(self, item: Any, accepted: bool) -> None:
        pass

    def after_dequeue(self, batch: Any) -> Any:
        return batch

    def before_send(self, batch: Any) -> None:
        pass

    def after_send(self, batch: Any, results: Any) -> None:
        pass

    def on_failure(self, batch: Sequence[Any], error: Exception) -> None:
        pass

    def on_close(self) -> None:
        if self._producer is not None:
            self._producer.close()


def _is_acknowledged(outcome: Any) -> bool:
    return isinstance(outcome, SendResult) and outcome.offset is not None
