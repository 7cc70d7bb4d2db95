"""The directory that loads go to: its layout, and its plans.

    _hermes/target.json                     what this is: sink and granularity, for good
    _hermes/plans/<20 digits>.json          what each load copies, settled before it starts
    _hermes/manifests/<20 digits>.json      the loads that are committed (a Delta table has its log)
    data/load=<20 digits>/attempt=<8 hex digits>/topic=.../day=.../[hour=.../]part-*.parquet

Every attempt at a load writes into a fresh directory, so what a crash leaves behind disturbs
nobody. A file is given its name only once its content is on the disk, see `hermes.spark.files`.
"""

import json
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from hermes.errors import ConfigError, LoadTargetError
from hermes.spark.files import Files, above, publish
from hermes.spark.load.records import Granularity, Plan, parse_document

SinkName: TypeAlias = Literal["parquet", "delta"]

_FORMAT: Final = "hermes load target"
_RECORDS: Final = "_hermes"
#: What may be in a directory without making it a foreign one.
_HARMLESS: Final = {_RECORDS, "lost+found"}

#: The directory of an attempt, relative to the target; the group is the load's number.
ATTEMPT: Final = re.compile(r"data/load=([0-9]{20})/attempt=[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """What applies to all loads into a target.

    Attributes:
        sink: how the data are kept.
        partition_by: what their folders stand for.
    """

    sink: SinkName = "parquet"
    partition_by: Granularity = "day"

    def check(self) -> None:
        """Raise ConfigError for an unknown sink or granularity."""
        for key, known in (("sink", get_args(SinkName)), ("partition_by", get_args(Granularity))):
            if getattr(self, key) not in known:
                text = f"expected {' or '.join(known)}, got {getattr(self, key)!r}"
                raise ConfigError(key, text)


def numbered(name: str) -> int | None:
    """The number that is a file's name, as in `00000000000000000003.json`; None for others."""
    return int(name[:20]) if re.fullmatch(r"[0-9]{20}\.json", name) else None


class LoadTarget:
    """A target, whether it exists already or not."""

    def __init__(self, path: Path, settings: TargetSettings, files: Files) -> None:
        self.path = path
        self.settings = settings
        self.files = files

    @classmethod
    def find(cls, path: Path, files: Files) -> "LoadTarget | None":
        """Open a target; None when nothing was loaded yet.

        Raises:
            LoadTargetError: the directory holds something else, or is damaged.
        """
        try:
            names = [name for name in files.names(path) if not name.startswith(".")]
        except NotADirectoryError as error:
            raise LoadTargetError(f"{path} is not a directory") from error
        content = files.read(path / _RECORDS / "target.json")
        if content is not None:
            return cls(path, _parse_settings(content, path / _RECORDS / "target.json"), files)
        if strange := set(names) - _HARMLESS:
            raise LoadTargetError(
                f"{path} holds something else ({min(strange)}) and no {_RECORDS}/target.json: "
                "choose a directory that is empty, or doesn't exist yet"
            )
        return None

    def create(self) -> None:
        """Create the directory as a target, durably. Another run may do the same meanwhile.

        Raises:
            LoadTargetError: another run made it a target with other settings.
        """
        records = self.path / _RECORDS
        path = records / "target.json"
        if self.files.read(path) is not None:
            self.files.sync(records)  # for a run that ended before it could
            return
        for each in (self.plans, self.manifests):
            self.files.make_directories(each)
        document = {
            "format": _FORMAT,
            "version": 1,
            "sink": self.settings.sink,
            "partition_by": self.settings.partition_by,
        }
        for each in (records, self.path, *above(self.path)):
            self.files.sync(each)
        if not publish(self.files, path, json.dumps(document).encode() + b"\n"):
            current = _parse_settings(self.files.read(path) or b"", path)
            LoadTarget(self.path, current, self.files).require(self.settings)

    def require(self, wanted: TargetSettings) -> None:
        """Refuse a load that wants other settings.

        Raises:
            LoadTargetError: the text says what the target's are.
        """
        sink, by = self.settings.sink, self.settings.partition_by
        if self.settings != wanted:
            raise LoadTargetError(
                f"{self.path} holds {sink} data by {by}, and this can't be changed: load "
                f"{wanted.sink} data by {wanted.partition_by} into another directory"
            )

    # -- records --------------------------------------------------------------------------------

    @property
    def plans(self) -> Path:
        """The directory of the plans."""
        return self.path / _RECORDS / "plans"

    @property
    def manifests(self) -> Path:
        """The directory of the manifests."""
        return self.path / _RECORDS / "manifests"

    def plan_path(self, number: int) -> Path:
        """The file of a plan."""
        return self.plans / f"{number:020d}.json"

    def manifest_path(self, number: int) -> Path:
        """The file of a manifest."""
        return self.manifests / f"{number:020d}.json"

    def plan(self, number: int) -> Plan | None:
        """The plan of a load; None when there is none (yet).

        Raises:
            LoadTargetError: it is damaged.
        """
        path = self.plan_path(number)
        content = self.files.read(path)
        if content is None:
            return None
        advice = "it has not been carried out yet: remove the file and run the load again"
        plan = Plan.decode(content, str(path), advice)
        if plan.number != number:
            raise LoadTargetError(f"{path} is the plan of load {plan.number}; {advice}")
        return plan

    def propose(self, plan: Plan) -> tuple[Plan, bool]:
        """Settle what a load copies: this plan, or that of another run which was first."""
        if publish(self.files, self.plan_path(plan.number), plan.encode()):
            return plan, True
        settled = self.plan(plan.number)
        assert settled is not None
        return settled, False

    # -- data -----------------------------------------------------------------------------------

    @property
    def data(self) -> Path:
        """The directory of all data."""
        return self.path / "data"

    def new_attempt(self, number: int) -> Path:
        """Make a fresh directory for an attempt at a load."""
        directory = self.data / f"load={number:020d}" / f"attempt={secrets.token_hex(4)}"
        self.files.make_directories(directory)
        return directory

    def sync_attempt(self, directory: Path) -> None:
        """Flush an attempt's directory and everything in it to the disk."""
        for folder, _, names in os.walk(directory, topdown=False):
            for name in names:
                self.files.sync(Path(folder, name))
            self.files.sync(Path(folder))
        for parent in (directory.parent, self.data, self.path):
            self.files.sync(parent)

    def attempts(self) -> list[tuple[int, Path]]:
        """The directories of all attempts that exist, each with its load's number."""
        found = []
        for load in self.files.names(self.data):
            for attempt in self.files.names(self.data / load):
                if match := ATTEMPT.fullmatch(f"data/{load}/{attempt}"):
                    found.append((int(match[1]), self.data / load / attempt))
        return found


def _parse_settings(content: bytes, path: Path) -> TargetSettings:
    advice = f"restore it from a copy, or recreate what it said of the target {path.parent.parent}"
    document = parse_document(content, _FORMAT, str(path), advice)
    settings = TargetSettings(document.get("sink", ""), document.get("partition_by", ""))
    try:
        settings.check()
    except ConfigError as error:
        raise LoadTargetError(f"{path} is damaged ({error}); {advice}") from error
    return settings
