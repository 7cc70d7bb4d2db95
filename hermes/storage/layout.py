"""The names in a data directory.

    <log_dir>/<topic>-<partition>/   a partition; the topic is what stands before the last `-`
    <log_dir>/.kafka_cleanshutdown   empty; there while no broker runs and the last one stopped well
    <log_dir>/.hermes_lock           the lock of the process that runs

Layout: Kafka 0.7, which ignores other plain files. The names in a partition's directory are told in
`hermes.storage.segment`.
"""

import re
from typing import TypeAlias

__all__ = [
    "CLEAN_SHUTDOWN_MARKER",
    "LOCK_NAME",
    "TopicPartition",
    "parse_partition_directory",
    "partition_directory",
]

#: Kafka 0.7's name for the sign of a clean stop.
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"

#: The file that `hermes.storage.lock` locks.
LOCK_NAME = ".hermes_lock"

_PARTITION_DIRECTORY = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})", re.DOTALL)
_LARGEST_PARTITION = 2**31 - 1

#: A partition: the topic's name, the partition's number.
TopicPartition: TypeAlias = tuple[str, int]


def partition_directory(topic: str, partition: int) -> str:
    """Name the directory of a partition.

    Args:
        topic: the topic's name.
        partition: 0 to 2**31 - 1.

    Returns:
        A name without path.
    """
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Read a directory's name the way `partition_directory` writes it.

    Args:
        name: a name without path.

    Returns:
        (topic, partition), or None when it is no partition's.
    """
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or int(match[2]) > _LARGEST_PARTITION:
        return None
    return match[1], int(match[2])
