"""Who leads a partition, for a client that has asked another broker (KIP-951).

So it needn't look the cluster up first. In the partition's answer, and where that broker listens at
the end of the response, both as tags:

    current leader   int32 id | int32 epoch | tags
    node endpoints   [int32 id | string host | int32 port | string rack | tags]

Source: Kafka 4's FetchResponse.json and ProduceResponse.json.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from hermes.cluster.cluster_topics import ClusterTopics
from hermes.coordination.listeners import ListenerNode
from hermes.protocol.kafka_errors import Code
from hermes.protocol.kafka_primitives import encode_length, encode_text, varint

_ASKED_ELSEWHERE: Final = (Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH)

_LEADER: Final = Struct(">ii")
_NUMBER: Final = Struct(">i")
_NO_TAGS: Final = b"\0"
_ENDPOINTS_TAG: Final = 0


class CurrentLeader(NamedTuple):
    id: int
    epoch: int

    def as_tags(self, tag: int) -> bytes:
        """All tags of a partition's answer."""
        return bytes((1, tag, _LEADER.size + 1)) + _LEADER.pack(*self) + _NO_TAGS


def current_leader(
    topics: ClusterTopics, topic: str | bytes | UUID, number: int, code: Code
) -> CurrentLeader | None:
    """Who is to be asked instead; None where nobody knows, or that isn't what is wrong."""
    if code not in _ASKED_ELSEWHERE:
        return None
    found = topics.asked(topic)
    known = None if found is None else topics.led_by(found, number)
    return None if known is None or known[0] not in topics.live else CurrentLeader(*known)


def endpoints(
    topics: ClusterTopics, listener: ListenerNode, leaders: Iterable[CurrentLeader | None]
) -> bytes:
    """All tags at the end of a response: where these brokers listen for the client."""
    ids = {each.id for each in leaders if each is not None}
    nodes = [each for each in topics.brokers(listener) if each.id in ids] if ids else []
    if not nodes:
        return _NO_TAGS
    parts = [encode_length(len(nodes), True)]
    for each in nodes:
        parts += _NUMBER.pack(each.id), encode_text(each.host, True), _NUMBER.pack(each.port)
        parts += encode_text(None, True), _NO_TAGS
    value = b"".join(parts)
    return bytes((1, _ENDPOINTS_TAG)) + varint(len(value)) + value
