"""What an operator does about the embedded server's file: see how it is, restore a copy of it.

A restored copy is of some time ago. It begins without sessions and ephemeral nodes, so that every
client opens a new session and owns nothing that it may have lost meanwhile; and with a zxid above
all that the old file can have given out, so that no client seems to come from the future. Offsets
are those of that time: groups repeat what they consumed since, and skip nothing, unless an offset
was set back by hand meanwhile.
"""

import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from hermes.coordination.embedded.database import (
    FORMAT,
    Stored,
    connect,
    read,
    write_new,
)
from hermes.coordination.embedded.store import BESIDE, snapshot_path
from hermes.coordination.embedded.zookeeper_errors import DamagedError
from hermes.coordination.kafka_groups import KAFKA_GROUPS
from hermes.coordination.layout import CONSUMERS
from hermes.errors import StorageError

__all__ = ["Condition", "condition_of", "restore", "snapshot_path"]

_EPOCH_BITS = 32  # as in ZooKeeper's zxid: a new leader counts in a new epoch


class Condition(NamedTuple):
    """What one file holds.

    Attributes:
        groups: how many groups of consumers have a node, of Hermes' and of Kafka's clients.
        sessions: how many were alive.
        taken_ms: of a snapshot: when it was taken, in ms since 1970; else None.
    """

    nodes: int
    groups: int
    sessions: int
    taken_ms: int | None


def condition_of(path: Path) -> Condition:
    """Read and check a file; blocks. StorageError: it is missing, damaged, or in use."""
    return _condition(_read(path))


def _condition(stored: Stored) -> Condition:
    parents = Counter(node.path.rpartition("/")[0] for node in stored.nodes)
    groups = parents[CONSUMERS] + parents[KAFKA_GROUPS]
    return Condition(len(stored.nodes), groups, len(stored.sessions), stored.taken_ms)


def restore(path: Path, source: Path) -> Condition:
    """Put a copy, the snapshot or another, in the place of the embedded server's file; blocks.

    The present file is kept beside it, its name ending in `.damaged`. Raises StorageError: the
    source can't be used, or a broker serves from the file. Nothing was changed.
    """
    stored = _read(source)
    _check_unused(path)
    nodes = tuple(node for node in stored.nodes if not node.owner)
    newest = max(_newest_zxid(each, stored.zxid) for each in (path, snapshot_path(path)))
    zxid = ((newest >> _EPOCH_BITS) + 1) << _EPOCH_BITS
    try:
        restored = path.with_name(f"{path.name}.restored")
        write_new(restored, Stored(nodes, (), zxid))
        damaged = path.with_name(f"{path.name}.damaged")
        for suffix in ("", *BESIDE):
            old = path.with_name(path.name + suffix)
            if os.path.lexists(old):
                os.replace(old, damaged.with_name(damaged.name + suffix))
        os.replace(restored, path)
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"can't restore {path}: {error}") from error
    return _condition(stored)


def _read(path: Path) -> Stored:
    if not path.is_file():
        raise StorageError(f"there is no file {path}")
    try:
        with closing(connect(path)) as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > FORMAT:
                raise StorageError(
                    f"{path} has format {version}; this version of Hermes knows {FORMAT}"
                )
            return read(database)[0]
    except (sqlite3.Error, OSError, ValueError, TypeError, KeyError, DamagedError) as error:
        if "locked" in str(error):
            text = f"{path} can't be looked at while a broker serves from it; its snapshot can"
            raise StorageError(text) from error
        raise StorageError(f"{path} can't be used: {error}") from error


def _check_unused(path: Path) -> None:
    if not path.is_file():
        return
    try:
        with closing(connect(path)) as database:
            database.execute("SELECT count(*) FROM sqlite_master").fetchall()
    except sqlite3.Error as error:
        if "locked" in str(error):
            raise StorageError(f"a broker serves from {path}: stop it first") from error


def _newest_zxid(path: Path, zxid: int) -> int:
    """The newest zxid of an old file, if that can still be read and is plausible."""
    if not path.is_file():  # SQLite would make one
        return zxid
    try:
        with closing(connect(path)) as database:
            (found,) = database.execute("SELECT value FROM counter WHERE name = 'zxid'").fetchone()
    except (sqlite3.Error, TypeError):
        return zxid
    return found if isinstance(found, int) and zxid < found < zxid + (1 << 40) else zxid
