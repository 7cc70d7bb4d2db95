"""Logs of Kafka's format with transactions, and what a reader of what was committed gets."""

from kafka_logs import record
from storage_logs import NOW_MS, bytes_of

from hermes.partition.batch_appends import check_and_append
from hermes.protocol.record_batches import (
    TRANSACTIONAL_BIT,
    BatchRules,
    check_batches,
    decode_header,
    with_crc,
)
from hermes.protocol.records import encode_batch
from hermes.protocol.transaction_markers import CommittedOnly, Marker
from hermes.storage import Log

__all__ = ["Writer", "committed", "transactional"]


class Writer:
    """Producers that write to a log, with or without a transaction."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}

    def send(
        self,
        producer: int,
        count: int = 1,
        *,
        epoch: int = 0,
        plain: bool = False,
        key: bytes | None = None,
    ) -> int:
        """Append a batch of values `<producer>.<sequence number>`; the offset after it."""
        first = self.sequences.get(producer, 0)
        self.sequences[producer] = first + count
        records = [
            record(b"%d.%d" % (producer, first + n), key=key, offset=n) for n in range(count)
        ]
        numbers = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": first}
        batch = encode_batch(records, **numbers)
        if not plain:
            batch = transactional(batch)
        headers = check_batches(batch, BatchRules(1 << 20))
        check_and_append(self.log, headers, batch, NOW_MS, is_in_transaction=not plain)
        return self.log.end_offset

    def end(
        self,
        producer: int,
        *,
        commit: bool = False,
        epoch: int = 0,
        coordinator: int = 0,
        version: int = 1,
    ) -> int:
        """Append a marker; its offset."""
        marker = Marker(producer, epoch, commit, coordinator)
        return self.log.transactions.end(marker, version, NOW_MS)


def transactional(batch: bytes) -> bytes:
    header = decode_header(batch)._replace(attributes=TRANSACTIONAL_BIT)
    return with_crc(header, batch[61:]) + batch[61:]


def committed(log: Log, offset: int = 0, max_bytes: int = 1 << 20) -> list[tuple[int, int]]:
    """(producer, base offset) of the batches that who reads what was committed gets."""
    got = []
    while True:
        found, view = log.fetch(offset, max_bytes, True, False, True)
        if not found:
            assert offset >= view.stable_end
            return got
        aborted = log.transactions.aborted_in(found, offset)
        data = found if isinstance(found, bytes) else bytes_of(log, found)
        if not isinstance(found, bytes):
            found.release()
        only = CommittedOnly((each.producer_id, each.first_offset) for each in aborted)
        position = 0
        while position < len(data):
            header = decode_header(data, position)
            if only.takes(header, data, position):
                got.append((header.producer_id, header.base_offset))
            position += header.size_bytes
            offset = header.next_offset
