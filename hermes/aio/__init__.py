"""The client library for asyncio: `async with`, `async for`, the same names and errors.

Modules in reading order:

    channel              conversations, awaited: the other driver of `hermes.client.conversations`
    asyncio_connection   the socket
    event_loops          what members of groups need of a loop
    simple_consumer, producer, groups, retrying
                         the twins
    twisted              the same for Twisted's reactor; imported by itself only

What is shared is in `hermes.client`.
"""

from hermes.aio.groups import AsyncRebalanceListener, Connector, Consumer, MessageStream
from hermes.aio.producer import Producer
from hermes.aio.retrying import RetryingConsumer
from hermes.aio.simple_consumer import SimpleConsumer

__all__ = [
    "AsyncRebalanceListener",
    "Connector",
    "Consumer",
    "MessageStream",
    "Producer",
    "RetryingConsumer",
    "SimpleConsumer",
]
