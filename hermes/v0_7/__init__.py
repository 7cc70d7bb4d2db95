"""Kafka 0.7's protocol, with Hermes' additions to it: requests become calls on logs and topics.

dispatching     which module carries out which request
producing       the life of a produce; set_checker, acknowledging: parts of it
record_produces the same with record batches; mirroring: produces of mirrors, which happen once
fetching        the life of a fetch
lookups         questions about a partition; describing: the broker itself
"""
