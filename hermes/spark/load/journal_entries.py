"""What happens to a Parquet target, one numbered entry after the other. Pure values and JSON.

    {"format": "hermes load manifest", "version": 2, "kind": "load", "attempt": "<directory>",
     "load": {"number": 3, ...},
     "added": [["data/topic=clicks/day=2026-11-24/<unique>.parquet", 5120, 81, "<directory>/..."]]}
    {..., "kind": "compact", "attempt": "<directory>", "added": [...], "removed": ["data/...", ...]}
    {..., "kind": "expire", "before": "2026-10-01", "topics": [], "removed": [...]}
    {..., "kind": "fence", "attempts": ["<directory>", ...]}

An added file is [its name, size in bytes, rows, where the attempt has left it]; `load` is the
load's manifest, see `plans`. After a `fence` the attempts in it can't be committed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hermes.quoting import printable, quoted
from hermes.spark.load.plans import PERIOD, LoadManifest, other_version, parse_document, parsing

_FORMAT: Final = "hermes load manifest"
_KINDS: Final = ("load", "compact", "expire", "fence")


class LoadedFile(NamedTuple):
    """A data file that counts; `key=value` folders in its name are columns."""

    name: str
    size_bytes: int
    rows: int

    @classmethod
    def parse(cls, value: list[Any]) -> "LoadedFile":
        name, *numbers = value
        if len(numbers) != 2 or any(type(n) is not int or n < 0 for n in numbers):
            raise ValueError(f"expected a file's name, size and rows, got {quoted(value)}")
        return cls(_name(name), *numbers)


class Addition(NamedTuple):
    file: LoadedFile
    source: str


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """Something that happened, as one commit: kind load, compact, expire or fence.

    Attributes:
        attempt: the directory that files come from; "" when none are added.
        before: of an expiry, the first period that is kept.
        topics: of an expiry, which topics it is about; empty for all.
        fenced: of a fence, the directories of attempts.
    """

    kind: str
    attempt: str = ""
    load: LoadManifest | None = None
    added: tuple[Addition, ...] = ()
    removed: tuple[str, ...] = ()
    before: str = ""
    topics: tuple[str, ...] = ()
    fenced: tuple[str, ...] = ()

    def encode(self) -> bytes:
        document: dict[str, Any] = {"format": _FORMAT, "version": 2, "kind": self.kind}
        if self.attempt:
            document["attempt"] = self.attempt
        if self.load is not None:
            document["load"] = self.load.document()
        if self.added:
            document["added"] = [[*each.file, each.source] for each in self.added]
        if self.removed:
            document["removed"] = list(self.removed)
        if self.kind == "expire":
            document |= {"before": self.before, "topics": list(self.topics)}
        if self.kind == "fence":
            document["attempts"] = list(self.fenced)
        return json.dumps(document).encode() + b"\n"


def decode_entry(content: bytes, source: str, advice: str) -> JournalEntry:
    """Read an entry. LoadTargetError says what to do."""
    document = parse_document(content, _FORMAT, source, advice, version=2)
    with parsing(source, advice):
        kind = document["kind"]
        if kind in _KINDS:
            return _entry(kind, document, source, advice)
    raise other_version(source, f"2, {printable(str(kind), 40)}")


def folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def _entry(kind: str, document: Mapping[str, Any], source: str, advice: str) -> JournalEntry:
    load = None
    if kind == "load":
        load = LoadManifest.decode(json.dumps(document["load"]).encode(), source, advice)
    before = str(document["before"]) if kind == "expire" else ""
    if before and not PERIOD.fullmatch(before):
        raise ValueError(f"expected a day or an hour, got {quoted(before)}")
    return JournalEntry(
        kind,
        _name(document["attempt"]) if "attempt" in document else "",
        load,
        tuple(
            Addition(LoadedFile.parse(each[:-1]), _name(each[-1]))
            for each in document.get("added", ())
        ),
        tuple(map(_name, document.get("removed", ()))),
        before,
        tuple(map(str, document.get("topics", ()))),
        tuple(map(_name, document.get("attempts", ()))),
    )


def _name(value: object) -> str:
    """A name within the target: what is removed is named by these."""
    if not isinstance(value, str) or not value or {"", ".", ".."} & set(value.split("/")):
        raise ValueError(f"expected a name within the target, got {quoted(value)}")
    return value
