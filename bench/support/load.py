"""Load: produce requests from a buffer made beforehand, and fetches into one that is reused.

Both sides of a ratio are served by the same functions, which cost a client as little as Python
allows: `sendall` of a megabyte at a time, `recv_into` one buffer. What is measured is the server.
"""

import asyncio
import random
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from struct import Struct
from typing import TypeAlias

from bench.support.servers import Address
from hermes.protocol import FetchRequest, OffsetsRequest, ProduceRequest, encode_message_set

__all__ = [
    "MESSAGE_BYTES",
    "STORED_BYTES",
    "TOPIC",
    "Chunk",
    "Opens",
    "connect",
    "encoded_produces",
    "fetch",
    "latest_offset",
    "make_payloads",
    "produce",
    "read_answer",
    "send_in_tasks",
    "wait_until_visible",
]

MESSAGE_BYTES = 200

#: What a message takes in the log: its payload and ten bytes of header (magic 1).
STORED_BYTES = MESSAGE_BYTES + 10

TOPIC = "bench"

_CHUNK_MESSAGES = 5_000
_TIMEOUT = Struct("ll").pack(120, 0)  # struct timeval
_LATEST = -1
_ANSWER_HEADER = Struct(">ih")  # int32 size | int16 error
_OFFSETS_BODY = Struct(">iq")  # int32 count | int64 offset


@dataclass(frozen=True, slots=True)
class Chunk:
    """Produce requests, encoded.

    Attributes:
        requests: one after the other, ready to be sent as often as needed.
        messages: how many messages they hold.
    """

    requests: bytes
    messages: int


def make_payloads(count: int) -> list[bytes]:
    """Make distinct, incompressible payloads, the same in every run."""
    source = random.Random(7)
    return [source.randbytes(MESSAGE_BYTES) for _ in range(count)]


async def send_in_tasks(
    send: Callable[[bytes], Awaitable[object]], payloads: list[bytes], count: int
) -> None:
    """Send messages from a task per payload, each of which awaits one send after the other.

    Args:
        send: sends one message, and returns when its outcome is known.
        payloads: what is sent.
        count: how many messages in all; a multiple of the number of payloads.
    """

    async def repeat(payload: bytes) -> None:
        for _ in range(count // len(payloads)):
            await send(payload)

    await asyncio.gather(*map(repeat, payloads))


def encoded_produces(batch: int) -> Chunk:
    """Encode about a megabyte of produce requests for partition 0.

    Args:
        batch: messages per request; divides 5,000.
    """
    payloads = make_payloads(_CHUNK_MESSAGES)
    sets = (
        encode_message_set(payloads[start : start + batch])
        for start in range(0, _CHUNK_MESSAGES, batch)
    )
    requests = b"".join(ProduceRequest(TOPIC, 0, message_set).encode() for message_set in sets)
    return Chunk(requests, _CHUNK_MESSAGES)


def connect(address: Address, tls: ssl.SSLContext | None = None) -> socket.socket:
    """Open a blocking connection that gives up rather than hang, by TLS if that is given.

    The kernel keeps the time: Python's own timeouts would poll before every call.
    """
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, option, _TIMEOUT)
    return connection if tls is None else tls.wrap_socket(connection, server_hostname=address[0])


#: What makes a connection that requests can be sent by.
Opens: TypeAlias = Callable[[Address], socket.socket]


def produce(address: Address, chunk: Chunk, messages: int, *, opens: Opens = connect) -> float:
    """Send messages and wait until the server has taken them all.

    The produces are unanswered; behind them, on the same connection, goes an offsets request,
    and requests are answered in order.

    Args:
        address: a broker, or the sink.
        chunk: what to send, over and over.
        messages: how many messages at least; whole chunks are sent.
        opens: makes the connection.

    Returns:
        The rate: messages per second, from the first byte to the answer.
    """
    rounds = -(-messages // chunk.messages)
    with opens(address) as connection:
        started = time.perf_counter()
        for _ in range(rounds):
            connection.sendall(chunk.requests)
        latest_offset(connection)
        return rounds * chunk.messages / (time.perf_counter() - started)


def latest_offset(connection: socket.socket, topic: str = TOPIC, partition: int = 0) -> int:
    """Ask for the offset behind the last visible message."""
    connection.sendall(OffsetsRequest(topic, partition, _LATEST, 1).encode())
    answer = read_answer(connection)
    count, offset = _OFFSETS_BODY.unpack_from(answer)
    if count != 1:
        raise ConnectionError(f"the server answered {count} offsets where one was asked for")
    return int(offset)


def wait_until_visible(
    address: Address,
    end_offset: int,
    *,
    topic: str = TOPIC,
    timeout_seconds: float = 60,
    opens: Opens = connect,
) -> None:
    """Ask for the latest offset until everything that was produced is flushed.

    Raises:
        TimeoutError: it has not come that far in time.
    """
    deadline = time.monotonic() + timeout_seconds
    with opens(address) as connection:
        while (latest := latest_offset(connection, topic)) < end_offset:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: visible up to {latest}, not {end_offset}")
            time.sleep(0.01)


def read_answer(connection: socket.socket) -> memoryview:
    """Read one answer without error.

    Returns:
        Its body behind the error code; the caller's own.

    Raises:
        ConnectionError: the server hung up or answered with an error.
    """
    header = bytearray(_ANSWER_HEADER.size)
    _receive_exactly(connection, memoryview(header))
    size, error = _ANSWER_HEADER.unpack(header)
    if error:
        raise ConnectionError(f"the server answered with error {error}")
    body = memoryview(bytearray(size - 2))
    _receive_exactly(connection, body)
    return body


def fetch(
    address: Address,
    *,
    log_bytes: int,
    max_bytes: int,
    in_flight: int,
    total_bytes: int,
    first_offset: int = 0,
    opens: Opens = connect,
) -> float:
    """Fetch a stretch of partition 0, over and over from its beginning to its end.

    Args:
        address: a broker, or the sendfile loop.
        log_bytes: how long the stretch is; all of it visible, and in one segment.
        max_bytes: what each request asks for, and gets.
        in_flight: how many requests are unanswered at any time.
        total_bytes: stop when as much has arrived.
        first_offset: where the stretch begins.
        opens: makes the connection.

    Returns:
        The rate in bytes per second.
    """
    step = max_bytes // STORED_BYTES * STORED_BYTES  # every fetch begins at a message
    offsets = range(first_offset, first_offset + log_bytes - max_bytes + 1, step)
    requests = [FetchRequest(TOPIC, 0, offset, max_bytes).encode() for offset in offsets]
    count = max(in_flight, total_bytes // max_bytes)
    expected = _ANSWER_HEADER.pack(2 + max_bytes, 0)
    header, body = bytearray(len(expected)), memoryview(bytearray(max_bytes))
    with opens(address) as connection:
        started = time.perf_counter()
        for sent in range(in_flight):
            connection.sendall(requests[sent % len(requests)])
        for received in range(count):
            _receive_exactly(connection, memoryview(header))
            if header != expected:
                raise ConnectionError(f"unexpected answer {header.hex()} to fetch {received}")
            _receive_exactly(connection, body)
            if received + in_flight < count:
                connection.sendall(requests[(received + in_flight) % len(requests)])
        return count * max_bytes / (time.perf_counter() - started)


def _receive_exactly(connection: socket.socket, buffer: memoryview) -> None:
    position, end = 0, len(buffer)
    while position < end:
        received = connection.recv_into(buffer[position:])
        if not received:
            raise ConnectionError("the server closed the connection")
        position += received
