"""Values into columns with a schema; what can't be decoded is reported, with the reason.

Every decoder adds two columns to a DataFrame with a binary (or string) column: `decoded`, and
`dead_letter`, a string. In each row exactly one of them is null: a value is decoded as a whole or
it is a dead letter with a reason. No row disappears, no field becomes null because it could not be
read, and the other columns stay, so a dead letter still has its topic, offset and value.

All of it works in batches and in streams, before and after `withWatermark`, and keeps no state.
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
