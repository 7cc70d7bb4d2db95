"""Listeners: ports opened from settings, with TLS where they ask for it.

All modules but `ports` and `peers` import OpenSSL, which takes a while: only a listener with TLS
does, and, of `client_tls`, a connection with TLS that Twisted makes.
"""

from hermes.listening.peers import peer_principal
from hermes.listening.ports import Address, Listener, OpenPort

__all__ = ["Address", "Listener", "OpenPort", "peer_principal"]
