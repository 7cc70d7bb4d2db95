"""Records to payloads and back, with the schemas of a registry.

writer = RecordWriter(registry, schema)
payload = writer.write("clicks", {"page": "/", "member": None})
record = RecordReader(registry).read(payload)
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hermes.avro.json_values import value_to_json
from hermes.avro.reader import AvroReader
from hermes.avro.schema import AvroSchema, configured_schema
from hermes.errors import ConfigError, EncodingError, UnknownSchemaError
from hermes.schemas.framing import HEADER_BYTES, header, schema_id_of
from hermes.schemas.registered import RegisteredSchema, SchemaReference
from hermes.schemas.registry_client import RegistryClient
from hermes.schemas.subjects import subject_of

_AVRO: Final = "AVRO"
_JSON: Final = "JSON"
# Of how many schemas the decoders are kept; then they are made again.
_MOST_DECODERS: Final = 1_000


class RecordWriter:
    """Writes values of one schema, with its id before each. Any number of threads may use it.

    Args:
        schema: what `json.load` returns, or the JSON text.
        subject: where the schema is registered, whatever the topic; None to take `strategy`.
        strategy: one of `hermes.schemas.subjects.STRATEGIES`.
        references: the registered schemas whose types it names.
        may_register: whether to register the schema if it isn't yet.

    Raises:
        ConfigError: the schema or the strategy can't be used.
        HermesError: the registry refused a reference, or can't be reached.
    """

    def __init__(
        self,
        registry: RegistryClient,
        schema: Any,
        *,
        subject: str | None = None,
        strategy: str = "topic",
        references: Sequence[SchemaReference] = (),
        may_register: bool = True,
    ) -> None:
        self._registry = registry
        self._references = tuple(references)
        self.schema = configured_schema("schema", schema, _referenced(registry, self._references))
        try:
            self._subject_of = _subject_namer(subject, strategy, self.schema.name)
        except ValueError as error:
            raise ConfigError("subject_strategy", str(error)) from error
        self._id_of = registry.register if may_register else registry.id_of
        self._headers: dict[str, bytes] = {}

    def prepare(self, topic: str) -> int:
        """Register or look up the schema for a topic, and return its id.

        Raises:
            IncompatibleSchemaError: it doesn't fit the subject's earlier versions.
            UnknownSchemaError: it isn't registered, and may not be.
            HermesError: the registry refused it, or can't be reached.
        """
        subject = self._subject_of(topic)
        number = self._id_of(subject, self.schema.text, _AVRO, self._references)
        self._headers[topic] = header(number)
        return number

    def write(self, topic: str, value: Any) -> bytes:
        """Make a payload of a value; fields that the schema doesn't have are an error.

        Raises:
            EncodingError: it doesn't fit the schema.
            HermesError: as `prepare`.
        """
        body = self.schema.write(value, is_strict=True)
        prefix = self._headers.get(topic)
        if prefix is None:
            prefix = header(self.prepare(topic))
        return prefix + body


class RecordReader:
    """Reads payloads with a schema's id in front. Any number of threads may use it.

    Values written with Avro become what fastavro reads; those of JSON Schema are JSON, which is
    not checked against it.

    Args:
        reader_schema: an Avro schema, to which values are resolved: what `json.load` returns, or
            the JSON text. None to take them as they were written.
        referenced: the schemas whose types it names, in dependency order.
        keep_uuids_as_text: whether strings that are UUIDs stay strings.

    Raises:
        ConfigError: the reader's schema can't be used.
    """

    def __init__(
        self,
        registry: RegistryClient,
        reader_schema: Any = None,
        *,
        referenced: Sequence[Any] = (),
        keep_uuids_as_text: bool = False,
    ) -> None:
        self._registry = registry
        self._keep_uuids_as_text = keep_uuids_as_text
        self._reader: AvroSchema | None = None
        if reader_schema is not None:
            self._reader = configured_schema(
                "reader_schema", reader_schema, referenced, keep_uuids_as_text=keep_uuids_as_text
            )
        self._decoders: dict[int, _Decoder] = {}

    def read(self, payload: bytes) -> Any:
        """Read a payload.

        Raises:
            EncodingError: it has no id, or one that the registry doesn't know, or isn't a value of
                that schema, or can't be resolved to the reader's.
            SchemaRegistryError: the registry refused, or its response is malformed.
            RegistryUnavailableError: it can't be reached. The payload may be good.
        """
        return self._decoder_of(schema_id_of(payload))(payload)

    def read_as_json(self, payload: bytes) -> bytes:
        """Read a payload as `read`, and write its value as one line of JSON."""
        return value_to_json(self.read(payload))

    def _decoder_of(self, schema_id: int) -> "_Decoder":
        decoder = self._decoders.get(schema_id)
        if decoder is None:
            try:
                registered = self._registry.by_id(schema_id)
                decoder = self._new_decoder(registered)
            except UnknownSchemaError as error:
                raise EncodingError(str(error)) from error
            if len(self._decoders) >= _MOST_DECODERS:
                self._decoders.clear()
            self._decoders[schema_id] = decoder
        return decoder

    def _new_decoder(self, registered: RegisteredSchema) -> "_Decoder":
        """The function for a schema. One that can't be used is remembered, too: it won't change."""
        schema_id = registered.schema_id
        if registered.schema_type == _JSON and self._reader is None:
            return lambda payload: _read_json(schema_id, payload)
        if registered.schema_type != _AVRO:
            return _refusal(f"schema {schema_id} is of type {registered.schema_type}, not Avro")
        *referenced, text = self._registry.texts(registered)
        try:
            writer = AvroSchema(text, referenced, keep_uuids_as_text=self._keep_uuids_as_text)
            reader = AvroReader(writer, self._reader)
        except ValueError as error:
            return _refusal(f"schema {schema_id} can't be used: {error}")
        return lambda payload: _read_avro(schema_id, reader, payload)


_Decoder = Callable[[bytes], Any]


def _refusal(reason: str) -> _Decoder:
    def refuse(payload: bytes) -> Any:
        raise EncodingError(reason)

    return refuse


def _read_avro(schema_id: int, reader: AvroReader, payload: bytes) -> Any:
    try:
        return reader.read(payload, HEADER_BYTES)
    except EncodingError as error:
        raise EncodingError(f"written with schema {schema_id}: {error}") from error


def _read_json(schema_id: int, payload: bytes) -> Any:
    try:
        return json.loads(payload[HEADER_BYTES:])
    except (ValueError, RecursionError) as error:
        raise EncodingError(f"written with schema {schema_id}, but not JSON: {error}") from error


def references_of(given: Sequence[Mapping[str, Any] | SchemaReference]) -> list[SchemaReference]:
    """Read references as Confluent's interface writes them; ConfigError if one isn't complete."""
    try:
        return [
            each if isinstance(each, SchemaReference) else SchemaReference(**each) for each in given
        ]
    except TypeError as error:
        raise ConfigError(
            "references", "expected name, subject and version of each referenced schema"
        ) from error


def _referenced(registry: RegistryClient, references: Sequence[SchemaReference]) -> Sequence[str]:
    if not references:
        return ()
    *referenced, _ = registry.texts(RegisteredSchema(-1, "", references=tuple(references)))
    return referenced


def _subject_namer(subject: str | None, strategy: str, record: str | None) -> Callable[[str], str]:
    if subject is not None:
        return lambda topic: subject
    subject_of(strategy, "", record)  # raises what there is to raise
    return lambda topic: subject_of(strategy, topic, record)
