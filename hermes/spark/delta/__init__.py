"""Delta tables without a jar: Spark writes the files, `deltalake` commits them, exactly once.

    table       commits that carry the version of an application transaction
    writer      `write_stream_to_delta`
    scan, file_index
                `read_delta`

Loads into Delta tables are in `hermes.spark.load`. Needs the extra `delta`.
"""

from hermes.spark.delta.scan import read_delta
from hermes.spark.delta.writer import write_stream_to_delta

__all__ = ["read_delta", "write_stream_to_delta"]
