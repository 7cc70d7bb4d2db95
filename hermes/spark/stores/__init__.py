"""Where loads and Delta tables are kept: directories of this machine, or further stores.

    store       the interface: read, list, and "create if absent"
    local       directories, with hard links

A store has a root, the target or table; everything in it is named relative to that, with `/`. Data
files are written and read by Spark, under `Store.url`; the records that decide what counts are
written here.
"""

from hermes.spark.stores.local import LocalStore
from hermes.spark.stores.store import Place, Store, StoredFile

__all__ = ["LocalStore", "Place", "Store", "StoredFile"]
