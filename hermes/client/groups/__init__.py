"""Consumers that share topics as a group, through ZooKeeper.

config      a consumer's settings
streams     blocking iterators, and the partitions that each owns: fetched, handed out, finished
fetchers    a thread per broker that fetches for them
membership  a thread that keeps a consumer's partitions in step with the group, and its owners and
            offsets in ZooKeeper, fenced
connector   the API for applications
"""

from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.connector import Connector, Consumer, RebalanceListener
from hermes.client.groups.streams import MessageStream, StreamMessage
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.topic_filters import Blacklist, Whitelist

__all__ = [
    "Blacklist",
    "BrokerPartition",
    "Connector",
    "Consumer",
    "ConsumerConfig",
    "MessageStream",
    "RebalanceListener",
    "StreamMessage",
    "Whitelist",
]
