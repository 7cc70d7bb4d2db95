"""A schema registry's client side: looking up and caching schemas, writing and reading payloads.

`registry_client` asks a registry, Hermes' own or any with Confluent's REST interface, for schemas
(`registered`), and caches what never changes (`response_cache`); `exchanges` carries a request over
HTTP, with retries, to one of the `addresses`. `records` makes payloads of values as Confluent's
serializers do (`framing`, `subjects`), and needs fastavro (the extra `avro`); nothing else here
does. Everything blocks, and may be used by several threads. Knows no broker.
"""

from hermes.schemas.registered import RegisteredSchema, SchemaReference
from hermes.schemas.registry_client import RegistryClient

__all__ = ["RegisteredSchema", "RegistryClient", "SchemaReference"]
