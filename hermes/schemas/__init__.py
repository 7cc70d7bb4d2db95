"""A schema registry's client side: looking up and caching schemas, writing and reading values.

Modules in reading order:

    avro_limits        limits for Avro
    avro               one Avro schema, parsed and checked, which writes values
    avro_reading       values read, as they were written or resolved to a reader's schema
    logical_types      Python's values for logical types
    json_values        records as JSON, as people type and read them
    framing            the five bytes before each value: 0 and the schema's id
    subjects           the subject names for a topic's schemas
    addresses          registry addresses, and their display without credentials
    exchanges          one request and its response over HTTP, with retries
    registered         schemas as a registry has them
    kept               a cache of immutable responses
    registry_client    `RegistryClient`: requests to a registry, cached where immutable
    records            `RecordWriter` and `RecordReader`: values to payloads and back

Registries are Hermes' own or any with Confluent's REST interface, and payloads are those of
Confluent's serializers. Everything blocks, and may be used by several threads. Knows no broker.
What reads and writes Avro needs fastavro (the extra `avro`): `avro`, `avro_reading`,
`logical_types`, `json_values` and `records`.
"""

from hermes.schemas.registered import RegisteredSchema, SchemaReference
from hermes.schemas.registry_client import RegistryClient

__all__ = ["RegisteredSchema", "RegistryClient", "SchemaReference"]
