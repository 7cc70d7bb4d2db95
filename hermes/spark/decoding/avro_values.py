"""Avro schemas as types of Spark and Arrow, and payloads as Arrow columns: a worker's share.

    Avro                                Spark
    boolean, int, long, float, double   boolean, int, bigint, float, double
    string, enum, uuid (a string)       string
    bytes, fixed                        binary
    record, array, map                  struct, array, map<string, ...>
    union of null and one type          that type, nullable
    int date                            date
    long timestamp-millis, -micros      timestamp
    long local-timestamp-millis, ...    timestamp_ntz
    bytes or fixed decimal(p <= 38, s)  decimal(p, s)

Other logical types are refused, and so are unions of several types, records within themselves,
records without fields, null for a type, and arrays whose items take no bytes.

Avro has no checksums: damaged bytes that happen to be a value of the schema are taken for it.
Noticed are bytes that end early or are left over, text that isn't UTF-8, branches and symbols that
the schema doesn't have, and values that the columns can't hold.

Imports fastavro, in `hermes.avro.schema`; knows no DataFrames.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from hermes.avro.graph import AvroType, decimal_of
from hermes.avro.reader import AvroReader
from hermes.avro.schema import AvroSchema, configured_schema
from hermes.errors import ConfigError, EncodingError
from hermes.protocol.stamps import without_stamp
from hermes.schemas.framing import HEADER_BYTES, schema_id_of
from hermes.schemas.records import RecordReader
from hermes.schemas.registry_client import RegistryClient
from hermes.spark.identity import NOBODY, ClientIdentity

_PRIMITIVE: Final[Mapping[str, spark.DataType]] = {
    "boolean": spark.BooleanType(),
    "int": spark.IntegerType(),
    "long": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "string": spark.StringType(),
    "enum": spark.StringType(),
    "bytes": spark.BinaryType(),
    "fixed": spark.BinaryType(),
}
_LOGICAL: Final[Mapping[tuple[str, str], spark.DataType]] = {
    ("string", "uuid"): spark.StringType(),
    ("int", "date"): spark.DateType(),
    ("long", "timestamp-millis"): spark.TimestampType(),
    ("long", "timestamp-micros"): spark.TimestampType(),
    ("long", "local-timestamp-millis"): spark.TimestampNTZType(),
    ("long", "local-timestamp-micros"): spark.TimestampNTZType(),
}
_MAX_PRECISION: Final = 38

_MAX_REASON: Final = 300

# How long a worker waits for a registry before its task fails, which Spark tries again.
_REGISTRY_SECONDS: Final = 60.0

# What building an array from fastavro's values can raise: an int32 from a longer varint, a decimal
# with more digits than its schema says.
_UNFIT: Final = (pa.ArrowException, OverflowError, TypeError, ValueError)


def schema_text(schema: Any, argument: str) -> str:
    """Write a schema as JSON, with which it travels to the workers. Raises ConfigError."""
    found = _parsed(schema, argument)
    _translated(found, argument)
    return found.text


def to_spark(text: str, argument: str, referenced: tuple[str, ...] = ()) -> spark.StructType:
    """Find Spark's type for a record's schema, and those that it refers to, in dependency order.

    To Spark every field is nullable, since dead letters are null. A ConfigError about a type
    without a counterpart names `argument` and the field.
    """
    return _translated(_parsed(text, argument, referenced), argument)


def _parsed(schema: Any, argument: str, referenced: tuple[str, ...] = ()) -> AvroSchema:
    return configured_schema(argument, schema, referenced, keep_uuids_as_text=True)


def _translated(schema: AvroSchema, argument: str) -> spark.StructType:
    if not schema.is_record:
        raise ConfigError(argument, "expected the schema of a record")
    found = _Translation(argument).of(schema.root, "", ())
    assert isinstance(found, spark.StructType)
    return found


def to_arrow(kind: spark.DataType) -> pa.DataType:
    return to_arrow_type(kind, timezone="UTC")


class _Translation:
    def __init__(self, argument: str) -> None:
        self._argument = argument

    def of(self, kind: AvroType, path: str, around: tuple[AvroType, ...]) -> spark.DataType:
        """Translate a type; `around` has the records that enclose it."""
        if kind.kind == "union":
            others = [branch for branch in kind.branches if branch.kind != "null"]
            if len(others) != 1:
                raise self._refused(path, "a union of anything but null and one type")
            return self.of(others[0], path, around)
        if "logicalType" in kind.properties:
            return self._logical(kind, path)
        if kind.kind == "record":
            return self._record(kind, path, around)
        if kind.items is not None:
            is_map = kind.kind == "map"
            held = self.of(kind.items, path + ("{}" if is_map else "[]"), around)
            return spark.MapType(spark.StringType(), held) if is_map else spark.ArrayType(held)
        if kind.kind not in _PRIMITIVE:
            raise self._refused(path, kind.kind)
        return _PRIMITIVE[kind.kind]

    def _record(self, kind: AvroType, path: str, around: tuple[AvroType, ...]) -> spark.StructType:
        if kind in around:
            raise self._refused(path, f"the record {kind.name} within itself")
        if not kind.fields:
            raise self._refused(path, "a record without fields")
        result = spark.StructType()
        for field in kind.fields:
            inner = f"{path}.{field.name}" if path else field.name
            result.add(field.name, self.of(field.type, inner, (*around, kind)))
        return result

    def _logical(self, kind: AvroType, path: str) -> spark.DataType:
        logical = kind.properties["logicalType"]
        decimal = decimal_of(kind)
        if decimal is not None:
            if decimal[0] > _MAX_PRECISION:
                raise self._refused(path, f"a decimal of {decimal[0]} digits")
            return spark.DecimalType(*decimal)
        if (kind.kind, logical) not in _LOGICAL:
            raise self._refused(path, f"{logical} as {kind.kind}")
        return _LOGICAL[kind.kind, logical]

    def _refused(self, path: str, what: str) -> ConfigError:
        return ConfigError(self._argument, f"{path or 'the schema'}: {what} is not supported")


# -- values -------------------------------------------------------------------------------------


class AvroFormat(NamedTuple):
    """How values were written and are to be read; hashable, and cheap to send to a worker.

    Attributes:
        writers: (id, schema as JSON) of each schema that values may have been written with; for
            values without framing there is one, with the id None.
        reader: the schema to resolve them to, as JSON; None to take them as they are.
        registry: the URL of the registry that has the writers' schemas, instead of `writers`.
        referenced: the schemas that the reader's refers to, in dependency order.
    """

    writers: tuple[tuple[int | None, str], ...]
    reader: str | None
    registry: str | None = None
    referenced: tuple[str, ...] = ()
    identity: ClientIdentity = NOBODY


def decode_batch(
    payloads: Iterable[bytes | None], rules: AvroFormat, kind: pa.DataType
) -> pa.Array:
    """Decode payloads to a struct array (value, reason), one of the two null in each place.

    A HermesError is the registry's: no payload is to blame.
    """
    decode = _decoder(rules)
    values: list[Any] = []
    reasons: list[str | None] = []
    for payload in payloads:
        value = reason = None
        if payload:
            try:
                value = decode(payload)
            except EncodingError as refusal:
                reason = str(refusal)[:_MAX_REASON]
        else:
            reason = "the value is null" if payload is None else "the value is empty"
        values.append(value)
        reasons.append(reason)
    column = _fitting(values, reasons, kind)
    return pa.StructArray.from_arrays(
        [column, pa.array(reasons, pa.string())], names=["value", "reason"]
    )


@functools.lru_cache(maxsize=64)
def _decoder(rules: AvroFormat) -> Callable[[bytes], Any]:
    """Make the function from payload to value; it raises `EncodingError`.

    Kept for the worker's life, so that a registry is asked once for each schema.
    """
    if rules.registry is not None:
        settings = rules.identity.security().settings()
        client = RegistryClient(rules.registry, retry_seconds=_REGISTRY_SECONDS, **settings)
        records = RecordReader(
            client, rules.reader, referenced=rules.referenced, keep_uuids_as_text=True
        )
        return lambda payload: records.read(without_stamp(payload))
    reader = None if rules.reader is None else _parsed(rules.reader, "reader_schema")
    readers = {
        number: AvroReader(_parsed(text, "schema"), reader) for number, text in rules.writers
    }
    if None in readers:
        return readers[None].read

    def decode(payload: bytes) -> Any:
        payload = without_stamp(payload)
        number = schema_id_of(payload)
        if number not in readers:
            raise EncodingError(f"written with schema {number}, which was not given")
        return readers[number].read(payload, HEADER_BYTES)

    return decode


def _fitting(values: list[Any], reasons: list[str | None], kind: pa.DataType) -> pa.Array:
    """Build the column; replace a value that doesn't fit by null, with a reason."""
    try:
        return _column(values, kind)
    except _UNFIT:
        pass
    for row, value in enumerate(values):
        try:
            _column([value], kind)
        except _UNFIT as error:
            values[row], reasons[row] = None, f"not a value of the schema: {error}"[:_MAX_REASON]
    return _column(values, kind)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Build an array from a column per field: twice as fast as from a list of dicts."""
    if not pa.types.is_struct(kind):
        return pa.array(values, kind)
    fields = [kind.field(number) for number in range(kind.num_fields)]
    columns = [
        _column([None if value is None else value[field.name] for value in values], field.type)
        for field in fields
    ]
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=fields, mask=absent)
