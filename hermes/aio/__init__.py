"""The client library for asyncio: `async with`, `async for`, the same names and errors.

channel              conversations, awaited: the other driver of `hermes.client.conversations`
asyncio_connection   the socket
simple_consumer, producer
the twins
"""

from hermes.aio.producer import Producer, await_handle
from hermes.aio.simple_consumer import SimpleConsumer

__all__ = ["Producer", "SimpleConsumer", "await_handle"]
