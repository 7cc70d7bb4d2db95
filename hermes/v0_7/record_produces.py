"""Produces of record batches by Hermes' own clients, to topics of Kafka's format.

What happens is what `producing` does with acknowledged produces; only what a set is differs: record
batches, which are checked as those of Kafka's own clients. These come another way
(`hermes.kafka.producing`), with producer ids, by which a batch is stored once.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hermes.cluster.cluster import Cluster
from hermes.cluster.shared import Shared
from hermes.cluster.topic_registry import wrong_format
from hermes.config.kinds import FORMAT_KAFKA
from hermes.errors import (
    HermesError,
    InvalidBatchError,
    InvalidRecordError,
    InvalidTopicError,
)
from hermes.partition.partition import Partition, batch_rules
from hermes.protocol import RANDOM_PARTITION, Acks, ProduceRequest, core
from hermes.protocol.record_batches import BatchHeader, BatchRules, check_batches, expands
from hermes.server.clients import Client
from hermes.storage import Log
from hermes.transactions.state import STATE_TOPIC
from hermes.v0_7.producing import Produces
from hermes.v0_7.set_checker import INLINE_PLAIN_BYTES, SetChecker, size_of

#: Batches up to this size are checked in the reactor's thread: their messages are read, which
#: Python takes thirty times as long for as the compiled core.
INLINE_BATCH_BYTES: Final = INLINE_PLAIN_BYTES if core.KIND == "compiled" else 64 * 1024


@dataclass(frozen=True, slots=True)
class BatchCheck:
    headers: Sequence[BatchHeader]
    rules: BatchRules


class BatchChecker(SetChecker):
    """Checks record batches: at once, or where those of one request are large, in a thread."""

    def check(self, produces: Sequence[ProduceRequest]) -> Any:
        config = self._settings.config
        rules = [batch_rules(config, each.topic) for each in produces]
        pairs = list(zip(produces, rules, strict=True))
        is_quick = size_of(produces) <= INLINE_BATCH_BYTES and not any(
            expands(each.message_set, rules) for each, rules in pairs
        )
        if is_quick:
            return self._check_each(pairs)
        return self._checking.run(self._in_thread, self._check_each, pairs)

    def _check_each(self, pairs: Sequence[tuple[ProduceRequest, BatchRules]]) -> Any:
        return [self._check_batches(*pair) for pair in pairs]

    def _check_batches(
        self, produce: ProduceRequest, rules: BatchRules
    ) -> BatchCheck | HermesError:
        if produce.topic == STATE_TOPIC:
            return InvalidTopicError(f"topic {STATE_TOPIC!r} is the brokers' own")
        try:
            headers = check_batches(produce.message_set, rules)
        except InvalidBatchError as error:
            return error.with_traceback(None)
        if any(each.has_producer or each.is_transactional for each in headers):
            return InvalidRecordError(
                "a batch has a producer's id, which this request doesn't take"
            )
        return BatchCheck(headers, rules)


class RecordProduces(Produces):
    holds_records = True

    def __init__(self, shared: Shared, cluster: Cluster) -> None:
        super().__init__(shared, cluster)
        self._in_cluster = cluster.topics
        self.checker = BatchChecker(shared.settings, shared.in_thread)

    def partition(self, topic: str, number: int) -> Partition:
        """Find a partition of record batches; raises WrongFormatError where there are none."""
        if self._topics.exists(topic):
            log = self._topics.for_produce(topic, number)
            if log.counts_messages:
                return self._partitions.of(log)
            raise wrong_format(topic, holds_records=False)
        found = self._in_cluster.get(topic)
        if found is not None and found.format != FORMAT_KAFKA:
            raise wrong_format(topic, holds_records=False)
        return self._in_cluster.partition(topic, number)

    def _append(
        self, produce: ProduceRequest, check: Any, client: Client, acks: int | None = None
    ) -> tuple[Log, int]:
        topic, number = produce.topic, produce.partition
        if number == RANDOM_PARTITION:
            led = self._partitions.led(self._topics.partitions(topic))
            number = random.choice(led).partition if led else number
        partition = self.partition(topic, number)
        if not isinstance(check, BatchCheck):
            raise check
        if acks == Acks.FLUSHED and partition.leadership is not None:
            partition.leadership.check_enough()
        done = partition.append_batches(check.headers, produce.message_set, check.rules)
        return partition.log, done.base_offset
