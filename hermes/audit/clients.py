"""What producers and consumers of other libraries need to take part: stamps in headers, and counts.

Nothing here sends or reads the application's messages. docs/audit.md has the lines that
confluent-kafka and aiokafka need.
"""

import threading
from collections.abc import Iterable
from typing import Final, TypeAlias

from hermes.audit.counting import DEFAULT_WINDOW_MS, TierCounter
from hermes.audit.producers import ReportingProducer
from hermes.audit.publishing import Publisher
from hermes.client import ProducerConfig
from hermes.protocol.records import Record
from hermes.protocol.stamps import STAMP_HEADER

# So many messages are counted together.
_COUNTED_AT_ONCE: Final = 500

_HEADER_NAME: Final = STAMP_HEADER.decode()

_Content: TypeAlias = bytes | str | None


def _bytes(content: _Content) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


class StampedMessage:
    """A message that is about to be sent.

    Attributes:
        header: its stamp, a name and a value: to be sent with it.
    """

    def __init__(
        self, producer: ReportingProducer, topic: str, value: _Content, key: _Content
    ) -> None:
        self._tier = producer.tier
        self._topic = topic
        (stamp,) = self._tier.stamped(topic, [b""], self)
        self.header = (_HEADER_NAME, stamp)
        self._counted = b"%b%b%b" % (stamp, _bytes(key) or b"", _bytes(value) or b"")

    def settle(self, is_stored: bool) -> None:
        """Say once what became of it: stored, or else not known."""
        self._tier.settled([(self._topic, [self._counted], is_stored)], self)


class AuditedProducer:
    """Stamps and counts what a producer of another library sends. Threads may share it.

    Example:
        audit = AuditedProducer(ProducerConfig(brokers="localhost:9092"))
        stamped = audit.stamp("clicks", value)
        producer.produce(
            "clicks",
            value,
            headers=[stamped.header],
            on_delivery=lambda error, _: stamped.settle(error is None),
        )

    Args:
        audit_to: the cluster that the reports go to.
        tier: as what the counts are reported, `producers` or `producers:NAME`.
        window_ms: how long windows are; the same in all tiers.
    """

    def __init__(
        self,
        audit_to: ProducerConfig,
        *,
        tier: str = "producers",
        window_ms: int = DEFAULT_WINDOW_MS,
    ) -> None:
        self._producer = ReportingProducer(audit_to, tier=tier, window_ms=window_ms)

    def stamp(self, topic: str, value: _Content, key: _Content = None) -> StampedMessage:
        """Stamp a message as it is sent; text counts in UTF-8."""
        return StampedMessage(self._producer, topic, value, key)

    def close(self) -> None:
        """Report the rest, after the outcome of the last message."""
        self._producer.close()


class AuditedGroup:
    """Counts what a member of a group has finished with. Threads may share it.

    Example:
        audit = AuditedGroup("search", ProducerConfig(brokers="localhost:9092"))
        ...
        audit.finished(message.topic(), message.value(), message.key(), message.headers(), time_ms)
        if audit.publish():
            consumer.commit()

    Args:
        audit_to: the cluster that the reports go to.
        window_ms: how long windows are; the same in all tiers.
    """

    def __init__(
        self, group: str, audit_to: ProducerConfig, *, window_ms: int = DEFAULT_WINDOW_MS
    ) -> None:
        self._publisher = Publisher(audit_to)
        self._counter = TierCounter(f"group:{group}", self._publisher, window_ms=window_ms)
        self._lock = threading.Lock()
        self._finished: dict[str, list[Record]] = {}

    def finished(
        self,
        topic: str,
        value: _Content,
        key: _Content = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int = -1,
    ) -> None:
        """Count a message as it was read; text counts in UTF-8."""
        with self._lock:
            some = self._finished.setdefault(topic, [])
            pairs = tuple(headers or ())
            some.append(Record(len(some), timestamp_ms, _bytes(key), _bytes(value), pairs))
            if len(some) == _COUNTED_AT_ONCE:
                self._counter.add_messages(topic, self._finished.pop(topic))

    def publish(self) -> bool:
        """Report what was finished; commit only after True. Blocks for some seconds at most."""
        self._count()
        return self._counter.publish()

    def close(self) -> bool:
        """Report the rest, and that this member ends."""
        self._count()
        try:
            return self._counter.close()
        finally:
            self._publisher.close()

    def _count(self) -> None:
        with self._lock:
            for topic, some in self._finished.items():
                self._counter.add_messages(topic, some)
            self._finished.clear()
