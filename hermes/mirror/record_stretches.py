"""Record batches of a source as stretches: each is one batch, as a producer of the target sends it.

The messages of a batch go on as they are, compressed ones unopened; its header gets the base offset
0, and neither a producer nor a transaction, which the target wouldn't know. Only batches that no
producer may send are made anew: those with messages missing (compacted, or fetched from the middle)
and those whose timestamps the source's broker has set. Of transactions what was committed goes on.
"""

from collections.abc import Iterator

from hermes.errors import InvalidBatchError, InvalidMessageError
from hermes.mirror.stretches import Stretch
from hermes.protocol.record_batches import (
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    BatchHeader,
    decode_header,
    encode_header,
    is_intact,
    next_in,
    with_crc,
)
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.record_set import RecordSet
from hermes.protocol.records import encode_batch, iterate_records
from hermes.protocol.transaction_markers import CommittedOnly


def record_stretches(fetched: RecordSet, there: int = 0) -> Iterator[Stretch]:
    """Divide what was fetched from an offset on; its last batch may be cut.

    `there`: up to where the target has the source; a stretch ends there, too.

    Yields:
        Stretches without holes between them; those without data hold nothing to be copied.

    Raises:
        InvalidMessageError: what comes next can't be copied: it is of an older format, expands to
            too much, or is damaged and nothing tells where the next batch starts.
    """
    data, reached = fetched.data, fetched.base_offset
    transactions = CommittedOnly(fetched.aborted)
    position = 0
    while len(data) - position >= HEADER_BYTES:
        try:
            header = decode_header(data, position)
        except InvalidBatchError as error:
            raise InvalidMessageError(f"at offset {reached}: {error}", offset=reached) from error
        end = position + header.size_bytes
        if end > len(data):
            return
        batch, position = memoryview(data)[position:end], end
        if not is_intact(batch):
            following = next_in(data, end)
            if following is None or following.base_offset <= reached:
                text = f"a damaged batch at offset {reached}, and none follows yet"
                raise InvalidMessageError(text, offset=reached)
            yield Stretch(reached, following.base_offset, b"", 0, "damaged", False, True)
            reached = following.base_offset
        elif header.next_offset > reached:
            is_wanted = transactions.takes(header, batch) and header.record_count
            cuts = (there,) if reached < there < header.next_offset else ()
            for until in (*cuts, header.next_offset):
                made, count = _sent(header, batch, reached, until) if is_wanted else (b"", 0)
                offsets, held = until - reached, count if is_wanted else header.record_count
                is_verbatim = bool(count) and count == offsets
                whole = (made, count, "", is_verbatim, True, max(offsets - held, 0))
                yield Stretch(reached, until, *whole)
                reached = until


def _sent(header: BatchHeader, batch: memoryview, first: int, until: int) -> tuple[bytes, int]:
    """A batch as a producer sends it, of these offsets only; how many messages it has."""
    set_by_broker = header.attributes & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT)
    is_dense = header.record_count == header.last_offset_delta + 1
    is_whole = first <= header.base_offset and header.next_offset <= until
    if is_dense and is_whole and not set_by_broker:
        changed = header._replace(base_offset=0, leader_epoch=-1)
        if not header.has_producer and not header.is_transactional:
            return encode_header(changed) + batch[HEADER_BYTES:], header.record_count
        return with_producer(changed, batch[HEADER_BYTES:]), header.record_count
    kept = [each for each in iterate_records(batch, header) if first <= each.offset < until]
    if not kept:
        return b"", 0
    numbered = [each._replace(offset=n) for n, each in enumerate(kept)]
    return encode_batch(numbered, RecordCodec(header.codec)), len(numbered)


def with_producer(
    header: BatchHeader,
    body: memoryview,
    producer_id: int = NO_PRODUCER_ID,
    epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    """A batch with another producer, or none, and in no transaction."""
    changed = header._replace(
        attributes=header.attributes & ~TRANSACTIONAL_BIT,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return with_crc(changed, body) + body
