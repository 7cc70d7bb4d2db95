"""Kafka 4's protocol, on its own listener (`kafka_listen`): an adapter over the rooms below.

`connection` cuts bytes into frames; `dispatching` decodes a frame by the schemas of the package
`kio`, has the one handler that `apis` names carry it out, and sends what that returns. A handler
gets the request and a `Call` (`calls`): the client, its permissions, the response's constructors.
Topics, partitions and groups are the business of `hermes.cluster`, `hermes.partition` and
`hermes.groups`. Nothing of this is imported by a broker without `kafka_listen`, and `kio` not
before a client asks.

The other way, `other_brokers` connects to another broker, and `outgoing` asks it; bodies are bytes.
"""
