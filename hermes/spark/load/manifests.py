"""What a committed load leaves behind: one file with where its data are and the next load starts.

    {"format": "hermes load manifest", "version": 1, "number": 3, "planned_ms": 1764115200000,
     "directory": "data/load=00000000000000000003/attempt=9f1c2ab4",
     "messages": 81, "files": 2, "file_bytes": 5120, "log_bytes": 8192,
     "ranges": {"clicks": {"0-0": [0, 8192]}}, "offsets": {"clicks": {"0-0": 8192}}}

The data and the offsets are thus committed together, by the one link that gives the file its name.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from hermes.spark.load.plans import (
    UNREADABLE,
    Plan,
    Ranges,
    damaged,
    format_ranges,
    parse_document,
    parse_ranges,
    whole_number,
)
from hermes.spark.offsets import Offsets, nested, unnested

__all__ = ["Manifest"]

_FORMAT: Final = "hermes load manifest"
_COUNTS: Final = ("number", "planned_ms", "messages", "files", "file_bytes", "log_bytes")


@dataclass(frozen=True, slots=True)
class Manifest:
    """A committed load.

    Attributes:
        number: of the load.
        planned_ms: when it was planned, in ms since 1970.
        messages: how many there are.
        files: how many files of data there are.
        file_bytes: how large they are together.
        log_bytes: how many bytes of logs they came from.
        directory: of the data, relative to the target.
        ranges: what was copied of each partition.
        offsets: where the next load starts, for every partition that was ever loaded.
    """

    number: int
    planned_ms: int
    messages: int
    files: int
    file_bytes: int
    log_bytes: int
    directory: str
    ranges: Ranges
    offsets: Offsets

    @classmethod
    def of(
        cls, plan: Plan, directory: str, *, messages: int, files: int, file_bytes: int
    ) -> "Manifest":
        """Make the manifest of a plan that was carried out."""
        return cls(
            plan.number,
            plan.planned_ms,
            messages,
            files,
            file_bytes,
            plan.log_bytes,
            directory,
            plan.ranges,
            plan.offsets,
        )

    def document(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "format": _FORMAT,
            "version": 1,
            **{key: getattr(self, key) for key in _COUNTS},
            "directory": self.directory,
            "ranges": format_ranges(self.ranges),
            "offsets": nested(self.offsets),
        }

    def encode(self) -> bytes:
        """Write it as JSON."""
        return json.dumps(self.document()).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes, source: str, advice: str) -> "Manifest":
        """Read what `encode` writes; as `Plan.decode`.

        Raises:
            LoadTargetError: it is something else, or damaged.
        """
        document = parse_document(content, _FORMAT, source, advice)
        try:
            return cls(
                **{key: whole_number(document[key]) for key in _COUNTS},
                directory=str(document["directory"]),
                ranges=parse_ranges(document["ranges"]),
                offsets=unnested(document["offsets"]),
            )
        except UNREADABLE as error:
            raise damaged(source, error, advice) from error
