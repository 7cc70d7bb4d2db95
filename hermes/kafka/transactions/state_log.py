"""One partition of the topic `__transaction_state`, while this broker leads it in one epoch."""

from typing import Final

from hermes.cluster.shared import Shared
from hermes.errors import HermesError, NotLeaderError, RemoteProtocolError, StorageError
from hermes.kafka.epochs import told_epoch
from hermes.partition.acknowledgements import AppendedEnd, Safety
from hermes.partition.partition import Partition, batch_rules
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.protocol.record_batches import check_batches, is_intact, next_in
from hermes.protocol.records import Record, encode_batch, iterate_records
from hermes.storage import Log
from hermes.storage.files import storage_error
from hermes.transactions.records import decode_key, decode_value, encode_key, encode_value
from hermes.transactions.state import STATE_TOPIC, Transaction

_AT_A_TIME: Final = 1 << 20


class StateLog:
    """Lives in the reactor's thread, but for `read`.

    Attributes:
        epoch: the coordinator's, by which later ones fence it: that in which it leads.
        is_doubtful: whether something may have been appended or not: what it holds is to be read
            again.
    """

    def __init__(self, shared: Shared, partition: Partition) -> None:
        leadership = partition.leadership
        self.epoch = told_epoch(partition.log) if leadership is None else leadership.epoch
        self.partition = partition
        self.is_doubtful = False
        self._shared = shared
        self._opening = partition.log.openings

    @property
    def is_current(self) -> bool:
        """Whether what was read of it still holds, and this broker may append to it."""
        log, leadership = self.partition.log, self.partition.leadership
        if self.is_doubtful or log.is_closed or log.openings != self._opening:
            return False
        if leadership is None:
            return log.is_sole_copy
        try:
            leadership.check()
        except NotLeaderError:
            return False
        return leadership.epoch == self.epoch

    @property
    def is_readable(self) -> bool:
        """Whether all that was appended is committed.

        What isn't may come to be, as well if nobody waits for it any more: it would follow what
        was read, and change what was answered from that.
        """
        log = self.partition.log
        return log.high_watermark == log.end_offset

    def read(self) -> dict[str, Transaction]:
        """Read what is stored of each transactional id. Blocks.

        Raises StorageError: it can't be read, or isn't what a coordinator writes.
        """
        log, found = self.partition.log, dict[str, Transaction]()
        offset, end = log.earliest, log.high_watermark
        while offset < end:
            with log.read(offset, _AT_A_TIME, whole_first=True) as some:
                try:
                    data = log.files.pread(some.fileno(), some.length, some.position)
                except OSError as error:
                    raise storage_error(f"read {log.name} at offset {offset}", error) from error
            position = 0
            while (header := next_in(data, position)) is not None:
                if not is_intact(memoryview(data)[position : position + header.size_bytes]):
                    raise StorageError(f"{log.name} is damaged at offset {header.base_offset}")
                for record in iterate_records(data, header, position):
                    _note(found, log, record)
                position += header.size_bytes
                offset = header.next_offset
            if not position:
                raise StorageError(f"{log.name} can't be read at offset {offset}")
        return found

    async def store(self, transactional_id: str, transaction: Transaction | None) -> None:
        """Keep what there is of an id from now on: on the disk of each copy that must have it.

        KafkaError: it isn't, or nobody knows (`is_doubtful`).
        """
        partition, log = self.partition, self.partition.log
        if not self.is_current:
            raise KafkaError(Code.NOT_COORDINATOR)
        try:
            if partition.leadership is not None:
                partition.leadership.check_enough()
            value = None if transaction is None else encode_value(transaction)
            record = Record(0, self._shared.now_ms(), encode_key(transactional_id), value)
            data, rules = encode_batch([record]), batch_rules(self._shared.config, STATE_TOPIC)
            done = partition.append_batches(check_batches(data, rules), data, rules, True, True)
        except NotLeaderError as error:
            raise KafkaError(Code.NOT_COORDINATOR) from error
        except HermesError as error:
            raise KafkaError(Code.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        appended = AppendedEnd(log, log.openings, done.end_offset)
        safety_of = await self._shared.acknowledgements.flushed([appended], None)
        safety = safety_of(appended)
        if safety is Safety.FLUSHED and self.is_current:
            return
        # What was read again meanwhile may lack it, even if it is committed by now.
        self.is_doubtful = True
        is_unknown = safety is Safety.UNKNOWN
        raise KafkaError(Code.COORDINATOR_NOT_AVAILABLE if is_unknown else Code.NOT_COORDINATOR)


def _note(found: dict[str, Transaction], log: Log, record: Record) -> None:
    name = decode_key(record.key)
    if name is None:
        return
    if record.value is None:
        found.pop(name, None)
        return
    try:
        found[name] = decode_value(record.value)
    except RemoteProtocolError as error:
        raise StorageError(f"{log.name} at offset {record.offset}: {error}") from error
