"""The worst request of each kind of Kafka's protocol: `worst_requests` for `kafka_listen`."""

import struct
from typing import Any

import cramjam
from kafka_raw import KafkaConversation, topics_of
from worst_requests import Kind

from hermes.cli.kafka_asking import KafkaAsker, _encoded
from hermes.protocol.record_batches import HEADER_BYTES, decode_header, with_crc
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch

__all__ = ["kafka_kinds", "prepare_kafka"]

_DATA = "kafka-data"
_OLD = "data"  # one of 0.7's, which `prepare_broker` makes
_WIDE = "kafka-wide"
_GROUP = "worst"
_BATCH = encode_batch([Record(0, 5, b"k", b"v")])


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
    numbers = [n % 100 for n in range(60_000)]
    names = [{"name": f"new{n}"} for n in range(40_000)]
    fetches = [_wanted(n) for n in numbers]
    times = [{"partition_index": n, "timestamp": 1, "current_leader_epoch": -1} for n in numbers]
    offsets = [{"partition_index": n, "committed_offset": n} for n in numbers]
    epochs = [{"partition": n, "current_leader_epoch": -1, "leader_epoch": 0} for n in numbers]
    groups = [f"group-{n}" for n in range(60_000)]
    committing = {"group_id": _GROUP, "member_id": "", "generation_id_or_member_epoch": -1}
    configs = [
        {"resource_type": 2, "resource_name": _WIDE, "configuration_keys": None}
        for _ in range(60_000)
    ]
    creating = [
        {"name": f"new{n}", "num_partitions": 1, "replication_factor": 1} for n in range(40_000)
    ]
    far = _request("Fetch", 12, **_fetch([_wanted(0, topic_bytes=1 << 20)] * 50, _DATA, 300_000))
    return [
        Kind("all topics, 1,000 times", _request("Metadata", 8, topics=None) * 1000, 1000),
        Kind("metadata, 40,000 unknown topics", _metadata(names, False)),
        Kind("metadata, 40,000 new topics", _metadata(names, True)),
        Kind("fetch of 60,000 partitions", _request("Fetch", 12, **_fetch(fetches, _WIDE))),
        Kind("waiting fetch of 60,000", _request("Fetch", 12, **_fetch(fetches, _WIDE, 300_000))),
        Kind("fetches that nobody reads", far * 50, 50),
        Kind("60,000 offsets by time", _listing(times)),
        Kind("60,000 epochs", _topics("OffsetForLeaderEpoch", 4, epochs, topic=_WIDE)),
        Kind("produce to 20,000 unknown topics", _produce(f"no{n}" for n in range(20_000))),
        Kind("20,000 batches for a partition", _produce(_DATA for _ in range(20_000))),
        Kind("a bomb of 600 MB for a topic of 0.7", _produce([_OLD], _bomb(600_000_000))),
        Kind("records that lie", _produce([_OLD], _lying()) * 500, 500),
        Kind("2,000 groups", _join_all(2000), 2000),
        Kind("1,000 ids of 30 KB", _join_all(1000, "one", b"c" * 30_000), 1000),
        Kind("300 subscriptions of 500 KB", _join_all(60, None, b"c", 500_000), 60),
        Kind("coordinators of 60,000", _request("FindCoordinator", 4, coordinator_keys=groups)),
        Kind("60,000 groups described", _request("DescribeGroups", 5, groups=groups)),
        Kind("60,000 groups deleted", _request("DeleteGroups", 2, groups_names=groups)),
        Kind("groups listed, 1,000 times", _request("ListGroups", 4) * 1000, 1000),
        Kind("offsets of 60,000 groups", _offsets_of(groups)),
        Kind("offsets of a group, 20,000 times", _offsets_of([_GROUP] * 20_000)),
        Kind("60,000 commits", _topics("OffsetCommit", 8, offsets, **committing)),
        Kind("60,000 descriptions of settings", _request("DescribeConfigs", 4, resources=configs)),
        Kind("40,000 topics created", _request("CreateTopics", 7, topics=creating, timeout=1000)),
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
    return _encoded(name, version, 7, values)[0]


def _topics(name: str, version: int, partitions: Any, topic: str = _WIDE, **more: Any) -> bytes:
    named = {"name": topic, "topic": topic, "partitions": partitions}
    return _request(name, version, topics=[named], **more)


def _wanted(number: int, topic_bytes: int = 100) -> dict[str, Any]:
    return {"partition": number, "fetch_offset": 0, "partition_max_bytes": topic_bytes}


def _fetch(partitions: Any, topic: str, wait_ms: int = 0) -> dict[str, Any]:
    """The fields of a Fetch; one that waits wants more than there will be."""
    least = 1 << 30 if wait_ms else 0
    return {
        "max_wait": wait_ms,
        "min_bytes": least,
        "topics": [{"topic": topic, "partitions": partitions}],
    }


def _metadata(names: Any, creates: bool) -> bytes:
    return _request("Metadata", 8, topics=names, allow_auto_topic_creation=creates)


def _listing(times: Any) -> bytes:
    named = {"name": _WIDE, "partitions": times}
    return _request("ListOffsets", 5, replica_id=-1, isolation_level=0, topics=[named])


def _produce(topics: Any, batch: bytes = _BATCH) -> bytes:
    data = [{"name": each, "partition_data": [{"index": 0, "records": batch}]} for each in topics]
    return _request("Produce", 9, acks=-1, timeout=1000, topic_data=data)


def _bomb(size: int) -> bytes:
    """A batch that claims one record, and expands to so many bytes."""
    header = decode_header(encode_batch([Record(0, 5, None, b"v")], RecordCodec.ZSTD))
    body = bytes(cramjam.zstd.compress(bytes(size)))
    return with_crc(header._replace(size_bytes=HEADER_BYTES + len(body)), body) + body


def _lying() -> bytes:
    """A batch whose records claim more than there is."""
    header, body = decode_header(_BATCH), b"\xfe\xff\xff\xff\x0f" + bytes(20)
    return with_crc(header._replace(size_bytes=HEADER_BYTES + len(body)), body) + body


def _join_all(count: int, name: str | None = None, client: bytes = b"c", size: int = 10) -> bytes:
    protocols = [{"name": "range", "metadata": bytes(size)}]
    frames = []
    for number in range(count):
        frame = _request(
            "JoinGroup",
            5 if size > 10 else 4,
            group_id=name or f"many{number}",
            session_timeout=300_000,
            rebalance_timeout=300_000,
            member_id="",
            group_instance_id=f"static{number}" if size > 10 else None,
            protocol_type="consumer",
            protocols=protocols,
        )
        body = frame[4:12] + struct.pack(">h", len(client)) + client + frame[20:]
        assert frame[12:20] == b"\0\6hermes"
        frames.append(len(body).to_bytes(4) + body)
    return b"".join(frames)


def _offsets_of(groups: Any) -> bytes:
    asked = [{"group_id": each, "topics": None} for each in groups]
    return _request("OffsetFetch", 8, groups=asked)


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
