"""Which topics and brokers there are, where partitions are, and how that changes.

topic_registry     the topics of this broker
topics             the topics of the cluster, numbered through for Kafka's clients
topic_cluster      the same in coordination, kept up with; cluster_part: this broker's part
topic_changes      creates, alters, grows and deletes topics; placement: where new partitions are
topic_settings     topics of this broker created and altered, broker.yaml read again
deletions          topics of this broker deleted
own_requests       what Hermes' own clients ask of the cluster's topics
neighbours, advertising
                   the other brokers, and how this one is reached
producer_ids       ids of idempotent producers, unique in the cluster
shared             what all that carry out requests have in common
"""
