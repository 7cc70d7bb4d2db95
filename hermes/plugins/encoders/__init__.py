"""The built-in encoders, found by name through the entry points `hermes.encoders`.

Each is its own decoder. `msgpack` and `avro` need the extras of the same names.
"""
