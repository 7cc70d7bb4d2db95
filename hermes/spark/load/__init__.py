"""Loads: new messages of topics, copied to Parquet or Delta with their offsets in one commit.

From the user's calls down to the disk:

    job             `load`: what Spark does for it
    attempts        one load in its order, without Spark
    increments      plans: the new messages since the last load
    tasks           what tasks read
    commits, delta_commits
                    where a load is committed: in a journal of ours, or in a Delta table's log
    journal         the one order of loads, expiries and compactions
    state, entries  what counts after an entry; entries as JSON
    target          the directory and its layout
    records         plans and manifests as JSON
    loaded          `read_loaded` and `loaded_files`
    cleaning        `clean_up`
    expiring        `expire`
    compacting      `compact`
    verifying       `verify`
    coverage        which offsets the messages of files cover
    delta_upkeep    the last three for Delta tables
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
