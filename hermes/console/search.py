"""Searches partitions of a topic one after the other, on connections of its own."""

from collections import deque
from collections.abc import Iterator, Sequence

from hermes.console.cluster_client import ClusterClient
from hermes.console.messages import (
    FoundMessage,
    MessageQuery,
    ScanCounter,
    SearchEnd,
    SearchProgress,
    UnreadableRange,
    newest_first,
)
from hermes.console.partition_search import PartitionSearch
from hermes.console.topic_views import PartitionRow, TopicView
from hermes.errors import HermesError


class Search:
    """A search in a topic as it is now; what is written later is not looked at."""

    def __init__(
        self,
        cluster: ClusterClient,
        topic: TopicView,
        partitions: Sequence[PartitionRow],
        wanted: MessageQuery,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partitions = [row for row in partitions if row.high_watermark is not None]
        self._wanted = wanted
        self._first: dict[str, int] = {}
        self._next: dict[str, int] = {}
        self._errors: list[str] = []

    def run(self) -> Iterator[FoundMessage | UnreadableRange | SearchProgress | SearchEnd]:
        """Search; forwards, results are yielded at once; the last ones are yielded newest first."""
        wanted = self._wanted
        last: list[deque[FoundMessage | UnreadableRange]] = []
        scanned = ScanCounter(0)
        is_limited = False
        for row in self._partitions:
            if wanted.start != "last" and (
                scanned.found >= wanted.count or scanned.count >= wanted.scan
            ):
                is_limited |= scanned.found < wanted.count
                break
            address = self._topic.address_of(row)
            with self._cluster.own_consumer(address) as consumer:
                part = PartitionSearch(consumer, self._topic.name, row, wanted)
                try:
                    if wanted.start == "last":
                        kept: deque[FoundMessage | UnreadableRange] = deque(maxlen=wanted.count)
                        for each in part.last(scanned):
                            if isinstance(each, SearchProgress):
                                yield each
                            else:
                                kept.append(each)
                        last.append(kept)
                    else:
                        for each in part.forwards(scanned):
                            if isinstance(each, FoundMessage | UnreadableRange):
                                self._first.setdefault(row.name, each.offset)
                            yield each
                except HermesError as error:
                    self._errors.append(f"partition {row.label}: {error}")
                self._next[row.name] = part.offset
                is_limited |= part.is_limited
        if wanted.start == "last":
            found = newest_first(last)[: wanted.count]
            for each in found:
                self._first[each.partition] = each.offset
                yield each
            scanned.found = sum(isinstance(each, FoundMessage) for each in found)
        yield SearchEnd(
            scanned.count,
            scanned.found,
            is_limited,
            self._first,
            self._next,
            tuple(self._errors),
        )
