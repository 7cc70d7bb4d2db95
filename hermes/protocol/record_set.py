"""Record batches as consumers see them: what `MessageSet` is for messages of 0.7.

A fetch from a topic of Kafka's format brings whole batches, the last one perhaps cut. The first one
may begin before the offset that was asked for: its earlier records are left out. Offsets count
records, and those that compaction has removed are missing; control records, which only mark
transactions, are never shown. A batch is checked as a whole, by its CRC, before its first record.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeVar

from hermes.errors import ExpandedTooLargeError, InvalidBatchError, InvalidMessageError
from hermes.protocol.expansion import DEFAULT_MAX_EXPANDED_BYTES
from hermes.protocol.loops import ListedRows
from hermes.protocol.messages import Message
from hermes.protocol.record_batches import HEADER_BYTES, BatchHeader, decode_header, is_intact
from hermes.protocol.records import Headers, Record, iterate_records
from hermes.protocol.transaction_markers import Aborted, CommittedOnly
from hermes.protocol.wire import Buffer

_R = TypeVar("_R", bound=tuple[Any, ...])

#: What a record's `Message.magic` is: that of its batch.
MAGIC: Final = 2


class _RecordFields(NamedTuple):
    payload: bytes | None
    magic: int
    attributes: int
    crc: int
    key: bytes | None
    headers: Headers
    timestamp_ms: int | None


class RecordMessage(Message):
    """A record as a message: `(payload, magic, attributes, crc, key, headers, timestamp_ms)`.

    Attributes:
        payload: the record's value; None for a tombstone.
        magic: 2.
        attributes, crc: 0: its batch has the CRC.
        key: None if it has none.
        headers: pairs of a name and a value, in their order; names may repeat.
        timestamp_ms: ms since 1970; None if it has none.
    """

    __slots__ = ()

    payload: Any = _RecordFields.payload
    key: Any = _RecordFields.key
    headers: Any = _RecordFields.headers
    timestamp_ms: Any = _RecordFields.timestamp_ms

    @property
    def is_valid(self) -> bool:
        """True: a batch that isn't valid is refused before its records are seen."""
        return True

    @classmethod
    def of_record(
        cls, value: bytes | None, key: bytes | None, headers: Headers, timestamp_ms: int | None
    ) -> "RecordMessage":
        return tuple.__new__(cls, (value, MAGIC, 0, 0, key, headers, timestamp_ms))

    def __repr__(self) -> str:
        payload, key = self.payload, self.key
        shown = payload if payload is None or len(payload) <= 40 else payload[:40] + b"..."
        return f"RecordMessage({shown!r}, key={key!r}, timestamp_ms={self.timestamp_ms})"


def message_start(message: Message, begin: int, following: int) -> int:
    """Where a message starts that was found from `begin` on, by where the next one does.

    Before a record others may be missing: compacted, aborted, or the marker of a transaction.
    """
    return following - 1 if isinstance(message, RecordMessage) else begin


class RecordSet:
    """The records in a buffer of batches; see `MessageSet` for what is not explained here.

    Example:
        for message, next_offset in consumer.fetch(FetchRequest("orders", 0, 0, 1 << 20)):
            print(message.key, message.payload, message.headers, message.timestamp_ms)

    Args:
        buffer: whole batches, the last one perhaps cut; copied unless it is a bytes object.
        base_offset: the requested offset: records before it are omitted.
        aborted: of each transaction in it that was aborted, the producer's id and its first offset:
            its records are omitted. Those of others are all taken for committed.
        on_corrupt: "raise" InvalidMessageError at a damaged batch, or "skip" it and count.
        max_expanded_bytes: what one compressed batch may expand to.

    Attributes:
        skipped_count: how many damaged batches the last iteration with on_corrupt="skip" skipped.
    """

    __slots__ = (
        "_data",
        "_is_read",
        "_max_expanded_bytes",
        "_skip",
        "aborted",
        "base_offset",
        "skipped_count",
    )

    def __init__(
        self,
        buffer: Buffer,
        base_offset: int = 0,
        *,
        aborted: Sequence[Aborted] = (),
        on_corrupt: Literal["raise", "skip"] = "raise",
        max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES,
    ) -> None:
        self._data = bytes(buffer)
        self.aborted = aborted
        self._max_expanded_bytes = max_expanded_bytes
        self._skip = on_corrupt == "skip"
        self._is_read = False
        self.base_offset = base_offset
        self.skipped_count = 0

    @property
    def data(self) -> bytes:
        """The bytes, including an incomplete batch at the end."""
        return self._data

    def __len__(self) -> int:
        return len(self._data)

    @property
    def valid_bytes(self) -> int:
        """The size in bytes of the whole batches."""
        return sum(header.size_bytes for _, header in self._whole())

    @property
    def is_read(self) -> bool:
        """Whether an iteration has reached the end."""
        return self._is_read

    @property
    def next_offset(self) -> int:
        """Where the next fetch should start: after the last whole batch."""
        following = self.base_offset
        with suppress(InvalidMessageError):  # iterating says so
            for _, header in self._whole():
                following = max(following, header.next_offset)
        return following

    @property
    def first_message_size(self) -> int | None:
        """How many bytes the first batch needs; None when even its length is incomplete."""
        if len(self._data) < HEADER_BYTES:
            return None
        return decode_header(self._data).size_bytes

    def batches(self) -> Iterator[tuple[int, BatchHeader]]:
        """Iterate over the whole batches, whatever is inside, their CRCs checked.

        Yields:
            Where each starts in `data`, and its header.

        Raises:
            InvalidMessageError: a batch is damaged, and on_corrupt is "raise".
        """
        self.skipped_count = 0
        view = memoryview(self._data)
        for position, header in self._whole():
            if is_intact(view[position : position + header.size_bytes]):
                yield position, header
            else:
                text = f"the CRC of the batch at offset {header.base_offset} is wrong"
                self._skip_or_raise(InvalidMessageError(text), header)

    def __iter__(self) -> Iterator[tuple[Message, int]]:
        return self.iterate()

    def iterate(self, *, deep: bool = True) -> Iterator[tuple[Message, int]]:
        """Iterate over the records.

        Args:
            deep: records are always taken out of their batches; for `MessageSet`'s sake.

        Yields:
            The record as a `RecordMessage`, and the offset at which to resume after it.

        Raises:
            InvalidMessageError: a batch is damaged, and on_corrupt is "raise". `offset` and
                `next_offset` are the batch's.
            ExpandedTooLargeError: a batch expands to more than max_expanded_bytes.
        """
        for record in self.records():
            offset, time_ms, key, value, headers = record
            known_ms = None if time_ms < 0 else time_ms
            yield RecordMessage.of_record(value, key, headers, known_ms), offset + 1

    def records(self) -> Iterator[Record]:
        """Iterate over the records; raises what `iterate` raises."""
        first, committed = self.base_offset, CommittedOnly(self.aborted)
        for position, header in self.batches():
            if not committed.takes(header, self._data, position) or header.next_offset <= first:
                continue
            found = iterate_records(
                self._data, header, position, max_expanded_bytes=self._max_expanded_bytes
            )
            try:
                for record in found:
                    if record.offset >= first:
                        yield record
            except InvalidMessageError as error:
                self._skip_or_raise(error, header)
        self._is_read = True

    def rows(
        self, make: type[_R], source: tuple[str, int, int], most: int
    ) -> Iterator[ListedRows[_R]]:
        """Iterate over the records in rows; see `MessageSet.rows`.

        The type of the rows also has the attributes `key`, `headers` and `timestamp_ms`, to be set.
        """
        topic, partition, broker = source
        for records in self.runs(most):
            made: list[_R] = []
            for offset, time_ms, key, value, headers in records:
                row: Any = tuple.__new__(
                    make, (value, topic, partition, offset, offset + 1, broker)
                )
                row.key, row.headers = key, headers
                row.timestamp_ms = None if time_ms < 0 else time_ms
                made.append(row)
            yield ListedRows(made)

    def runs(self, most: int) -> Iterator[list[Record]]:
        """Iterate over the records in lists of up to `most`; raises what `iterate` raises.

        The last list may be empty. What comes before an error is in one of them.
        """
        records = self.records()
        while True:
            some: list[Record] = []
            try:
                for record in islice(records, most):
                    some.append(record)
            except InvalidMessageError:
                yield some
                raise
            yield some
            if len(some) < most:
                return

    def _whole(self) -> Iterator[tuple[int, BatchHeader]]:
        data, position = self._data, 0
        while len(data) - position >= HEADER_BYTES:
            try:
                header = decode_header(data, position)
            except InvalidBatchError as error:
                if position:
                    return  # the next fetch begins here
                text = f"no batch can be where offset {self.base_offset} should be: {error}"
                raise InvalidMessageError(text, offset=self.base_offset) from error
            if header.size_bytes > len(data) - position:
                return
            yield position, header
            position += header.size_bytes

    def _skip_or_raise(self, error: InvalidMessageError, header: BatchHeader) -> None:
        if self._skip and not isinstance(error, ExpandedTooLargeError):
            self.skipped_count += 1
            return
        start = max(header.base_offset, self.base_offset)
        raise type(error)(str(error), offset=start, next_offset=header.next_offset) from error
