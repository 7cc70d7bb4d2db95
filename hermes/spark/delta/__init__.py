"""Delta tables without a jar: Spark writes the files, `deltalake` commits them, exactly once.

Loads into Delta tables are in `hermes.spark.load`. Needs the extra `delta`.
"""

from hermes.spark.delta.scan import read_delta
from hermes.spark.delta.writer import write_stream_to_delta

__all__ = ["read_delta", "write_stream_to_delta"]
