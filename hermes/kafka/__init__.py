"""Kafka's protocol, as today's clients speak it; imported only where `kafka_listen` is set.

A newcomer reads in this order:

    topics       the topics, and where each of Kafka's partition numbers is
    producers    batches of producers, each appended once
"""
