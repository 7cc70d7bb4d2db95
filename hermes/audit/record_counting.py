"""Counts messages of Kafka's format: by their stamps, and without one by their timestamps.

Each is looked at. A batch's header would say how many there are, but neither whether they have
stamps nor whether all lie in one window: its base timestamp is that of its first message, and later
ones may be older.
"""

from collections.abc import Sequence

from hermes.audit.events import Tallies
from hermes.errors import InvalidMessageError
from hermes.protocol import RecordSet, core
from hermes.protocol.record_batches import HEADER_BYTES, BatchHeader
from hermes.protocol.records import Record, encode_records, record_bytes
from hermes.protocol.transaction_markers import CommittedOnly


class CountedRecords:
    """What is in the whole batches of a set, from its base offset on.

    Attributes:
        damaged: how many batches could not be read.
        empty: how many offsets have no message, where none is damaged.
    """

    def __init__(self, records: RecordSet, window_ms: int) -> None:
        self.found: Tallies = {}
        self.damaged = 0
        self._base_offset = records.base_offset
        self._window_ms = window_ms
        left_out, committed = 0, CommittedOnly(records.aborted)
        intact = RecordSet(records.data, records.base_offset, on_corrupt="skip")
        for position, header in intact.batches():
            if not committed.takes(header, records.data, position):
                left_out += header.record_count
            elif not self._count(records.data, position, header):
                self.damaged += 1
        self.damaged += intact.skipped_count
        held = left_out + sum(count for count, _ in self.found.values())
        offsets = records.next_offset - records.base_offset
        self.empty = 0 if self.damaged else max(offsets - held, 0)

    def _count(self, data: bytes, position: int, header: BatchHeader) -> bool:
        start, end = position + HEADER_BYTES, position + header.size_bytes
        if header.codec:
            try:
                data = record_bytes(data, header, position)
            except InvalidMessageError:
                return False
            start, end = 0, len(data)
        counted = core.tally_records(
            data,
            start,
            end,
            header.record_count,
            header.base_timestamp_ms,
            header.max_timestamp_ms if header.is_log_append_time else -1,
            self._base_offset - header.base_offset,
            self._window_ms,
            self.found,
        )
        return counted == header.record_count


def count_one_by_one(records: Sequence[Record], window_ms: int) -> Tallies:
    found: Tallies = {}
    data = encode_records(records, 0, 0)
    core.tally_records(data, 0, len(data), len(records), 0, -1, 0, window_ms, found)
    return found
