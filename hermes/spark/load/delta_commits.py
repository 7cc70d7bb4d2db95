"""Commits loads to a Delta table, which is the target itself.

A load is committed if the table's application transaction says so. The commit's own metadata hold
the manifest, offsets included. Needs the extra `delta`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql.pandas.types import to_arrow_schema

from hermes.errors import LoadTargetError
from hermes.spark.delta.table import DeltaTable, add_files, commits, open_table
from hermes.spark.load.load_target import LoadTarget, plan_name
from hermes.spark.load.plans import LoadCheckpoint, LoadManifest
from hermes.spark.load.tasks import FOLDERS, loaded_schema
from hermes.spark.offsets import unnested
from hermes.spark.options import ExtraColumns
from hermes.spark.parquet import DataFile

_APP_ID: Final = "hermes load"
_NONE: Final = ExtraColumns()
#: Under which name a commit has its manifest.
LOAD_KEY: Final = "hermes.load"


class DeltaCommits:
    def __init__(
        self, target: LoadTarget, columns: ExtraColumns = _NONE, *, merge_schema: bool = False
    ) -> None:
        self._target = target
        self._columns = columns
        self._merge_schema = merge_schema

    def last(self) -> LoadCheckpoint:
        table = open_table(self._target.store)
        number = 0 if table is None else table.transaction_version(_APP_ID) or 0
        if table is None or not number:
            return LoadCheckpoint(0, {})
        for manifest in self._manifests(table):
            if manifest["number"] == number:
                return LoadCheckpoint(number, unnested(manifest["offsets"]))
        plan = self._target.plan(number)  # the commit has expired from the log
        if plan is None:
            raise LoadTargetError(
                f"{self._target.place()}: the offsets of load {number} are neither in the Delta "
                f"log nor in {self._target.place(plan_name(number))}: restore that file from a copy"
            )
        return LoadCheckpoint(number, plan.offsets)

    def commit(self, manifest: LoadManifest, files: Sequence[DataFile]) -> bool:
        store, by = self._target.store, self._target.settings.partition_by
        return add_files(
            store,
            files,
            to_arrow_schema(loaded_schema(by, self._columns), timezone="UTC"),
            FOLDERS[by],
            _APP_ID,
            manifest.number,
            {LOAD_KEY: manifest.document()},
            merge_schema=self._merge_schema,
        )

    def settle(self) -> None:
        """Does nothing: a Delta table's commits need nothing more."""

    def give_up(self, directory: str) -> bool:
        return directory in self.directories().values()

    def directories(self) -> dict[int, str]:
        table = open_table(self._target.store)
        found = () if table is None else self._manifests(table)
        return {each["number"]: str(each["directory"]) for each in found}

    def _manifests(self, table: DeltaTable) -> Iterator[dict[str, Any]]:
        """The manifests of the loads that are still in the log, the newest first."""
        return (each[LOAD_KEY] for each in commits(self._target.store, table) if LOAD_KEY in each)
