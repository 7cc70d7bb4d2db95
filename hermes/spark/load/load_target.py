"""The target that loads go to: its layout, and its plans.

    _hermes/target.json                     what this is: sink and granularity, for good
    _hermes/plans/<20 digits>.json          what each load copies, settled before it starts
    _hermes/manifests, summaries, published what is committed, see `journal`
    _hermes/attempts/load-<20 digits>-<8 hex digits>/topic=.../day=.../[hour=.../]part-*.parquet
    data/topic=.../day=.../[hour=.../]load-<20 digits>-<8 hex digits>-<5 digits>.parquet

Every attempt at a load writes into a fresh directory, so what a crash leaves behind disturbs
nobody. Once it is committed, its files move to `data`, where nothing else is. A record is created
whole, and only once, see `hermes.spark.stores`.

In a Delta table, which has its own log, attempts stay where they are written:
`data/load=<20 digits>/attempt=<8 hex digits>/topic=.../`. What a compaction of such a table writes
is in `data/compact=<16 hex digits>/topic=.../`.
"""

import json
import re
import secrets
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from hermes.errors import ConfigError, LoadConflictError, LoadTargetError
from hermes.spark.load.plans import Granularity, Plan, parse_document
from hermes.spark.stores import FileStore, Place

SinkName: TypeAlias = Literal["parquet", "delta"]

_FORMAT: Final = "hermes load target"
#: The directories of all records, of plans, manifests and data.
RECORDS: Final = "_hermes"
PLANS: Final = f"{RECORDS}/plans"
MANIFESTS: Final = f"{RECORDS}/manifests"
SUMMARIES: Final = f"{RECORDS}/summaries"
PUBLISHED: Final = f"{RECORDS}/published"
ATTEMPTS: Final = f"{RECORDS}/attempts"
DATA: Final = "data"
_TARGET: Final = f"{RECORDS}/target.json"
#: What may be in a directory without making it a foreign one.
_HARMLESS: Final = {RECORDS, "lost+found"}

# The directory of an attempt at a load, in a Delta table and in plain Parquet, relative to the
# target; the group is the load's number.
_DELTA_ATTEMPT: Final = re.compile(r"data/load=([0-9]{20})/attempt=[0-9a-f]{8}")
_ATTEMPT: Final = re.compile(r"_hermes/attempts/load-([0-9]{20})-[0-9a-f]{8}")
#: The directory of an attempt at a compaction.
COMPACTION: Final = re.compile(r"_hermes/attempts/compact-[0-9]{20}-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """What applies to all loads into a target: how data are kept, and what a folder is."""

    sink: SinkName = "parquet"
    partition_by: Granularity = "day"

    def check(self) -> None:
        for key, known in (("sink", get_args(SinkName)), ("partition_by", get_args(Granularity))):
            if getattr(self, key) not in known:
                text = f"expected {' or '.join(known)}, got {getattr(self, key)!r}"
                raise ConfigError(key, text)


def numbered(name: str) -> int | None:
    """The number that is a file's name, as in `00000000000000000003.json`; None for others."""
    return int(name[:20]) if re.fullmatch(r"[0-9]{20}\.json", name) else None


def plan_name(number: int) -> str:
    return f"{PLANS}/{number:020d}.json"


def manifest_name(number: int) -> str:
    return f"{MANIFESTS}/{number:020d}.json"


class LoadTarget:
    def __init__(self, store: FileStore, settings: TargetSettings) -> None:
        self.store = store
        self.settings = settings

    @classmethod
    def find(cls, store: FileStore) -> "LoadTarget | None":
        """Open a target; None when nothing was loaded yet. LoadTargetError for anything else."""
        try:
            names = [name for name in store.names() if not name.startswith(".")]
        except NotADirectoryError as error:
            raise LoadTargetError(f"{store.place()} is not a directory") from error
        content = store.read(_TARGET)
        if content is not None:
            return cls(store, _parse_settings(content, store))
        if strange := set(names) - _HARMLESS:
            raise LoadTargetError(
                f"{store.place()} holds something else ({min(strange)}) and no {_TARGET}: "
                "choose a directory that is empty, or doesn't exist yet"
            )
        return None

    def create(self) -> None:
        """Create the directory as a target, durably. Another run may do the same meanwhile.

        LoadTargetError if that made it a target with other settings.
        """
        self.store.prepare(PLANS, MANIFESTS)
        if self.store.read(_TARGET) is not None:
            return
        document = {
            "format": _FORMAT,
            "version": 1,
            "sink": self.settings.sink,
            "partition_by": self.settings.partition_by,
        }
        if not self.store.create(_TARGET, json.dumps(document).encode() + b"\n"):
            content = self.store.read(_TARGET)
            if content is None:
                raise LoadTargetError(
                    f"{self.place(_TARGET)}: the store says that this is there when it is to be "
                    "created, and that it isn't when it is read: try again, and if that stays so, "
                    "choose another directory"
                )
            LoadTarget(self.store, _parse_settings(content, self.store)).require(self.settings)

    def require(self, wanted: TargetSettings) -> None:
        """Raise LoadTargetError, with the target's settings, if a load wants others."""
        sink, by = self.settings.sink, self.settings.partition_by
        if self.settings != wanted:
            raise LoadTargetError(
                f"{self.place()} holds {sink} data by {by}, and this can't be changed: load "
                f"{wanted.sink} data by {wanted.partition_by} into another directory"
            )

    # -- records --------------------------------------------------------------------------------

    def place(self, name: str = "") -> Place:
        return self.store.place(name)

    def plan(self, number: int) -> Plan | None:
        """The plan of a load; None when there is none (yet). Raises LoadTargetError."""
        content = self.store.read(plan_name(number))
        if content is None:
            return None
        place = self.place(plan_name(number))
        advice = "it has not been carried out yet: remove the file and run the load again"
        plan = Plan.decode(content, str(place), advice)
        if plan.number != number:
            raise LoadTargetError(f"{place} is the plan of load {plan.number}; {advice}")
        return plan

    def propose(self, plan: Plan) -> tuple[Plan, bool]:
        """Settle what a load copies: this plan, or that of another run which was first.

        LoadConflictError if that run has committed the load, and its plan is gone again.
        """
        if self.store.create(plan_name(plan.number), plan.encode()):
            return plan, True
        settled = self.plan(plan.number)
        if settled is None:
            raise LoadConflictError(
                f"another run has committed load {plan.number} meanwhile, and it has expired since"
            )
        return settled, False

    # -- data -----------------------------------------------------------------------------------

    def new_attempt(self, number: int) -> str:
        """Make a fresh directory for an attempt at a load; returns its name in the store."""
        attempt = secrets.token_hex(4)
        if self.settings.sink == "delta":
            name = f"{DATA}/load={number:020d}/attempt={attempt}"
        else:
            name = f"{ATTEMPTS}/load-{number:020d}-{attempt}"
        self.store.make_directory(name)
        return name

    def attempts(self) -> list[tuple[int, str]]:
        folders, form = [ATTEMPTS], _ATTEMPT
        if self.settings.sink == "delta":
            loads = [name for name in self.store.names(DATA) if name.startswith("load=")]
            folders, form = [f"{DATA}/{name}" for name in loads], _DELTA_ATTEMPT
        names = [f"{folder}/{name}" for folder in folders for name in self.store.names(folder)]
        matches = map(form.fullmatch, names)
        return [(int(match[1]), match[0]) for match in matches if match]


def _parse_settings(content: bytes, store: FileStore) -> TargetSettings:
    place = store.place(_TARGET)
    advice = f"restore it from a copy, or recreate what it said of the target {store.place()}"
    document = parse_document(content, _FORMAT, str(place), advice)
    settings = TargetSettings(document.get("sink", ""), document.get("partition_by", ""))
    try:
        settings.check()
    except ConfigError as error:
        raise LoadTargetError(f"{place} is damaged ({error}); {advice}") from error
    return settings
