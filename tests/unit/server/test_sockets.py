"""What the kernel tells of a peer whose bytes nobody reads."""

import socket
import time

from twisted.internet import tcp
from twisted.internet.protocol import Protocol
from twisted.internet.testing import MemoryReactor, StringTransport

from hermes.server.sockets import has_left


def test_a_peer_has_left_that_closed_behind_what_was_not_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        served, _ = listening.accept()
        with client, served:
            transport = tcp.Connection(served, Protocol(), MemoryReactor())
            client.sendall(bytes(1000))
            assert not has_left(transport)
            client.close()
            deadline = time.monotonic() + 60
            while not has_left(transport):
                assert time.monotonic() < deadline
                time.sleep(0.001)
            assert served.recv(2000) == bytes(1000)


def test_a_transport_without_a_socket_does_not_tell() -> None:
    assert not has_left(StringTransport())
