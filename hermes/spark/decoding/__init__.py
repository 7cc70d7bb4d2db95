"""Values into columns with a schema; what can't be decoded is reported, with the reason.

    json            `decode_json`: JSON objects, in the JVM
    text            `decode_text`, `decode_pattern`: text, whole or by a regular expression, in the
                    JVM
    avro            `decode_avro`, `decode_framed_avro`: Avro, in Python workers
    registry_avro   `decode_registry_avro`: the same, with the schemas of a registry
    avro_values     what Avro's types are to Spark; what a worker does
    dead_letters    `split_dead_letters`, `count_dead_letters`, `read_counts`; when a value is a
                    dead letter

Every decoder adds two columns to a DataFrame with a binary (or string) column: `decoded`, and
`dead_letter`, a string. In each row exactly one of them is null: a value is decoded as a whole or
it is a dead letter with a reason. No row disappears, and no field becomes null because it could not
be read. The columns that were there stay as they are, so a dead letter still has its topic, broker,
partition, offset and value.

All of it works in batches and in streams, keeps no state, and can be used before or after
`withWatermark`.
"""

from hermes.spark.decoding.avro import decode_avro, decode_framed_avro
from hermes.spark.decoding.dead_letters import (
    DecodingCounts,
    count_dead_letters,
    read_counts,
    split_dead_letters,
)
from hermes.spark.decoding.json import decode_json
from hermes.spark.decoding.registry_avro import decode_registry_avro
from hermes.spark.decoding.text import decode_pattern, decode_text

__all__ = [
    "DecodingCounts",
    "count_dead_letters",
    "decode_avro",
    "decode_framed_avro",
    "decode_json",
    "decode_pattern",
    "decode_registry_avro",
    "decode_text",
    "read_counts",
    "split_dead_letters",
]
