"""Clients' metrics for an application's own `prometheus_client` registry.

The numbers are those of each client's `metrics()`, which needs no such package.
"""

from collections.abc import Iterator
from typing import Any, Final, Protocol

from hermes.client.metrics import ConsumerMetrics, GroupMetrics, ProducerMetrics, RetryMetrics
from hermes.errors import HermesError
from hermes.metrics import FamiliesCollector, Family, Series

_CLIENT: Final = ("client",)
_PARTITION: Final = ("client", "topic", "broker", "partition")


class _Counting(Protocol):
    def metrics(self) -> Any: ...


#: By the kind of metrics, of each attribute the family.
FAMILIES: Final[dict[type, dict[str, Family]]] = {
    ProducerMetrics: {
        "queued": Family(
            "hermes_producer_queued_messages",
            "gauge",
            "Messages that wait for the sender.",
            _CLIENT,
        ),
        "sent": Family("hermes_producer_sent_messages_total", "counter", "Messages sent.", _CLIENT),
        "failed": Family(
            "hermes_producer_failed_messages_total", "counter", "Messages given up.", _CLIENT
        ),
        "dropped": Family(
            "hermes_producer_dropped_messages_total", "counter", "Messages never accepted.", _CLIENT
        ),
        "hook_errors": Family(
            "hermes_producer_hook_errors_total", "counter", "Exceptions of hooks.", _CLIENT
        ),
        "batches": Family(
            "hermes_producer_batches_total", "counter", "Batches dealt with.", _CLIENT
        ),
        "batch_seconds": Family(
            "hermes_producer_batch_seconds_total",
            "counter",
            "How long batches took together, from their first message to their outcome.",
            _CLIENT,
        ),
    },
    ConsumerMetrics: {
        "fetches": Family(
            "hermes_consumer_fetches_total", "counter", "Partitions fetched from.", _CLIENT
        ),
        "failed_fetches": Family(
            "hermes_consumer_failed_fetches_total", "counter", "Fetches that failed.", _CLIENT
        ),
        "fetched_bytes": Family(
            "hermes_consumer_fetched_bytes_total", "counter", "Bytes of messages.", _CLIENT
        ),
        "skipped": Family(
            "hermes_consumer_skipped_total", "counter", "Damaged stretches skipped.", _CLIENT
        ),
    },
    RetryMetrics: {
        "handled": Family(
            "hermes_retrying_handled_messages_total", "counter", "Messages handled.", _CLIENT
        ),
        "failed": Family(
            "hermes_retrying_failed_tries_total",
            "counter",
            "Tries that failed, and whose message was sent on.",
            _CLIENT,
        ),
        "retried": Family(
            "hermes_retrying_retried_messages_total",
            "counter",
            "Messages that went into a retry topic.",
            _CLIENT,
        ),
        "dead": Family(
            "hermes_retrying_dead_letters_total",
            "counter",
            "Messages that became dead letters.",
            _CLIENT,
        ),
        "unsent": Family(
            "hermes_retrying_unsent_total",
            "counter",
            "Times that a message that failed couldn't be sent on, and its partition waited.",
            _CLIENT,
        ),
    },
    GroupMetrics: {
        "taken": Family(
            "hermes_group_taken_partitions_total", "counter", "Partitions taken.", _CLIENT
        ),
        "lost": Family(
            "hermes_group_lost_partitions_total", "counter", "Partitions released or lost.", _CLIENT
        ),
        "commits": Family(
            "hermes_group_commits_total", "counter", "Offsets that were stored.", _CLIENT
        ),
        "failed_commits": Family(
            "hermes_group_failed_commits_total",
            "counter",
            "Offsets that were not, since others have the partition.",
            _CLIENT,
        ),
    },
}

#: Of each partition that a member of a group owns.
POSITIONS: Final = {
    "position": Family(
        "hermes_group_position_offset", "gauge", "Where the next message starts.", _PARTITION
    ),
    "committed": Family(
        "hermes_group_committed_offset", "gauge", "The offset in ZooKeeper.", _PARTITION
    ),
}


class MetricsCollector(FamiliesCollector):
    """Publishes clients' metrics in a registry of `prometheus_client`.

    Example:
        prometheus_client.REGISTRY.register(MetricsCollector(orders=producer, search=connector))

    Args:
        clients: producers, consumers and connectors, blocking or asynchronous, by the name that
            their series have as the label `client`. One that is closed is dropped once it
            has nothing left to report.
    """

    def __init__(self, **clients: _Counting) -> None:
        super().__init__(self._families)
        self._clients = clients

    def _families(self) -> Iterator[Series]:
        found: list[tuple[str, Any]] = []
        positions: list[tuple[tuple[str, ...], Any]] = []
        for name, client in self._clients.items():
            try:
                metrics = client.metrics()
            except HermesError:  # a connector that is shut down, or not started
                continue
            found.append((name, metrics))
            if isinstance(metrics, GroupMetrics):
                found.append((name, metrics.consumer))
                for each in metrics.partitions:
                    labels = (name, each.topic, str(each.broker_id), str(each.partition))
                    positions.append((labels, each))
        for kind, families in FAMILIES.items():
            some = [(name, metrics) for name, metrics in found if isinstance(metrics, kind)]
            for attribute, family in families.items() if some else ():
                yield family, [((name,), getattr(each, attribute)) for name, each in some]
        for attribute, family in POSITIONS.items() if positions else ():
            numbers = [(labels, getattr(each, attribute)) for labels, each in positions]
            yield family, [(labels, number) for labels, number in numbers if number is not None]
