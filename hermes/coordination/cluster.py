"""The brokers and their partitions, as clients see them in ZooKeeper."""

from hermes.coordination.layout import (
    BROKER_IDS,
    BROKER_TOPICS,
    BrokerNode,
    parse_broker,
    parse_broker_id,
    parse_partition_count,
    topic_path,
)
from hermes.coordination.sessions import Session

__all__ = ["read_brokers", "read_partition_counts", "read_topics"]


def read_brokers(session: Session, *, watch: bool = False) -> dict[int, BrokerNode]:
    """The brokers that live, by id.

    Args:
        session: where to read.
        watch: whether the session's `on_change` tells when a broker comes, goes or moves.

    Raises:
        InvalidNodeError: a broker's entry can't be understood.
        CoordinationUnavailableError: ZooKeeper does not answer.
    """
    brokers = {}
    for name in session.children(BROKER_IDS, watch=watch):
        path = f"{BROKER_IDS}/{name}"
        node = session.get(path, watch=watch)
        if node is not None:
            brokers[parse_broker_id(path, name)] = parse_broker(path, node.value)
    return dict(sorted(brokers.items()))


def read_topics(session: Session, *, watch: bool = False) -> list[str]:
    """The topics that any broker ever had, sorted."""
    return session.children(BROKER_TOPICS, watch=watch)


def read_partition_counts(session: Session, topic: str, *, watch: bool = False) -> dict[int, int]:
    """How many partitions of a topic each broker has that lives; none for an unknown topic.

    Raises:
        InvalidNodeError: an entry can't be understood.
        CoordinationUnavailableError: ZooKeeper does not answer.
    """
    counts = {}
    parent = f"{BROKER_TOPICS}/{topic}"
    for name in session.children(parent, watch=watch):
        broker_id = parse_broker_id(f"{parent}/{name}", name)
        path = topic_path(topic, broker_id)
        node = session.get(path, watch=watch)
        if node is not None:
            counts[broker_id] = parse_partition_count(path, node.value)
    return dict(sorted(counts.items()))
