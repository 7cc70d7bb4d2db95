"""What the pages with messages show, as values: what is looked for, and what a search finds."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from hermes.console.values import DisplayedValue, ValueReader

STARTS: Final = ("last", "beginning", "offset", "time")

_PROGRESS_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """What is looked for.

    Attributes:
        start: one of `STARTS`.
        value: the offset or the ms since 1970 to start from; with `last`, the offset to end
            before, or -1 for the end.
        count: how many messages to show.
        scan: how many to look at.
        matches: chooses; None takes all.
        reader: shows the payloads.
    """

    start: str
    value: int
    count: int
    scan: int
    matches: "Callable[[FoundMessage], bool] | None"
    reader: ValueReader


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message.

    Attributes:
        partition: the partition's name, `BROKER-NUMBER`, which links carry.
        offset: where it starts; inside a compressed set, where that starts.
        next_offset: where what follows it, or its set, starts.
        size_bytes: of its payload.
        time_ms: when it was appended, in ms since 1970; None where that isn't known.
        payload: its bytes.
        reader: makes them readable.
        codec: the codec of the compressed set that it is in; empty if it is in none.
        index: its place within that, from 0.
        set_count: how many messages that holds.
        set_bytes: how many bytes that takes.
        key: a record's; None if it has none.
        headers: a record's.
        is_tombstone: whether it is a record without a value; its payload is empty then.
        label: what people read for its partition.
    """

    kind: ClassVar[str] = "message"

    partition: str
    offset: int
    next_offset: int
    size_bytes: int
    time_ms: int | None
    payload: bytes
    reader: ValueReader
    codec: str = ""
    index: int = 0
    set_count: int = 0
    set_bytes: int = 0
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    is_tombstone: bool = False
    label: str = ""

    @property
    def shown_key(self) -> bytes | None:
        """Its key, or the JSON of the record that this is."""
        return None if self.key is None else self.reader.shown_key(self.key)

    @property
    def value(self) -> DisplayedValue:
        """Its payload made readable, when somebody looks: few of those found are shown."""
        return self.reader.show(self.payload)


@dataclass(frozen=True, slots=True)
class UnreadableRange:
    """A place of a partition that can't be read.

    Attributes:
        partition: the partition's name.
        offset: where it starts.
        next_offset: where the next good message starts; None if none was found.
        reason: what is wrong.
        label: what people read for its partition.
    """

    kind: ClassVar[str] = "damage"

    partition: str
    offset: int
    next_offset: int | None
    reason: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """How far a search has come.

    Attributes:
        scanned: how many messages it has looked at.
        found: how many of them are wanted.
        scanned_bytes: how far it has come; in messages where offsets count these.
        total_bytes: how far it would have to go.
    """

    kind: ClassVar[str] = "progress"

    scanned: int
    found: int
    scanned_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class SearchEnd:
    """The end of a search.

    Attributes:
        scanned: how many messages it has looked at.
        found: how many it has shown.
        is_limited: whether it stopped at the limit of how many it may look at.
        first_offsets: of each partition of which something is shown, where that starts.
        next_offsets: of each partition that was read, where to continue.
        errors: what failed, for people.
    """

    kind: ClassVar[str] = "end"

    scanned: int
    found: int
    is_limited: bool
    first_offsets: dict[str, int]
    next_offsets: dict[str, int]
    errors: tuple[str, ...]


class ScanCounter:
    """What is counted over all partitions.

    Args:
        total_bytes: how far there is to go.
    """

    def __init__(self, total_bytes: int) -> None:
        self.count = self.found = self.bytes = 0
        self.total_bytes = total_bytes
        self._said_at = time.monotonic()

    def progress(self) -> Iterator[SearchProgress]:
        """Say how far it is, unless that was said a moment ago."""
        now = time.monotonic()
        if now - self._said_at >= _PROGRESS_SECONDS:
            self._said_at = now
            yield SearchProgress(self.count, self.found, self.bytes, self.total_bytes)


def newest_first(
    parts: Iterable[Iterable[FoundMessage | UnreadableRange]],
) -> list[FoundMessage | UnreadableRange]:
    """Sort what was found, by time, and within a partition by place.

    What has no time of its own, damage above all, stays behind what is before it.

    Args:
        parts: of each partition what was found there, by place.
    """
    found: list[tuple[tuple[int, str, int, int], FoundMessage | UnreadableRange]] = []
    for part in parts:
        time_ms = -1
        for each in part:
            index = 0
            if isinstance(each, FoundMessage):
                index = each.index
                time_ms = max(time_ms, -1 if each.time_ms is None else each.time_ms)
            found.append(((time_ms, each.partition, each.offset, index), each))
    found.sort(key=lambda each: each[0], reverse=True)
    return [each for _, each in found]
