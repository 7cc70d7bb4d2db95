"""The log formats that there are, what each keeps beside a log, and which one a directory has."""

import os
from contextlib import suppress
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from hermes.errors import StorageError
from hermes.storage.checkpoints import METADATA_NAME, Checkpoints, read_topic_id, write_topic_id
from hermes.storage.files import FileLayer
from hermes.storage.kafka_0_7 import KAFKA_0_7
from hermes.storage.kafka_format import KAFKA, format_of
from hermes.storage.kafka_partition import KafkaPartition
from hermes.storage.layout import is_left_of_deletion, is_unused, may_lack_id
from hermes.storage.log_format import LogFormat
from hermes.storage.partition_record import mend_topic_id
from hermes.storage.sidecar import FormatSidecar

#: By the name that the topics' setting `format` has for each.
FORMATS: Final = {each.name: each for each in (KAFKA_0_7, KAFKA)}

#: What makes the sidecar of a format, for those that have one.
_SIDECARS: Final = {KAFKA.name: KafkaPartition}


def new_sidecar(
    log_format: LogFormat,
    topic: str,
    partition: int,
    directory: str,
    files: FileLayer,
    topic_id: UUID | None,
    checkpoints: Checkpoints | None,
) -> FormatSidecar:
    """Make what a format keeps beside a log, without touching a file.

    Args:
        topic_id: if it is known.
        checkpoints: the data directory's; those of the directory above unless given.
    """
    make = _SIDECARS.get(log_format.name)
    if make is None:
        return FormatSidecar()
    return make(topic, partition, directory, files, topic_id, checkpoints)


# What tells an id that was made up from any other one, of this or a later start: its version is 8.
_VERSION_BITS: Final = 0xF << 76
_MADE_VERSION: Final = 8 << 76


class FoundFormat(NamedTuple):
    """What a partition's directory has shown.

    Attributes:
        format: its format; None for a directory that a loss of power has left without its files'
            names or bytes: nothing in it was ever flushed, and it can be begun again.
        topic_id: an id that was made up, since the power has taken it.
        mended: the file that said a wrong id, and what was done; empty for none.
        failure: why it could not be looked at; the format is a guess then.
    """

    format: LogFormat | None
    topic_id: UUID | None = None
    mended: str = ""
    failure: OSError | None = None


def find_format(
    directory: str, wanted: LogFormat, files: FileLayer, checkpoints: Checkpoints
) -> FoundFormat:
    """Find out from what it holds which format a partition's directory has. Blocks.

    What can't be looked at is taken for what it should be: `wanted`, by its topic's settings.
    Raises StorageError: a small file can't be mended.
    """
    mended, is_kafka = "", False
    try:
        told = mend_topic_id(directory, files, checkpoints)
        if told:
            mended = f"{os.path.basename(directory)}/{METADATA_NAME}, which {told}"
        is_kafka = format_of(directory, files) is KAFKA
        if not (is_kafka and _has_topic_id(directory, files)):
            is_kafkas = is_kafka or wanted is KAFKA
            # Of a topic that Kafka has made, the settings may say 0.7.
            if is_left_of_deletion(directory, files) or (is_kafkas and is_unused(directory, files)):
                return FoundFormat(None, None, mended)
            if may_lack_id(directory, files):
                return FoundFormat(KAFKA, _made_id(directory, files), mended)
    except OSError as error:
        return FoundFormat(KAFKA if is_kafka else wanted, None, mended, error)
    if not is_kafka:
        return FoundFormat(KAFKA_0_7, None, mended)
    return FoundFormat(KAFKA, _kept_made_id(directory, files), mended)


def is_leftover(directory: str, files: FileLayer) -> bool:
    """Whether a start finds no log in a partition's directory, but what a deletion has left.

    Raises OSError: it can't be looked at.
    """
    return is_left_of_deletion(directory, files) and not _has_topic_id(directory, files)


def _made_id(directory: str, files: FileLayer) -> UUID:
    """Give an id to a partition that the power has left with messages and without one.

    None of them was ever flushed, but they may be whole.
    """
    with suppress(FileNotFoundError):
        files.unlink(os.path.join(directory, METADATA_NAME))
    topic_id = UUID(int=uuid4().int & ~_VERSION_BITS | _MADE_VERSION)
    write_topic_id(directory, topic_id, files, is_synced=True)
    files.fsync_directory(directory)
    return topic_id


def _kept_made_id(directory: str, files: FileLayer) -> UUID | None:
    """An id that an earlier start has made up, if the partition hasn't got its topic's since."""
    with suppress(StorageError):  # it is damaged: to open the log says so
        topic_id = read_topic_id(directory, files)
        if topic_id is not None and topic_id.int & _VERSION_BITS == _MADE_VERSION:
            return topic_id
    return None


def _has_topic_id(directory: str, files: FileLayer) -> bool:
    with suppress(StorageError):
        return read_topic_id(directory, files) is not None
    return False
