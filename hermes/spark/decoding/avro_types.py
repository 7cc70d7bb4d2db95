"""What Avro's types are to Spark and to Arrow.

Owns the table of types and the refusal of what has no counterpart; reads no values.

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
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import fastavro
import pyarrow as pa
from pyspark.sql import types as spark

from hermes.errors import ConfigError
from hermes.plugins.avro_limits import check_items

__all__ = ["parsed_schema", "schema_text", "to_arrow", "to_spark"]

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

_ARROW: Final[Mapping[type[spark.DataType], pa.DataType]] = {
    spark.BooleanType: pa.bool_(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.StringType: pa.string(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimestampType: pa.timestamp("us", tz="UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
}


def schema_text(schema: Any, argument: str) -> str:
    """Write a schema as JSON, with which it travels to the workers.

    Args:
        schema: what `json.load` gives, or the JSON text.
        argument: what the error names.

    Raises:
        ConfigError: it is no Avro schema, or no record, or holds what has no counterpart.
    """
    try:
        given = json.loads(schema) if isinstance(schema, str) else schema
        text = json.dumps(given)
        parsed = parsed_schema(text)
    except Exception as error:  # whatever fastavro and json raise for what they can't read
        raise ConfigError(argument, f"no Avro schema: {error}") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise ConfigError(argument, "expected the schema of a record")
    to_spark(text, argument)
    return text


def parsed_schema(text: str) -> Any:
    """Parse a schema's JSON, for reading values; strings stay strings where they are UUIDs."""
    # A name may come again in another version of the schema, so nothing is shared.
    return fastavro.parse_schema(_without_uuids(json.loads(text)), named_schemas={})


def _without_uuids(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_uuids(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _without_uuids(value) for key, value in schema.items()}
    if kept.get("type") == "string" and kept.get("logicalType") == "uuid":
        del kept["logicalType"]
    return kept


def to_spark(text: str, argument: str) -> spark.StructType:
    """Find Spark's type for a record's schema.

    Args:
        text: from `schema_text`.
        argument: what the error names.

    Returns:
        The struct. To Spark every field is nullable: dead letters are.

    Raises:
        ConfigError: a type has no counterpart; the text names the field.
    """
    named: dict[str, Any] = {}
    parsed = fastavro.parse_schema(json.loads(text), named_schemas=named)
    try:
        check_items(parsed, named)
    except ValueError as error:
        raise ConfigError(argument, str(error)) from error
    found = _Translation(named, argument).of(parsed, "", ())
    assert isinstance(found, spark.StructType)
    return found


def to_arrow(kind: spark.DataType) -> pa.DataType:
    """Find Arrow's type for what `to_spark` gave."""
    match kind:
        case spark.StructType():
            return pa.struct([(field.name, to_arrow(field.dataType)) for field in kind.fields])
        case spark.ArrayType():
            return pa.list_(to_arrow(kind.elementType))
        case spark.MapType():
            return pa.map_(pa.string(), to_arrow(kind.valueType))
        case spark.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
    return _ARROW[type(kind)]


class _Translation:
    """One schema's way to Spark: its named types, and what errors are about."""

    def __init__(self, named: Mapping[str, Any], argument: str) -> None:
        self._named = named
        self._argument = argument

    def of(self, schema: Any, path: str, around: tuple[str, ...]) -> spark.DataType:
        """Translate a type; `around` has the names of the records that it stands in."""
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        if isinstance(schema, list):
            return self._union(schema, path, around)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, path, around)
        if "logicalType" in schema:
            return self._logical(schema, path)
        match kind:
            case "record":
                return self._record(schema, path, around)
            case "array":
                return spark.ArrayType(self.of(schema["items"], f"{path}[]", around))
            case "map":
                held = self.of(schema["values"], f"{path}{{}}", around)
                return spark.MapType(spark.StringType(), held)
        if kind not in _PRIMITIVE:
            raise self._refused(path, kind)
        return _PRIMITIVE[kind]

    def _union(self, branches: list[Any], path: str, around: tuple[str, ...]) -> spark.DataType:
        others = [branch for branch in branches if branch not in ("null", {"type": "null"})]
        if len(others) != 1:
            raise self._refused(path, "a union of anything but null and one type")
        return self.of(others[0], path, around)

    def _record(self, schema: Any, path: str, around: tuple[str, ...]) -> spark.DataType:
        if schema["name"] in around:
            raise self._refused(path, f"the record {schema['name']} within itself")
        if not schema["fields"]:
            raise self._refused(path, "a record without fields")
        within = (*around, schema["name"])
        result = spark.StructType()
        for field in schema["fields"]:
            inner = f"{path}.{field['name']}" if path else field["name"]
            result.add(field["name"], self.of(field["type"], inner, within))
        return result

    def _logical(self, schema: Any, path: str) -> spark.DataType:
        kind, logical = schema["type"], schema["logicalType"]
        if logical == "decimal" and kind in ("bytes", "fixed"):
            precision = schema["precision"]
            if precision > _MAX_PRECISION:
                raise self._refused(path, f"a decimal of {precision} digits")
            return spark.DecimalType(precision, schema.get("scale", 0))
        if (kind, logical) not in _LOGICAL:
            raise self._refused(path, f"{logical} as {kind}")
        return _LOGICAL[kind, logical]

    def _refused(self, path: str, what: str) -> ConfigError:
        return ConfigError(self._argument, f"{path or 'the schema'}: {what} is not supported")
