"""Where loads and Delta tables are kept: directories of this machine, S3, HDFS.

A store has a root, the target or table; everything in it is named relative to that, with `/`. Data
files are written and read by Spark, under `FileStore.url`; the records that decide what counts are
written here.
"""

from hermes.spark.stores.local import LocalStore
from hermes.spark.stores.opening import Session, is_s3, open_store
from hermes.spark.stores.store import FileStore, Place, StoredFile

__all__ = ["FileStore", "LocalStore", "Place", "Session", "StoredFile", "is_s3", "open_store"]
