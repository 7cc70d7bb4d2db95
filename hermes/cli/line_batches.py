"""Splits a file or a stream into batches of lines: full ones, or what has come so far of a stream.

A line ends before a newline (or another delimiter); the last one may lack it.
"""

import os
import select
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from hermes.errors import ClientError
from hermes.protocol import Message

_READ_BYTES = 256 * 1024


class LineTooLongError(ClientError):
    def __init__(self, line_number: int, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"line {line_number} is longer than {limit_bytes} bytes, the largest message that the "
            f"broker accepts (max_message_bytes); at least {size_bytes} were read"
        )


@dataclass(frozen=True, slots=True)
class LineBatch:
    """Consecutive lines.

    Attributes:
        lines: one or more, without their newlines.
        byte_count: the size of all of them, newlines not counted.
        messages: where lines are payloads that were read, the message of each, whose key, headers
            and time go with it; empty for lines that have nothing else.
    """

    lines: list[bytes]
    byte_count: int
    messages: Sequence[Message] = ()


class ByteSource(Protocol):
    def read(self) -> bytes:
        """The next bytes, as soon as there are some; b"" at the end."""

    def wait(self, seconds: float) -> bool:
        """Wait up to that long; return whether `read` would return at once."""


class DescriptorSource:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def read(self) -> bytes:
        return os.read(self._descriptor, _READ_BYTES)

    def wait(self, seconds: float) -> bool:
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

    A batch is yielded when it is full, or when nothing has come for `linger_seconds`, so that a
    line typed or logged now does not wait for others.

    Args:
        max_lines: lines in a batch; 1 or more.
        max_batch_bytes: no batch is larger, unless it is a single longer line.
        max_line_bytes: the longest line allowed; bounds memory, together with one batch.
        linger_seconds: how long an incomplete batch waits for more lines; 0 or more.
        delimiter: what ends a line; one byte or more.

    Yields:
        The lines in order; an empty line is one too.

    Raises:
        LineTooLongError: a line is too long; everything before it has been yielded.
    """
    batcher = _Batcher(max_lines, max_batch_bytes, max_line_bytes, delimiter)
    try:
        while data := source.read():
            yield from batcher.feed(data)
            if batcher.lines and not source.wait(linger_seconds):
                yield from batcher.take()
        yield from batcher.finish()
    except LineTooLongError:
        yield from batcher.take()
        raise


class _Batcher:
    """Splits bytes into lines and these into batches; keeps one batch and one incomplete line."""

    def __init__(
        self, max_lines: int, max_batch_bytes: int, max_line_bytes: int, delimiter: bytes
    ) -> None:
        self._max_lines = max_lines
        self._max_batch_bytes = max_batch_bytes
        self._max_line_bytes = max_line_bytes
        self._delimiter = delimiter
        self._rest = bytearray()
        self._count = 0
        self._byte_count = 0
        self.lines: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[LineBatch]:
        if joint := len(self._delimiter) - 1:
            # A delimiter may have begun at the end of what was read before.
            data = bytes(self._rest[-joint:]) + data
            del self._rest[-joint:]
        first, delimiter, others = data.partition(self._delimiter)
        self._rest += first
        if delimiter:
            yield from self._add(bytes(self._rest))
            self._rest.clear()
            lines = others.split(self._delimiter)
            self._rest += lines.pop()
            for line in lines:
                yield from self._add(line)
        if len(self._rest) > self._max_line_bytes:
            raise LineTooLongError(self._count + 1, len(self._rest), self._max_line_bytes)

    def finish(self) -> Iterator[LineBatch]:
        if self._rest:
            yield from self._add(bytes(self._rest))
        yield from self.take()

    def take(self) -> Iterator[LineBatch]:
        if self.lines:
            batch = LineBatch(self.lines, self._byte_count)
            self.lines, self._byte_count = [], 0
            yield batch

    def _add(self, line: bytes) -> Iterator[LineBatch]:
        self._count += 1
        if len(line) > self._max_line_bytes:
            raise LineTooLongError(self._count, len(line), self._max_line_bytes)
        if self._byte_count + len(line) > self._max_batch_bytes:
            yield from self.take()
        self.lines.append(line)
        self._byte_count += len(line)
        if len(self.lines) >= self._max_lines:
            yield from self.take()
