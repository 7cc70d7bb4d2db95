"""Searches one partition for messages, forwards or from its end, and reads single ones.

Searches are generators that yield messages, damage and now and then progress: a page can be sent
while it is being made, and reading stops when nobody waits for it any more.
"""

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from hermes.client import AppendTime, SimpleConsumer
from hermes.console.cluster_client import ClusterClient
from hermes.console.messages import (
    FoundMessage,
    MessageQuery,
    ScanCounter,
    SearchProgress,
    UnreadableRange,
)
from hermes.console.topic_views import PartitionRow, TopicView
from hermes.errors import BrokerError, ExpandedTooLargeError, HermesError, InvalidMessageError
from hermes.protocol import (
    DEFAULT_MAX_EXPANDED_BYTES,
    LATEST,
    AppendTimesRequest,
    Codec,
    FetchRequest,
    Message,
    message_start,
)
from hermes.protocol.expansion import Expansion

_FETCH_BYTES: Final = 1024 * 1024
_FIRST_SPAN_BYTES: Final = 64 * 1024
_SPAN_GROWTH: Final = 4
_ASSUMED_MESSAGE_BYTES: Final = 256
_ALL_SEGMENTS: Final = 1_000_000
_KEPT_BYTES: Final = 32 * 1024 * 1024
# Of a compressed set; what is fetched at once holds fewer messages otherwise.
_MOST_AT_ONCE: Final = 10_000
_LOOK_UP_EVERY: Final = 1024
# A larger set isn't opened: a few kilobytes could keep a thread for minutes.
_MOST_IN_SET: Final = 100_000


class PartitionSearch:
    """One partition being read.

    Args:
        consumer: a connection to its broker; stays the caller's.

    Attributes:
        offset: where to continue.
        is_limited: whether it stopped because enough was looked at.
    """

    def __init__(
        self, consumer: SimpleConsumer, topic: str, row: PartitionRow, wanted: MessageQuery
    ) -> None:
        assert row.earliest is not None
        assert row.high_watermark is not None
        self._consumer = consumer
        self._topic = topic
        self._row = row
        self._wanted = wanted
        self._earliest, self._end = row.earliest, row.high_watermark
        self.offset = self._earliest
        self.is_limited = False

    # -- where to begin -------------------------------------------------------------------------

    def forwards(
        self, scanned: ScanCounter
    ) -> Iterator[FoundMessage | UnreadableRange | SearchProgress]:
        wanted = self._wanted
        if wanted.start == "offset":
            self.offset = self._boundary(min(max(wanted.value, self._earliest), self._end))
        elif wanted.start == "time":
            self.offset = self._offset_at(wanted.value)
        scanned.total_bytes += self._end - self.offset
        yield from self._read(self._end, scanned)

    def last(
        self, scanned: ScanCounter
    ) -> Iterator[FoundMessage | UnreadableRange | SearchProgress]:
        """Read the last messages; may yield more than wanted, of which the last count."""
        wanted = self._wanted
        end = self._end if wanted.value < 0 else min(wanted.value, self._end)
        needed = wanted.count if wanted.matches is None else wanted.scan
        span = max(_FIRST_SPAN_BYTES, needed * _ASSUMED_MESSAGE_BYTES)
        if self._row.counts_messages:
            span = max(needed, 1)
        elif wanted.matches is not None:
            span = min(span, 64 * _FETCH_BYTES)
        counted, found, counted_bytes = scanned.count, scanned.found, scanned.bytes
        while True:
            self.offset = self._earliest
            if end - span > self._earliest:
                self.offset = self._boundary(end - span)
            start = self.offset
            scanned.count, scanned.found, scanned.bytes = counted, found, counted_bytes
            scanned.total_bytes = counted_bytes + end - start
            results: list[FoundMessage | UnreadableRange] = []
            kept_bytes = 0
            for each in self._read(end, scanned, is_backwards=True):
                if isinstance(each, SearchProgress):
                    yield each
                else:
                    results.append(each)
                    kept_bytes += each.size_bytes if isinstance(each, FoundMessage) else 0
                    if len(results) > 2 * wanted.count or kept_bytes > 2 * _KEPT_BYTES:
                        kept_bytes = keep_last(results, wanted.count)
            keep_last(results, wanted.count)
            is_enough = scanned.count - counted >= needed or start <= self._earliest
            if is_enough or (wanted.matches is not None and len(results) >= wanted.count):
                self.is_limited = start > self._earliest
                yield from results
                return
            span *= _SPAN_GROWTH

    def _boundary(self, offset: int) -> int:
        if self._row.counts_messages or offset in (self._earliest, self._end):
            return offset
        return self._consumer.boundary_before(self._topic, self._row.number, offset)

    def _offset_at(self, time_ms: int) -> int:
        before = self._consumer.get_offsets_before(
            self._topic, self._row.number, max(time_ms - 1, 0), 1
        )
        return max(before[0], self._earliest) if before else self._earliest

    # -- reading --------------------------------------------------------------------------------

    def _read(
        self, end: int, scanned: ScanCounter, *, is_backwards: bool = False
    ) -> Iterator[FoundMessage | UnreadableRange | SearchProgress]:
        while self.offset < end:
            began = self.offset
            size = _FETCH_BYTES if self._row.counts_messages else min(_FETCH_BYTES, end - began)
            request = FetchRequest(self._topic, self._row.number, began, size)
            # Forwards it is enough after a message or a set; backwards only the last ones count.
            results: deque[FoundMessage | UnreadableRange] = deque(
                maxlen=self._wanted.count if is_backwards else None
            )
            try:
                fetched = self._consumer.fetch(request)
                for message, following in fetched.iterate(deep=False):
                    start = message_start(message, self.offset, following)
                    if start >= end:  # a fetch by bytes may reach further
                        self.offset = max(self.offset, end)
                        break
                    self.offset = following
                    taken = self._take(message, start, following, scanned)
                    for each in taken:
                        if each is not None:
                            results.append(each)
                        if not scanned.count % _LOOK_UP_EVERY:
                            yield from scanned.progress()
                        if not is_backwards and len(results) > _MOST_AT_ONCE:
                            taken.close()
                            reason = f"only {len(results):,} messages of a compressed set are shown"
                            results.append(self._bad(start, following, reason))
                    if not is_backwards and self._has_enough(scanned):
                        break
                else:
                    self.offset = max(self.offset, fetched.next_offset)
            except InvalidMessageError as error:
                results.append(self._damage(error))
            scanned.bytes += self.offset - began
            yield from self._with_times(results, began)
            if not is_backwards and self._has_enough(scanned):
                self.is_limited = scanned.found < self._wanted.count and self.offset < end
                return
            yield from scanned.progress()
            if self.offset <= began:
                return  # deleted meanwhile

    def _has_enough(self, scanned: ScanCounter) -> bool:
        return scanned.found >= self._wanted.count or scanned.count >= self._wanted.scan

    def _take(
        self, message: Message, start: int, following: int, scanned: ScanCounter
    ) -> Generator[FoundMessage | UnreadableRange | None, None, None]:
        row, label, reader = self._row.name, self._row.label, self._wanted.reader
        if message.codec is Codec.NONE:
            value: bytes | None = message.payload
            payload = value or b""
            found = FoundMessage(row, start, following, len(payload), None, payload, reader)
            found = replace(found, key=message.key, headers=message.headers, label=label)
            yield self._wanted_one(replace(found, is_tombstone=value is None), scanned)
            return
        try:
            count = Expansion(DEFAULT_MAX_EXPANDED_BYTES).count(message)
        except InvalidMessageError as error:
            scanned.count += 1
            yield self._bad(start, following, f"a compressed set: {error}")
            return
        if count > _MOST_IN_SET:
            scanned.count += 1
            yield self._bad(start, following, _too_many(count))
            return
        codec, size = message.codec.name.lower(), following - start
        # One by one: a set of a few kilobytes may hold millions of messages.
        for index, each in enumerate(Expansion(DEFAULT_MAX_EXPANDED_BYTES).messages(message)):
            payload = each.payload
            yield self._wanted_one(
                FoundMessage(
                    row, start, following, len(payload), None, payload, reader, codec, index,
                    count, size, label=label,
                ),
                scanned,
            )  # fmt: skip

    def _wanted_one(self, each: FoundMessage, scanned: ScanCounter) -> FoundMessage | None:
        scanned.count += 1
        if self._wanted.matches is not None and not self._wanted.matches(each):
            return None
        scanned.found += 1
        return each

    def _bad(self, start: int, following: int | None, reason: str) -> UnreadableRange:
        return UnreadableRange(self._row.name, start, following, reason, self._row.label)

    def _damage(self, error: InvalidMessageError) -> UnreadableRange:
        start = self.offset if error.offset is None else error.offset
        following = error.next_offset
        if following is None:
            starts = self._consumer.get_offsets_before(
                self._topic, self._row.number, LATEST, _ALL_SEGMENTS
            )
            following = min((each for each in starts if each > start), default=None)
        reason = error.__cause__ if isinstance(error.__cause__, InvalidMessageError) else error
        if isinstance(error, ExpandedTooLargeError):
            reason = error
        self.offset = self._end if following is None else following
        return self._bad(start, following, str(reason))

    def _with_times(
        self, results: Iterable[FoundMessage | UnreadableRange], began: int
    ) -> Iterator[FoundMessage | UnreadableRange]:
        times: Sequence[AppendTime] = ()
        wanted = [each for each in results if isinstance(each, FoundMessage)]
        if wanted and self._consumer.supports(AppendTimesRequest.TYPE):
            try:
                times = self._consumer.append_times(
                    self._topic, self._row.number, wanted[0].offset, wanted[-1].next_offset
                )
            except BrokerError:  # retention was faster
                times = ()
        starts = [each.start_offset for each in times]
        for each in results:
            if isinstance(each, FoundMessage) and starts:
                index = bisect_right(starts, each.offset) - 1
                yield replace(each, time_ms=times[index].time_ms if index >= 0 else None)
            else:
                yield each


def keep_last(results: list[FoundMessage | UnreadableRange], count: int) -> int:
    """Drop the oldest of what is too much, in number or in bytes; returns the bytes that remain."""
    del results[:-count]
    size = sum(each.size_bytes for each in results if isinstance(each, FoundMessage))
    while size > _KEPT_BYTES and len(results) > 1:
        dropped = results.pop(0)
        size -= dropped.size_bytes if isinstance(dropped, FoundMessage) else 0
    return size


def read_one(
    cluster: ClusterClient, topic: TopicView, row: PartitionRow, offset: int, index: int
) -> tuple[Message, int, int, Message]:
    """Read one message.

    Args:
        offset: where it, or the compressed set that it is in, starts; where there is no record
            (any more), the next one is read.
        index: its position within that set.

    Returns:
        The message, its own offset, the next one, and the stored message: the same, or the
        compressed set.

    Raises:
        HermesError: there is none, or it is damaged.
    """
    with cluster.own_consumer(topic.address_of(row)) as consumer:
        fetched = consumer.fetch(FetchRequest(topic.name, row.number, offset, _FIRST_SPAN_BYTES))
        stored, following = next(fetched.iterate(deep=False), (None, 0))
    if stored is None:
        raise HermesError(f"no message starts at offset {offset} of partition {row.label}")
    start = message_start(stored, offset, following)
    if stored.codec is Codec.NONE:
        return stored, start, following, stored
    count = Expansion(DEFAULT_MAX_EXPANDED_BYTES).count(stored)
    if count > _MOST_IN_SET:
        raise HermesError(_too_many(count))
    inner = Expansion(DEFAULT_MAX_EXPANDED_BYTES).messages(stored)
    found = next(islice(inner, min(index, sys.maxsize), None), None)
    if found is None:
        raise HermesError(f"the compressed set at offset {offset} has no message {index}")
    return found, start, following, stored


def _too_many(count: int) -> str:
    return f"a compressed set of {count:,} messages: too many to be looked at here"
