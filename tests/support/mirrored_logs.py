"""A log that two mirrors and a producer append to, and what must hold of it after any crash.

A mirror copies a source, whose messages are numbered, from where the log has it: in batches of its
own bytes, or of every other message of a range. It remembers nothing but what was acknowledged as
flushed.
"""

from dataclasses import dataclass
from pathlib import Path

from storage_logs import NOW_MS, append, message, read_all, settings

from hermes.protocol import SourceFlags
from hermes.storage import FileLayer, Log, SourceRange

__all__ = ["MirroredLog", "SourceCopy"]

#: Every message has this length in a log.
SIZE = 20


@dataclass
class SourceCopy:
    """A source and a mirror of it.

    Attributes:
        name: the source's name.
        is_verbatim: whether it is copied byte for byte; else every other message is left out.
        acknowledged: up to where it was acknowledged as flushed.
    """

    name: str
    is_verbatim: bool
    acknowledged: int = 0

    def message(self, number: int) -> bytes:
        """The source's message of a number."""
        data = message(f"{self.name}{number:09d}")
        assert len(data) == SIZE
        return data

    def batch(self, begin: int, count: int) -> tuple[SourceRange, list[bytes]]:
        """A range of so many messages from an offset on, and what stands for it."""
        first = begin // SIZE
        flags = SourceFlags.VERBATIM if self.is_verbatim else SourceFlags.NONE
        wanted = SourceRange(self.name, begin, begin + count * SIZE, flags)
        return wanted, self.expected(first, first + count)

    def expected(self, first: int, end: int) -> list[bytes]:
        """What a log must have of the messages of some numbers."""
        step = 1 if self.is_verbatim else 2
        return [self.message(number) for number in range(first, end) if number % step == 0]


class MirroredLog:
    """One life of a log.

    Args:
        directory: the partition's directory.
        files: the file layer.
        copies: the sources with what was acknowledged in earlier lives.
        segment_bytes: when the log rolls.
    """

    def __init__(
        self, directory: Path, files: FileLayer, copies: list[SourceCopy], segment_bytes: int = 150
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.copies = copies
        topic, _, partition = directory.name.rpartition("-")
        self.log = Log(topic, int(partition), str(directory), settings(segment_bytes), files)
        self.now_ms = NOW_MS
        self.locals = 0

    def open(self, *, clean: bool = False) -> None:
        """Bring it into service."""
        self.log.open(clean=clean, now_ms=self.now_ms)

    def copy(self, source: SourceCopy, count: int = 2) -> int | None:
        """Append the next messages of a source, as a mirror that asks for the position."""
        begin = max(self.log.sources.position(source.name), 0)
        return self.send(source, begin, count)

    def send(self, source: SourceCopy, begin: int, count: int) -> int | None:
        """Append some messages of a source, as a mirror that doesn't ask."""
        wanted, messages = source.batch(begin, count)
        data = b"".join(messages)
        self.now_ms += 1
        if not self.log.sources.takes_ranges:
            self.log.sources.begin()
        return self.log.sources.append_range(wanted, [data], len(data), len(messages), self.now_ms)

    def produce(self) -> None:
        """Append a message of a producer."""
        self.locals += 1
        append(self.log, message(f"p{self.locals:09d}"), now_ms=self.now_ms)

    def flush(self) -> None:
        """Flush, and acknowledge what there was."""
        positions = {each.name: self.log.sources.position(each.name) for each in self.copies}
        self.log.flush()
        for each in self.copies:
            each.acknowledged = max(each.acknowledged, positions[each.name])

    def check(self) -> None:
        """Nothing of a source is there twice, nothing that was acknowledged is missing."""
        content = read_all(self.log)
        found = [content[n : n + SIZE] for n in range(0, len(content), SIZE)]
        for each in self.copies:
            position = max(self.log.sources.position(each.name), 0)
            assert position >= each.acknowledged, f"{each.name} is here up to {position}"
            expected = each.expected(0, position // SIZE)
            mine = [data for data in found if data[10:11] == each.name.encode()]
            # Retention may have taken the first of them.
            missing = len(expected) - len(mine) if self.log.earliest else 0
            assert mine == expected[missing:], f"{each.name}: {mine[:3]} ... of {len(mine)}"
        self._check_spans(content)

    def _check_spans(self, content: bytes) -> None:
        """Each span leads to what it says."""
        _, positions = self.log.sources.positions(0, 100)
        names = {each.number: each.source for each in positions}
        by_name = {each.name: each for each in self.copies}
        for span in self.log.sources.spans(0, 10_000)[1]:
            if span.log_begin < self.log.earliest:
                continue
            source = by_name[names[span.number]]
            part = content[span.log_begin - self.log.earliest : span.log_end - self.log.earliest]
            wanted = source.expected(span.source_begin // SIZE, span.source_end // SIZE)
            if span.flags & SourceFlags.VERBATIM:
                assert part == b"".join(wanted)
            else:
                mine = [part[n : n + SIZE] for n in range(0, len(part), SIZE)]
                assert [each for each in mine if each in wanted] == wanted
