"""Of every request of Kafka's protocol: what it needs rules for, and what is answered without.

A request may need several things, which are judged one after the other, as Kafka does. A new kind
of request needs a row, and `test_attempts.py` fails until it has one.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple

from kafka_raw import ANY_ACL
from transacted_logs import transactional

from hermes.protocol.kafka_errors import Code
from hermes.protocol.records import Record, encode_batch

__all__ = ["ATTEMPTS", "BEFORE", "Attempt", "Names", "Need", "codes_of", "rule_of"]

TOPIC: Final = Code.TOPIC_AUTHORIZATION_FAILED
GROUP: Final = Code.GROUP_AUTHORIZATION_FAILED
CLUSTER: Final = Code.CLUSTER_AUTHORIZATION_FAILED
TRANSACTION: Final = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class Names(NamedTuple):
    """What is asked about. `fresh` is a topic that there isn't, `members` a consumer group."""

    topic: str = "orders"
    fresh: str = "orderz"
    group: str = "billing"
    members: str = "parcels"
    transaction: str = "payments"
    producer_id: int = -1
    broker: str = "0"

    @property
    def producer(self) -> dict[str, Any]:
        return {"producer_id": self.producer_id, "producer_epoch": 0}


class Need(NamedTuple):
    """One thing that must be permitted.

    Attributes:
        operation: of an access rule.
        of: which of `Names`; empty for the cluster.
        code: what is answered without; NONE where it is left out of the answer.
    """

    operation: str
    of: str
    code: Code


class Attempt(NamedTuple):
    """One request.

    Attributes:
        api: as Kafka's schemas have it.
        values: by names of what it is about.
        needs: in the order in which they are judged.
        answered: the code if all of them are permitted.
    """

    api: str
    version: int
    values: Callable[[Names], dict[str, Any]]
    needs: tuple[Need, ...]
    answered: Code = Code.NONE


_KINDS: Final = {"topic": "topic", "fresh": "topic", "group": "group", "members": "group"}


def rule_of(need: Need, names: Names, principal: str) -> dict[str, Any]:
    """The access rule that permits it."""
    rule: dict[str, Any] = {"principal": principal, "operations": [need.operation]}
    if not need.of:
        return {**rule, "cluster": True}
    return {**rule, _KINDS.get(need.of, "transactional_id"): getattr(names, need.of)}


def codes_of(entity: Any) -> set[int]:
    """All codes in a response; 0 only if there is no other."""
    found: set[int] = set()
    for each in fields(entity):
        value = getattr(entity, each.name)
        if each.name in ("error_code", "partition_error_code"):
            found.add(int(value))
        for part in value if isinstance(value, tuple) else (value,):
            if is_dataclass(part):
                found |= codes_of(part)
    return found - {0} or {0}


def _batch(names: Names | None = None) -> bytes:
    """One message; with names, in their producer's transaction."""
    records = [Record(0, 1_800_000_000_000, None, b"x")]
    if names is None:
        return encode_batch(records)
    numbered = {"producer_id": names.producer_id, "producer_epoch": 0, "base_sequence": 0}
    return transactional(encode_batch(records, **numbered))


_ADMIN: Final = (Need("admin", "", CLUSTER),)
_SHOWN: Final = (Need("describe", "", CLUSTER),)
_IS_SEEN: Final = (Need("describe", "topic", TOPIC),)
_CONSUMES: Final = Need("consume", "topic", TOPIC)
_PRODUCES: Final = Need("produce", "topic", TOPIC)
_IS_MEMBER: Final = Need("group", "group", GROUP)
_IS_PRODUCER: Final = Need("produce", "transaction", TRANSACTION)

_CONFIG: Final = {"name": "retention.ms", "value": "5000000", "config_operation": 0}
_ACL: Final = {
    "resource_type": 2,
    "resource_name": "a",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_PASSWORD: Final = {
    "name": "bob",
    "mechanism": 1,
    "iterations": 4096,
    "salt": bytes(16),
    "salted_password": bytes(32),
}
_FILTER: Final = {**ANY_ACL, "resource_type_filter": 2, "resource_name_filter": "a"}


def _produce(names: Names, transaction: str | None) -> dict[str, Any]:
    records = _batch(None if transaction is None else names)
    topic = {"name": names.topic, "partition_data": [{"index": 0, "records": records}]}
    return {
        "transactional_id": transaction,
        "acks": -1,
        "timeout": 1000,
        "topic_data": [topic],
    }


def _fetch(names: Names) -> dict[str, Any]:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    topics = [{"topic": names.topic, "partitions": [part]}]
    return {"max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "topics": topics}


def _offset(names: Names) -> list[dict[str, Any]]:
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    return [{"name": names.topic, "partitions": [{**part, "committed_leader_epoch": -1}]}]


def _join(names: Names) -> dict[str, Any]:
    return {
        "group_id": names.group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }


def _heartbeat(names: Names) -> dict[str, Any]:
    return {
        "group_id": names.members,
        "member_id": "other",
        "member_epoch": 0,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": [names.topic],
        "topic_partitions": [],
    }


def _create(names: Names) -> dict[str, Any]:
    made = {"num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    return {"topics": [{"name": names.fresh, **made}], "timeout": 1000}


def _resource(kind: int, name: str, **more: Any) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name, **more}]}


def _of_topic(names: Names, **part: Any) -> list[dict[str, Any]]:
    return [{"name": names.topic, "partitions": [part]}]


def _member(names: Names) -> dict[str, Any]:
    return {"group_id": names.group, "member_id": "nobody", "generation_id": 1}


def _add_partitions(names: Names) -> dict[str, Any]:
    topics = [{"name": names.topic, "partitions": [0]}]
    given = {"transactional_id": names.transaction, "topics": topics, **names.producer}
    return {f"v3_and_below_{key}": each for key, each in given.items()}


def _verify_partitions(names: Names) -> dict[str, Any]:
    topics = [{"name": names.topic, "partitions": [0]}]
    given = {"transactional_id": names.transaction, "verify_only": True, "topics": topics}
    return {"transactions": [{**given, **names.producer}]}


def _commit_in_transaction(names: Names) -> dict[str, Any]:
    member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    ids = {"transactional_id": names.transaction, "group_id": names.group, **names.producer}
    return {**ids, **member, "topics": _offset(names)}


def _markers(names: Names) -> dict[str, Any]:
    topics = [{"name": names.topic, "partition_indexes": [0]}]
    marker = {"transaction_result": False, "coordinator_epoch": 0, "topics": topics}
    return {"markers": [{**marker, **names.producer}]}


def _init(transaction: str | None) -> dict[str, Any]:
    fresh = {"producer_id": -1, "producer_epoch": -1}
    return {"transactional_id": transaction, "transaction_timeout": 1000, **fresh}


def _in_transaction(names: Names) -> dict[str, Any]:
    return {"transactional_id": names.transaction, **names.producer}


def _quota(names: Names) -> dict[str, Any]:
    op = {"key": "producer_byte_rate", "value": 5000.0, "remove": False}
    entity = [{"entity_type": "user", "entity_name": "alice"}]
    return {"entries": [{"entity": entity, "ops": [op]}], "validate_only": True}


#: In the order of the table of requests, and those that are judged differently one by one.
ATTEMPTS: Final = {
    "produce": Attempt("Produce", 9, lambda n: _produce(n, None), (_PRODUCES,)),
    "produce in a transaction": Attempt(
        "Produce", 9, lambda n: _produce(n, n.transaction), (_IS_PRODUCER, _PRODUCES)
    ),
    "fetch": Attempt("Fetch", 11, _fetch, (_CONSUMES,)),
    "offsets": Attempt(
        "ListOffsets",
        5,
        lambda n: {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": _of_topic(n, partition_index=0, current_leader_epoch=-1, timestamp=-1),
        },
        _IS_SEEN,
    ),
    "a topic": Attempt("Metadata", 8, lambda n: {"topics": [{"name": n.topic}]}, _IS_SEEN),
    "all topics": Attempt(
        "Metadata", 8, lambda n: {"topics": None}, (Need("describe", "topic", Code.NONE),)
    ),
    "a topic that is created": Attempt(
        "Metadata",
        8,
        lambda n: {"topics": [{"name": n.fresh}], "allow_auto_topic_creation": True},
        (Need("describe", "fresh", TOPIC), Need("create", "fresh", TOPIC)),
    ),
    "epochs": Attempt(
        "OffsetForLeaderEpoch",
        4,
        lambda n: {
            "topics": [
                {
                    "topic": n.topic,
                    "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
                }
            ]
        },
        _IS_SEEN,
    ),
    "mechanisms": Attempt(
        "SaslHandshake", 1, lambda n: {"mechanism": "PLAIN"}, (), Code.ILLEGAL_SASL_STATE
    ),
    "a password": Attempt(
        "SaslAuthenticate", 2, lambda n: {"auth_bytes": b"x"}, (), Code.ILLEGAL_SASL_STATE
    ),
    "commit": Attempt(
        "OffsetCommit",
        8,
        lambda n: (
            {**_member(n), "member_id": "", "generation_id_or_member_epoch": -1}
            | {"topics": _offset(n)}
        ),
        (_IS_MEMBER, _CONSUMES),
    ),
    "committed": Attempt(
        "OffsetFetch",
        8,
        lambda n: {
            "groups": [
                {"group_id": n.group, "topics": [{"name": n.topic, "partition_indexes": [0]}]}
            ]
        },
        (Need("describe", "group", GROUP), Need("describe", "topic", TOPIC)),
    ),
    "all that is committed": Attempt(
        "OffsetFetch",
        8,
        lambda n: {"groups": [{"group_id": n.group, "topics": None}]},
        (Need("describe", "group", GROUP), Need("describe", "topic", Code.NONE)),
    ),
    "a group's coordinator": Attempt(
        "FindCoordinator",
        4,
        lambda n: {"key_type": 0, "coordinator_keys": [n.group]},
        (Need("describe", "group", GROUP),),
    ),
    "a transaction's coordinator": Attempt(
        "FindCoordinator",
        4,
        lambda n: {"key_type": 1, "coordinator_keys": [n.transaction]},
        (Need("describe", "transaction", TRANSACTION),),
    ),
    "join": Attempt("JoinGroup", 3, _join, (_IS_MEMBER,)),
    "heartbeat": Attempt("Heartbeat", 3, _member, (_IS_MEMBER,), Code.UNKNOWN_MEMBER_ID),
    "leave": Attempt(
        "LeaveGroup",
        3,
        lambda n: {"group_id": n.group, "members": [{"member_id": "nobody"}]},
        (_IS_MEMBER,),
        Code.UNKNOWN_MEMBER_ID,
    ),
    "sync": Attempt(
        "SyncGroup",
        3,
        lambda n: {**_member(n), "assignments": ()},
        (_IS_MEMBER,),
        Code.UNKNOWN_MEMBER_ID,
    ),
    "a group": Attempt(
        "DescribeGroups",
        5,
        lambda n: {"groups": [n.group]},
        (Need("describe", "group", GROUP),),
    ),
    "all groups": Attempt(
        "ListGroups", 4, lambda n: {"states_filter": ()}, (Need("describe", "group", Code.NONE),)
    ),
    "delete a group": Attempt(
        "DeleteGroups", 1, lambda n: {"groups_names": [n.group]}, (_IS_MEMBER,)
    ),
    "delete offsets": Attempt(
        "OffsetDelete",
        0,
        lambda n: {"group_id": n.group, "topics": _of_topic(n, partition_index=0)},
        (_IS_MEMBER, _CONSUMES),
    ),
    "be in a consumer group": Attempt(
        "ConsumerGroupHeartbeat",
        1,
        _heartbeat,
        (Need("group", "members", GROUP), *_IS_SEEN),
    ),
    "a consumer group": Attempt(
        "ConsumerGroupDescribe",
        0,
        lambda n: {"group_ids": [n.members], "include_authorized_operations": False},
        (Need("describe", "members", GROUP), *_IS_SEEN),
    ),
    "versions": Attempt("ApiVersions", 0, lambda n: {}, ()),
    "a producer id": Attempt(
        "InitProducerId", 4, lambda n: _init(None), (_PRODUCES._replace(code=CLUSTER),)
    ),
    "a producer id for transactions": Attempt(
        "InitProducerId", 4, lambda n: _init(n.transaction), (_IS_PRODUCER,)
    ),
    "create a topic": Attempt("CreateTopics", 7, _create, (Need("create", "fresh", TOPIC),)),
    "delete a topic": Attempt(
        "DeleteTopics",
        5,
        lambda n: {"topic_names": [n.topic], "timeout": 1000},
        (Need("delete", "topic", TOPIC),),
    ),
    "delete records": Attempt(
        "DeleteRecords",
        2,
        lambda n: {"topics": _of_topic(n, partition_index=0, offset=1), "timeout": 1000},
        (Need("delete", "topic", TOPIC),),
    ),
    "partitions in a transaction": Attempt(
        "AddPartitionsToTxn", 3, _add_partitions, (_IS_PRODUCER, _PRODUCES)
    ),
    "partitions in transactions": Attempt(
        "AddPartitionsToTxn", 5, _verify_partitions, (Need("replicate", "", CLUSTER),)
    ),
    "offsets in a transaction": Attempt(
        "AddOffsetsToTxn",
        3,
        lambda n: {**_in_transaction(n), "group_id": n.group},
        (_IS_PRODUCER, _IS_MEMBER),
    ),
    "end a transaction": Attempt(
        "EndTxn", 3, lambda n: {**_in_transaction(n), "committed": True}, (_IS_PRODUCER,)
    ),
    "markers": Attempt("WriteTxnMarkers", 1, _markers, (Need("replicate", "", CLUSTER),)),
    "markers of an administrator": Attempt("WriteTxnMarkers", 1, _markers, _ADMIN),
    "commit in a transaction": Attempt(
        "TxnOffsetCommit", 3, _commit_in_transaction, (_IS_PRODUCER, _IS_MEMBER, _CONSUMES)
    ),
    "ACLs": Attempt("DescribeAcls", 3, lambda n: ANY_ACL, _SHOWN),
    "make ACLs": Attempt("CreateAcls", 3, lambda n: {"creations": [_ACL]}, _ADMIN),
    "delete ACLs": Attempt("DeleteAcls", 3, lambda n: {"filters": [_FILTER]}, _ADMIN),
    "a topic's settings": Attempt(
        "DescribeConfigs", 3, lambda n: _resource(2, n.topic, configuration_keys=None), _IS_SEEN
    ),
    "a broker's settings": Attempt(
        "DescribeConfigs", 3, lambda n: _resource(4, n.broker, configuration_keys=None), _ADMIN
    ),
    "alter a topic": Attempt(
        "AlterConfigs",
        2,
        lambda n: _resource(2, n.topic, configs=[_CONFIG]),
        (Need("admin", "topic", TOPIC),),
    ),
    "disks": Attempt("DescribeLogDirs", 4, lambda n: {"topics": None}, _SHOWN),
    "add partitions": Attempt(
        "CreatePartitions",
        3,
        lambda n: {
            "topics": [{"name": n.topic, "count": 2, "assignments": None}],
            "timeout": 1000,
        },
        (Need("admin", "topic", TOPIC),),
    ),
    "elect leaders": Attempt(
        "ElectLeaders",
        2,
        lambda n: {
            "election_type": 0,
            "topic_partitions": [{"topic": n.topic, "partitions": [0]}],
            "timeout": 1000,
        },
        _ADMIN,
        Code.ELECTION_NOT_NEEDED,
    ),
    "alter one setting": Attempt(
        "IncrementalAlterConfigs",
        1,
        lambda n: _resource(2, n.topic, configs=[_CONFIG]),
        (Need("admin", "topic", TOPIC),),
    ),
    "alter a broker's throttle": Attempt(
        "IncrementalAlterConfigs",
        1,
        lambda n: _resource(
            4, n.broker, configs=[{**_CONFIG, "name": "leader.replication.throttled.rate"}]
        ),
        _ADMIN,
    ),
    "move copies": Attempt(
        "AlterPartitionReassignments",
        1,
        lambda n: {"topics": _of_topic(n, partition_index=0, replicas=[0]), "timeout": 1000},
        _ADMIN,
    ),
    "moves": Attempt("ListPartitionReassignments", 0, lambda n: {"topics": None}, _SHOWN),
    "quotas": Attempt(
        "DescribeClientQuotas", 1, lambda n: {"components": (), "strict": False}, _ADMIN
    ),
    "alter quotas": Attempt("AlterClientQuotas", 1, _quota, _ADMIN),
    "users": Attempt(
        "DescribeUserScramCredentials",
        0,
        lambda n: {"users": [{"name": "alice"}]},
        _ADMIN,
        Code.RESOURCE_NOT_FOUND,
    ),
    "alter users": Attempt(
        "AlterUserScramCredentials",
        0,
        lambda n: {"deletions": (), "upsertions": [_PASSWORD]},
        _ADMIN,
    ),
    "the cluster": Attempt("DescribeCluster", 1, lambda n: {}, ()),
    "producers": Attempt(
        "DescribeProducers",
        0,
        lambda n: {"topics": [{"name": n.topic, "partition_indexes": [0]}]},
        (_CONSUMES,),
    ),
    "a transaction": Attempt(
        "DescribeTransactions",
        0,
        lambda n: {"transactional_ids": [n.transaction]},
        (
            Need("describe", "transaction", TRANSACTION),
            Need("describe", "topic", Code.NONE),
        ),
    ),
    "all transactions": Attempt(
        "ListTransactions",
        1,
        lambda n: {"duration_filter": -1},
        (Need("describe", "transaction", Code.NONE),),
    ),
    "partitions of a topic": Attempt(
        "DescribeTopicPartitions", 0, lambda n: {"topics": [{"name": n.topic}]}, _IS_SEEN
    ),
}

#: What makes the things that the others are about; `a producer id for transactions` comes first.
BEFORE: Final = (
    "produce",
    "commit",
    "be in a consumer group",
    "partitions in a transaction",
    "offsets in a transaction",
)
