"""Whether copies of a partition are equal: batch by batch, by offset, epoch and CRC.

Where a topic is compacted each broker does that for itself: there, of the messages that both have,
each must be equal.
"""

from collections.abc import Iterable, Iterator
from itertools import zip_longest

from hermes.errors import InvalidBatchError
from hermes.protocol.record_batches import BatchHeader, is_intact
from hermes.protocol.records import Record, iterate_records

Batches = Iterable[tuple[BatchHeader, bytes]]


def first_difference(leading: Batches, other: Batches, *, is_compacted: bool) -> str:
    """What is different first in a copy; "" where it is equal to that of the leader."""
    try:
        if is_compacted:
            return _different_record(_records(leading, "leader's"), _records(other, ""))
        return _different_batch(leading, other)
    except InvalidBatchError as error:
        return str(error)


def _different_batch(leading: Batches, other: Batches) -> str:
    for pair in zip_longest(_intact(leading, "leader's"), _intact(other, "")):
        ours, theirs = (None if each is None else each[0] for each in pair)
        if ours is None or theirs is None:
            at = ours or theirs
            assert at is not None
            return f"only {'the leader' if theirs is None else 'it'} has offset {at.base_offset}"
        if (ours.base_offset, ours.last_offset) != (theirs.base_offset, theirs.last_offset):
            return (
                f"offsets {theirs.base_offset} to {theirs.last_offset} are one batch, and "
                f"{ours.base_offset} to {ours.last_offset} at the leader"
            )
        if ours.leader_epoch != theirs.leader_epoch:
            return (
                f"offset {ours.base_offset} is of epoch {theirs.leader_epoch}, and of "
                f"{ours.leader_epoch} at the leader"
            )
        if ours.crc != theirs.crc:
            return f"offset {ours.base_offset} holds something else"
    return ""


def _intact(batches: Batches, whose: str) -> Iterator[tuple[BatchHeader, bytes]]:
    for header, batch in batches:
        if not is_intact(batch):
            raise InvalidBatchError(f"offset {header.base_offset} of {whose or 'its'} is damaged")
        yield header, batch


def _records(batches: Batches, whose: str) -> Iterator[Record]:
    for header, batch in _intact(batches, whose):
        if not header.is_control:
            yield from iterate_records(batch, header)


def _different_record(leading: Iterator[Record], other: Iterator[Record]) -> str:
    ours, theirs = next(leading, None), next(other, None)
    while ours is not None and theirs is not None:
        if ours.offset == theirs.offset:
            if (ours.key, ours.value) != (theirs.key, theirs.value):
                return f"offset {ours.offset} holds something else"
            ours, theirs = next(leading, None), next(other, None)
        elif ours.offset < theirs.offset:
            ours = next(leading, None)
        else:
            theirs = next(other, None)
    return ""
