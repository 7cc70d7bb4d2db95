"""Which right a node takes: what `access:` in broker.yaml means for coordination. Pure functions.

    node                                    to read               to write, create or delete
    /consumers/<group> and below            describe the group    group
    /mirrors/<name> and below               describe, of a group of that name    group
    /hermes/kafka/groups/<group> and below  describe the group    admin
    /brokers/topics/<topic> and below       describe the topic    admin
    /hermes/kafka/topics/<topic>            describe the topic    admin
    /hermes/kafka/brokers/<topic> and below describe the topic    admin
    /hermes/kafka/replicas/<topic>          describe the topic    admin
    /cluster/origins/<topic>                describe the topic    produce
    /brokers/ids, /cluster/id, /registry,
    /hermes/brokers, each with all below,
    /hermes/kafka/directories and below     being served          admin
    everything else                         admin                 admin

Being served is to have authenticated where the listener asks for that. The parents of groups,
mirrors and topics list only those that may be read.
"""

from typing import Final, NamedTuple

from hermes.coordination.kafka_groups import KAFKA_GROUPS, group_of_node
from hermes.coordination.kafka_topics import KAFKA_TOPICS, RECORD_TOPICS
from hermes.coordination.layout import BROKER_TOPICS, CONSUMERS, MIRRORS, ORIGINS
from hermes.coordination.replicas import KAFKA_DIRECTORIES, KAFKA_REPLICAS
from hermes.security.access import CLUSTER, Operation, Resource


class Need(NamedTuple):
    operation: Operation
    resource: Resource


_ADMIN: Final = Need(Operation.ADMIN, CLUSTER)

#: The parents whose lists of children show only what may be read.
FILTERED: Final = frozenset(
    {
        *(CONSUMERS, MIRRORS, BROKER_TOPICS, ORIGINS, KAFKA_GROUPS),
        *(KAFKA_TOPICS, RECORD_TOPICS, KAFKA_REPLICAS),
    }
)

# What whoever is served may read: the nodes themselves, and with what is below them.
_READABLE: Final = frozenset({"/", "/brokers", "/cluster", "/hermes", "/hermes/kafka", *FILTERED})
_READABLE_TREES: Final = (
    *("/brokers/ids", "/cluster/id", "/hermes/brokers", "/registry"),
    KAFKA_DIRECTORIES,
)

# The parents of what is about one topic each.
_OF_TOPICS: Final = (BROKER_TOPICS, ORIGINS, KAFKA_TOPICS, RECORD_TOPICS, KAFKA_REPLICAS)


def need_to_read(path: str) -> Need | None:
    """What it takes to read a node, to learn whether it is there, or to watch it.

    None where being served is enough. The path is any string that a client sends.
    """
    if kafka_group := _part_below(path, KAFKA_GROUPS):
        return Need(Operation.DESCRIBE, Resource.group(group_of_node(kafka_group)))
    if path in _READABLE or _is_readable_below(path):
        return None
    group, topic = _group_of(path), _topic_of(path)
    if group:
        return Need(Operation.DESCRIBE, Resource.group(group))
    if topic:
        return Need(Operation.DESCRIBE, Resource.topic(topic))
    return _ADMIN


def need_to_write(path: str) -> Need:
    if group := _group_of(path):
        return Need(Operation.GROUP, Resource.group(group))
    if origin := _part_below(path, ORIGINS):
        return Need(Operation.PRODUCE, Resource.topic(origin))
    return _ADMIN


def is_ruled(path: str) -> bool:
    """Whether the rules alone decide over a node: it is one of those above, not everything else."""
    return need_to_read(path) is not _ADMIN


def _is_readable_below(path: str) -> bool:
    return any(path == tree or path.startswith(f"{tree}/") for tree in _READABLE_TREES)


def _group_of(path: str) -> str:
    return _part_below(path, CONSUMERS) or _part_below(path, MIRRORS)


def _topic_of(path: str) -> str:
    return next(filter(None, (_part_below(path, each) for each in _OF_TOPICS)), "")


def _part_below(path: str, parent: str) -> str:
    """The name of the child of a node through which a path goes; "" if it doesn't."""
    if not path.startswith(f"{parent}/"):
        return ""
    return path[len(parent) + 1 :].partition("/")[0]
