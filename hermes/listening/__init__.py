"""Ports of this process: opened from settings, with TLS where they ask for it.

    ports                a listener: an endpoint, and the TLS before what is served there
    peers                who is at the other end of a connection
    contexts             what TLS agrees to
    tls                  a listener's certificate, re-read when its files change
    transports           a connection behind TLS
    handshake_failures   why a handshake failed, in words for an operator
    handshakes           handshakes under way, and the protocol that takes over after one
    reporting            the numbers of listeners with TLS, for metrics

All but `ports` and `peers` import OpenSSL, which takes a while: only a listener with TLS does.
"""

from hermes.listening.peers import peer_principal
from hermes.listening.ports import Address, Listener, OpenPort

__all__ = ["Address", "Listener", "OpenPort", "peer_principal"]
