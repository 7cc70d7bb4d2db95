"""Avro schemas and values, read from anybody: within limits, with errors that say where.

A schema is a graph of types (`graph`). Two ways lead to it: `parsing` holds a schema to the
specification and says where it breaks it, for the registry; `schema` takes what fastavro takes, for
whoever writes and reads values. On the graph stand all rules: `defaults`, `normal_form`,
`compatibility` of two schemas, `limits` for what a schema may cost, and the values of `reader` and
`json_values`.

fastavro (the extra `avro`) is imported by `schema`, `reader`, `logical_types` and `json_values`
only: a registry needs none. Knows no registry, no broker and no Spark.
"""
