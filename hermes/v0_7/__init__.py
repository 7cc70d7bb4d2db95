"""Kafka 0.7's protocol, with Hermes' additions to it: requests become calls on logs and topics.

`dispatching` says which module carries out which request; describing and lookups answer questions.
"""
