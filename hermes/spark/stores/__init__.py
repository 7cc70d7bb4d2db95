"""Where loads and Delta tables are kept: directories of this machine, S3, HDFS.

    opening     from an address to its store
    local       directories, with hard links
    s3, s3_settings
                S3 and what is compatible, with conditional puts
    hadoop      HDFS, by Spark's own client
    error_texts what went wrong, without what was signed
    ranges      files that are read by ranges
    store       the interface: read, list, and "create if absent"

A store has a root, the target or table; everything in it is named relative to that, with `/`. Data
files are written and read by Spark, under `Store.url`; the records that decide what counts are
written here.
"""

from hermes.spark.stores.local import LocalStore
from hermes.spark.stores.opening import Session, is_s3, open_store
from hermes.spark.stores.store import Place, Store, StoredFile

__all__ = ["LocalStore", "Place", "Session", "Store", "StoredFile", "is_s3", "open_store"]
