"""Delta tables without a jar: Spark writes the files, `deltalake` commits them, exactly once.

    table       commits that carry the version of an application transaction
    streaming   `write_stream_to_delta`
    reading     `read_delta`

Loads into Delta tables stand in `hermes.spark.load`. Needs the extra `delta`.
"""

from hermes.spark.delta.reading import read_delta
from hermes.spark.delta.streaming import write_stream_to_delta

__all__ = ["read_delta", "write_stream_to_delta"]
