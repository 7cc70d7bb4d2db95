"""The embedded coordination server: ZooKeeper's protocol, for one machine, without Java.

receiver
    bytes -> words and frames
jute, records, requests, decoding, replies
    frames <-> values
tree, transaction, paths, access
    the nodes and every change to them, as pure state
watches, sessions
    who is told and who is alive, as pure state
reading, coordinator
    what a request does, and what is said to whom
changes, committing
    group commit: nothing is said before what it tells of is on disk
database, store, snapshots, keeping
    the file: what proves it whole, its copies, and what happens when it is not
limits, clients, connection, expiry, words, service
    Twisted: sockets, whose turn it is, what they may cost, four-letter words, start and stop

It serves what kazoo's client can ask for and what the clients of Kafka 0.7 send, and to these is
what a real ZooKeeper is: one contract suite (tests/contracts/coordination) runs on both. It is no
ensemble: when its machine is gone, so is it.
"""

from hermes.coordination.embedded.service import DEFAULT_LISTEN, EmbeddedCoordination

__all__ = ["DEFAULT_LISTEN", "EmbeddedCoordination"]
