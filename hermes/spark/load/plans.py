"""Plans, manifests and checkpoints of loads. Pure values and JSON.

A plan says which ranges are copied, and to which folders. It is on disk before anything is read, so
whoever carries it out, and however often, copies the same messages into the same folders.

    {"format": "hermes load plan", "version": 1, "number": 3, "planned_ms": 1764115200000,
     "partition_by": "day",
     "pieces": {"clicks": {"0-0": [[0, 4096, "2026-11-24"], [4096, 8192, "2026-11-25"]]}},
     "offsets": {"clicks": {"0-0": 8192}}}

A piece is [start, end, period]: offsets, and the day (`2026-11-24`) or the hour (`2026-11-24T17`,
in UTC) in which the broker appended; or, where that isn't known, in which the load was planned.
`offsets` says where the next load starts, also for partitions of which this one has nothing. Where
topics' offsets count messages, not bytes, `counting` lists these.

A manifest says where the data of a committed load are, and where the next one starts: data and
offsets are committed together.

    {"format": "hermes load manifest", "version": 1, "number": 3, "planned_ms": 1764115200000,
     "messages": 81, "files": 2, "file_bytes": 5120, "log_bytes": 8192,
     "directory": "data/load=00000000000000000003/attempt=9f1c2ab4",
     "ranges": {"clicks": {"0-0": [0, 8192]}}, "offsets": {"clicks": {"0-0": 8192}},
     "may_lack": false}
"""

import datetime
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from hermes.errors import LoadTargetError
from hermes.quoting import printable, quoted
from hermes.spark.offsets import Offsets, TopicPartition, nested, unnested

Granularity: TypeAlias = Literal["day", "hour"]

Ranges: TypeAlias = dict[TopicPartition, tuple[int, int]]
"""A start and an end for each partition."""

#: A day or an hour, as plans and folders have it.
PERIOD: Final = re.compile(r"\d{4}-\d\d-\d\d(T\d\d)?", re.ASCII)

_PLAN: Final = "hermes load plan"
_MANIFEST: Final = "hermes load manifest"
_COUNTS: Final = ("number", "planned_ms", "messages", "files", "file_bytes", "log_bytes")
#: How long a period is.
PERIOD_MS: Final[dict[Granularity, int]] = {"day": 86_400_000, "hour": 3_600_000}


class LoadCheckpoint(NamedTuple):
    """The last load, 0 before the first, and where the next one starts in each partition."""

    number: int
    offsets: Offsets


class Piece(NamedTuple):
    """Some messages of a partition that go to one folder; `end` is after the last one."""

    partition: TopicPartition
    start: int
    end: int
    period: str

    @property
    def day(self) -> datetime.date:
        return datetime.date.fromisoformat(self.period[:10])

    @property
    def hour(self) -> int | None:
        """The hour, 0 to 23; None when the period is a day."""
        return int(self.period[11:]) if len(self.period) > 10 else None


@dataclass(frozen=True, slots=True)
class Plan:
    """One load, settled; loads are numbered from 1 without gaps.

    Attributes:
        pieces: ordered by partition and offset; those of a partition are contiguous.
        offsets: where the next load starts, for every partition that was ever loaded.
        counting: the topics whose offsets count messages, not bytes.
    """

    number: int
    planned_ms: int
    partition_by: Granularity
    pieces: tuple[Piece, ...]
    offsets: Offsets
    counting: frozenset[str] = frozenset()

    @property
    def ranges(self) -> Ranges:
        found: Ranges = {}
        for piece in self.pieces:
            start, _ = found.get(piece.partition, (piece.start, 0))
            found[piece.partition] = (start, piece.end)
        return found

    @property
    def log_bytes(self) -> int:
        """How many bytes of logs it covers, where offsets count bytes."""
        return self._covered(counts_messages=False)

    @property
    def log_messages(self) -> int:
        """How many messages it covers at the most, where offsets count these."""
        return self._covered(counts_messages=True)

    def _covered(self, *, counts_messages: bool) -> int:
        return sum(
            piece.end - piece.start
            for piece in self.pieces
            if (piece.partition.topic in self.counting) == counts_messages
        )

    def encode(self) -> bytes:
        pieces: dict[str, dict[str, list[Any]]] = {}
        for each in self.pieces:
            listed = pieces.setdefault(each.partition.topic, {})
            listed.setdefault(each.partition.name, []).append([each.start, each.end, each.period])
        document = {
            "format": _PLAN,
            "version": 1,
            "number": self.number,
            "planned_ms": self.planned_ms,
            "partition_by": self.partition_by,
            "pieces": pieces,
            "offsets": nested(self.offsets),
        }
        if self.counting:
            document["counting"] = sorted(self.counting)
        return json.dumps(document).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes, source: str, advice: str) -> "Plan":
        document = parse_document(content, _PLAN, source, advice)
        with parsing(source, advice):
            if document["partition_by"] not in get_args(Granularity):
                raise ValueError(f"partition_by is {quoted(document['partition_by'])}")
            return cls(
                _whole_number(document["number"]),
                _whole_number(document["planned_ms"]),
                document["partition_by"],
                tuple(_pieces(document["pieces"])),
                unnested(document["offsets"]),
                frozenset(map(str, document.get("counting", ()))),
            )


@dataclass(frozen=True, slots=True)
class LoadManifest:
    """A committed load; its directory is relative to the target.

    Attributes:
        offsets: where the next load starts, for every partition that was ever loaded.
        may_lack: whether it was allowed to leave out messages that are gone or damaged.
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
    may_lack: bool = False

    def document(self) -> dict[str, Any]:
        ranges: dict[str, dict[str, list[int]]] = {}
        for each, (start, end) in sorted(self.ranges.items()):
            ranges.setdefault(each.topic, {})[each.name] = [start, end]
        return {
            "format": _MANIFEST,
            "version": 1,
            **{key: getattr(self, key) for key in _COUNTS},
            "directory": self.directory,
            "ranges": ranges,
            "offsets": nested(self.offsets),
            "may_lack": self.may_lack,
        }

    @classmethod
    def decode(cls, content: bytes, source: str, advice: str) -> "LoadManifest":
        document = parse_document(content, _MANIFEST, source, advice)
        with parsing(source, advice):
            return cls(
                **{key: _whole_number(document[key]) for key in _COUNTS},
                directory=str(document["directory"]),
                ranges=_ranges(document["ranges"]),
                offsets=unnested(document["offsets"]),
                may_lack=bool(document["may_lack"]),
            )


def period_at(time_ms: int, partition_by: Granularity) -> str:
    """The period of a time in ms since 1970, in UTC."""
    time = datetime.datetime.fromtimestamp(time_ms // 1000, datetime.UTC)
    return time.strftime("%Y-%m-%d" if partition_by == "day" else "%Y-%m-%dT%H")


def parse_document(
    content: bytes, kind: str, source: str, advice: str, version: int = 1
) -> dict[str, Any]:
    """Read a JSON object of a certain `format`. LoadTargetError says what to do about another."""
    with parsing(source, advice):
        document = json.loads(content)
        if not isinstance(document, dict) or document.get("format") != kind:
            raise ValueError(f"it is not a {kind}")
    if document.get("version") != version:
        raise other_version(source, quoted(document.get("version")))
    return document


@contextmanager
def parsing(source: str, advice: str) -> Iterator[None]:
    """Raise LoadTargetError, which says what to do, for what a document of another shape raises."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        kind = f"{type(error).__name__}: " if isinstance(error, LookupError) else ""
        raise LoadTargetError(
            f"{source} is damaged ({printable(f'{kind}{error}', 300)}); {advice}"
        ) from error


def other_version(source: str, version: str) -> LoadTargetError:
    return LoadTargetError(f"{source}: another version of Hermes wrote this (version {version})")


def _whole_number(value: object) -> int:
    """A number of a document, as int64 holds it. Raises ValueError for anything else."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"expected a whole number, got {quoted(value)}")
    return value


def _ranges(value: Mapping[str, Mapping[str, list[int]]]) -> Ranges:
    starts, ends = (
        unnested({t: {n: pair[side] for n, pair in names.items()} for t, names in value.items()})
        for side in (0, 1)
    )
    return {each: (start, ends[each]) for each, start in starts.items()}


def _pieces(value: Mapping[str, Mapping[str, list[Any]]]) -> Iterator[Piece]:
    first = {t: {n: each[0][0] for n, each in names.items()} for t, names in value.items()}
    for partition, start in unnested(first).items():
        for begin, end, period in value[partition.topic][partition.name]:
            piece = Piece(partition, begin, end, str(period))
            if not start == begin < _whole_number(end):
                raise ValueError(f"{partition}: {begin!r} to {end!r} does not follow on {start}")
            if not PERIOD.fullmatch(piece.period):
                raise ValueError(f"expected a day or an hour, got {quoted(piece.period)}")
            _ = piece.day, piece.hour  # they raise ValueError
            start = end
            yield piece
