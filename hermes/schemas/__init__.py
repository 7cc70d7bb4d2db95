"""A schema registry's client side: looking up and caching schemas, writing and reading values.

In the order of a reading:

    avro_limits        what Avro may cost
    avro               one Avro schema, parsed and checked, which writes values
    avro_reading       values read, as they were written or resolved to a reader's schema
    logical_types      what values of logical types are in Python
    json_values        records as JSON, as people type and read them
    framing            the five bytes before each value: 0 and the schema's id
    subjects           under which name a topic's schemas are registered
    addresses          where registries listen; what of it may be shown
    exchanges          one request and its response over HTTP, tried again where that can help
    registered         schemas as a registry has them
    kept               answers that can't change
    registry_client    `RegistryClient`: what a registry is asked, remembered where it can't change
    records            `RecordWriter` and `RecordReader`: values to payloads and back

Registries are Hermes' own or any with Confluent's REST interface, and payloads are those of
Confluent's serializers. Everything blocks, and may be used by several threads. Knows no broker.
What reads and writes Avro needs fastavro (the extra `avro`): `avro`, `avro_reading`,
`logical_types`, `json_values` and `records`.
"""

from hermes.schemas.registered import RegisteredSchema, SchemaReference
from hermes.schemas.registry_client import RegistryClient

__all__ = ["RegisteredSchema", "RegistryClient", "SchemaReference"]
