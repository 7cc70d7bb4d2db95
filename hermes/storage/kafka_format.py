"""Kafka's format: segments of record batches, whose offsets count messages.

Which bytes are batches is for `hermes.storage.batch_walk` to say, where an offset lies for
`hermes.storage.kafka_index`.

Kafka's names promise nothing: it flushes at its leisure, and compaction leaves gaps between
segments. So after an unclean stop every segment is looked at that our own index doesn't prove to
be on disk, and segments needn't follow each other exactly.
"""

import os
from collections.abc import Sequence
from errno import EBADMSG

from hermes.protocol.record_batches import LENGTH_END
from hermes.storage.batch_walk import BatchReader, scan_batches
from hermes.storage.checkpoints import (
    CLEANED_SUFFIX,
    KAFKA_NAMES,
    METADATA_NAME,
    RECORD_NAME,
)
from hermes.storage.files import (
    FileLayer,
    NotInMemoryError,
    ResidentFiles,
    exists,
    read_exactly,
)
from hermes.storage.kafka_0_7 import KAFKA_0_7
from hermes.storage.kafka_index import APPENDS_SUFFIX, KafkaIndex
from hermes.storage.log_format import LogFormat, NamedSegment, OpenSegment, ScanReport

#: What Kafka calls its segments since 0.8.
SEGMENT_SUFFIX = ".log"


class KafkaFormat:
    name = "kafka"
    suffix = SEGMENT_SUFFIX
    index_suffix = APPENDS_SUFFIX
    counts_messages = True
    is_dense = False
    has_topic_ids = True
    has_timestamps = True
    # Nobody was told that any of it is on disk. Producers send it again in order, and couldn't fill
    # a hole; consumers couldn't read over one.
    keeps_beyond_damage = False
    # What is said of messages goes before them, what says whose they are goes last.
    first_names: Sequence[str] = (RECORD_NAME,)
    last_names: Sequence[str] = tuple(name for name in reversed(KAFKA_NAMES) if name != RECORD_NAME)
    draft_suffixes: tuple[str, ...] = (CLEANED_SUFFIX,)

    def new_index(self, files: FileLayer, path: str, base_offset: int) -> KafkaIndex:
        return KafkaIndex(files, path, base_offset)

    def locate(
        self, segment: NamedSegment, files: FileLayer, descriptor: int, start: int, end: int
    ) -> tuple[int, int]:
        """What begins inside a batch begins with the whole batch.

        Damage isn't passed over. It would look like a hole of compaction's to another copy, and to
        consumers.
        """
        index = segment.index
        assert isinstance(index, KafkaIndex)
        if not index.is_loaded:
            if isinstance(files, ResidentFiles):
                raise NotInMemoryError
            index.load(descriptor, end)
        _, stop, _ = index.find(descriptor, end, files)
        position, _, is_lost = index.find(descriptor, start, files)
        length = max(0, stop - position)
        if not length:
            is_lost |= index.is_damaged(descriptor, position, files)
        if is_lost and start < end:
            raise OSError(EBADMSG, f"offset {start} is damaged")
        return position, length

    def whole_bytes(
        self,
        segment: NamedSegment,
        files: FileLayer,
        descriptor: int,
        position: int,
        max_bytes: int,
        whole_first: bool,
    ) -> int:
        """Only whole batches, since readers drop others.

        Kafka sends the beginning of the next one as well. With its clients' defaults, where a batch
        is nearly as large as what is asked for, that would be a quarter of all bytes.
        """
        index = segment.index
        assert isinstance(index, KafkaIndex)
        end = index.end_of_whole(descriptor, position, position + max_bytes, files)
        length = end - position
        if length or not whole_first:
            return length
        start = read_exactly(files, descriptor, LENGTH_END, position)
        return max(max_bytes, LENGTH_END + int.from_bytes(start[8:], "big"))

    def end_of(self, files: FileLayer, segment: NamedSegment, size_bytes: int) -> int:
        """That of the last batch that headers lead to."""
        if not size_bytes:
            return segment.base_offset
        descriptor = files.open_read(segment.path)
        try:
            index = self.new_index(files, segment.index.path, segment.base_offset)
            return index.last_end(descriptor, size_bytes)
        finally:
            files.close(descriptor)

    def reach(self, opened: OpenSegment, offset: int) -> tuple[int, int]:
        index = opened.segment.index
        assert isinstance(index, KafkaIndex)
        if offset == opened.segment.base_offset:
            return offset, 0
        index.load(opened.descriptor, offset)
        return index.reach(opened.descriptor, offset)

    def scan(
        self, opened: OpenSegment, place: tuple[int, int], size_bytes: int, max_message_bytes: int
    ) -> ScanReport:
        start, position = place
        base = opened.segment.base_offset
        reader = BatchReader(opened.files, opened.descriptor, base, size_bytes)
        return scan_batches(reader, position, start)

    def search_boundary(
        self, opened: OpenSegment, start: int, offset: int, end: int, max_message_bytes: int
    ) -> tuple[int, bool]:
        """A batch is the smallest piece of a log."""
        segment, files, descriptor = opened
        index = segment.index
        assert isinstance(index, KafkaIndex)
        if not index.is_loaded:
            index.load(descriptor, end)
        position, *_ = index.find(descriptor, offset)
        reader = BatchReader(
            files, descriptor, segment.base_offset, files.fstat(descriptor).st_size
        )
        header = reader.header_at(position, segment.base_offset)
        return (offset if header is None else min(offset, header.base_offset)), True


KAFKA: LogFormat = KafkaFormat()


def format_of(directory: str, files: FileLayer) -> LogFormat:
    return KAFKA if exists(os.path.join(directory, METADATA_NAME), files) else KAFKA_0_7
