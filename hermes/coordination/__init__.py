"""How brokers and consumers find each other and share the load, with no master among them.

layout, topic_filters  what ZooKeeper holds and what follows from it: Kafka 0.7's to the byte; pure
listeners              where a broker listens, beside what Kafka 0.7 has of it
node_rules             which right each of these nodes takes, where there are access rules
nodes                  what is asked of a session by whoever reads and changes the tree
wrong_ports, kazoo_bounds, kazoo_security, acls, sessions
                       a session with ZooKeeper, how long one may rely on it, whose nodes it makes
registration           a broker's own entries
kafka_topics, topic_tree
                       the topics as Kafka clients know them, beside where 0.7's look
group_state, kafka_groups, kafka_group_state
                       what is stored there about groups, for tools
cluster_view           the entries of all brokers, as clients see them
embedded               a ZooKeeper server for one machine, inside the broker's process

Nothing here is imported before it is asked for: the pure modules need no kazoo, and a client of an
ensemble needs no server.
"""
