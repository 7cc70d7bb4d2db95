"""Loads: new messages of topics, copied to Parquet or Delta with their offsets in one commit.

`job` is what Spark does for a load, `attempts` its order without Spark. A load is committed in a
`journal` of ours (`journal_entries`, `journal_snapshot`) or in a Delta table's log
(`delta_commits`).
"""

from hermes.spark.load.attempts import LoadResult
from hermes.spark.load.cleaning import CleanUp, clean_up
from hermes.spark.load.compacting import Compacted, Compaction, compact
from hermes.spark.load.expiring import Expiry, expire
from hermes.spark.load.job import LOAD_OPTIONS, LoadProgress, load
from hermes.spark.load.loaded import loaded_files, read_loaded
from hermes.spark.load.verifying import Verification, verify

__all__ = [
    "LOAD_OPTIONS",
    "CleanUp",
    "Compacted",
    "Compaction",
    "Expiry",
    "LoadProgress",
    "LoadResult",
    "Verification",
    "clean_up",
    "compact",
    "expire",
    "load",
    "loaded_files",
    "read_loaded",
    "verify",
]
