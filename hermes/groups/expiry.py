"""Which committed offsets have had their time; Kafka's rules."""

from collections.abc import Iterable, Mapping

from hermes.groups.consumer_group import ConsumerGroup
from hermes.groups.group import Group
from hermes.groups.offsets import Committed, TopicPartition
from hermes.groups.values import CONSUMER, State


def expired(
    group: Group | ConsumerGroup,
    offsets: Mapping[TopicPartition, Committed],
    empty_ms: int,
    now_ms: int,
    retention_ms: int,
) -> Iterable[TopicPartition]:
    """Find the offsets of a group that are of no use any more.

    Those of a group without members count from when it has lost the last one; those of consumers
    that share with nobody, and of topics that a group doesn't want any more, from their commit.
    While a group rebalances none expires, nor does any of a group that isn't one of consumers. The
    offsets of a consumer group (KIP-848) always count from their commit.

    Args:
        group: the group.
        offsets: what it has committed.
        empty_ms: since when it has no members, in ms since 1970.
        now_ms: the wall clock, likewise.
        retention_ms: for how long offsets are kept.
    """
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        since = None
    elif group.state is State.EMPTY:
        since = empty_ms
    elif group.state is State.STABLE and group.protocol_type == CONSUMER and group.topics:
        since = None
    else:
        return
    for place, committed in offsets.items():
        if group.state is not State.EMPTY and group.subscribes_to(place.topic):
            continue
        end = committed.expire_ms
        if end < 0:
            end = (committed.commit_ms if since is None else since) + retention_ms
        if end <= now_ms:
            yield place
