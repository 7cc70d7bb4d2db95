"""What a backup holds: a JSON file that is written last, so that a backup with one is whole.

    {"format": 1, "hermes": "0.1.0", "taken_ms": ..., "source": "/var/lib/hermes",
     "was_running": true,
     "partitions": [["clicks", 0, 0, 5000], ...],        topic, partition, earliest, end
     "files": [["data/clicks-0/0...0.kafka", 5000, "<sha256>", mtime_ns, mode, identity], ...],
     "faults": [...], "notes": [...],
     "damaged": [["data/clicks-0/0...0.kafka", 700, 950], ...],   file, offsets
     "checksum": "<sha256 of all the above, with sorted keys and without spaces>"}

A manifest comes from a disk that may have failed, or from somebody else: nothing in it is believed
before its checksum is right, and no path in it may lead out of the backup.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from hermes.errors import StorageError
from hermes.storage.layout import parse_partition_directory, partition_directory

MANIFEST_NAME: Final = "manifest.json"

#: The directory of a backup that is laid out as a data directory.
DATA: Final = "data"

_FORMAT: Final = 1


class FileIdentity(NamedTuple):
    """The `fstat` of a source file before it was copied: it changes when somebody writes to it."""

    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int


class ManifestFile(NamedTuple):
    """A file of a backup.

    Attributes:
        path: relative to the backup, with `/`.
        sha256: in hexadecimal.
        mtime_ns: when the source was last written to, in ns since 1970.
        mode: its permission bits.
        identity: which state of which file it is a copy of; None when it is not exactly a copy.
    """

    path: str
    size_bytes: int
    sha256: str
    mtime_ns: int
    mode: int
    identity: FileIdentity | None


class DamagedRange(NamedTuple):
    """Damaged messages of the source, which a backup has as they were.

    `path`: relative to the backup. `start`, `end`: offsets in the partition's log.
    """

    path: str
    start: int
    end: int

    def __str__(self) -> str:
        return (
            f"{self.path.removeprefix(f'{DATA}/')}: damaged at offsets {self.start} to {self.end}"
        )


class PartitionExtent(NamedTuple):
    """What a backup has of a partition: offsets from `earliest` up to `end`."""

    topic: str
    partition: int
    earliest: int
    end: int


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """One backup.

    Attributes:
        taken_ms: when it began, in ms since 1970; everything flushed by then is in it.
        was_running: whether a broker was using that.
        faults: what of the source could not be backed up.
        notes: what was left out or happened meanwhile without a loss.
        damaged: what of it is damaged, as the source was; None where nobody has looked.
    """

    hermes: str
    taken_ms: int
    source: str
    was_running: bool
    partitions: Sequence[PartitionExtent]
    files: Sequence[ManifestFile]
    faults: Sequence[str] = field(default=())
    notes: Sequence[str] = field(default=())
    damaged: Sequence[DamagedRange] | None = field(default=())

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.files)

    def encode(self) -> bytes:
        body = {
            "format": _FORMAT,
            "hermes": self.hermes,
            "taken_ms": self.taken_ms,
            "source": self.source,
            "was_running": self.was_running,
            "partitions": list(self.partitions),
            "files": list(self.files),
            "faults": list(self.faults),
            "notes": list(self.notes),
            "damaged": None if self.damaged is None else list(self.damaged),
        }
        return json.dumps({**body, "checksum": _checksum(body)}).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> "BackupManifest":
        """Read a manifest's file. Raises StorageError."""
        try:
            body = json.loads(data)
            checksum = body.pop("checksum")
            if body["format"] != _FORMAT:
                raise StorageError(
                    f"it has format {body['format']}; this version of Hermes knows {_FORMAT}"
                )
            if checksum != _checksum(body):
                raise StorageError("its checksum is wrong: it is damaged")
            return cls._of(body)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise StorageError("it is damaged: it isn't what Hermes writes") from error

    @classmethod
    def _of(cls, body: Mapping[str, Any]) -> "BackupManifest":
        return cls(
            hermes=body["hermes"],
            taken_ms=body["taken_ms"],
            source=body["source"],
            was_running=body["was_running"],
            partitions=tuple(map(_partition, body["partitions"])),
            files=tuple(map(_stored_file, body["files"])),
            faults=tuple(body["faults"]),
            notes=tuple(body["notes"]),
            damaged=_damaged(body.get("damaged")),
        )


def _checksum(body: Mapping[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _partition(values: Sequence[Any]) -> PartitionExtent:
    extent = PartitionExtent(*values)
    name = partition_directory(extent.topic, extent.partition)
    if parse_partition_directory(name) != extent[:2]:
        raise StorageError(f"it names {name!r}, which is no partition of a backup")
    return extent


def _stored_file(values: Sequence[Any]) -> ManifestFile:
    path, size_bytes, sha256, mtime_ns, mode, found = values
    _check_path(path)
    identity = None if found is None else FileIdentity(*found)
    return ManifestFile(path, size_bytes, sha256, mtime_ns, mode, identity)


def _damaged(values: Sequence[Any] | None) -> tuple[DamagedRange, ...] | None:
    if values is None:  # the version that has written it didn't look
        return None
    found = tuple(DamagedRange(*each) for each in values)
    for each in found:
        _check_path(each.path)
    return found


def _check_path(path: str) -> None:
    """Refuse what doesn't name a file in the backup's data, or in a partition's directory there."""
    parts = PurePosixPath(path).parts
    if parts[:1] != (DATA,) or not 2 <= len(parts) <= 3 or ".." in parts or "\0" in path:
        raise StorageError(f"it names {path!r}, which is no file of a backup")
