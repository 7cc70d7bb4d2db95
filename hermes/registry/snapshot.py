r"""The file that makes a start quick: a registry's state up to an offset of its topic.

    hermes-registry-snapshot 1 <CRC-32 of the body, 8 hex digits> <length of the body>\n
    <body: JSON>

It is written beside and renamed, so it is whole or not there, also after a power loss. It can be
deleted at any time: the state is then read from the topic's start.
"""

import json
import logging
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from hermes.errors import StorageError
from hermes.registry.home import HomeBroker
from hermes.registry.replica import Replica

_log = logging.getLogger(__name__)

_HEAD: Final = b"hermes-registry-snapshot 1 %08x %d\n"
_HEAD_READ: Final = re.compile(rb"hermes-registry-snapshot ([0-9]+) ([0-9a-f]{8}) ([0-9]+)\n")
_MOST_HEAD_BYTES: Final = 100
_LEAST_NEW_EVENTS: Final = 100


class SnapshotFile:
    """One snapshot at one path, whose directory exists. Blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Any] | None:
        """Read what was written last; None if there is nothing. Raises StorageError."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror or error}") from error
        head = _HEAD_READ.match(content[:_MOST_HEAD_BYTES])
        if head is None:
            raise StorageError(f"{self.path} is not a registry's snapshot")
        version, crc, length = int(head[1]), int(head[2], 16), int(head[3])
        if version != 1:
            raise StorageError(f"{self.path} has format {version}: a newer Hermes wrote it")
        body = content[head.end() :]
        if len(body) != length or zlib.crc32(body) != crc:
            raise StorageError(f"{self.path} is damaged: its checksum or its length is wrong")
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise StorageError(f"{self.path} is damaged: {error}") from error
        if not isinstance(value, dict):
            raise StorageError(f"{self.path} is not a registry's snapshot")
        return value

    def write(self, value: dict[str, Any]) -> None:
        """Replace it. Raises StorageError: the disk refused; what was there before still is."""
        body = "".join(_pieces(value)).encode()
        temporary = self.path.with_name(self.path.name + ".tmp")
        try:
            with temporary.open("wb") as file:
                file.write(_HEAD % (zlib.crc32(body), len(body)))
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
            _sync_directory(self.path.parent)
        except OSError as error:
            with suppress(OSError):  # of a disk that takes nothing any more
                temporary.unlink(missing_ok=True)
            raise StorageError(f"can't write {self.path}: {error.strerror or error}") from error


def _pieces(value: Any) -> Iterator[str]:
    """Write JSON piece by piece, so that a broker's reactor gets its turns in between."""
    if isinstance(value, dict):
        for number, (key, each) in enumerate(value.items()):
            yield f"{',' if number else '{'}{json.dumps(key)}:"
            yield from _pieces(each)
        yield "}" if value else "{}"
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield "," if number else "["
            yield json.dumps(each, separators=(",", ":"))
        yield "]" if value else "[]"
    else:
        yield json.dumps(value)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Snapshots:
    """Keeps a copy's state in a file, if there is one. For the thread that feeds the copy."""

    def __init__(self, file: SnapshotFile | None, replica: Replica) -> None:
        self.file = file
        self._replica = replica
        # How many events it covers, and how many what was tried last would have covered.
        self._written = self._tried = 0
        self._problem = ""

    def load(self) -> int | None:
        """Restore the copy from the file.

        Returns the id of the broker that was the home, -1 if none was known; None when there is no
        snapshot, or none that can be used, which is logged.
        """
        if self.file is None:
            return None
        try:
            value = self.file.read()
            if value is None:
                return None
            self._replica.restore(value)
        except (StorageError, ValueError) as error:
            _log.warning("the whole topic is read, as its snapshot can't be used: %s", error)
            return None
        self._written = self._replica.mark.events
        home = value.get("home")
        return home if type(home) is int else -1

    def write_if_due(self, home: HomeBroker | None) -> None:
        """Write one if much has come since the last: then a start would take long."""
        events = self._replica.mark.events
        if events - max(self._written, self._tried) > max(_LEAST_NEW_EVENTS, events // 4):
            self.write(home)

    def write(self, home: HomeBroker | None) -> None:
        """Write one unless nothing has come since the last; a failure is logged."""
        events = self._replica.mark.events
        if self.file is None or events == self._written:
            return
        self._tried = events
        value = self._replica.to_json()
        value["home"] = -1 if home is None else home.broker_id
        try:
            self.file.write(value)
        except StorageError as error:
            if str(error) != self._problem:
                _log.warning("no snapshot of the registry: %s", error)
            self._problem = str(error)
            return
        self._written, self._problem = events, ""
