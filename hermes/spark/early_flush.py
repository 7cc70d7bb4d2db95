"""Flushing files while they are still written, so that less is left to wait for at the end.

A load flushes its data before it commits them. The disk has little to do while Spark reads and
encodes; a thread of the driver has it write by then what files have so far.

Nothing relies on this: whoever needs data to be durable flushes all of them afterwards
(`FileStore.flush_tree`). But Linux reports a lost write once, to whoever asks first. So an error
that this thread gets is raised at the end, since the later flush may not be told of it.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

from hermes.spark.file_system import LocalFileSystem
from hermes.spark.stores import FileStore

_SECONDS: Final = 0.25
# Each flush costs a commit of the file system's journal; what is less is left for the end.
_LEAST_BYTES: Final = 16 * 1024 * 1024
_GONE: Final = {errno.ENOENT, errno.ESTALE}


def flushed_early(store: FileStore, directory: str) -> AbstractContextManager[None]:
    """While the block runs, flush what is written into a directory of this machine by and by.

    After an OSError what was written may be lost, and must not count.
    """
    if store.path is None:
        return nullcontext()
    return _flushing(store.path / directory, LocalFileSystem().sync)


@contextmanager
def _flushing(
    directory: Path,
    sync: Callable[[Path], None],
    seconds: float = _SECONDS,
    least_bytes: int = _LEAST_BYTES,
) -> Iterator[None]:
    ended = threading.Event()
    failures: list[OSError] = []

    def flush() -> None:
        flushed: dict[tuple[int, int], int] = {}
        try:
            while not ended.wait(seconds):
                for path, status in _files(directory):
                    number = status.st_dev, status.st_ino  # Spark moves what a task has written
                    is_due = status.st_size - flushed.get(number, 0) >= least_bytes
                    if is_due and not ended.is_set() and _flush(path, sync):
                        flushed[number] = status.st_size
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=flush, name="hermes early flush", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failures:
        raise failures[0]


def _files(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            try:
                status = path.stat()
            except OSError:
                continue  # its task has moved or removed it meanwhile
            yield path, status


def _flush(path: Path, sync: Callable[[Path], None]) -> bool:
    try:
        sync(path)
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return False
    return True
