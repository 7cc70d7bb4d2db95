"""What the kernel knows of how a connection ended."""

import select
import socket
import struct
import sys
import threading

import pytest

from hermes.client.endings import closed_when_idle

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere nobody tells when the end came"
)


@pytest.fixture
def ends():
    """Both ends of a TCP connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with ours, theirs:
        yield ours, theirs


def wait_until_readable(connection: socket.socket) -> None:
    assert select.select([connection], [], [], 60)[0]


def test_an_end_long_after_the_last_byte_is_an_idle_one(ends) -> None:
    ours, theirs = ends
    ours.sendall(b"x")
    assert theirs.recv(10) == b"x"
    threading.Event().wait(0.1)  # to be idle is to do nothing for a while
    theirs.close()
    wait_until_readable(ours)
    assert closed_when_idle(ours, 0.05)
    assert not closed_when_idle(ours, 60)


def test_an_end_upon_the_last_byte_is_none(ends) -> None:
    ours, theirs = ends
    ours.sendall(b"x")
    assert theirs.recv(10) == b"x"
    theirs.close()
    wait_until_readable(ours)
    threading.Event().wait(0.1)  # that we look late is not that it was late
    assert not closed_when_idle(ours, 30)


@pytest.mark.parametrize("way", ["unread", "reset", "bytes"])
def test_other_ends_are_none(ends, way: str) -> None:
    ours, theirs = ends
    ours.sendall(b"x")
    wait_until_readable(theirs)
    if way == "bytes":
        theirs.recv(1)
        theirs.sendall(b"what nobody asked for")
    elif way == "reset":
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    wait_until_readable(ours)
    assert not closed_when_idle(ours, 0)
