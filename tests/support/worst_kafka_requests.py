"""The worst request of each kind of Kafka's protocol: `worst_requests` for `kafka_listen`."""

import struct
from collections.abc import Callable
from typing import Any

import cramjam
from kafka_raw import ANY_ACL, KafkaConversation, topics_of
from worst_requests import Kind

from hermes.client.kafka_asking import KafkaAsker, encoded_request
from hermes.protocol.record_batches import HEADER_BYTES, decode_header, with_crc
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch

__all__ = ["kafka_kinds", "prepare_kafka"]

_DATA = "kafka-data"
_OLD = "data"  # one of 0.7's, which `prepare_broker` makes
_WIDE = "kafka-wide"
_GROUP = "worst"
_BATCH = encode_batch([Record(0, 5, b"k", b"v")])


_ACL = {
    "resource_type": 2,
    "resource_name": "a-000000",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_ACL_FILTER = {**ANY_ACL, "resource_name_filter": "a-000000", "pattern_type_filter": 2}


_CONFIG = {"name": "retention.ms", "value": "1000"}
_ONE = {**_CONFIG, "config_operation": 0}


def prepare_kafka(port: int) -> None:
    """Make what the requests are about."""
    with KafkaAsker("127.0.0.1", port) as asker:
        made = [{"name": _WIDE, "num_partitions": 100, "replication_factor": 1}]
        asker.ask("CreateTopics", 7, topics=made, timeout=30_000)
        with KafkaConversation(f"127.0.0.1:{port}") as client:
            topics_of(client, _DATA)
            for _ in range(10):
                client.produce(_DATA, Record(0, 5, None, bytes(900_000)))
        offsets = [
            {"partition_index": n, "committed_offset": n, "committed_metadata": "m" * 4000}
            for n in range(100)
        ]
        asker.ask(
            "OffsetCommit",
            8,
            group_id=_GROUP,
            member_id="",
            generation_id_or_member_epoch=-1,
            topics=[{"name": _WIDE, "partitions": offsets}],
        )


def kafka_kinds() -> list[Kind]:
    """All of them; `prepare_broker` and `prepare_kafka` come first."""
    far = _fetch(50, _DATA, part_bytes=1 << 20)
    return [
        Kind("a bomb of 600 MB for a topic of 0.7", _produce(_OLD, 1, _bomb(600_000_000))),
        Kind("all topics, 1,000 times", _request("Metadata", 8, topics=None) * 1000, 1000),
        Kind("metadata, 40,000 unknown topics", _metadata(creates=False)),
        Kind("metadata, 40,000 new topics", _metadata(creates=True)),
        Kind("fetch of 60,000 partitions", _fetch(60_000, _WIDE)),
        Kind("waiting fetch of 60,000", _fetch(60_000, _WIDE, wait_ms=300_000)),
        Kind("fetches that nobody reads", far * 50, 50),
        Kind("300 fetch sessions of 4,000", _session(4000) * 300, 300),
        Kind("60,000 forgotten partitions", _forgetting()),
        Kind("60,000 offsets by time", _listing()),
        Kind("60,000 epochs", _epochs()),
        Kind("produce to 20,000 unknown topics", _produce("no000000", 20_000)),
        Kind("20,000 batches for a partition", _produce(_DATA, 20_000)),
        Kind("records that lie", _produce(_OLD, 1, _lying()) * 500, 500),
        Kind("2,000 groups", _joins(2000, "many000000"), 2000),
        Kind("300 ids of 30 KB", _joins(300, "one", client=b"c" * 30_000), 300),
        Kind("60 subscriptions of 500 KB", _joins(60, "big000000", size=500_000), 60),
        Kind("coordinators of 60,000", _many("FindCoordinator", 4, 60_000, "coordinator_keys")),
        Kind("60,000 groups described", _many("DescribeGroups", 5, 60_000, "groups")),
        Kind("60,000 groups deleted", _many("DeleteGroups", 2, 60_000, "groups_names")),
        Kind("groups listed, 1,000 times", _request("ListGroups", 4) * 1000, 1000),
        Kind("offsets of 60,000 groups", _offsets_of("000000", 60_000)),
        Kind("offsets of a group, 20,000 times", _offsets_of(_GROUP, 20_000)),
        Kind("60,000 commits", _committing()),
        Kind("60,000 descriptions of settings", _describing()),
        Kind("40,000 topics created", _creating()),
        Kind("60,000 topics deleted", _deleting_topics()),
        Kind("20,000 topics grown", _growing()),
        Kind("settings of 20,000", _setting("AlterConfigs", 2, _CONFIG)),
        Kind("settings of 20,000, one by one", _setting("IncrementalAlterConfigs", 1, _ONE)),
        Kind("60,000 records deleted", _deleting_records()),
        Kind("60,000 offsets deleted", _deleting_offsets()),
        Kind("2,000 consumer groups", _consumer_groups(2000), 2000),
        Kind("60,000 consumer groups told", _consumer_groups_told()),
        Kind("60,000 shares of a group", _sharing()),
        Kind("60,000 members leave", _leaving()),
        Kind("heartbeats, 5,000 times", _heartbeat() * 5000, 5000),
        Kind("transactions listed, 1,000 times", _request("ListTransactions", 0) * 1000, 1000),
        Kind("the cluster, 1,000 times", _request("DescribeCluster", 0) * 1000, 1000),
        Kind("20,000 ACLs made", _many("CreateAcls", 3, 20_000, "creations", _ACL)),
        Kind("20,000 filters of ACLs", _many("DeleteAcls", 3, 20_000, "filters", _ACL_FILTER)),
        Kind("ACLs described, 1,000 times", _request("DescribeAcls", 3, **ANY_ACL) * 1000, 1000),
        Kind("20,000 quotas", _quotas()),
        Kind("quotas described, 1,000 times", _asking_quotas() * 1000, 1000),
        Kind("60,000 users described", _many_users()),
        Kind("20,000 users altered", _altering_users()),
        Kind("producers of 60,000 partitions", _producers()),
        Kind("60,000 transactions", _transactions()),
        Kind("60,000 partitions in a transaction", _adding()),
        Kind("2,000 transactional ids", _transactional_ids(2000), 2000),
        Kind("2,000 groups in transactions", _groups_in_transactions(2000), 2000),
        Kind("transactions ended, 5,000 times", _ending() * 5000, 5000),
        Kind("60,000 offsets in a transaction", _committing_in_transaction()),
        Kind("markers for 60,000 partitions", _markers()),
        Kind("20,000 moves", _moves()),
        Kind("60,000 elections", _elections()),
        Kind("moves of 60,000 topics", _listed_moves()),
        Kind("60,000 topics page by page", _pages()),
        Kind("log directories, 500 times", _request("DescribeLogDirs", 4, topics=None) * 500, 500),
        Kind("2,000 ids of producers", _init_producer() * 2000, 2000),
        Kind("ApiVersions, 5,000 times", _request("ApiVersions", 0) * 5000, 5000),
        Kind("SASL where nobody asks", _sasl() * 1000, 1000),
        Kind("claim of 100 MB to produce", _claim(0, 9)),
        Kind("claim of 100 MB of another", _claim(3, 8)),
        Kind("an array of 2^31", _framed(3, 1, b"\x7f\xff\xff\xff")),
        Kind("64 tags of 30 KB", _tags(64)),
        Kind("100,000 tags", _tags(100_000, b"")),
        Kind("an unknown type", _framed(999, 0, b"")),
    ]


def _request(name: str, version: int, **values: Any) -> bytes:
    return encoded_request(name, version, 7, values)[0]


def _repeated(encode: Callable[[int], bytes], count: int) -> bytes:
    """A request with so many equal entries, of what encodes it with one and with two.

    An entry with 000000 in it has its number there.
    """
    one, two = encode(1)[4:], encode(2)[4:]
    at = next(place for place in range(len(one)) if one[place] != two[place])
    size = len(two) - len(one)
    entry, rest = one[at + 1 : at + 1 + size], one[at + 1 + size :]
    is_int32 = one[at] == 1  # else a varint of one more
    head = one[: at - 3] + count.to_bytes(4) if is_int32 else one[:at] + _varint(count + 1)
    if b"000000" in entry:
        entries = b"".join(entry.replace(b"000000", b"%06d" % n) for n in range(count))
    else:
        entries = entry * count
    body = head + entries + rest
    return len(body).to_bytes(4) + body


def _many(
    name: str, version: int, count: int, field: str, entry: Any = "000000", **more: Any
) -> bytes:
    return _repeated(lambda n: _request(name, version, **{field: [entry] * n}, **more), count)


def _partitions(name: str, version: int, entry: dict[str, Any], **more: Any) -> bytes:
    def encode(count: int) -> bytes:
        named = {"name": _WIDE, "topic": _WIDE, "partitions": [entry] * count}
        return _request(name, version, topics=[named], **more)

    return _repeated(encode, 60_000)


def _fetch(count: int, topic: str, wait_ms: int = 0, part_bytes: int = 100) -> bytes:
    """A Fetch; one that waits wants more than there will be."""
    least = 1 << 30 if wait_ms else 0
    entry = {"partition": 1, "fetch_offset": 0, "partition_max_bytes": part_bytes}
    if topic == _DATA:
        entry["partition"] = 0

    def encode(count: int) -> bytes:
        named = {"topic": topic, "partitions": [entry] * count}
        return _request("Fetch", 11, max_wait=wait_ms, min_bytes=least, topics=[named])

    return _repeated(encode, count)


def _session(count: int) -> bytes:
    entry = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
    named = {"topic": "no000000", "partitions": [entry]}

    def encode(count: int) -> bytes:
        return _request(
            "Fetch", 11, max_wait=0, min_bytes=0, session_epoch=0, topics=[named] * count
        )

    return _repeated(encode, count)


def _forgetting() -> bytes:
    def encode(count: int) -> bytes:
        named = {"topic": _WIDE, "partitions": [1] * count}
        more = {"topics": [], "forgotten_topics_data": [named]}
        return _request("Fetch", 11, max_wait=0, min_bytes=0, **more)

    return _repeated(encode, 60_000)


def _metadata(*, creates: bool) -> bytes:
    def encode(count: int) -> bytes:
        names = [{"name": "new000000"}] * count
        return _request("Metadata", 8, topics=names, allow_auto_topic_creation=creates)

    return _repeated(encode, 40_000)


def _listing() -> bytes:
    entry = {"partition_index": 0, "timestamp": 1, "current_leader_epoch": -1}
    return _partitions("ListOffsets", 5, entry, replica_id=-1, isolation_level=0)


def _epochs() -> bytes:
    entry = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return _partitions("OffsetForLeaderEpoch", 4, entry)


def _committing() -> bytes:
    entry = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    who = {"group_id": _GROUP, "member_id": "", "generation_id_or_member_epoch": -1}
    return _partitions("OffsetCommit", 8, entry, **who)


def _produce(topic: str, count: int, batch: bytes = _BATCH) -> bytes:
    data = {"name": topic, "partition_data": [{"index": 0, "records": batch}]}

    def encode(count: int) -> bytes:
        return _request("Produce", 9, acks=-1, timeout=1000, topic_data=[data] * count)

    return _repeated(encode, count)


def _offsets_of(group: str, count: int) -> bytes:
    return _many("OffsetFetch", 8, count, "groups", {"group_id": group, "topics": None})


def _describing() -> bytes:
    entry = {"resource_type": 2, "resource_name": _WIDE, "configuration_keys": None}
    return _many("DescribeConfigs", 3, 60_000, "resources", entry)


def _creating() -> bytes:
    entry = {"name": "new000000", "num_partitions": 1, "replication_factor": 1}

    def encode(count: int) -> bytes:
        return _request("CreateTopics", 7, topics=[entry] * count, timeout=1000)

    return _repeated(encode, 40_000)


def _quotas() -> bytes:
    op = {"key": "producer_byte_rate", "value": 5.0, "remove": False}
    entry = {"entity": [{"entity_type": "user", "entity_name": "000000"}], "ops": [op]}
    return _many("AlterClientQuotas", 1, 20_000, "entries", entry)


def _asking_quotas() -> bytes:
    return _request("DescribeClientQuotas", 1, components=[], strict=False)


def _many_users() -> bytes:
    return _many("DescribeUserScramCredentials", 0, 60_000, "users", {"name": "000000"})


def _altering_users() -> bytes:
    gone = {"name": "000000", "mechanism": 1}
    return _many("AlterUserScramCredentials", 0, 20_000, "deletions", gone)


def _producers() -> bytes:
    named = {"name": _WIDE, "partition_indexes": [1]}
    return _many("DescribeProducers", 0, 60_000, "topics", named)


def _transactions() -> bytes:
    return _many("DescribeTransactions", 0, 60_000, "transactional_ids")


_NOBODYS = {"producer_id": 5, "producer_epoch": 0}


def _adding() -> bytes:
    topic = {"name": "no000000", "partitions": list(range(60_000))}
    ids = {f"v3_and_below_{key}": each for key, each in _NOBODYS.items()}
    given = {"v3_and_below_transactional_id": "t", "v3_and_below_topics": [topic]}
    return _request("AddPartitionsToTxn", 3, **given, **ids)


def _transactional_ids(count: int) -> bytes:
    ids = {"producer_id": -1, "producer_epoch": -1, "transaction_timeout": 1000}
    return b"".join(
        _request("InitProducerId", 4, transactional_id=f"t{number}", **ids)
        for number in range(count)
    )


def _groups_in_transactions(count: int) -> bytes:
    return b"".join(
        _request("AddOffsetsToTxn", 3, transactional_id=f"t{n}", group_id=f"g{n}", **_NOBODYS)
        for n in range(count)
    )


def _ending() -> bytes:
    return _request("EndTxn", 3, transactional_id="t", committed=True, **_NOBODYS)


def _committing_in_transaction() -> bytes:
    partition = {"committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    topic = {
        "name": _WIDE,
        "partitions": [{"partition_index": each, **partition} for each in range(60_000)],
    }
    member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    given = {"transactional_id": "t", "group_id": _GROUP, "topics": [topic], **member}
    return _request("TxnOffsetCommit", 4, **given, **_NOBODYS)


def _markers() -> bytes:
    topics = [{"name": "no000000", "partition_indexes": list(range(60_000))}]
    marker = {"transaction_result": True, "coordinator_epoch": 0, "topics": topics, **_NOBODYS}
    return _request("WriteTxnMarkers", 1, markers=[marker])


def _moves() -> bytes:
    move = {"partition_index": 1, "replicas": [0, 4711]}
    named = {"name": "no000000", "partitions": [move]}
    return _many("AlterPartitionReassignments", 1, 20_000, "topics", named)


def _elections() -> bytes:
    named = {"topic": "no000000", "partitions": [1]}

    def encode(count: int) -> bytes:
        return _request("ElectLeaders", 2, election_type=0, topic_partitions=[named] * count)

    return _repeated(encode, 60_000)


def _listed_moves() -> bytes:
    named = {"name": "no000000", "partition_indexes": [1]}
    return _many("ListPartitionReassignments", 0, 60_000, "topics", named)


def _pages() -> bytes:
    named = {"name": "000000"}
    return _many("DescribeTopicPartitions", 0, 60_000, "topics", named)


def _deleting_topics() -> bytes:
    return _many("DeleteTopics", 5, 60_000, "topic_names", timeout=1000)


def _growing() -> bytes:
    grown = {"name": "no000000", "count": 5, "assignments": None}
    more = {"timeout": 1000, "validate_only": False}
    return _many("CreatePartitions", 3, 20_000, "topics", grown, **more)


def _setting(name: str, version: int, config: dict[str, Any]) -> bytes:
    altered = {"resource_type": 2, "resource_name": "no000000", "configs": [config]}
    return _many(name, version, 20_000, "resources", altered, validate_only=False)


def _sharing() -> bytes:
    share = {"member_id": "000000", "assignment": b"x"}
    who = {"group_id": _GROUP, "generation_id": 1, "member_id": "nobody"}
    return _many("SyncGroup", 3, 60_000, "assignments", share, group_instance_id=None, **who)


def _leaving() -> bytes:
    left = {"member_id": "000000", "group_instance_id": None}
    return _many("LeaveGroup", 5, 60_000, "members", left, group_id=_GROUP)


def _consumer_groups_told() -> bytes:
    more = {"include_authorized_operations": False}
    return _many("ConsumerGroupDescribe", 0, 60_000, "group_ids", **more)


def _deleting_records() -> bytes:
    return _partitions("DeleteRecords", 2, {"partition_index": 1, "offset": 0}, timeout=1000)


def _deleting_offsets() -> bytes:
    return _partitions("OffsetDelete", 0, {"partition_index": 1}, group_id=_GROUP)


def _heartbeat() -> bytes:
    return _request("Heartbeat", 3, group_id=_GROUP, generation_id=1, member_id="nobody")


def _consumer_groups(count: int) -> bytes:
    frame = _request(
        "ConsumerGroupHeartbeat",
        0,
        group_id="many000000",
        member_id="",
        member_epoch=0,
        rebalance_timeout=300_000,
        subscribed_topic_names=[_WIDE],
        topic_partitions=[],
    )
    return b"".join(frame.replace(b"000000", b"%06d" % n, 1) for n in range(count))


def _joins(count: int, group: str, client: bytes = b"c", size: int = 10) -> bytes:
    frame = _request(
        "JoinGroup",
        3 if size > 10 else 4,  # before 4, a member is one at once
        group_id=group,
        session_timeout=300_000,
        rebalance_timeout=300_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": bytes(size)}],
    )
    assert frame[12:20] == b"\0\6hermes"
    body = frame[4:12] + struct.pack(">h", len(client)) + client + frame[20:]
    whole = len(body).to_bytes(4) + body
    return b"".join(whole.replace(b"000000", b"%06d" % n, 1) for n in range(count))


def _bomb(size: int) -> bytes:
    """A batch that claims one record, and expands to so many bytes."""
    header = decode_header(encode_batch([Record(0, 5, None, b"v")], RecordCodec.ZSTD))
    body = bytes(cramjam.zstd.compress(bytes(size)))
    return with_crc(header._replace(size_bytes=HEADER_BYTES + len(body)), body) + body


def _lying() -> bytes:
    """A batch whose records claim more than there is."""
    header, body = decode_header(_BATCH), b"\xfe\xff\xff\xff\x0f" + bytes(20)
    return with_crc(header._replace(size_bytes=HEADER_BYTES + len(body)), body) + body


def _init_producer() -> bytes:
    return _request("InitProducerId", 2, transactional_id=None, transaction_timeout=1000)


def _sasl() -> bytes:
    return _request("SaslHandshake", 1, mechanism="PLAIN") + _request(
        "SaslAuthenticate", 1, auth_bytes=b"\0u\0p"
    )


def _framed(key: int, version: int, body: bytes) -> bytes:
    data = struct.pack(">hhih", key, version, 7, -1) + body
    return len(data).to_bytes(4) + data


def _claim(key: int, version: int) -> bytes:
    return struct.pack(">ihhih", 100 << 20, key, version, 7, -1) + bytes(100_000)


def _tags(count: int, value: bytes = bytes(30_000)) -> bytes:
    """A Metadata whose header has so many tags."""
    each = b"\x05" + _varint(len(value)) + value
    return _framed(3, 9, _varint(count) + each * count + b"\0\0\0\0\0")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
