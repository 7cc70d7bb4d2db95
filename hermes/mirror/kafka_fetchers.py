"""A thread per broker of a source that is read by Kafka's protocol."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from hermes.client.fetching import FetchResult
from hermes.client.groups.streams import Claim
from hermes.client.kafka_asking import KafkaAsker
from hermes.errors import OffsetOutOfRangeBrokerError
from hermes.mirror.fetchers import SourceFetcher
from hermes.mirror.kafka_cluster import READ_COMMITTED, RefusedError, find_offset
from hermes.protocol import FetchRequest, RecordSet


class KafkaFetcher(SourceFetcher):
    """Fetches from one broker. It says that partitions have moved by the pauses of their claims.

    `topic_ids`: of topics as they were when they were claimed. One that is made anew is another,
    whose offsets mean something else.
    """

    def __init__(self, *arguments: Any, topic_ids: Mapping[str, UUID]) -> None:
        self._topic_ids = topic_ids
        *_, (host, port), config, _commit, _claims, _counters = arguments
        self._asker = KafkaAsker(host, port, config.seconds("timeout"), config.security)
        super().__init__(*arguments)

    def stop(self) -> None:
        super().stop()
        self._asker.close()

    def _fetch(self, requests: Sequence[FetchRequest], wait_ms: int) -> list[FetchResult]:
        ids = [self._topic_ids[each.topic] for each in requests]
        topics: dict[UUID, list[dict[str, int]]] = defaultdict(list)
        for topic_id, each in zip(ids, requests, strict=True):
            topics[topic_id].append(
                {
                    "partition": each.partition,
                    "current_leader_epoch": -1,
                    "fetch_offset": each.offset,
                    "last_fetched_epoch": -1,
                    "log_start_offset": -1,
                    "partition_max_bytes": each.max_size,
                }
            )
        answer = self._asker.ask(
            "Fetch",
            13,
            replica_id=-1,
            max_wait=wait_ms,
            min_bytes=1,
            max_bytes=sum(each.max_size for each in requests),
            isolation_level=READ_COMMITTED,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic_id": each, "partitions": some} for each, some in topics.items()],
        )
        found = {
            (topic.topic_id, each.partition_index): each
            for topic in answer.responses
            for each in topic.partitions
        }
        return [
            _result(each, found.get((topic_id, each.partition)))
            for topic_id, each in zip(ids, requests, strict=True)
        ]

    def _find_offset(self, claim: Claim, time_ms: int) -> int:
        place = claim.topic, claim.partition.partition
        return find_offset(self._asker.ask, place, time_ms)


def _result(request: FetchRequest, found: Any) -> FetchResult:
    nothing = RecordSet(b"", request.offset)
    if found is None:
        return FetchResult(request, nothing)
    if found.error_code:
        refused = RefusedError("the source's broker", found.error_code)
        is_outside = refused.name == "OFFSET_OUT_OF_RANGE"
        error = OffsetOutOfRangeBrokerError(str(refused)) if is_outside else refused
        return FetchResult(request, nothing, found.high_watermark, error)
    aborted = [(e.producer_id, e.first_offset) for e in found.aborted_transactions or ()]
    records = RecordSet(found.records or b"", request.offset, aborted=aborted)
    return FetchResult(request, records, found.high_watermark)
