"""What Hermes knows of a partition of Kafka's format, with a checksum: `partition.hermes` there.

    {"topic_id": "0f8f...", "start": 10, "end": 1500, "epochs": [[0, 0]], "segments": [0, 1000],
     "kafka": 0}
    {"crc32": "..."}

Kafka's own small files (`hermes.storage.checkpoints`) have no checksum and can't get one. One
changed character is another topic's id, or another start: what groups have committed counts for
nothing then, or deleted records are back. And where compaction leaves gaps, nothing else shows that
a segment is missing. So all this is kept here as well, and counts, unless a Kafka has been at work
in the data directory since: then its files do. While Kafka runs, it rewrites
`replication-offset-checkpoint` every few seconds, which Hermes never does; `kafka` is when.

The file may be deleted while the broker is stopped: Kafka's files count then, and it is made again.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from errno import EIO
from typing import Final, NamedTuple
from uuid import UUID

from hermes.errors import CorruptLogError
from hermes.storage.checkpoints import RECORD_NAME, Checkpoints, read_topic_id, write_topic_id
from hermes.storage.files import FileLayer, exists
from hermes.storage.whole_files import decode_checked, encode_checked, read_whole, replace_whole

_MOST_BYTES: Final = 64 << 20


class PartitionRecord(NamedTuple):
    """What is known of a partition.

    Attributes:
        start: where the log begins.
        end: up to where it was on disk, at least.
        epochs: (leader epoch, its first offset), both ascending.
        segments: the base offsets of the segments that are on disk, at least up to `end`.
        kafka: when a Kafka was at work here last, as `Checkpoints.kafka_stay` says it.
    """

    topic_id: UUID
    start: int
    end: int
    epochs: tuple[tuple[int, int], ...]
    segments: tuple[int, ...]
    kafka: int

    def losses(self, first: int | None, end: int | None) -> list[str]:
        """Say what was on disk and no longer is, at either end of the log.

        Args:
            first: its first segment's base offset now.
            end: where it ends now. None, of either, if that can't be judged.
        """
        losses = []
        if first is not None and first > self.start and self.end > self.start:
            losses.append(f"begins at offset {first}, and began at {self.start} before")
        if end is not None and end < self.end:
            losses.append(f"ends at offset {end}, and ended at {self.end} before")
        return losses


def read_record(
    directory: str, files: FileLayer, checkpoints: Checkpoints
) -> PartitionRecord | None:
    """Read what is known of a partition; None when nothing is, or Kafka's files count. Blocks.

    Raises ValueError: it is damaged.
    """
    data = read_whole(os.path.join(directory, RECORD_NAME), _MOST_BYTES, files)
    if data is None:
        return None
    found = decode_checked(data)
    try:
        record = PartitionRecord(
            UUID(found["topic_id"]),
            int(found["start"]),
            int(found["end"]),
            tuple((int(epoch), int(offset)) for epoch, offset in found["epochs"]),
            tuple(map(int, found["segments"])),
            int(found["kafka"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it lacks {error}") from None
    stay = checkpoints.kafka_stay()
    return record if stay in (0, record.kafka) else None


def write_record(
    directory: str, record: PartitionRecord, files: FileLayer, *, is_synced: bool
) -> None:
    """Write what is known of a partition. Blocks.

    `is_synced`: put it on disk. Without that a loss of power leaves the one before, or one whose
    checksum is wrong.
    """
    data = encode_checked({**record._asdict(), "topic_id": str(record.topic_id)})
    replace_whole(os.path.join(directory, RECORD_NAME), data, files, is_synced=is_synced)


def forget_record(directory: str, files: FileLayer) -> None:
    """Let Kafka's files count. Blocks; on disk with the next sync of the directory."""
    with suppress(FileNotFoundError):
        files.unlink(os.path.join(directory, RECORD_NAME))


def mend_topic_id(directory: str, files: FileLayer, checkpoints: Checkpoints) -> str:
    """Write `partition.metadata` anew if it doesn't say what is known. Blocks.

    Returns what was wrong with it; nothing if it is as it should be, or nothing is known.
    """
    if not exists(os.path.join(directory, RECORD_NAME), files):
        return ""
    try:
        record = read_record(directory, files, checkpoints)
    except (ValueError, OSError):
        return ""  # which is told when the partition is opened
    if record is None:
        return ""
    try:
        found = read_topic_id(directory, files)
        text = "was missing" if found is None else f"had another topic's id, {found}"
    except CorruptLogError:
        found, text = None, "was damaged"
    except OSError as error:
        if error.errno != EIO:
            raise
        found, text = None, "could not be read"
    if found == record.topic_id:
        return ""
    write_topic_id(directory, record.topic_id, files, is_synced=True)
    files.fsync_directory(directory)
    return f"{text}: it is {record.topic_id}"


def missing_of(
    directory: str, record: PartitionRecord, bases: Sequence[int], end: int | None
) -> list[str]:
    """Say what was on disk and no longer is, anywhere in a log.

    Args:
        bases: the base offsets of the segments that are there.
        end: where the log ends; None if that can't be judged.
    """
    losses = record.losses(bases[0] if bases else None, end)
    try:
        check_segments(directory, bases, record.segments)
    except CorruptLogError as error:
        losses.insert(0, str(error))
    return losses


def check_segments(directory: str, bases: Sequence[int], known: Sequence[int]) -> None:
    """Refuse a log in whose middle a segment is missing.

    Args:
        bases: the base offsets of the segments that are there.
        known: those of the ones that were.

    Raises:
        CorruptLogError: one is missing; the text says which, and what to do.
    """
    if not bases:
        return
    there = set(bases)
    missing = [each for each in known if each not in there and min(there) < each < max(there)]
    if missing:
        more = f" (and {len(missing) - 1} more)" if missing[1:] else ""
        raise CorruptLogError(
            f"{directory} lacks the segment {missing[0]:020d}.log{more}: put it back; or remove "
            f"{os.path.join(directory, RECORD_NAME)} and restart the broker, to go on without its "
            "messages"
        )
