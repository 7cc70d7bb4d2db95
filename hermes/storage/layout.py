"""The names in a data directory.

    <log_dir>/<topic>-<partition>/   a partition; the topic is the part before the last `-`
    <log_dir>/.kafka_cleanshutdown   empty; there while no broker runs and the last one stopped well
    <log_dir>/.hermes_lock           the lock of the process that runs
    <log_dir>/.hermes_restoring      there while a backup is being restored, or if that has failed
    <log_dir>/.hermes_broker         whose directory it is: `hermes.storage.owner`
    <log_dir>/.hermes_cluster_id     the UUID of a cluster that has no coordination
    <log_dir>/.hermes_damage         which segments are damaged: `hermes.storage.damage`
    <log_dir>/.hermes_topics         what was set for single topics: `hermes.storage.topic_entries`
    <log_dir>/.hermes_requested      what was set for the broker: `hermes.storage.requested_file`
    <log_dir>/.hermes_users          the cluster's users: the same
    <log_dir>/.hermes_producer_ids   the next producer id: `hermes.storage.producer_ids`
    <log_dir>/.hermes_registry       the schema registry's snapshot: `hermes.registry.snapshot`
    <log_dir>/log-start-offset-checkpoint, recovery-point-offset-checkpoint
                                     Kafka's: `hermes.storage.checkpoints`

Layout: Kafka 0.7, which ignores other plain files. `hermes.storage.segment` describes the names in
a partition's directory.
"""

import os
import re
from collections.abc import Collection
from typing import TypeAlias

from hermes.errors import InvalidTopicError
from hermes.protocol import check_topic_name
from hermes.storage.checkpoints import (
    KAFKA_NAMES,
    RECORD_NAME,
    RECOVERY_POINTS_NAME,
    STARTS_NAME,
)
from hermes.storage.files import FileLayer
from hermes.storage.segment import BESIDE, UNFLUSHED_SUFFIX, parse_segment_name

__all__ = [
    "CLEAN_SHUTDOWN_MARKER",
    "CLUSTER_ID_NAME",
    "DAMAGE_NAME",
    "DIRECTORY_ID_NAME",
    "LARGEST_PARTITION",
    "LOCK_NAME",
    "OWNER_NAME",
    "OWN_FILES",
    "RESTORE_MARKER",
    "WATERMARKS_NAME",
    "TopicPartition",
    "empty",
    "is_left_of_deletion",
    "is_own_name",
    "is_unused",
    "list_partitions",
    "parse_partition_directory",
    "partition_directory",
    "remove_unused",
]

#: Kafka 0.7's name for the sign of a clean stop.
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"

#: The file with the UUID of a broker's cluster, where there is no coordination to keep it.
CLUSTER_ID_NAME = ".hermes_cluster_id"

#: The file with the id of the broker whose directory it is.
OWNER_NAME = ".hermes_broker"

#: The file that names damaged segments, for the next start.
DAMAGE_NAME = ".hermes_damage"

#: The file that says which logs have other copies, and what of them is committed.
WATERMARKS_NAME = ".hermes_watermarks"

#: The file with the id of the data directory, which another one for the same broker hasn't.
DIRECTORY_ID_NAME = ".hermes_directory"

#: Names in log_dir that begin so are the broker's own: the lock, the topics' entries, the schema
#: registry's snapshot, what groups of Kafka's consumers have committed, and what embedded
#: coordination keeps (SQLite puts further files beside it).
OWN_FILES = (
    ".hermes_lock",
    ".hermes_coordination",
    ".hermes_topics",
    ".hermes_requested",
    ".hermes_users",
    ".hermes_registry",
    ".hermes_producer_ids",
    ".hermes_kafka_groups",
    CLUSTER_ID_NAME,
    DAMAGE_NAME,
    OWNER_NAME,
    WATERMARKS_NAME,
    DIRECTORY_ID_NAME,
    STARTS_NAME,
    RECOVERY_POINTS_NAME,
)

#: The file that `hermes.storage.lock` locks.
LOCK_NAME = ".hermes_lock"

#: Beside this file no broker starts: a restore of a backup was not finished.
RESTORE_MARKER = ".hermes_restoring"

#: A larger number is not a partition's: it is the date or the time in `backup-1763715600`.
LARGEST_PARTITION = 100_000

_KAFKA_SUFFIX = ".log"

#: What a deletion may leave of Kafka's format: names, and endings of such as have an offset.
_GO_LAST = {*KAFKA_NAMES, ".snapshot", UNFLUSHED_SUFFIX} - {RECORD_NAME}

#: Where Kafka keeps what its cluster consists of; it looks like a partition, and is none.
_CLUSTER_METADATA = "__cluster_metadata"

_PARTITION_DIRECTORY = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})", re.DOTALL)

#: A partition: the topic's name, the partition's number.
TopicPartition: TypeAlias = tuple[str, int]


def partition_directory(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Read a directory's name the way `partition_directory` writes it.

    Returns:
        None when it isn't a partition's: the number is too large, say, or no topic can have that
        name (one that isn't UTF-8, among others).
    """
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or int(match[2]) > LARGEST_PARTITION or match[1] == _CLUSTER_METADATA:
        return None
    try:
        check_topic_name(match[1])
    except InvalidTopicError:
        return None
    return match[1], int(match[2])


def list_partitions(path: str, files: FileLayer) -> tuple[list[TopicPartition], list[str]]:
    """Find the partitions in a data directory, and all other names, both sorted."""
    partitions = []
    others = []
    for name in sorted(files.listdir(path)):
        parsed = parse_partition_directory(name)
        if parsed is not None and _may_be_log(os.path.join(path, name), files):
            partitions.append(parsed)
        else:
            others.append(name)
    return partitions, others


def _may_be_log(path: str, files: FileLayer) -> bool:
    """Whether it is a directory that is empty or holds a file called as ours are.

    One that can't be listed may be: opening it says what is wrong.
    """
    try:
        names = files.listdir(path)
    except (NotADirectoryError, FileNotFoundError):
        return False
    except OSError:
        return True
    return not names or any(map(is_own_name, names))


def is_own_name(name: str) -> bool:
    return name in KAFKA_NAMES or any(
        parse_segment_name(name, suffix) is not None for suffix in BESIDE
    )


def remove_unused(path: str, topics: Collection[str], files: FileLayer) -> None:
    """Remove directories of topics without a message: what an interrupted delete has left.

    None of the topics' partitions may be in service.
    """
    for name in files.listdir(path):
        if name.rpartition("-")[0] not in topics:
            continue
        directory = os.path.join(path, name)
        if parse_partition_directory(name) is None or not _may_be_log(directory, files):
            continue
        if is_unused(directory, files):
            empty(directory, files)
            files.rmdir(directory)


def empty(directory: str, files: FileLayer) -> None:
    """Delete the files of a directory that is unused."""
    for name in files.listdir(directory):
        files.unlink(os.path.join(directory, name))


def may_lack_id(directory: str, files: FileLayer) -> bool:
    """Whether a loss of power may have taken the topic's id from a partition of Kafka's format.

    The first flush puts `partition.metadata` on disk before it makes an index or a snapshot, and a
    Kafka has an index beside each segment. So there are segments, and nothing beside them.
    """
    parsed = [
        parse_segment_name(name, _KAFKA_SUFFIX) or (0, "")
        for name in files.listdir(directory)
        if name not in KAFKA_NAMES
    ]
    suffixes = {suffix for _, suffix in parsed}
    return _KAFKA_SUFFIX in suffixes <= {_KAFKA_SUFFIX, UNFLUSHED_SUFFIX}


def is_left_of_deletion(directory: str, files: FileLayer) -> bool:
    """Whether there is what the power may leave of a partition of Kafka's format, and no more.

    A deletion that ends with the power has put on disk that the segments are gone, and with them
    their indexes and `partition.hermes`. Any of what goes after them may be left.
    """
    kinds = {
        name if name in KAFKA_NAMES else (parse_segment_name(name, _KAFKA_SUFFIX) or (0, ""))[1]
        for name in files.listdir(directory)
    }
    return kinds <= _GO_LAST and kinds != {UNFLUSHED_SUFFIX} and bool(kinds)


def is_unused(directory: str, files: FileLayer, *, may_have_files: bool = True) -> bool:
    """Whether nothing was ever flushed in a partition's directory, so that it can be begun again.

    `may_have_files`: whether files of Kafka's format, with no message in them, may be there.
    """
    names = files.listdir(directory)
    if not names or not may_have_files:
        return not names
    rest = [name for name in names if name not in KAFKA_NAMES]
    parsed = [parse_segment_name(name, _KAFKA_SUFFIX) for name in rest]
    # Its first flush puts the first segment's name on disk, and deleting it ends with that.
    if not any(each is not None and each[1] == _KAFKA_SUFFIX for each in parsed):
        return None not in parsed
    return all(
        each is not None and not each[0] and not files.lstat(os.path.join(directory, name)).st_size
        for name, each in zip(rest, parsed, strict=True)
    )
