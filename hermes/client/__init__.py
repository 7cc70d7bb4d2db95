"""The client library: blocking, thread-safe, no reactor.

Builds on `hermes.protocol` and, for clusters, on `hermes.coordination`. Modules in reading order:

    arguments       checks of what applications pass
    conversations, fetching, append_times, authenticating
                    exchanges with a broker, without I/O: shared with the asynchronous twins
    connection      one socket: deadlines, failures, reconnecting; and conversations over it
    endings, tls    how connections end; the same socket over TLS
    admin           operators' requests to a broker
    simple_consumer, sync_producer
                    one broker, no state
    producer        many brokers. A message passes payloads (encoding), batching (the queue),
                    sending (the only loop of retries), grouping (message sets), routing (their
                    targets) and sync_producer. handlers stand around sending when there are any.
                    Beside the way: producer_config, failures (that nobody has heard of), metrics,
                    and the collector of those for prometheus_client
    mirrored        appends of a mirror, which happen once, several on their way; translation: of
                    offsets between clusters
    bootstrap       from the address of one broker to those of its cluster, and to coordination
    groups          consumers that share topics
    retrying        such consumers, whose messages are handled again when they fail
    rate_pacing     an even rate of sending
    places, resets  places in a partition as people write them; where a group is to continue
    kafka_asking, kafka_brokers, kafka_groups, kafka_replicas, replica_plans, replica_verifying
                    brokers asked in Kafka's protocol, for tools: the groups of its clients; who has
                    copies of partitions, who is to have some, and whether they are equal

docs/client.md, docs/groups.md and docs/retries.md are the guides for applications.
"""

from hermes.client.append_times import AppendTime
from hermes.client.batching import SendHandle
from hermes.client.collector import MetricsCollector
from hermes.client.connection import BrokerConnection, Channel
from hermes.client.fetching import FetchResult
from hermes.client.metrics import ConsumerMetrics, GroupMetrics, ProducerMetrics, RetryMetrics
from hermes.client.payloads import Keys, ProducerData, RecordData
from hermes.client.producer import Producer
from hermes.client.producer_config import ProducerConfig
from hermes.client.simple_consumer import SimpleConsumer
from hermes.client.sync_producer import SendResult, SyncProducer
from hermes.protocol import (
    EARLIEST,
    LATEST,
    FetchRequest,
    Message,
    MessageAndOffset,
    MessageSet,
    RecordSet,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "AppendTime",
    "BrokerConnection",
    "Channel",
    "ConsumerMetrics",
    "FetchRequest",
    "FetchResult",
    "GroupMetrics",
    "Keys",
    "Message",
    "MessageAndOffset",
    "MessageSet",
    "MetricsCollector",
    "Producer",
    "ProducerConfig",
    "ProducerData",
    "ProducerMetrics",
    "RecordData",
    "RecordSet",
    "RetryMetrics",
    "SendHandle",
    "SendResult",
    "SimpleConsumer",
    "SyncProducer",
]
