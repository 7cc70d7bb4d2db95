"""Kafka 4's protocol, on its own listener (`kafka_listen`), over the broker's own parts.

A connection cuts bytes into frames, a frame is decoded by the schemas of the package `kio`, one
handler carries it out, and what it returns is encoded and sent. In the order of a reading:

    connection   one client: order and bounds, as for 0.7's; frames: what it sends
    apis         which requests there are, in which versions, and what carries them out
    dispatching  a frame becomes a request, a call, a response; versions: ApiVersions, a constant
    schemas      the messages of one request in one version, loaded when they are first needed
    array_bounds validates the array lengths that a request declares, before decoding
    in_hand      large requests: so many bytes of them at a time
    calls        one request under way: who asks, what they may, how its response is made
    authenticating  who asks: SASL, by the users that there are
    serving      what all requests have in common
    produce      the life of a Produce; produce_messages: its bytes; reading: Kafka's types
    fetch        the life of a Fetch; fetch_messages: its bytes
    legacy       topics of 0.7: batches made of messages, and messages of batches
    lookups      questions about a partition; epochs: the terms of leaders, of which there is one
    metadata     brokers, topics and partitions
    topics       the topics, and where each of Kafka's partition numbers is
    cluster      the same for all brokers, in coordination; cluster_part: a broker's share
    topic_changes  what is done to topics; placing: where new partitions are;
                 own_requests: for Hermes' own clients
    topic_configs   Kafka's names of settings, and ours; broker_configs: a broker's
    admin_topics, admin_records, admin_configs, admin_cluster
                 the requests of administrators
    producers    batches of producers, each appended once; producer_ids: by which they are known;
                 init_producer: where they get one
    groups       consumers that share partitions, and how far they have come
    errors       Kafka's error codes, and which of them says what of ours
    monitoring   the counts of requests
    mounting     how a broker gets all this

Nothing of this is imported by a broker without `kafka_listen`, and `kio` not before a client asks.
"""
