"""What counts in a Parquet target after a number of entries: files, loads and offsets. Pure.

A summary is a snapshot written down, so that a reader opens one file and the few entries after it:

    {"format": "hermes load summary", "version": 2, "sequence": 64, "load": 61,
     "offsets": {"clicks": {"0-0": 8192}},
     "files": [["data/topic=clicks/day=2026-11-24/<unique>.parquet", 5120, 81], ...],
     "loads": {"61": [81, "2026-11-24", "<attempt's directory>", false], ...},
     "expiries": [["2026-10-01", [], 40]]}

A load has its messages, the newest period of its files, its attempt's directory, and whether it
was allowed to lack messages. An expiry has the first period that it kept, its topics (none for
all), and the last load before it.
"""

import json
import re
from typing import Final, NamedTuple
from urllib.parse import unquote

from hermes.spark.load.journal_entries import JournalEntry, LoadedFile
from hermes.spark.load.plans import LoadManifest, parse_document, parsing
from hermes.spark.offsets import Offsets, nested, unnested

_FORMAT: Final = "hermes load summary"
_FOLDERS: Final = re.compile(r"(?:^|/)topic=([^/]*)/day=([^/]*)(?:/hour=([^/]*))?/[^/]*$")


class LoadRecord(NamedTuple):
    """A load some of whose rows may be there, with the newest period of its files ("": unknown)."""

    messages: int
    newest: str
    attempt: str
    may_lack: bool


class ExpiryRecord(NamedTuple):
    """What an expiry has removed: periods before one, of topics (empty: all), up to a load."""

    before: str
    topics: tuple[str, ...]
    load: int

    def covers(self, load: int, topic: str, period: str) -> bool:
        is_of = not self.topics or topic in self.topics
        return is_of and load <= self.load and period < self.before


class JournalSnapshot:
    """What counts after the entry `sequence`; 0 before the first.

    Attributes:
        offsets: where the next load starts, for every partition that was ever loaded.
        loads: by number; those that have expired as a whole are left out.
        expiries: in their order; those that a later one includes are left out.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self.load = 0
        self.offsets: Offsets = {}
        self.files: dict[str, LoadedFile] = {}
        self.loads: dict[int, LoadRecord] = {}
        self.expiries: list[ExpiryRecord] = []

    def check(self, entry: JournalEntry) -> None:
        """Raise ValueError unless an entry follows on this snapshot."""
        load = entry.load
        if load is not None and load.number != self.load + 1:
            raise ValueError(f"it is of load {load.number}, and load {self.load + 1} is next")
        if twice := {each.file.name for each in entry.added} & self.files.keys():
            raise ValueError(f"{min(twice)} counts already")
        if missing := set(entry.removed) - self.files.keys():
            raise ValueError(f"{min(missing)} is to be removed, and doesn't count")

    def apply(self, entry: JournalEntry) -> None:
        """Take in the next entry. Raises ValueError as `check`, and changes nothing then."""
        self.check(entry)
        for name in entry.removed:
            del self.files[name]
        for each in entry.added:
            self.files[each.file.name] = each.file
        if entry.load is not None:
            names = (each.file.name for each in entry.added)
            self._add_load(entry.load, max(map(period_of, names), default=""))
        if entry.kind == "expire":
            self._expire(ExpiryRecord(entry.before, entry.topics, self.load))
        self.sequence += 1

    def in_folders(self) -> dict[tuple[str, str], list[LoadedFile]]:
        """The files by topic and period, those of a folder sorted by name."""
        found: dict[tuple[str, str], list[LoadedFile]] = {}
        for name in sorted(self.files):
            found.setdefault((topic_of(name), period_of(name)), []).append(self.files[name])
        return found

    def encode(self) -> bytes:
        document = {
            "format": _FORMAT,
            "version": 2,
            "sequence": self.sequence,
            "load": self.load,
            "offsets": nested(self.offsets),
            "files": [self.files[name] for name in sorted(self.files)],
            "loads": {str(number): list(self.loads[number]) for number in sorted(self.loads)},
            "expiries": self.expiries,
        }
        return json.dumps(document).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes, source: str, advice: str) -> "JournalSnapshot":
        document = parse_document(content, _FORMAT, source, advice, version=2)
        state = cls()
        with parsing(source, advice):
            state.sequence, state.load = int(document["sequence"]), int(document["load"])
            state.offsets = unnested(document["offsets"])
            files = map(LoadedFile.parse, document["files"])
            state.files = {each.name: each for each in files}
            state.loads = {int(n): LoadRecord(*each) for n, each in document["loads"].items()}
            state.expiries = [
                ExpiryRecord(str(before), tuple(map(str, topics)), int(load))
                for before, topics, load in document["expiries"]
            ]
        return state

    def _add_load(self, load: LoadManifest, newest: str) -> None:
        self.load, self.offsets = load.number, load.offsets
        self.loads[load.number] = LoadRecord(load.messages, newest, load.directory, load.may_lack)

    def _expire(self, expired: ExpiryRecord) -> None:
        kept = (
            each
            for each in self.expiries
            if each.before > expired.before or (expired.topics and each.topics != expired.topics)
        )
        self.expiries = [*kept, expired]
        if expired.topics:
            return
        for number, each in list(self.loads.items()):
            if each.newest < expired.before:
                del self.loads[number]


def topic_of(name: str) -> str:
    """The topic of a data file, by its folder; "" when it is in none."""
    found = _FOLDERS.search(name)
    return unquote(found[1]) if found else ""


def period_of(name: str) -> str:
    """The day or hour of a data file, by its folder; "" when it is in none."""
    found = _FOLDERS.search(name)
    if found is None:
        return ""
    return found[2] if found[3] is None else f"{found[2]}T{int(found[3]):02d}"
