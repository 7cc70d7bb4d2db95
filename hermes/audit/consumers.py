"""Consumers that are audited: a member of a group that counts what the application has finished.

A message counts once the application has finished with it, which is also when its offset may be
committed. What was counted is reported before that offset is committed: so a member that is killed
has either reported a message or leaves it to the next owner, who counts it. A message that is
delivered again after it was reported is counted again: the group has processed it twice, and the
comparison says so.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from zope.interface import implementer

from hermes.audit.counting import DEFAULT_WINDOW_MS, TierCounter
from hermes.audit.publishing import Publisher
from hermes.client import ProducerConfig
from hermes.client.fetching import FetchedSet
from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.connector import Connector, RebalanceListener
from hermes.client.groups.streams import MADE_AT_ONCE, Claim, StreamMessage, StreamRecord
from hermes.coordination.layout import BrokerPartition
from hermes.interfaces import IDecoder
from hermes.keywords import explains_keywords
from hermes.plugins.discovery import load_plugin, verify_plugin
from hermes.protocol.loops import ListedRows
from hermes.protocol.records import Record
from hermes.protocol.stamps import without_stamp

_log = logging.getLogger(__name__)

_PUBLISH_SECONDS: Final = (0.2, 5.0)


@implementer(IDecoder)
class UnstampedDecoder:
    """The decoder `audit`: takes stamps off, and leaves the rest to another decoder.

    Example:
        ConsumerConfig(..., decoder="audit", decoder_options={"decoder": "json"})

    Args:
        decoder: a name among the entry points `hermes.encoders`, or an object that provides
            `IDecoder`.
        options: what the other decoder's factory takes.
    """

    def __init__(self, decoder: Any = "bytes", **options: Any) -> None:
        if isinstance(decoder, str):
            decoder = load_plugin("hermes.encoders", decoder, IDecoder, **options)
        else:
            verify_plugin(decoder, IDecoder, "the decoder of what was stamped")
        self._decode: Callable[[str, bytes], Any] = decoder.decode

    def decode(self, topic: str, payload: bytes) -> Any:
        return self._decode(topic, without_stamp(payload))


class AuditedClaim(Claim):
    """A partition whose finished messages are counted; its lock is the stream's, as ever."""

    def __init__(self, counter: TierCounter, *arguments: Any) -> None:
        self._noted = 0
        self._counter = counter
        self._published: int | None = None
        super().__init__(*arguments)

    @property
    def finished(self) -> int:
        """Up to where the application has finished, and that is reported."""
        finished = super().finished
        with self.lock:
            return finished if self._published is None else min(finished, self._published)

    def take_finished(self) -> int:
        """Up to where the application has finished; all of it is with the counter."""
        return super().finished

    def note_published(self, offset: int, epoch: int) -> None:
        """Let offsets be committed up to there; not those of before a seek."""
        with self.lock:
            if epoch == self.epoch:
                self._published = offset

    def start_at(self, offset: int) -> None:
        with self.lock:
            super().start_at(offset)
            self._published = offset

    def finish(self) -> None:
        super().finish()
        if not self.is_lost:
            self._note(self._counted)

    def _runs(self, messages: FetchedSet) -> Iterator[ListedRows[StreamMessage]]:
        # Lists, since their payloads are counted when they are finished with.
        for run in super()._runs(messages):
            while some := list(islice(run.items, MADE_AT_ONCE)):
                yield ListedRows(some)

    def _start_run(self, run: ListedRows[StreamMessage]) -> None:
        super()._start_run(run)
        self._noted = 0

    def _count(self) -> None:
        super()._count()
        if not self.is_lost:  # the last one is in the application's hands
            self._note(self._counted - 1)

    def _note(self, end: int) -> None:
        if end > self._noted:
            some = self._run.listed[self._noted : end]
            self._noted = end
            if isinstance(some[0], StreamRecord):
                self._counter.add_messages(self.topic, [_record(each) for each in some])
            else:
                self._counter.add_payloads(self.topic, [each.message for each in some])


@explains_keywords
class AuditedConnector(Connector):
    """A member of a group that is audited: as `Connector`, and its streams give what was sent.

    Example:
        config = ConsumerConfig(group="search", brokers="localhost:9092")
        with AuditedConnector(config) as connector:
            (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
            for message, *_ in stream:
                index(message)

    Args:
        config: what the consumer does; its decoder gets payloads without stamps.
        tier: as what it counts; None for `group:` and the group's name.
        window_ms: how long windows are; the same in all tiers.
        audit_to: where events go; None for the cluster that the group reads.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        listener: RebalanceListener | None = None,
        *,
        tier: str | None = None,
        window_ms: int = DEFAULT_WINDOW_MS,
        audit_to: ProducerConfig | None = None,
    ) -> None:
        self._publisher = Publisher(audit_to or ProducerConfig(**config.of_cluster()))
        self._counter = TierCounter(
            tier or f"group:{config.group}", self._publisher, window_ms=window_ms
        )
        self._left = threading.Event()
        super().__init__(config, listener)
        decode = self._decode
        self._decode = _take_off if decode is None else partial(_decode_rest, decode)
        low, high = _PUBLISH_SECONDS
        self._pause_seconds = min(max(config.seconds("auto_commit_interval"), low), high)
        self._reporter = threading.Thread(target=self._report, name="hermes-audit", daemon=True)
        self._reporter.start()

    def publish(self) -> bool:
        claims = [each for each in self._claims() if isinstance(each, AuditedClaim)]
        taken = []
        for claim in claims:
            with claim.lock:
                taken.append((claim, claim.take_finished(), claim.epoch))
        if not self._counter.publish():
            return False
        for claim, offset, epoch in taken:
            claim.note_published(offset, epoch)
        return True

    def commit_finished(self) -> None:
        """Report and commit; what can't be reported is not committed either."""
        self.publish()
        super().commit_finished()

    def shutdown(self) -> None:
        if self._closed:
            return
        self._left.set()
        self._reporter.join()
        super().shutdown()
        if not self._counter.close():
            _log.error("audit: the last counts of this consumer could not be stored")
        self._publisher.close()

    def _make_claim(self, *arguments: Any) -> Claim:
        return AuditedClaim(self._counter, *arguments)

    def _before_release(self, partitions: Sequence[tuple[str, BrokerPartition]]) -> None:
        super()._before_release(partitions)
        self.publish()

    def _claims(self) -> list[Claim]:
        return [] if self._membership is None else self._membership.claims()

    def _report(self) -> None:
        while not self._left.wait(self._pause_seconds):
            self.publish()


def _record(message: StreamMessage) -> Record:
    time_ms = -1 if message.timestamp_ms is None else message.timestamp_ms
    return Record(message.offset, time_ms, message.key, message.message, message.headers)


def _take_off(_topic: str, payload: bytes) -> bytes:
    return without_stamp(payload)


def _decode_rest(decode: Callable[[str, bytes], Any], topic: str, payload: bytes) -> Any:
    return decode(topic, without_stamp(payload))
