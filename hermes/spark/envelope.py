r"""Messages that carry an id: the envelope around a value, on the way in and on the way out.

Messages of Kafka 0.7 have a value and nothing else, so an id travels inside it:

    position    length  type        what
    0           8       bytes       C1 48 65 72 6D 65 73 01: "Hermes" between C1 and the version
    8           4       uint32      n, the length of the id, big-endian
    12          n       bytes       the id
    12 + n      rest    bytes       the value

What doesn't begin with the eight bytes, or is shorter than its header says, has no envelope. Text
never begins this way, since C1 is not part of UTF-8; neither does MessagePack, which never uses C1,
nor an Avro file nor compressed data. Of random values it would be one in 2^64.

An envelope around an envelope is taken apart one layer at a time, the outer one first.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType

from hermes.spark.arguments import column_type, named, require_new
from hermes.spark.starting import prepared

#: What an envelope begins with; the last byte is the version.
MAGIC: Final = b"\xc1Hermes\x01"

_HEADER_BYTES: Final = len(MAGIC) + 4


def add_ids(ids: pa.Array, values: pa.Array) -> pa.Array:
    """Put each value into an envelope with its id: binaries of one kind, none null."""
    kind = values.type
    lengths = pc.binary_length(ids).to_numpy().astype(">u4")
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(4), len(lengths), [None, pa.py_buffer(lengths.astype(np.dtype(">u4")))]
    )
    nothing = pa.scalar(b"", kind)  # between the parts
    return pc.binary_join_element_wise(
        pa.scalar(MAGIC, kind), fixed.cast(kind), ids, values, nothing
    )


def split_id(df: DataFrame) -> DataFrame:
    """Separate ids and values that the sink's option `idColumn` put together.

    Runs inside the JVM. As the sink sends at least once, this and dropping duplicates gives every
    message once:

    Example:
        messages = spark.read.format("hermes").options(**options).load()
        once = split_id(messages).dropDuplicates(["id"])

    Messages without an envelope have no id, and to Spark they are all duplicates of each other:
    keep them out of `dropDuplicates`, for instance with `where("id is not null")`.

    Args:
        df: with a binary column `value`, and none named `id`; a stream or not.

    Returns:
        The same rows and columns, `value` without its envelope, followed by `id`, a string. Where
        there is no envelope, `value` is unchanged and `id` null. Ids that were binary keep their
        bytes: `col("id").cast("binary")`.

    Raises:
        ConfigError: `value` is missing or not binary, or there is a column `id` already.
    """
    column_type(df, "value", "value", (BinaryType,), "binary")
    require_new(df.columns, "id", "id")
    value = named("value")
    length = sf.conv(sf.hex(sf.substring(value, len(MAGIC) + 1, 4)), 16, 10).cast("bigint")
    end = length + sf.lit(_HEADER_BYTES)
    begins_so = sf.substring(value, 1, len(MAGIC)) == sf.lit(MAGIC)
    has_header = sf.length(value) >= sf.lit(_HEADER_BYTES)
    # The length is only computed from an envelope's bytes: CASE is evaluated from left to right.
    fits = sf.when(begins_so & has_header, end <= sf.length(value)).otherwise(sf.lit(False))
    found = sf.substring(value, sf.lit(_HEADER_BYTES + 1), length.cast("int")).cast("string")
    rest = sf.substring(value, end.cast("int") + sf.lit(1), sf.length(value))
    return prepared(df).withColumns(
        {"value": sf.when(fits, rest).otherwise(value), "id": sf.when(fits, found)}
    )
