"""The other end of connections that a broker makes, without sockets."""

from twisted.internet.testing import StringTransport

__all__ = ["OutgoingTransport", "response"]


class OutgoingTransport(StringTransport):
    """What an outgoing connection asks of TCP; a test says when it is gone.

    Attributes:
        options: what was set on the socket.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False
        self.options: list[tuple[str, bool]] = []

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.options.append(("no delay", enabled))

    def setTcpKeepAlive(self, enabled: bool) -> None:
        self.options.append(("keep alive", enabled))

    def abortConnection(self) -> None:
        """Note it; nobody is told."""
        self.is_aborted = True


def response(correlation_id: int, body: bytes, tags: bytes = b"") -> bytes:
    """A response with its size and its header; `tags` are the header's, of flexible versions."""
    whole = correlation_id.to_bytes(4, signed=True) + tags + body
    return len(whole).to_bytes(4) + whole
