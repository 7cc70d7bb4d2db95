"""Every zope interface of Hermes: what a plugin must provide, and under which rules it is called.

A plugin package imports this module, `hermes.errors` and the values of `hermes.protocol`, and
nothing else of Hermes. It is found through its entry points; docs/plugins.md shows a whole one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zope.interface import Interface

__all__ = ["IRetentionPolicy", "RetentionSettings", "SegmentInfo"]


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """What a retention policy may know of one segment of a partition's log.

    Attributes:
        base_offset: the offset of the segment's first byte in the partition's log.
        size_bytes: the size of the segment's file.
        last_append_ms: when the last message was appended, in ms since 1970: from the log's own
            time index where there is one, else the modification time of the file.
        active: True for the last segment only, the one that is appended to.
    """

    base_offset: int
    size_bytes: int
    last_append_ms: int
    active: bool


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """What broker.yaml says about one topic's retention, handed to the policy's factory.

    Attributes:
        time_ms: keep what was appended within this many ms; None for no limit.
        size_bytes: keep at least this many of the newest bytes; None for no limit.
        options: the topic's `retention_options`, free for third-party policies.
    """

    time_ms: int | None = None
    size_bytes: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


class IRetentionPolicy(Interface):
    """Decides which segments at the start of a partition's log may be deleted.

    Entry point group: `hermes.retention`. The entry names a factory that is called with one
    `RetentionSettings` and returns an object that provides this interface. It is called in a
    worker thread, for one partition at a time, and must neither block nor touch files.
    """

    def expired(segments: Any, now_ms: int) -> int:  # type: ignore[misc]
        """Say how many segments, counted from the oldest, may be deleted.

        Args:
            segments: a non-empty tuple of `SegmentInfo`, oldest first; the last one is active.
            now_ms: the broker's clock, in ms since 1970.

        Returns:
            0 to len(segments). Deleting only a leading run keeps the log without holes. When the
            active segment is included, an empty one named by the end offset takes its place.
        """
