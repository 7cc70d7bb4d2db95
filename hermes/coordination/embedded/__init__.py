"""The embedded coordination server: ZooKeeper's protocol, for one machine, without Java.

    receiver     bytes -> words and frames     jute, records, requests, replies   frames <-> values
    tree, transaction, paths, access           the nodes and every change to them, as pure state
    watches, sessions                          who is told, who is alive, as pure state
    reading, coordinator                       what a request does, and what is said to whom
    changes, committing, store                 group commit: nothing is said before it is on disk
    connection, expiry, words, service         Twisted: sockets, the timer, four-letter words

It serves what kazoo's client can ask for and what the clients of Kafka 0.7 send. It is no ensemble:
when its machine is gone, so is it. Clients can't tell the difference otherwise, and the contract
suite (tests/contracts/coordination) runs on both.
"""

from hermes.coordination.embedded.service import DEFAULT_LISTEN, EmbeddedCoordination

__all__ = ["DEFAULT_LISTEN", "EmbeddedCoordination"]
