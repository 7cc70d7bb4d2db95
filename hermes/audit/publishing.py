"""Sends events so that each counts once, whatever fails.

A publisher that doesn't learn whether its events were stored sends the same ones again, under the
same numbers, by which readers recognise them. So what was tried once is kept as it is; what is
counted meanwhile waits in memory, added up.
"""

import logging
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from hermes.audit.events import Body, Event, encode_event
from hermes.client import Producer, ProducerConfig
from hermes.config.topic import AUDIT_TOPIC
from hermes.errors import HermesError

_log = logging.getLogger(__name__)

# A monitoring event must not hold up those that wait for it for longer.
_DELIVERY_TIMEOUT: Final = "10s"


class SendsEvents(Protocol):
    def publish(self, payloads: Sequence[bytes]) -> None: ...


class Publisher:
    """Stores events in the topic hermes-audit of a cluster. One thread at a time.

    `config`: how to reach the cluster: what a producer takes, or what finds that out when it is
    first needed. Encoder, handlers and acknowledgements don't matter here: events are acknowledged
    as flushed (by a broker of Kafka 0.7 not at all).
    """

    def __init__(self, config: ProducerConfig | Callable[[], ProducerConfig]) -> None:
        self._config = config
        self._producer: Producer | None = None

    def open(self) -> None:
        """Connect now, not when there is something to publish; a failure is only logged.

        What is made before the application's own producer is closed after it, also at exit.
        """
        try:
            self._producer = self._made()
        except HermesError as error:
            _log.warning("audit: no connection yet, retrying later: %s", error)

    def publish(self, payloads: Sequence[bytes]) -> None:
        """Store messages; blocks for some seconds at most.

        Raises HermesError: some are not stored, or nobody knows. Send all of them again later.
        """
        if self._producer is None:
            self._producer = self._made()
        self._producer.send(AUDIT_TOPIC, list(payloads))

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close()
            except HermesError as error:
                _log.warning("closing the audit's connections: %s", error)

    def _made(self) -> Producer:
        config = self._config if isinstance(self._config, ProducerConfig) else self._config()
        return Producer(
            replace(
                config,
                producer_type="sync",
                acks=None,
                delivery_timeout=_DELIVERY_TIMEOUT,
                encoder="bytes",
                encoder_options={},
                partitioner="java-hash",
                partitioner_options={},
                callback_handler=None,
                callback_handler_options={},
                event_handler=None,
                event_handler_options={},
                compression="none",
                compressed_topics=(),
            )
        )


class Outbox:
    """The events of one process: numbered, and sent until they are stored. One thread at a time.

    `process`: the process's number; a random one unless given.
    """

    def __init__(
        self,
        tier: str,
        publisher: SendsEvents,
        *,
        window_ms: int,
        clock: Callable[[], float] = time.time,
        process: int | None = None,
    ) -> None:
        self.tier = tier
        self.window_ms = window_ms
        self.process = new_process() if process is None else process
        self.published = self.failures = 0
        self._publisher = publisher
        self._clock = clock
        self._host = socket.gethostname()
        self._sequence = 0
        self._tried: list[bytes] = []
        self._has_failed = False

    @property
    def is_clear(self) -> bool:
        return not self._tried

    def now_ms(self) -> int:
        return max(0, int(self._clock() * 1000))

    def send(self, bodies: Sequence[Body]) -> bool:
        """Send events, and first those that failed before; for none only these.

        After False, before `is_clear`, no more may be given. Returns whether all are stored. If
        not, that was logged once.
        """
        assert not (bodies and self._tried), "what was tried goes first"
        for body in bodies:
            event = Event(
                self.tier,
                self.process,
                self._sequence,
                self.now_ms(),
                self.window_ms,
                self._host,
                body,
            )
            self._tried.append(encode_event(event))
            self._sequence += 1
        if not self._tried:
            return True
        try:
            self._publisher.publish(self._tried)
        except HermesError as error:
            self.failures += 1
            if not self._has_failed:
                _log.warning("audit of %s: its events will be sent again: %s", self.tier, error)
            self._has_failed = True
            return False
        if self._has_failed:
            _log.info("audit of %s: its events are stored again", self.tier)
        self._has_failed = False
        self.published += len(self._tried)
        self._tried = []
        return True


def new_process() -> int:
    """A random number for a process: 1 to 2^64 - 1."""
    return secrets.randbelow((1 << 64) - 1) + 1
