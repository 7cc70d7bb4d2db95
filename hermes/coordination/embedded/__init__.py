"""The embedded coordination server: ZooKeeper's protocol, for one machine, without Java.

receiver
    bytes -> four-letter words and frames
jute, records, requests, responses
    frames <-> values
tree, transaction, access
    the nodes and every change to them, as pure state
watches, sessions
    who is notified and who is alive
rights, shown_names
    who a client is, and what it may do: by the access rules, by ACLs
reading, writing, processor
    what a request does, and who is sent what
guard, proofs, guarded
    what a listener asks of its clients, and what they may do until they have answered
changes, committing
    group commit: nothing is sent before the changes that it reflects are on disk
database, store, snapshots, keeping
    the file: what proves it whole, its copies, and what happens when it is damaged
limits, clients, connection, words, service
    Twisted: sockets, who is served next, what clients may cost, four-letter words, start and stop

References go one way, from the service down to the state; what happens below is reported upwards by
callbacks. A connection knows the processor and the other clients' table, never its factory.

It serves what kazoo's client and the clients of Kafka 0.7 send, exactly as a real ZooKeeper does:
one contract suite (tests/contracts/coordination) runs on both. It is not an ensemble: when its
machine is gone, so is it.
"""

from hermes.coordination.embedded.service import DEFAULT_LISTEN, EmbeddedCoordination

__all__ = ["DEFAULT_LISTEN", "EmbeddedCoordination"]
