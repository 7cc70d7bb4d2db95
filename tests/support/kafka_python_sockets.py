"""kafka-python, but it closes sockets of connections that nobody took.

As published (3.0.12) it leaves them to the garbage collector, which reports them in whichever test
runs then.
"""

from typing import Any

from kafka.net.inet import KafkaNetSocket

__all__ = ["close_refused_sockets"]

_sock_connect = KafkaNetSocket.sock_connect


async def _sock_connect_or_close(
    self: Any, net: Any, sock: Any, sockaddr: Any, timeout_at: float | None = None
) -> Any:
    try:
        return await _sock_connect(self, net, sock, sockaddr, timeout_at=timeout_at)
    except BaseException:
        sock.close()
        raise


def close_refused_sockets() -> None:
    """Have every client of this process close them; doing it twice changes nothing."""
    KafkaNetSocket.sock_connect = _sock_connect_or_close
