"""What a message search looks for, and what it finds, as values."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from hermes.console.payload_display import DisplayedValue, ValueReader

STARTS: Final = ("last", "beginning", "offset", "time")

_PROGRESS_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """What a search looks for.

    Attributes:
        start: one of `STARTS`.
        value: the offset or the ms since 1970 to start from; with `last`, the offset to end
            before, or -1 for the end.
        count: how many messages to show.
        scan: how many to look at.
        matches: None for all.
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
        partition: `BROKER-NUMBER`, for links.
        offset: where it starts; in a compressed set, where that starts.
        next_offset: where what follows it, or its set, starts.
        size_bytes: of its payload.
        time_ms: when it was appended, in ms since 1970; None where that isn't known.
        codec: of the compressed set that it is in; empty if it is in none.
        index: its position within the set, from 0.
        key, headers: a record's.
        is_tombstone: whether it is a record without a value; the payload is empty then.
        label: the partition for people.
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
        """The key, or the JSON of the record that it is."""
        return None if self.key is None else self.reader.shown_key(self.key)

    @property
    def value(self) -> DisplayedValue:
        """The payload for people. Computed on demand: few of the messages found are shown."""
        return self.reader.show(self.payload)


@dataclass(frozen=True, slots=True)
class UnreadableRange:
    """`partition`: `BROKER-NUMBER`, for links; `label`: for people.

    `next_offset`: where the next good message starts; None if none was found.
    """

    kind: ClassVar[str] = "damage"

    partition: str
    offset: int
    next_offset: int | None
    reason: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """How far a search has come; the bytes are messages where offsets count these."""

    kind: ClassVar[str] = "progress"

    scanned: int
    found: int
    scanned_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class SearchEnd:
    """The end of a search.

    Attributes:
        is_limited: whether it stopped at the limit of how many it may look at.
        first_offsets: by partition, where the first shown message starts.
        next_offsets: by partition, where to continue.
    """

    kind: ClassVar[str] = "end"

    scanned: int
    found: int
    is_limited: bool
    first_offsets: dict[str, int]
    next_offsets: dict[str, int]
    errors: tuple[str, ...]


class ScanCounter:
    def __init__(self, total_bytes: int) -> None:
        self.count = self.found = self.bytes = 0
        self.total_bytes = total_bytes
        self._said_at = time.monotonic()

    def progress(self) -> Iterator[SearchProgress]:
        now = time.monotonic()
        if now - self._said_at >= _PROGRESS_SECONDS:
            self._said_at = now
            yield SearchProgress(self.count, self.found, self.bytes, self.total_bytes)


def newest_first(
    parts: Iterable[Iterable[FoundMessage | UnreadableRange]],
) -> list[FoundMessage | UnreadableRange]:
    """Merge partitions' results by time, keeping each partition's order.

    What has no time of its own, damage above all, stays behind what is before it.
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
