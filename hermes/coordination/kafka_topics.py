"""The topics as Kafka clients know them: UUIDs, and partitions numbered through.

    /hermes/kafka/topics/<topic>         persistent   JSON: a `TopicNode`
    /hermes/kafka/changes                persistent   the name of the topic that changed last
    /hermes/kafka/recent_changes         persistent   JSON: the names of the last ones, as
                                                      `recent_changes` has them
    /hermes/kafka/deleted/<UUID>         persistent   JSON: a `DeletedTopic`
    /hermes/kafka/producer_ids           persistent   the next producer id that nobody has, decimal
    /hermes/kafka/requested              persistent   JSON: what `hermes.config.requested` has
    /hermes/kafka/users                  persistent   JSON: what `hermes.security.shared_users` has
    /hermes/kafka/brokers/<topic>/<id>   ephemeral    of a broker without `kafka_listen`: how many
                                                      partitions of its own the topic has, decimal

Clients of Kafka 0.7 don't look here: what they find under /brokers/topics they fetch, and a format
that they don't know ends them. `topic_tree` reads and changes all this. Pure functions, whose
parsers raise InvalidNodeError, with the path, for what can't be understood.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from hermes.coordination.layout import (
    BrokerPartition,
    check_node_name,
    parse_partition,
)
from hermes.errors import ConfigError, InvalidNodeError
from hermes.quoting import quoted

KAFKA_TOPICS: Final = "/hermes/kafka/topics"
KAFKA_CHANGES: Final = "/hermes/kafka/changes"
RECENT_CHANGES: Final = "/hermes/kafka/recent_changes"
KAFKA_DELETED: Final = "/hermes/kafka/deleted"
PRODUCER_IDS: Final = "/hermes/kafka/producer_ids"
KAFKA_REQUESTED: Final = "/hermes/kafka/requested"
KAFKA_USERS: Final = "/hermes/kafka/users"
RECORD_TOPICS: Final = "/hermes/kafka/brokers"

#: Who has a partition whose broker isn't known any more: coordination was lost.
NOBODY: Final = BrokerPartition(-1, -1)

#: The keys of a topic's node.
_KEYS: Final = frozenset({"id", "format", "partitions", "settings", "gone"})


@dataclass(frozen=True, slots=True)
class TopicNode:
    """What is stored about a topic.

    Attributes:
        format: `0.7` or `kafka`.
        partitions: by Kafka's number whose partition it is; `NOBODY` where that was lost.
        settings: of a `kafka` topic what was set for it, as texts; brokers take them from here.
        gone: the brokers that had partitions of a 0.7 topic, and have deleted it.
        others: what a later version has written beside that; kept when the node is changed.
    """

    id: UUID
    format: str
    partitions: tuple[BrokerPartition, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()
    others: Mapping[str, Any] = field(default_factory=dict)

    def of(self, broker_id: int) -> tuple[int, ...]:
        """The broker's own numbers of its partitions, in the order of Kafka's."""
        return tuple(each.partition for each in self.partitions if each.broker_id == broker_id)

    @property
    def brokers(self) -> frozenset[int]:
        return frozenset(each.broker_id for each in self.partitions if each != NOBODY)


class DeletedTopic(NamedTuple):
    """A topic that was deleted, until all its brokers have deleted it.

    `format`: `0.7` or `kafka`. `brokers`: those that still have files of it.
    """

    name: str
    format: str
    brokers: frozenset[int]


def topic_node_path(topic: str) -> str:
    return f"{KAFKA_TOPICS}/{topic}"


def record_topic_path(topic: str, broker_id: int) -> str:
    return f"{RECORD_TOPICS}/{topic}/{broker_id}"


def fits_in_a_path(topic: str) -> bool:
    """Whether a topic of this name can have a node: 0.7's names may hold what paths may not."""
    try:
        check_node_name("topic", topic)
    except ConfigError:
        return False
    return True


def format_topic(node: TopicNode) -> bytes:
    shown: dict[str, Any] = {
        **node.others,
        "id": str(node.id),
        "format": node.format,
        "partitions": [None if each == NOBODY else str(each) for each in node.partitions],
    }
    if node.settings:
        shown["settings"] = dict(node.settings)
    if node.gone:
        shown["gone"] = sorted(node.gone)
    return json.dumps(shown, separators=(",", ":")).encode()


def parse_topic(path: str, value: bytes) -> TopicNode:
    """Read a topic's node; what a later version has added is kept."""
    try:
        read = json.loads(value)
        places = [
            NOBODY if each is None else parse_partition(path, each) for each in read["partitions"]
        ]
        settings = read.get("settings", {})
        if not all(isinstance(each, str) for pair in settings.items() for each in pair):
            raise ValueError
        gone = frozenset(map(_whole, read.get("gone", ())))
        others = {key: value for key, value in read.items() if key not in _KEYS}
        return TopicNode(
            UUID(read["id"]), str(read["format"]), tuple(places), settings, gone, others
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidNodeError(f"{path}: expected a topic as JSON, got {quoted(value)}") from error


def deleted_path(topic_id: UUID) -> str:
    return f"{KAFKA_DELETED}/{topic_id}"


def format_deleted(deleted: DeletedTopic) -> bytes:
    return json.dumps({**deleted._asdict(), "brokers": sorted(deleted.brokers)}).encode()


def parse_deleted(path: str, value: bytes) -> DeletedTopic:
    try:
        read = json.loads(value)
        brokers = frozenset(map(_whole, read["brokers"]))
        return DeletedTopic(str(read["name"]), str(read["format"]), brokers)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidNodeError(
            f"{path}: expected a deleted topic as JSON, got {quoted(value)}"
        ) from error


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError
    return value


def with_broker_partitions(
    node: TopicNode | None, made: TopicNode, broker_id: int, partitions: Sequence[int]
) -> TopicNode:
    """A topic's node once a broker's partitions are in it; the same object if they all are already.

    Args:
        node: None if there is none.
        made: the node to begin with then, without partitions.
        partitions: the broker's own numbers of its partitions, ascending. Those of a `kafka` topic
            are Kafka's, so each has its place already.
    """
    before = made if node is None else node
    wanted = [BrokerPartition(broker_id, each) for each in partitions]
    places = list(before.partitions)
    if before.format == "kafka":
        places += [NOBODY] * (max(partitions, default=-1) + 1 - len(places))
        for each in wanted:
            if places[each.partition] == NOBODY:
                places[each.partition] = each
    else:
        known = set(places)
        places += [each for each in wanted if each not in known]
    after = replace(before, partitions=tuple(places), gone=before.gone - {broker_id})
    return node if node is not None and after == node else after
