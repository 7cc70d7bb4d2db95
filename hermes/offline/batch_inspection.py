"""One segment of record batches, read-only, as `dump-log` shows it and `check-log` judges it.

Which bytes are batches, `hermes.storage.batch_walk` decides, as in recovery. Added to that is what
a CRC can't see: whether a batch holds the messages that its header says.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hermes.errors import InvalidBatchError, InvalidMessageError
from hermes.offline.inspection import ReadSegment
from hermes.protocol.record_batches import HEADER_BYTES, BatchHeader, decode_header
from hermes.protocol.records import Record, iterate_records
from hermes.storage.batch_walk import BatchReader, Place, next_valid
from hermes.storage.checkpoints import METADATA_NAME
from hermes.storage.kafka_format import SEGMENT_SUFFIX


def is_kafka_segment(path: Path) -> bool:
    return path.name.endswith(SEGMENT_SUFFIX) or (path.parent / METADATA_NAME).exists()


@dataclass(frozen=True, slots=True)
class InspectedBatch:
    """A batch whose header and CRC are right; `problem` is why it can't be consumed, or None."""

    position: int
    header: BatchHeader
    problem: str | None


@dataclass(frozen=True, slots=True)
class BadBytes:
    """Bytes that aren't a valid batch.

    Attributes:
        position, end_position: where they lie in the file.
        offset: the offset that was to follow.
        next_offset: that of the next valid batch; None when none follows.
        reason: what is wrong with the first of them.
    """

    position: int
    end_position: int
    offset: int
    next_offset: int | None
    reason: str


class BatchFile(ReadSegment):
    """A segment of record batches."""

    def walk(
        self, position: int = 0, offset: int | None = None
    ) -> Iterator[InspectedBatch | BadBytes]:
        """Yield batches and bad bytes, in order and without gaps, from the start of a batch.

        `offset`: the smallest that may lie there; the base offset unless given.
        """
        offset = self.base_offset if offset is None else offset
        reader = BatchReader(self._files, self._descriptor, self.base_offset, self.size_bytes)
        while position < reader.end:
            header = reader.header_at(position, offset)
            if header is not None and reader.is_intact(Place(position, header)):
                yield InspectedBatch(position, header, self._problem_of(position, header))
                position, offset = position + header.size_bytes, header.next_offset
                continue
            reason = self._reason(reader, position, offset)
            found = next_valid(reader, position, offset)
            end = reader.end if found is None else found.position
            following = None if found is None else found.header.base_offset
            yield BadBytes(position, end, offset, following, reason)
            position = end

    def records(self, batch: InspectedBatch) -> Iterator[Record]:
        data = self._read(batch.position, batch.header.size_bytes)
        limit = self._limits.max_expanded_bytes
        return iterate_records(data, batch.header, max_expanded_bytes=limit)

    def _read(self, position: int, length: int) -> bytes:
        reader = BatchReader(self._files, self._descriptor, self.base_offset, self.size_bytes)
        return reader.read(position, length)

    def _problem_of(self, position: int, header: BatchHeader) -> str | None:
        try:
            for record in self.records(InspectedBatch(position, header, None)):
                if not header.base_offset <= record.offset <= header.last_offset:
                    return f"it holds a message of offset {record.offset}"
        except InvalidMessageError as error:
            return str(error)
        return None

    def _reason(self, reader: BatchReader, position: int, expected: int) -> str:
        try:
            header = decode_header(reader.read(position, HEADER_BYTES))
        except InvalidBatchError as error:
            return str(error)
        beyond = position + header.size_bytes - reader.end
        if beyond > 0:
            return f"its length is {header.size_bytes}, which is {beyond} bytes beyond the end"
        if header.base_offset < expected:
            return f"its offset is {header.base_offset}, less than {expected}"
        return f"its CRC is not {header.crc:#010x}, or its offsets can't be"
