"""What a log needs to know of the bytes that it keeps: a format.

Logs, their segments, flushes, recovery, retention and deletes speak of *offsets*: an append is
given the next ones, a segment is named by its first one. What lies in a segment's file at which
*position* is for a format to say: how frames (what is appended and dropped as a whole: in 0.7 a
message) are walked, checked and counted, and how an offset becomes a position (0.7's: `kafka_0_7`).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from hermes.storage.files import FileLayer
from hermes.storage.time_index import TimeIndex


class NamedSegment(Protocol):
    @property
    def base_offset(self) -> int: ...

    @property
    def path(self) -> str: ...

    @property
    def index(self) -> TimeIndex: ...


class OpenSegment(NamedTuple):
    """A segment whose bytes a format may read: its file is open as `descriptor`."""

    segment: NamedSegment
    files: FileLayer
    descriptor: int


class ScanReport(NamedTuple):
    """What a scan of a part of a segment found.

    Attributes:
        valid_end: the offset after the last valid frame (where the scan began if there is none).
        valid_bytes: the position after it.
        messages: how many messages the valid frames hold, as far as the format counts them.
        bad_ranges: (start, end) offsets of bytes that aren't valid frames but are followed by one.
    """

    valid_end: int
    valid_bytes: int
    messages: int
    bad_ranges: Sequence[tuple[int, int]]


class LogFormat(Protocol):
    """One format. It has no state: what it remembers of a segment is in the segment's index.

    All but `new_index` read the segment, and may raise `OSError`.

    Attributes:
        name: what people call it: the value of the topics' setting `format`.
        suffix: what a segment's file ends in, once all that comes before it is on disk.
        index_suffix: what the file of a segment's `TimeIndex` ends in.
        counts_messages: whether an offset counts messages; else it counts bytes.
        is_dense: whether each segment ends where the next one begins, and a segment's name
            promises that all before it is on disk.
        has_topic_ids: whether a partition's directory says the id of its topic.
        has_timestamps: whether messages have times of their own.
        keeps_beyond_damage: whether what follows damage is kept, too, if no flush had confirmed it.
        first_names, last_names: names of files in a partition's directory that belong to no
            segment, in the order to delete them: before the segments, and after them.
        draft_suffixes: what the name of a file ends in that may take a segment's place.
    """

    name: str
    suffix: str
    index_suffix: str
    counts_messages: bool
    is_dense: bool
    has_topic_ids: bool
    has_timestamps: bool
    keeps_beyond_damage: bool
    first_names: Sequence[str]
    last_names: Sequence[str]
    draft_suffixes: tuple[str, ...]

    def new_index(self, files: FileLayer, path: str, base_offset: int) -> TimeIndex:
        """Make the index of a segment, without touching a file."""

    def locate(
        self, segment: NamedSegment, files: FileLayer, descriptor: int, start: int, end: int
    ) -> tuple[int, int]:
        """Find where a range of offsets lies in a segment's file. Runs for every fetch.

        Args:
            start: the first offset, from the segment's base to its end.
            end: the offset after the last one; where a frame starts, or the segment ends.

        Returns:
            (the position, that of the whole frame where the start is inside one that can't be
            cut; how many bytes).

        Raises OSError: EBADMSG, where the start isn't in any frame any more.
        """

    def whole_bytes(
        self,
        segment: NamedSegment,
        files: FileLayer,
        descriptor: int,
        position: int,
        max_bytes: int,
        whole_first: bool,
    ) -> int:
        """Say how much of a longer range to read, where frames are read as a whole.

        Args:
            position: where the range begins, with a frame.
            max_bytes: how many bytes at most; the range has more.
            whole_first: let it be more where the first frame is.

        Returns:
            How many bytes: more than the range has, if its first frame does.
        """

    def end_of(self, files: FileLayer, segment: NamedSegment, size_bytes: int) -> int:
        """Find the offset at which a segment ends by its size; its index needn't be loaded.

        Where its file doesn't end with a frame, it is one that no segment starts at.
        """

    def reach(self, opened: OpenSegment, offset: int) -> tuple[int, int]:
        """Find where an offset begins, all before which was on disk.

        Args:
            offset: one of the segment's, or its end.

        Returns:
            (the offset, its position); or an earlier one, where what can be found of the segment
            ends, since all that there is behind that is damaged.
        """

    def scan(
        self, opened: OpenSegment, place: tuple[int, int], size_bytes: int, max_message_bytes: int
    ) -> ScanReport:
        """Check every frame in a range of a segment; what follows the last valid one is a bad tail.

        Args:
            place: the offset to begin at and its position, where a frame starts: as from `reach`.
            size_bytes: the position after the last byte to look at.
            max_message_bytes: the largest payload to believe in where bytes are damaged.
        """

    def search_boundary(
        self, opened: OpenSegment, start: int, offset: int, end: int, max_message_bytes: int
    ) -> tuple[int, bool]:
        """Walk a while towards the last place before an offset that one can resume from.

        Args:
            start: where to begin, such a place.
            offset: from `start` to `end`.
            end: up to where the segment is visible.
            max_message_bytes: as for `scan`.

        Returns:
            (how far it came, whether that is the place).
        """
