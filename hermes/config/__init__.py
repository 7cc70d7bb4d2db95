"""Settings: what broker.yaml and mirror.yaml may hold, and the import of Kafka 0.7's properties.

`broker.BrokerConfig` is the one table of a broker's settings; `loading` reads a file into it.
Imports neither Twisted nor the broker, so that tools can use it as well.

Nothing here is imported before it is asked for: commands that only read a size need no table.
"""
