"""Compaction of a log of record batches: of each key the latest message is kept, at its offset.

    1. The keys of what was appended since the last time are noted, each with its latest offset, as
       many as fit into `MOST_KEYS`.
    2. Every complete segment up to there is rewritten beside itself without the messages that a
       later one of their key has replaced, and takes its place by one rename. Whatever is
       interrupted leaves the old segment or the new one.

A message without a value is a tombstone: it stays for a while after it was first met here, which
its batch's header says from then on (the delete horizon), and then goes, too. A message without a
key is replaced by none. Batches whose CRC is wrong or whose messages can't be read stay as they
are, and so does damage between batches: what readers and `hermes check-log` would have reported
must not look whole. Of each producer that the log knows the last batch stays, if need be without
messages, and so do those before it that it may repeat yet: what is known of its sequence numbers
after a restart comes from them. Batches that lose no message are not touched.

Nothing is compacted from the first transaction on that is open. What was aborted goes, and replaces
nothing. A marker goes as a tombstone does, once nothing is left of its transaction.

Retention goes on meanwhile: a segment that it has deleted needs no compaction.

It goes in steps of about a MiB, so that its caller sets the pace; each may run in another thread.

Rules: Kafka 4 (`LogCleaner`, `MemoryRecords.filterTo`).
"""

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from errno import EIO
from hashlib import blake2b
from typing import Final

from hermes.errors import InvalidMessageError, LogOfflineError, StorageError
from hermes.protocol.record_batches import (
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    BatchHeader,
    is_intact,
    with_crc,
)
from hermes.protocol.record_compression import RecordCodec, compress_records
from hermes.protocol.records import Record, encode_records, iterate_records
from hermes.protocol.transaction_markers import CommittedOnly
from hermes.storage.batch_walk import BatchReader, walk
from hermes.storage.checkpoints import CLEANED_SUFFIX
from hermes.storage.files import storage_error, write_all
from hermes.storage.log import Log
from hermes.storage.producer_snapshots import RECENT_MS
from hermes.storage.producer_states import REMEMBERED_BATCHES
from hermes.storage.segment import Segment

#: How many keys are noted at once: with long ones, some 80 MB.
MOST_KEYS: Final = 500_000

#: How much is read in one step, or a batch more.
STEP_BYTES: Final = 1024 * 1024

_LONG_KEY: Final = 16
_CODEC_BITS: Final = 0x07


@dataclass(slots=True)
class CompactionReport:
    """What a compaction has done so far; keys were noted up to the offset `end`."""

    read_bytes: int = 0
    freed_bytes: int = 0
    end: int = 0


def is_due(log: Log, compacted_to: int) -> bool:
    """Whether at least half of a log's complete segments was appended since it was compacted."""
    total = dirty = 0
    for segment in log.complete_segments():
        total += segment.size_bytes
        dirty += segment.size_bytes if segment.base_offset >= compacted_to else 0
    return dirty > 0 and dirty * 2 >= total


def compaction(
    log: Log, compacted_to: int, now_ms: int, tombstone_retention_ms: int, report: CompactionReport
) -> Generator[None, None, None]:
    """Compact a log of Kafka's format. Each step blocks and ends with a yield; for worker threads.

    Args:
        compacted_to: the `end` of the report of the last time; 0 at first.
        report: what is done is written here.

    Raises:
        LogOfflineError: the log is offline, or was deleted.
        StorageError: the disk refused; what was compacted is.
    """
    work = _Compaction(log, now_ms, tombstone_retention_ms, report)
    try:
        yield from work.run(compacted_to)
    except OSError as error:
        log.is_suspect |= error.errno == EIO
        raise storage_error(f"{log.name}: compact", error) from error
    finally:
        work.abandon()


class _Compaction:
    def __init__(
        self, log: Log, now_ms: int, tombstone_retention_ms: int, report: CompactionReport
    ) -> None:
        self._log = log
        self._now_ms = now_ms
        self._retention_ms = tombstone_retention_ms
        self._report = report
        self._files = log.files
        self._latest: dict[bytes, int] = {}
        self._last_of_producer: dict[int, deque[int]] = {}  # the last offsets of its batches
        self._ends: dict[Segment, int] = {}
        # The producers of whose transactions something is left, up to where it has come; and of
        # a segment, the markers that go.
        self._left = set[int]()
        self._dropped = set[int]()
        self._draft = ""
        self._stepped = 0

    def abandon(self) -> None:
        if self._draft:
            with suppress(OSError):
                self._files.unlink(self._draft)

    def run(self, compacted_to: int) -> Iterator[None]:
        segments = self._decided()
        self._report.end = compacted_to
        for segment in segments:
            end = self._ends[segment]
            if end > compacted_to:
                yield from self._while_there(segment, self._note_keys(segment, compacted_to))
            if len(self._latest) >= MOST_KEYS:
                break
            self._report.end = max(self._report.end, end)
        # Producers may have gone on behind what is noted.
        for segment in segments:
            if segment.base_offset < self._report.end:
                yield from self._while_there(segment, self._clean(segment))

    def _decided(self) -> tuple[Segment, ...]:
        """The complete segments that lie before every transaction that is open."""
        stable_end, segments = self._log.stable_end, self._log.complete_segments()
        bases = [*(each.base_offset for each in segments[1:]), self._log.complete_end]
        self._ends = dict(zip(segments, bases, strict=False))
        return tuple(each for each in segments if self._ends[each] <= stable_end)

    def _committed(self, segment: Segment) -> CommittedOnly:
        """Tells of a segment's batches, one after the other, which were committed."""
        base, end = segment.base_offset, self._ends[segment]
        found = self._log.sidecar.aborted.find(base, base, end)
        return CommittedOnly((each.producer_id, each.first_offset) for each in found)

    def _while_there(self, segment: Segment, steps: Iterator[None]) -> Iterator[None]:
        """Do something with a segment that may be deleted meanwhile: then there is no need."""
        try:
            yield from steps
        except LogOfflineError:
            raise
        except (OSError, StorageError):
            first = next(iter(self._log.complete_segments()), None)
            if first is not None and first.base_offset <= segment.base_offset:
                raise
            self.abandon()

    def _batches(self, segment: Segment) -> Iterator[tuple[BatchHeader | None, bytes]]:
        """A segment's batches; and, without a header, what is damaged between them, in pieces."""
        descriptor = self._files.open_read(segment.path)
        try:
            size, end = self._files.fstat(descriptor).st_size, 0
            base = segment.base_offset
            reader = BatchReader(self._files, descriptor, base, size)
            for place in walk(reader, 0, base, known_end=self._ends[segment]):
                yield from _damaged(reader, end, place.position)
                yield place.header, reader.read(place.position, place.header.size_bytes)
                end = place.end_position
            yield from _damaged(reader, end, size)
        finally:
            self._files.close(descriptor)

    def _is_step_over(self, size_bytes: int) -> bool:
        self._report.read_bytes += size_bytes
        self._stepped += size_bytes
        if self._stepped < STEP_BYTES:
            return False
        self._stepped = 0
        return True

    def _note_keys(self, segment: Segment, compacted_to: int) -> Iterator[None]:
        committed = self._committed(segment)
        for header, data in self._batches(segment):
            if header is None:
                self._log.is_suspect = True
                continue
            records = _readable(header, data)
            self._log.is_suspect |= records is None and not is_intact(data)
            is_committed = committed.takes(header, data)
            for record in (records or ()) if is_committed else ():
                if record.key is not None and record.offset >= compacted_to:
                    self._latest[_short(record.key)] = record.offset
            if self._is_known(header) and not header.is_control:
                last = self._last_of_producer.setdefault(
                    header.producer_id, deque(maxlen=REMEMBERED_BATCHES)
                )
                last.append(header.last_offset)
            self._report.end = max(self._report.end, header.next_offset)
            if self._is_step_over(header.size_bytes):
                yield
            if len(self._latest) >= MOST_KEYS:
                return

    def _clean(self, segment: Segment) -> Iterator[None]:
        self._draft = segment.path + CLEANED_SUFFIX
        with suppress(FileNotFoundError):
            self._files.unlink(self._draft)
        descriptor = self._files.open_new(self._draft)
        committed = self._committed(segment)
        size, has_changed = 0, False
        self._dropped = set()
        try:
            pending: list[bytes] = []
            for header, data in self._batches(segment):
                kept = data if header is None else self._kept(header, data, committed)
                has_changed |= kept is not data
                if kept is not None:
                    pending.append(kept)
                if self._is_step_over(len(data)):
                    size = self._write(descriptor, pending, size)
                    yield
            size = self._write(descriptor, pending, size)
            if has_changed:
                self._files.fdatasync(descriptor)
        finally:
            self._files.close(descriptor)
        if self._dropped:
            # Before their markers go: one without would hide what its producer commits later.
            index, dropped = self._log.sidecar.aborted, self._dropped
            index.forget(segment.base_offset, lambda each: each.last_offset in dropped)
        if has_changed:
            self._report.freed_bytes += self._log.exchange.replace(segment, self._draft, size)
        self.abandon()
        self._draft = ""

    def _write(self, descriptor: int, pending: list[bytes], position: int) -> int:
        write_all(self._files, descriptor, pending, position)
        position += sum(map(len, pending))
        pending.clear()
        return position

    def _kept(self, header: BatchHeader, data: bytes, committed: CommittedOnly) -> bytes | None:
        """What stays of a batch: itself when all does, another one, or None for nothing."""
        records, is_committed = _readable(header, data), committed.takes(header, data)
        if header.is_control:
            return self._kept_marker(header, data, records)
        if header.is_transactional:
            self._left.add(header.producer_id)
        if records and not is_committed:
            return _batch(header, [], None) if self._tells_of_producer(header) else None
        if records is None or not records:
            is_needed = not records and self._tells_of_producer(header)
            return data if records is None or is_needed else None
        horizon_ms = header.delete_horizon_ms
        is_over = horizon_ms is not None and horizon_ms <= self._now_ms
        kept = [each for each in records if self._stays(each, is_over=is_over)]
        if not kept:
            return _batch(header, [], None) if self._tells_of_producer(header) else None
        has_tombstones = any(each.value is None and each.key is not None for each in kept)
        if horizon_ms is None and has_tombstones and header.last_offset < self._report.end:
            return _batch(header, kept, self._now_ms + self._retention_ms)
        return data if len(kept) == len(records) else _batch(header, kept, horizon_ms)

    def _kept_marker(
        self, header: BatchHeader, data: bytes, records: list[Record] | None
    ) -> bytes | None:
        """What stays of a marker, the rest of whose transaction may have gone before."""
        producer = header.producer_id
        if producer in self._left:
            self._left.discard(producer)
            return data
        known = (self._log.producers.states if self._log.producers else {}).get(producer)
        rests_on_it = known and not known.batches and known.epoch == header.producer_epoch
        if not records or rests_on_it or header.last_offset >= self._report.end:
            return data
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None:
            return _batch(header, records, self._now_ms + self._retention_ms)
        if horizon_ms > self._now_ms:
            return data
        self._dropped.add(header.last_offset)
        return None

    def _stays(self, record: Record, *, is_over: bool) -> bool:
        if record.key is None or record.offset >= self._report.end:
            return True
        latest = self._latest.get(_short(record.key), -1)
        return latest <= record.offset and not (is_over and record.value is None)

    def _is_known(self, header: BatchHeader) -> bool:
        producers = self._log.producers
        return producers is not None and header.producer_id in producers.states

    def _tells_of_producer(self, header: BatchHeader) -> bool:
        """Whether it is the last one of its producer, or may be repeated yet."""
        if not self._is_known(header):
            return False
        last = self._last_of_producer.get(header.producer_id)
        if last is None:
            return True
        is_recent = self._now_ms - header.base_timestamp_ms < RECENT_MS
        return header.last_offset >= last[0 if is_recent else -1]


def _damaged(reader: BatchReader, position: int, end: int) -> Iterator[tuple[None, bytes]]:
    for start in range(position, end, STEP_BYTES):
        yield None, reader.read(start, min(STEP_BYTES, end - start))


def _readable(header: BatchHeader, data: bytes) -> list[Record] | None:
    """The messages of a batch; None for one that must stay as it is."""
    if not is_intact(data):
        return None
    try:
        return list(iterate_records(data, header))
    except InvalidMessageError:
        return None


def _short(key: bytes) -> bytes:
    return key if len(key) <= _LONG_KEY else b"." + blake2b(key, digest_size=_LONG_KEY).digest()


def _batch(header: BatchHeader, records: list[Record], horizon_ms: int | None) -> bytes:
    """A batch with some of another one's messages, at their offsets.

    Args:
        records: none makes an empty batch, which keeps the place.
        horizon_ms: from when on its tombstones may go; None when it has none.
    """
    base_ms = header.base_timestamp_ms
    attributes = header.attributes & ~DELETE_HORIZON_BIT
    if horizon_ms is not None and records:
        base_ms, attributes = horizon_ms, attributes | DELETE_HORIZON_BIT
    newest_ms = max((each.timestamp_ms for each in records), default=-1)
    if header.is_log_append_time:
        newest_ms = header.max_timestamp_ms
    if not records:
        attributes &= ~_CODEC_BITS
    codec = RecordCodec(attributes & _CODEC_BITS)
    body = b""
    if records:
        body = compress_records(codec, encode_records(records, header.base_offset, base_ms))
    changed = header._replace(
        size_bytes=HEADER_BYTES + len(body),
        attributes=attributes,
        base_timestamp_ms=base_ms,
        max_timestamp_ms=newest_ms,
        record_count=len(records),
    )
    return with_crc(changed, body) + body
