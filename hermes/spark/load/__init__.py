"""Loads: what is new of topics, copied to Parquet or Delta with its offsets in the same commit.

In the order of a load:

    options     what a user may say
    plans       what is copied, and where to: settled on disk before anything is read
    planning    how that is found out
    source      what tasks read
    target, files
                the directory, its layout, and the steps that tests interrupt
    manifests, sinks
                the commit
    run         all of it in its order, without Spark
    job         the same with Spark: `load`
    reader, cleaning
                `read_loaded` and `clean_up`
"""

from hermes.spark.load.cleaning import CleanUp, clean_up
from hermes.spark.load.job import LoadProgress, load
from hermes.spark.load.options import LOAD_OPTIONS
from hermes.spark.load.reader import read_loaded
from hermes.spark.load.run import LoadResult

__all__ = [
    "LOAD_OPTIONS",
    "CleanUp",
    "LoadProgress",
    "LoadResult",
    "clean_up",
    "load",
    "read_loaded",
]
