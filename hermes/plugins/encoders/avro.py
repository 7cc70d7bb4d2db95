"""Avro with the writer's schema named in each payload, through `fastavro` (the extra `avro`).

The framing is that of schema registries, so that one can be added later without a change:

    0  int8   0, the framing's version
    1  int32  the schema's id, big-endian
    5  ...    the value in Avro's binary encoding

`hermes.plugins.avro_limits` says what is refused because of its cost.
"""

import io
import json
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import fastavro
from zope.interface import implementer

from hermes.errors import ConfigError, EncodingError
from hermes.interfaces import IDecoder, IEncoder
from hermes.plugins.avro_limits import check_depth, check_items, check_nesting, is_recursive

_FRAME: Final = struct.Struct(">bi")


class _Schema(NamedTuple):
    """A schema, its named types, and whether a record of it holds records of its own kind."""

    parsed: Any
    named: Mapping[str, Any]
    recurs: bool


@implementer(IEncoder, IDecoder)
class AvroEncoder:
    """Encodes with one schema; decodes what was written with it or with older ones.

    Args:
        schema: the schema to write with, to which older values are converted: what `json.load`
            returns, or the JSON text itself.
        schema_id: 0 to 2^31 - 1; identifies the schema in every payload. An id must never be used
            for two schemas.
        older_schemas: the schemas, by id, of older payloads in the log.
    """

    def __init__(
        self,
        schema: Any,
        schema_id: int,
        older_schemas: Mapping[int, Any] | None = None,
    ) -> None:
        if type(schema_id) is not int or not 0 <= schema_id < 2**31:
            raise ConfigError(
                "encoder_options.schema_id", f"expected 0 to {2**31 - 1}, got {schema_id!r}"
            )
        self._schema = _parsed(schema, "encoder_options.schema")
        self._prefix = _FRAME.pack(0, schema_id)
        self._by_id = {
            int(number): _parsed(older, f"encoder_options.older_schemas.{number}")
            for number, older in (older_schemas or {}).items()
        }
        if schema_id in self._by_id:
            raise ConfigError(
                "encoder_options.older_schemas", f"{schema_id} is the id of the schema in use"
            )
        self._by_id[schema_id] = self._schema

    def encode(self, topic: str, value: Any) -> bytes:
        """See `IEncoder`."""
        buffer = io.BytesIO()
        buffer.write(self._prefix)
        schema = self._schema
        try:
            if schema.recurs:
                check_nesting(value)
            fastavro.schemaless_writer(buffer, schema.parsed, value)
            if schema.recurs:
                check_depth(buffer.getvalue(), _FRAME.size, schema.parsed, schema.named)
        except Exception as error:  # fastavro lets everything through that the value's types raise
            raise EncodingError(
                f"a {type(value).__name__} does not fit the schema: {type(error).__name__}: {error}"
            ) from error
        return buffer.getvalue()

    def decode(self, topic: str, payload: bytes) -> Any:
        """See `IDecoder`."""
        if len(payload) < _FRAME.size or payload[0] != 0:
            raise EncodingError("the payload doesn't start with 0 and a schema id")
        (_, schema_id) = _FRAME.unpack_from(payload)
        writer = self._by_id.get(schema_id)
        if writer is None:
            raise EncodingError(
                f"the payload was written with schema {schema_id}; add it to older_schemas"
            )
        body = io.BytesIO(payload)
        body.seek(_FRAME.size)
        reader = None if writer is self._schema else self._schema.parsed
        try:
            if writer.recurs:
                check_depth(payload, _FRAME.size, writer.parsed, writer.named)
            value = fastavro.schemaless_reader(body, writer.parsed, reader)
        except Exception as error:  # EOFError, IndexError, UnicodeDecodeError, MemoryError, ...
            raise EncodingError(
                f"the payload is not a value of schema {schema_id}: {type(error).__name__}: {error}"
            ) from error
        if body.tell() != len(payload):
            raise EncodingError(f"{len(payload) - body.tell()} bytes follow the value")
        return value


def _parsed(schema: Any, key: str) -> _Schema:
    # Another version of the schema may use the same name, so nothing is shared.
    named: dict[str, Any] = {}
    try:
        given = json.loads(schema) if isinstance(schema, str) and schema[:1] in "{[" else schema
        parsed = fastavro.parse_schema(given, named_schemas=named)
        check_items(parsed, named)
        return _Schema(parsed, named, is_recursive(parsed, named))
    except Exception as error:
        raise ConfigError(key, f"not an Avro schema: {error}") from error
