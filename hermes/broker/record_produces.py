"""Produces of record batches by Hermes' own clients, to topics of Kafka's format.

What happens is what `producing` does with acknowledged produces; only what a set is differs: record
batches, whose headers and CRCs are checked, and whose insides aren't. Kafka's own clients come
another way (`hermes.kafka.produce`), with producer ids, by which a batch is stored once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hermes.broker.clients import Client
from hermes.broker.producing import Produces
from hermes.broker.set_checker import INLINE_PLAIN_BYTES, SetChecker, size_of
from hermes.broker.shared import Shared
from hermes.errors import HermesError, InvalidBatchError, InvalidRecordError
from hermes.protocol import ProduceRequest
from hermes.protocol.record_batches import BatchHeader, check_batches, placed
from hermes.storage import Log


@dataclass(frozen=True, slots=True)
class BatchCheck:
    """What was found of record batches that may be appended."""

    headers: Sequence[BatchHeader]


class BatchChecker(SetChecker):
    """Checks record batches: at once, or where those of one request are large, in a thread."""

    def check(self, produces: Sequence[ProduceRequest]) -> Any:
        """See `SetChecker.check`; a `BatchCheck` is found of each."""
        if size_of(produces) <= INLINE_PLAIN_BYTES:
            return self._check_all(produces)
        return self._checking.run(self._in_thread, self._check_all, produces)

    def _check_all(self, produces: Sequence[ProduceRequest]) -> Any:
        return [self._check_batches(produce) for produce in produces]

    def _check_batches(self, produce: ProduceRequest) -> BatchCheck | HermesError:
        try:
            headers = check_batches(produce.message_set, self._settings.config.max_message_bytes)
        except InvalidBatchError as error:
            return error.with_traceback(None)
        if any(each.has_producer or each.is_transactional for each in headers):
            return InvalidRecordError(
                "a batch has a producer's id, which this request doesn't take"
            )
        return BatchCheck(headers)


class RecordProduces(Produces):
    """Carries out produces of record batches."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self.checker = BatchChecker(shared.settings, shared.in_thread)

    def _append(self, produce: ProduceRequest, check: Any, client: Client) -> tuple[Log, int]:
        log = self.log_for(produce.topic, produce.partition, client, takes_records=True)
        if not isinstance(check, BatchCheck):
            raise check
        headers = check.headers
        size, records = len(produce.message_set), sum(each.record_count for each in headers)
        now_ms = self._now_ms()
        buffers = placed(produce.message_set, headers, log.end_offset, log.leader_epoch)
        offset = log.append(buffers, size, records, now_ms)
        self.count(log, size, records)
        return log, offset
