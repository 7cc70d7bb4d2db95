"""From rows to what the producer takes: lists of messages for a topic, and a key for each.

The columns of a write, by name, in any order:

    value   string or binary            the message; required, never null
    topic   string                      where to; required, never null, unless the option topic is
                                        given, which then applies to all rows
    key     string, binary or integer   chooses the partition; null for none. Topics of Kafka's
                                        format keep it: a string or binary there
    headers array<struct<key: string, value: binary>>
                                        for topics of Kafka's format only; null for none
    timestamp
            timestamp                   likewise; null for the time of the write
    (id)    string or binary            under the name that the option idColumn gives; never null

Everything is done for a whole record batch at once; Python code runs once per topic of a batch, and
for each list of messages. Rows with equal topic and key keep their order.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from hermes.client import Keys, RecordData
from hermes.errors import ConfigError, EncodingError
from hermes.protocol import check_topic_name
from hermes.spark.envelope import add_ids
from hermes.spark.sink_options import SinkOptions

#: How many messages with keys are one send.
_KEYED_LIST: Final = 1000

_TEXT: Final = (StringType,)
_BYTES: Final = (StringType, BinaryType)
_KEYS: Final = (StringType, BinaryType, ByteType, ShortType, IntegerType, LongType)
_HEADERS: Final = (ArrayType,)
_TIMES: Final = (TimestampType,)
_IN_WORDS: Final[dict[tuple[type[DataType], ...], str]] = {
    _TEXT: "string",
    _BYTES: "string or binary",
    _KEYS: "string, binary or an integer",
    _HEADERS: "array<struct<key: string, value: binary>>",
    _TIMES: "timestamp",
}


_OR_A_KEY: Final = " (a row with a key and no value is a tombstone, in topics of Kafka's format)"


class TopicMessages(NamedTuple):
    """Messages for one topic, one or more. Those without keys all go to one partition."""

    topic: str
    messages: list[bytes] | list[RecordData]
    keys: Keys | None


class RowEncoder:
    """Knows which column is what; pickled for the workers. Raises ConfigError."""

    def __init__(
        self, schema: StructType, options: SinkOptions, ignored: frozenset[str] = frozenset()
    ) -> None:
        self._options = options
        self._places = _places(schema, options, ignored)

    def of(self, rows: pa.RecordBatch) -> Iterator[TopicMessages]:
        """Turn rows into messages. Nothing is yielded before all rows were checked.

        Raises EncodingError, ConfigError, InvalidTopicError: one can't be sent as it is.
        """
        keys = self._column(rows, "key") if "key" in self._places else None
        payloads = self._payloads(rows, keys)
        self._check_sizes(payloads)
        topics, codes = self._topics(rows)
        more = self._more(rows)
        for code, topic in enumerate(topics):
            if len(topics) == 1:
                yield from self._parts(topic, payloads, keys, more)
                continue
            places = pa.array(np.flatnonzero(codes == code))
            keys_of = None if keys is None else keys.take(places)
            more_of = [each.take(places) for each in more]
            yield from self._parts(topic, payloads.take(places), keys_of, more_of)

    def _parts(
        self, topic: str, payloads: pa.Array, keys: pa.Array | None, more: Sequence[pa.Array]
    ) -> Iterator[TopicMessages]:
        """Cut into lists; one without keys is for one partition, so that they are spread."""
        if keys is not None and keys.null_count:
            keyless = pc.is_null(keys)
            yield from self._parts(
                topic, payloads.filter(keyless), None, [each.filter(keyless) for each in more]
            )
            keyed = pc.invert(keyless)
            payloads, keys = payloads.filter(keyed), keys.filter(keyed)
            more = [each.filter(keyed) for each in more]
        size = self._options.batch_size if keys is None else _KEYED_LIST
        for start in range(0, len(payloads), size):
            messages = payloads.slice(start, size).to_pylist()
            if more:
                headers, times = (each.slice(start, size).to_pylist() for each in more)
                messages = list(map(_record, messages, headers, times))
            elif None in messages:
                messages = list(map(RecordData, messages))
            found = None if keys is None else Keys(keys.slice(start, size).to_pylist())
            yield TopicMessages(topic, messages, found)

    # -- columns --------------------------------------------------------------------------------

    def _column(self, rows: pa.RecordBatch, name: str) -> pa.Array:
        place = self._places.get(name)
        return pa.nulls(rows.num_rows, pa.string()) if place is None else rows.column(place)

    def _more(self, rows: pa.RecordBatch) -> Sequence[pa.Array]:
        if "headers" not in self._places and "timestamp" not in self._places:
            return ()
        times = self._column(rows, "timestamp")
        if "timestamp" in self._places:
            times = pc.floor_temporal(times, unit="millisecond").cast(pa.timestamp("ms", "UTC"))
            times = times.cast(pa.int64())
        return self._column(rows, "headers"), times

    def _payloads(self, rows: pa.RecordBatch, keys: pa.Array | None) -> pa.Array:
        """What is sent; null for a tombstone, which is of its key."""
        column, name = self._column(rows, "value"), self._options.id_column
        if name is None and keys is not None:
            _without_nulls(column.filter(pc.is_null(keys)), "value", _OR_A_KEY)
            return _binary(column)
        values = _binary(_without_nulls(column, "value", _OR_A_KEY if name is None else ""))
        if name is None:
            return values
        ids = _binary(_without_nulls(self._column(rows, name), name))
        return add_ids(ids, values)

    def _topics(self, rows: pa.RecordBatch) -> tuple[list[str], "np.ndarray[Any, Any]"]:
        if self._options.topic is not None:
            return [self._options.topic], np.zeros(rows.num_rows, np.int64)
        topics, codes = _coded(_without_nulls(self._column(rows, "topic"), "topic"))
        for topic in topics:
            check_topic_name(topic)
        return topics, codes

    def _check_sizes(self, payloads: pa.Array) -> None:
        largest = pc.max(pc.binary_length(payloads)).as_py() or 0
        if largest > self._options.max_message_bytes:
            raise ConfigError(
                "maxMessageBytes",
                f"a message has {largest} bytes, more than {self._options.max_message_bytes}: "
                "make it smaller, or raise this and max_message_bytes of the brokers",
            )


def _places(schema: StructType, options: SinkOptions, ignored: frozenset[str]) -> dict[str, int]:
    """Check the columns, and find those that are used. Spark ignores case in their names."""
    expected: dict[str, tuple[type[DataType], ...]] = {
        "value": _BYTES,
        "topic": _TEXT,
        "key": _KEYS,
        "headers": _HEADERS,
        "timestamp": _TIMES,
    }
    if options.id_column is not None:
        expected.setdefault(options.id_column, _BYTES)
    names = {name.lower(): name for name in expected}
    places: dict[str, int] = {}
    for place, field in enumerate(schema.fields):
        if field.name.lower() in ignored:
            continue
        name = names.get(field.name.lower())
        if name is None or name in places:
            why = "appears twice" if name else "has no meaning here: leave it out"
            listed = ", ".join(expected)
            raise ConfigError(f"column {field.name!r}", f"{why}; the columns are {listed}")
        if not isinstance(field.dataType, expected[name]) or (
            name == "headers" and not _are_headers(field.dataType)
        ):
            raise ConfigError(
                f"column {field.name!r}",
                f"expected {_IN_WORDS[expected[name]]}, got {field.dataType.simpleString()}",
            )
        places[name] = place
    if "value" not in places:
        raise ConfigError("column 'value'", "is missing: it holds the messages")
    if options.topic is None and "topic" not in places:
        raise ConfigError("topic", "no topic to write to: give this option, or a column topic")
    if options.id_column is not None and options.id_column not in places:
        raise ConfigError("idColumn", f"there is no column {options.id_column!r}")
    return places


def _are_headers(kind: DataType) -> bool:
    element = kind.elementType if isinstance(kind, ArrayType) else None
    kinds = (
        [type(each.dataType) for each in element.fields] if isinstance(element, StructType) else []
    )
    return kinds == [StringType, BinaryType]


def _record(
    value: bytes | None, headers: list[dict[str, Any]] | None, timestamp_ms: int | None
) -> RecordData:
    pairs = tuple(tuple(each.values()) for each in headers or ())
    return RecordData(value, pairs, timestamp_ms)


def _coded(column: pa.Array) -> tuple[list[Any], "np.ndarray[Any, Any]"]:
    """Number the distinct values of a column: the values (null is one), and each row's number."""
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


def _without_nulls(column: pa.Array, name: str, otherwise: str = "") -> pa.Array:
    if column.null_count:
        raise EncodingError(
            f"column {name!r} is null in {column.null_count} of {len(column)} rows, and every "
            f"message needs one: leave such rows out, or fill it in{otherwise}"
        )
    return column


def _binary(column: pa.Array) -> pa.Array:
    is_large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    return column.cast(pa.large_binary() if is_large else pa.binary())
