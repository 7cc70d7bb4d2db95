"""Clients of TLS listeners without a library, and such a listener as broker.yaml has it."""

import ssl
from pathlib import Path
from typing import Any

from certificates import Pair
from hermes_testkit import RawClient

__all__ = ["TlsClient", "client_context", "tls_listener"]


def tls_listener(pair: Pair, *, authentication: str = "none", **tls: Any) -> dict[str, Any]:
    """A listener on a free loopback port, as broker.yaml has it; the certificate is `pair`'s."""
    files = {"certificate": str(pair.certificate), "key": str(pair.key)}
    return {
        "endpoint": "tcp:0:interface=127.0.0.1",
        "tls": files | {name: str(value) for name, value in tls.items()},
        "authentication": authentication,
    }


def client_context(ca: Path, pair: Pair | None = None) -> ssl.SSLContext:
    """What a client that trusts `ca` connects by; with its own certificate if it has one."""
    context = ssl.create_default_context(cafile=str(ca))
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return context


class TlsClient(RawClient):
    """A `RawClient` over TLS.

    Raises:
        ssl.SSLError: client and server can't agree.
    """

    socket: ssl.SSLSocket

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(port)
        plain: Any = self.socket
        try:
            self.socket = context.wrap_socket(plain, server_hostname="localhost")
        except BaseException:
            plain.close()
            raise

    def closed(self) -> bool:
        """See `RawClient`; with TLS a refusal may come as an alert."""
        try:
            return super().closed()
        except ssl.SSLError:
            return True
