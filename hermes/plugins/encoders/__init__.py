"""The built-in encoders, found by name through the entry points `hermes.encoders`.

Each is its own decoder. `msgpack` needs the extra of the same name, `avro` and `avro-registry` the
extra `avro`.
"""
