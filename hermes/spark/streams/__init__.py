"""Windows, joins, ranking and de-duplication on streams: small functions that return DataFrames.

    windows     `tumbling_counts`, `sliding_counts`, `session_counts`
    joins       `join_within` (stream with stream), `join_table` (stream with table)
    ranking     `top_n`
    distinct    `deduplicate`
    lateness    `late_rows`: how many rows came too late

They take and return plain DataFrames, so they go together with everything in PySpark, and they work
on batches as well as on streams. Times are columns of timestamps that the events carry; when a row
arrives plays no part but for being late.

A watermark says how late is too late. Spark takes the latest time that it has seen in a stream,
less the watermark's delay, once per micro-batch: what was seen in one micro-batch counts from the
next one on. Rows whose time lies behind it may be dropped (`late_rows` counts them), never before.
How each function treats them stands in its docstring. Batches have no watermark: every row counts.

A window is put out when the watermark has passed its end (output mode `append`), or after every
micro-batch in which it changed (`update`), or always again (`complete`, which never forgets). In
`append` the last windows of a quiet stream stay inside until later events come.
"""

from hermes.spark.streams.distinct import deduplicate
from hermes.spark.streams.joins import join_table, join_within
from hermes.spark.streams.lateness import late_rows
from hermes.spark.streams.ranking import top_n
from hermes.spark.streams.windows import session_counts, sliding_counts, tumbling_counts

__all__ = [
    "deduplicate",
    "join_table",
    "join_within",
    "late_rows",
    "session_counts",
    "sliding_counts",
    "top_n",
    "tumbling_counts",
]
