"""Keeps cold disk pages off the reactor: probes the page cache, and warms what is missing.

`sendfile` on pages that are not in memory blocks the whole reactor for milliseconds. One byte
read with `RWF_NOWAIT` tells whether its page is there (1.5 us); residency is patchy, so a range
is probed every `PROBE_STEP_BYTES`. On a miss a worker thread reads a bounded window of the file,
which costs the reactor nothing, and the send continues when the window is warm.
"""

import errno
import os
from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred

#: Distance between two probes, twice the kernel's usual read-ahead: reads leave gaps of whole
#: read-aheads, so a gap that falls between two probes costs one read of the disk at the most.
PROBE_STEP_BYTES = 256 * 1024

#: How much one warm-up reads at the most, and so what one connection may ask of a thread.
WINDOW_BYTES = 2 * 1024 * 1024

_READ_BYTES = 256 * 1024
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class PageCache:
    """Probes and warms ranges of files; one per broker.

    `warmed` counts windows since the start; `warming` those under way or waiting for a thread.
    """

    def __init__(self, in_thread: Callable[..., "Deferred[Any]"]) -> None:
        self._in_thread = in_thread
        self._can_probe = bool(_NOWAIT) and hasattr(os, "preadv")
        self._probe = bytearray(1)
        self.warmed = self.warming = 0

    def resident_until(self, fd: int, start: int, end: int) -> int:
        """How far the file is in memory from `start`, as far as probes can tell.

        Returns:
            `end` (exclusive) when every probe hit; else the first miss. `start` where the file
            system can't be probed: a thread then warms it first, which is cheap for hot pages.
        """
        if not self._can_probe:
            return start
        probe = [self._probe]
        positions: Iterable[int] = (*range(start, end, PROBE_STEP_BYTES), end - 1)
        for position in positions:
            try:
                os.preadv(fd, probe, position, _NOWAIT)
            except BlockingIOError:
                return position
            except OSError as error:
                if error.errno in (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL):
                    self._can_probe = False
                    return start
                raise
        return end

    def warm(self, fd: int, start: int, end: int) -> "Deferred[int]":
        """Read a window from `start` in a worker thread; the caller keeps `fd` open until then.

        The Deferred has the position up to which it was read; it fails with OSError.
        """
        self.warmed += 1
        self.warming += 1
        window: Deferred[int] = self._in_thread(
            _read_through, fd, start, min(end, start + WINDOW_BYTES)
        )
        return window.addBoth(self._ended)

    def _ended(self, result: Any) -> Any:
        self.warming -= 1
        return result


def _read_through(fd: int, start: int, end: int) -> int:
    scratch = memoryview(bytearray(min(_READ_BYTES, end - start)))
    position = start
    while position < end and (count := os.preadv(fd, [scratch[: end - position]], position)):
        position += count
    return end
