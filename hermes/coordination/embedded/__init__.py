"""The embedded coordination server: ZooKeeper's protocol, for one machine, without Java.

receiver
    bytes -> four-letter words and frames
jute, jute_records, zookeeper_requests, zookeeper_responses
    frames <-> values
tree, transaction, access_control
    the nodes and every change to them, as pure state
watches, server_sessions
    who is notified and who is alive
rights, visible_names
    who a client is, and what it may do: by the access rules, by ACLs
read_requests, write_requests, processor
    what a request does, and who is sent what
guard, proofs, guarded_processor
    what a listener asks of its clients, and what they may do until they have answered
tree_changes, commit_queue
    group commit: nothing is sent before the changes that it reflects are on disk
own_nodes
    the nodes for the broker in this process, without a connection
database, store, snapshots, store_keeper
    the file: what proves it whole, its copies, and what happens when it is damaged
limits, clients, connection, four_letter_words, service
    Twisted: sockets, who is served next, what clients may cost, start and stop

References go one way, from the service down to the state; what happens below is reported upwards by
callbacks. A connection knows the processor and the other clients' table, never its factory.

It serves what kazoo's client and the clients of Kafka 0.7 send, exactly as a real ZooKeeper does:
one contract suite (tests/contracts/coordination) runs on both. It is not an ensemble: when its
machine is gone, so is it.
"""

from hermes.coordination.embedded.service import DEFAULT_LISTEN, EmbeddedCoordination

__all__ = ["DEFAULT_LISTEN", "EmbeddedCoordination"]
