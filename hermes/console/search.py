"""Searches partitions of a topic one after the other, on connections of its own."""

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
from hermes.console.partition_search import PartitionSearch, keep_last
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
        self._partitions = partitions
        self._wanted = wanted
        self._first: dict[str, int] = {}
        self._next: dict[str, int] = {}
        self._is_limited = False
        self._last: list[FoundMessage | UnreadableRange] = []  # the newest at the end
        self._errors: list[str] = []
        # Partitions of a broker that doesn't answer are known where there are copies of them.
        if len(partitions) == len(topic.partitions) and any(
            row.leader is None for row in partitions
        ):
            self._errors += topic.errors

    def run(self) -> Iterator[FoundMessage | UnreadableRange | SearchProgress | SearchEnd]:
        """Search; forwards, results are yielded at once; the last ones are yielded newest first."""
        wanted = self._wanted
        scanned = ScanCounter(0)
        for row in self._partitions:
            if wanted.start != "last" and (
                scanned.found >= wanted.count or scanned.count >= wanted.scan
            ):
                self._is_limited |= scanned.found < wanted.count
                break
            try:
                yield from self._read(row, scanned)
            except HermesError as error:
                self._errors.append(f"partition {row.label}: {error}")
        if wanted.start == "last":
            found = self._last[::-1]
            for each in found:
                self._first[each.partition] = each.offset
                yield each
            scanned.found = sum(isinstance(each, FoundMessage) for each in found)
        yield SearchEnd(
            scanned.count,
            scanned.found,
            self._is_limited,
            self._first,
            self._next,
            tuple(self._errors),
        )

    def _read(
        self, row: PartitionRow, scanned: ScanCounter
    ) -> Iterator[FoundMessage | UnreadableRange | SearchProgress]:
        address = self._topic.address_of(row)
        if row.high_watermark is None:  # it was never written to
            return
        with self._cluster.own_consumer(address) as consumer:
            part = PartitionSearch(consumer, self._topic.name, row, self._wanted)
            try:
                if self._wanted.start == "last":
                    yield from self._read_last(part, scanned)
                else:
                    for each in part.forwards(scanned):
                        if isinstance(each, FoundMessage | UnreadableRange):
                            self._first.setdefault(row.name, each.offset)
                        yield each
            finally:
                self._next[row.name] = part.offset
                self._is_limited |= part.is_limited

    def _read_last(self, part: PartitionSearch, scanned: ScanCounter) -> Iterator[SearchProgress]:
        kept: list[FoundMessage | UnreadableRange] = []
        for each in part.last(scanned):
            if isinstance(each, SearchProgress):
                yield each
            else:
                kept.append(each)
        self._last = newest_first([self._last, kept])[::-1]
        keep_last(self._last, self._wanted.count)  # however many partitions there are
