"""Peers that begin TLS and don't go on, against a broker that has to serve others meanwhile."""

import random
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from hermes_testkit import BrokerProcess
from tls_clients import TlsClient

__all__ = ["client_hello", "half_open", "hostile_handshakes", "served_by"]


def client_hello() -> bytes:
    """What a client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("nobody answered, and the handshake is over")


@contextmanager
def half_open(broker: BrokerProcess, count: int) -> Iterator[list[socket.socket]]:
    """Connections that have begun a handshake in different ways, and stay that way.

    Some have said nothing, some a part of a hello, and some all of it; these have their answer and
    keep silent.
    """
    hello = client_hello()
    begun = [b"", hello[:1], hello[:5], hello[:100], hello[:-1], hello]
    with ExitStack() as stack:
        connections = []
        for number in range(count):
            connection = stack.enter_context(
                socket.create_connection(("127.0.0.1", broker.port), 60)
            )
            connection.sendall(begun[number % len(begun)])
            connections.append(connection)
        yield connections


def hostile_handshakes(broker: BrokerProcess, source: random.Random, count: int) -> None:
    """Hellos with a few bytes changed, cut or added; each is answered or closed, or waited out."""
    hello = client_hello()
    for _ in range(count):
        data = bytearray(hello)
        for _ in range(source.randint(1, 6)):
            place = source.randrange(5, len(data))
            kind = source.randrange(3)
            if kind == 0:
                data[place] = source.randrange(256)
            elif kind == 1:
                del data[place : place + source.randrange(1, 20)]
            else:
                data[place:place] = source.randbytes(source.randrange(1, 20))
            if len(data) < 20:
                break
        if source.random() < 0.8:  # else the record's length is wrong as well
            data[3:5] = struct.pack(">H", len(data) - 5)
        with socket.create_connection(("127.0.0.1", broker.port), 60) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
            except ConnectionError:
                pass


def served_by(broker: BrokerProcess, context: ssl.SSLContext) -> bool:
    """Whether a client that goes on is served."""
    with TlsClient(broker.port, context) as client:
        return client.alive()
