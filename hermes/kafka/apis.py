"""Which requests there are: what isn't in this table is neither announced nor served.

Versions begin at the lowest that `kio` has, Kafka 4's, and end where the handler's knowledge ends.

Source of keys, names and versions: Kafka 4's `clients/src/main/resources/common/message`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Api(NamedTuple):
    """One kind of request.

    Attributes:
        key: its number on the wire.
        name: as Kafka's schemas have it, for instance `ListOffsets`.
        lowest, highest: its first and last version.
        handler: what carries it out, as `module:function`; loaded when it is first needed. Called
            with the decoded request and a `Call`, it returns the response's entity, a `FileSend`,
            or None where nothing is answered; or it is a coroutine function that does.
        is_raw: whether the handler is called with None, and decodes the call's frame itself.
        is_cancelled: whether it ends when its client leaves: it changes nothing, or waits for
            something that nobody would hear of.
        announced: the first version that ApiVersions tells, where that is another.
        reader: what reads plain requests faster than their schema, as `module:function`: called
            with the data, where the body begins, and the version, it leaves all others to the
            schema by None.
    """

    key: int
    name: str
    lowest: int
    highest: int
    handler: str
    is_raw: bool = False
    is_cancelled: bool = False
    announced: int | None = None
    reader: str = ""


#: The key of ApiVersions, which is answered before anything is known of a client.
API_VERSIONS: Final = 18

#: The key of Produce, the one request that may be large.
PRODUCE: Final = 0

FETCH: Final = 1

#: As which replica Kafka's tools ask for a partition at a broker whether it leads or not.
DEBUGGING_CONSUMER: Final = -2

#: The isolation level of who wants only what was committed of transactions.
READ_COMMITTED: Final = 1

_ALL: Final = (
    # Announced from 0, though served from 3, as Kafka 4 does: older librdkafka would not compress.
    Api(
        PRODUCE,
        "Produce",
        3,
        13,
        "hermes.kafka.producing.produce:produce",
        is_raw=True,
        announced=0,
    ),
    Api(
        FETCH,
        "Fetch",
        4,
        18,
        "hermes.kafka.fetching.session_fetch:fetch",
        is_cancelled=True,
        reader="hermes.kafka.fetching.fetch_messages:read_plain",
    ),
    Api(2, "ListOffsets", 1, 11, "hermes.kafka.lookups:list_offsets", is_cancelled=True),
    Api(3, "Metadata", 0, 13, "hermes.kafka.metadata:metadata"),
    Api(23, "OffsetForLeaderEpoch", 2, 4, "hermes.kafka.lookups:offsets_for_epochs"),
    Api(17, "SaslHandshake", 0, 1, "hermes.kafka.authenticating:handshake"),
    Api(36, "SaslAuthenticate", 0, 2, "hermes.kafka.authenticating:authenticate"),
    Api(8, "OffsetCommit", 2, 10, "hermes.kafka.group_offsets:offset_commit"),
    Api(9, "OffsetFetch", 1, 10, "hermes.kafka.group_offsets:offset_fetch"),
    Api(10, "FindCoordinator", 0, 6, "hermes.kafka.find_coordinator:find_coordinator"),
    Api(11, "JoinGroup", 0, 9, "hermes.kafka.classic_groups:join_group", is_cancelled=True),
    Api(12, "Heartbeat", 0, 4, "hermes.kafka.classic_groups:heartbeat"),
    Api(13, "LeaveGroup", 0, 5, "hermes.kafka.classic_groups:leave_group"),
    Api(14, "SyncGroup", 0, 5, "hermes.kafka.classic_groups:sync_group", is_cancelled=True),
    Api(15, "DescribeGroups", 0, 6, "hermes.kafka.group_admin:describe_groups"),
    Api(16, "ListGroups", 0, 5, "hermes.kafka.group_admin:list_groups"),
    Api(42, "DeleteGroups", 0, 2, "hermes.kafka.group_admin:delete_groups"),
    Api(47, "OffsetDelete", 0, 0, "hermes.kafka.group_offsets:offset_delete"),
    Api(68, "ConsumerGroupHeartbeat", 0, 1, "hermes.kafka.consumer_groups:heartbeat"),
    Api(69, "ConsumerGroupDescribe", 0, 1, "hermes.kafka.consumer_groups:describe"),
    Api(API_VERSIONS, "ApiVersions", 0, 4, ""),
    Api(22, "InitProducerId", 0, 5, "hermes.kafka.init_producer:init_producer_id"),
    Api(19, "CreateTopics", 2, 7, "hermes.kafka.admin_topics:create_topics"),
    Api(20, "DeleteTopics", 1, 6, "hermes.kafka.admin_topics:delete_topics"),
    Api(21, "DeleteRecords", 0, 2, "hermes.kafka.admin_records:delete_records"),
    Api(24, "AddPartitionsToTxn", 0, 5, "hermes.kafka.transactions.requests:add_partitions"),
    Api(25, "AddOffsetsToTxn", 0, 4, "hermes.kafka.transactions.requests:add_offsets"),
    Api(26, "EndTxn", 0, 5, "hermes.kafka.transactions.requests:end_transaction"),
    Api(27, "WriteTxnMarkers", 1, 2, "hermes.kafka.transactions.requests:write_markers"),
    Api(28, "TxnOffsetCommit", 0, 5, "hermes.kafka.transactions.requests:commit_offsets"),
    Api(29, "DescribeAcls", 1, 3, "hermes.kafka.admin_acls:describe_acls"),
    Api(30, "CreateAcls", 1, 3, "hermes.kafka.admin_acls:create_acls"),
    Api(31, "DeleteAcls", 1, 3, "hermes.kafka.admin_acls:delete_acls"),
    Api(32, "DescribeConfigs", 1, 4, "hermes.kafka.admin_configs:describe_configs"),
    Api(33, "AlterConfigs", 0, 2, "hermes.kafka.admin_configs:alter_configs"),
    Api(35, "DescribeLogDirs", 1, 5, "hermes.kafka.admin_cluster:describe_log_dirs"),
    Api(37, "CreatePartitions", 0, 3, "hermes.kafka.admin_topics:create_partitions"),
    Api(43, "ElectLeaders", 0, 2, "hermes.kafka.admin_replicas:elect_leaders"),
    Api(44, "IncrementalAlterConfigs", 0, 1, "hermes.kafka.admin_configs:change_configs"),
    Api(
        45,
        "AlterPartitionReassignments",
        0,
        1,
        "hermes.kafka.admin_replicas:alter_reassignments",
    ),
    Api(46, "ListPartitionReassignments", 0, 0, "hermes.kafka.admin_replicas:list_reassignments"),
    Api(48, "DescribeClientQuotas", 0, 1, "hermes.kafka.admin_quotas:describe_quotas"),
    Api(49, "AlterClientQuotas", 0, 1, "hermes.kafka.admin_quotas:alter_quotas"),
    Api(50, "DescribeUserScramCredentials", 0, 0, "hermes.kafka.admin_users:describe_users"),
    Api(51, "AlterUserScramCredentials", 0, 0, "hermes.kafka.admin_users:alter_users"),
    Api(60, "DescribeCluster", 0, 2, "hermes.kafka.admin_cluster:describe_cluster"),
    Api(61, "DescribeProducers", 0, 0, "hermes.kafka.admin_transactions:describe_producers"),
    Api(65, "DescribeTransactions", 0, 0, "hermes.kafka.admin_transactions:describe_transactions"),
    Api(66, "ListTransactions", 0, 2, "hermes.kafka.admin_transactions:list_transactions"),
    Api(
        75,
        "DescribeTopicPartitions",
        0,
        0,
        "hermes.kafka.topic_partitions:describe_topic_partitions",
    ),
)

#: All of them, by key.
APIS: Final[Mapping[int, Api]] = {each.key: each for each in sorted(_ALL)}
