"""Which topics and brokers there are, where partitions are, and how that changes.

cluster_topics     the topics of the cluster, numbered through; topic_registry: this broker's own
topic_cluster      their state in coordination; local_partitions: what this broker changes there
cluster_part       what this broker does about that state
topic_changes      creates, alters, grows and deletes topics; deletions, gathering: many at a time
replica_placing    which brokers have the copies of new partitions, or why not; placement: chooses
replica_changes    changes who has copies of partitions, and who leads them
unclean_elections  has copies lead that may lack messages, where settings allow it
cluster_value      what all brokers have alike: requested (ACLs, quotas), user_changes
topic_settings     the same for topics of this broker alone, and broker.yaml read again
neighbours, advertising
                   the other brokers, and how this one is reached
"""
