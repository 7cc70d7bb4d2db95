"""Lines of a file or a stream, in batches: full ones from a file, what is there from a live stream.

A line is bytes up to a newline, which is not part of it; any other byte may be in it. The last
line may lack its newline.
"""

import os
import select
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from hermes.errors import ClientError

__all__ = ["ByteSource", "DescriptorSource", "LineBatch", "LineTooLongError", "read_batches"]

_READ_BYTES = 256 * 1024


class LineTooLongError(ClientError):
    """A line is longer than a message may be.

    Attributes:
        line_number: counted from 1.
    """

    def __init__(self, line_number: int, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"line {line_number} is longer than {limit_bytes} bytes, the largest message that the "
            f"broker takes (max_message_bytes); at least {size_bytes} were read"
        )
        self.line_number = line_number


@dataclass(frozen=True, slots=True)
class LineBatch:
    """Consecutive lines.

    Attributes:
        first_line: the number of the first one, counted from 1.
        lines: one or more, without their newlines.
        byte_count: the size of all of them, newlines not counted.
    """

    first_line: int
    lines: list[bytes]
    byte_count: int


class ByteSource(Protocol):
    """Where bytes come from."""

    def read(self) -> bytes:
        """The next bytes, as soon as there are some; b"" at the end."""

    def wait(self, seconds: float) -> bool:
        """Whether `read` will return at once, after waiting for that long at most."""


class DescriptorSource:
    """A file, pipe or terminal behind a descriptor, which stays the caller's.

    Args:
        descriptor: open for reading.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def read(self) -> bytes:
        """The next bytes, as soon as there are some; b"" at the end."""
        return os.read(self._descriptor, _READ_BYTES)

    def wait(self, seconds: float) -> bool:
        """Whether `read` will return at once, after waiting for that long at most."""
        return bool(self._poll.poll(seconds * 1000))


def read_batches(
    source: ByteSource,
    *,
    max_lines: int,
    max_batch_bytes: int,
    max_line_bytes: int,
    linger_seconds: float,
    delimiter: bytes = b"\n",
) -> Iterator[LineBatch]:
    """Split a source into batches of lines.

    A batch is handed out when it is full, or when the source has been silent for the linger, so
    that a line typed or logged now does not wait for others.

    Args:
        source: read to its end.
        max_lines: lines in a batch; 1 or more.
        max_batch_bytes: a batch above this is handed out; a longer line is a batch of its own.
        max_line_bytes: the longest line allowed; memory is bounded by it and one batch.
        linger_seconds: how long an incomplete batch waits for more; 0 or more.
        delimiter: what ends a line; one byte or more.

    Yields:
        The lines in order; an empty line is one too.

    Raises:
        LineTooLongError: after everything before that line has been yielded.
    """
    splitter = _Splitter(max_line_bytes, delimiter)
    pending = _Pending(max_lines, max_batch_bytes)
    try:
        while data := source.read():
            for line in splitter.feed(data):
                yield from pending.add(line)
            splitter.refuse_overlong_rest()
            if pending.lines and not source.wait(linger_seconds):
                yield from pending.take()
        for line in splitter.finish():
            yield from pending.add(line)
    except LineTooLongError:
        yield from pending.take()
        raise
    yield from pending.take()


class _Splitter:
    """Bytes to lines; keeps at most one incomplete line."""

    def __init__(self, max_line_bytes: int, delimiter: bytes) -> None:
        self._limit = max_line_bytes
        self._delimiter = delimiter
        self._rest = bytearray()
        self._count = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        if joint := len(self._delimiter) - 1:
            # A delimiter may have begun with what was read last.
            data = bytes(self._rest[-joint:]) + data
            del self._rest[-joint:]
        first, delimiter, others = data.partition(self._delimiter)
        self._rest += first
        if delimiter:
            yield self._checked(bytes(self._rest))
            self._rest.clear()
            lines = others.split(self._delimiter)
            self._rest += lines.pop()
            for line in lines:
                yield self._checked(line)

    def finish(self) -> Iterator[bytes]:
        if self._rest:
            yield self._checked(bytes(self._rest))

    def refuse_overlong_rest(self) -> None:
        if len(self._rest) > self._limit:
            raise LineTooLongError(self._count + 1, len(self._rest), self._limit)

    def _checked(self, line: bytes) -> bytes:
        self._count += 1
        if len(line) > self._limit:
            raise LineTooLongError(self._count, len(line), self._limit)
        return line


class _Pending:
    """The batch that is being filled."""

    def __init__(self, max_lines: int, max_bytes: int) -> None:
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._first_line = 1
        self._byte_count = 0
        self.lines: list[bytes] = []

    def add(self, line: bytes) -> Iterator[LineBatch]:
        if self.lines and self._byte_count + len(line) > self._max_bytes:
            yield from self.take()
        self.lines.append(line)
        self._byte_count += len(line)
        if len(self.lines) >= self._max_lines:
            yield from self.take()

    def take(self) -> Iterator[LineBatch]:
        if not self.lines:
            return
        batch = LineBatch(self._first_line, self.lines, self._byte_count)
        self._first_line += len(self.lines)
        self.lines, self._byte_count = [], 0
        yield batch
