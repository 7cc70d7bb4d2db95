"""Avro with the writer's schema named in each payload, through `fastavro` (the extra `avro`).

The framing is that of schema registries, `hermes.schemas.framing`; the encoder `avro-registry` gets
its schemas from one. `hermes.avro.limits` refuses what would cost too much.
"""

from collections.abc import Mapping
from typing import Any

from zope.interface import implementer

from hermes.avro.reader import AvroReader
from hermes.avro.schema import configured_schema
from hermes.errors import ConfigError, EncodingError
from hermes.interfaces import IDecoder, IEncoder
from hermes.schemas.framing import HEADER_BYTES, MAX_ID, header, schema_id_of


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
        if type(schema_id) is not int or not 0 <= schema_id <= MAX_ID:
            raise ConfigError(
                "encoder_options.schema_id", f"expected 0 to {MAX_ID}, got {schema_id!r}"
            )
        self._schema = configured_schema("encoder_options.schema", schema)
        self._header = header(schema_id)
        self._by_id = {schema_id: AvroReader(self._schema)}
        for number, older in (older_schemas or {}).items():
            key = f"encoder_options.older_schemas.{number}"
            if int(number) == schema_id:
                raise ConfigError(
                    "encoder_options.older_schemas", f"{schema_id} is the id of the schema in use"
                )
            self._by_id[int(number)] = AvroReader(configured_schema(key, older), self._schema)

    def encode(self, topic: str, value: Any) -> bytes:
        return self._header + self._schema.write(value)

    def decode(self, topic: str, payload: bytes) -> Any:
        schema_id = schema_id_of(payload)
        reader = self._by_id.get(schema_id)
        if reader is None:
            raise EncodingError(
                f"the payload was written with schema {schema_id}; add it to older_schemas"
            )
        try:
            return reader.read(payload, HEADER_BYTES)
        except EncodingError as error:
            raise EncodingError(f"written with schema {schema_id}: {error}") from error
