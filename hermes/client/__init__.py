"""The client library: blocking, thread-safe, no reactor. It stands on `hermes.protocol` alone."""

from hermes.client.connection import BrokerConnection

__all__ = ["BrokerConnection"]
