"""Exchanges that Hermes and a real Kafka are to answer alike, but for ids and times.

A scene is a conversation in steps, each with a label. Answers are made comparable: ids,
times, addresses and texts for people are replaced, and batches are shown as their records.
"""

from collections.abc import Callable
from typing import Any

from conformance_consumers import CONSUMER_SCENES
from conformance_fetches import FETCH_DIFFERENCES, FETCH_SCENES
from conformance_groups import GROUP_SCENES
from conformance_replicas import REPLICA_SCENES
from conformance_security import SECURITY_SCENES
from conformance_steps import (
    DEFAULT_RETENTION_MS,
    NOW_MS,
    NOWHERE,
    PATIENCE_SECONDS,
    Scene,
    batch,
    fetch,
    list_offsets,
    lying,
    produce,
)
from conformance_transactions import TRANSACTION_DIFFERENCES, TRANSACTION_SCENES
from conformance_versions import VERSION_SCENES
from kafka_bench import encode_request
from kafka_raw import KafkaConversation, parts

from hermes.protocol.record_compression import RecordCodec

__all__ = ["DIFFERENCES", "SCENES", "answers"]

#: What Hermes answers otherwise, by scene and step, and why. docs/kafka.md has each of them.
DIFFERENCES = {
    ("not_produced", "null records"): "Kafka fails internally and never answers",
    ("not_produced", "cut off"): "corrupted in transit: clients retry",
    ("not_produced", "half a header"): "corrupted in transit: clients retry",
    ("not_produced", "an unknown codec"): "Kafka fails internally and has no better error",
    ("not_produced", "far in the future"): "timestamps are up to the producers",
    ("idempotent", "older than the last five"): "the next leader may have had many more",
    ("reconfigured", "no such operation"): "Kafka fails internally and has no better error",
    ("paged", "no name"): "Kafka fails internally and has no better error",
    **TRANSACTION_DIFFERENCES,
    **FETCH_DIFFERENCES,
}


# -- scenes -------------------------------------------------------------------------------------


def produced(scene: Scene) -> None:
    """What is taken, and how it comes back."""
    for codec in RecordCodec:
        produce(scene, codec.name, batch(b"one", b"two", codec=codec))
    produce(scene, "lowest version", batch(b"three"), version=3)
    produce(scene, "acks 1", batch(b"five"), acks=1)  # which the next one flushes
    produce(scene, "by id", batch(b"four"), version=13, topic=scene.topic_id())
    fetch(scene, "all of it")
    fetch(scene, "from within a batch", 1, partition_max_bytes=1)


def not_produced(scene: Scene) -> None:
    """What is refused."""
    good = batch(b"value")
    flipped = bytearray(good)
    flipped[-1] ^= 1
    old = bytearray(good)
    old[16] = 1
    produce(scene, "unknown topic", good, topic="nobody-has-this")
    produce(scene, "unknown id", good, version=13, topic=NOWHERE)
    produce(scene, "unknown partition", good, partition=7)
    produce(scene, "negative partition", good, partition=-1)
    produce(scene, "acks 2", good, acks=2)
    produce(scene, "no records", b"")
    produce(scene, "null records", None)
    produce(scene, "a wrong CRC", bytes(flipped))
    produce(scene, "cut off", good[:-1])
    produce(scene, "half a header", good[:40])
    produce(scene, "magic 1", bytes(old))
    produce(scene, "two batches", good + good)
    produce(scene, "more messages than offsets", lying(good, record_count=2))
    produce(scene, "more offsets than messages", lying(good, last_offset_delta=3))
    produce(scene, "no messages", lying(good, record_count=0, last_offset_delta=0))
    produce(scene, "an unknown codec", lying(good, attributes=5))
    produce(scene, "a control batch", lying(good, attributes=0x20))
    produce(scene, "a transaction's batch", lying(good, attributes=0x10))
    produce(scene, "another base offset", lying(good, base_offset=5))
    produce(scene, "zstd, before it was known", batch(b"z", codec=RecordCodec.ZSTD), version=6)
    produce(scene, "too large", batch(bytes(1_100_000)))
    produce(scene, "not a topic's name", good, topic="a b")
    list_offsets(scene, "nothing was appended", -1)
    produce(scene, "far in the future", batch(b"later", time_ms=4_000_000_000_000))


def idempotent(scene: Scene) -> None:
    """Sequence numbers."""

    def numbered(sequence: int, *values: bytes, epoch: int = 0, producer: int = 4000) -> bytes:
        return batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)

    produce(scene, "first", numbered(0, b"a", b"b"))
    produce(scene, "second", numbered(2, b"c"))
    produce(scene, "second again", numbered(2, b"c"))
    produce(scene, "first again", numbered(0, b"a", b"b"))
    produce(scene, "a gap", numbered(7, b"x"))
    produce(scene, "third", numbered(3, b"d"))
    for number in range(5):
        produce(scene, f"further {number}", numbered(4 + number, b"e"))
    produce(scene, "older than the last five", numbered(0, b"a", b"b"))
    produce(scene, "a new epoch that begins late", numbered(3, b"x", epoch=1))
    produce(scene, "a new epoch", numbered(0, b"n", epoch=1))
    produce(scene, "an old epoch", numbered(9, b"o", epoch=0))
    produce(scene, "unknown, beginning late", numbered(5, b"u", producer=4001))
    produce(scene, "without a sequence number", lying(numbered(0, b"s"), base_sequence=-1))
    fetch(scene, "what was stored")


def fetched(scene: Scene) -> None:
    """What can be read, and what can't."""
    produce(scene, "filled", batch(b"one", b"two", b"three"))
    fetch(scene, "from its beginning")
    fetch(scene, "in the lowest version", version=4)
    fetch(scene, "by id", version=17, topic=scene.topic_id())
    fetch(scene, "at its end", 3)
    fetch(scene, "beyond its end", 4)
    fetch(scene, "a negative offset", -1)
    fetch(scene, "nothing at all wanted", partition_max_bytes=0)
    fetch(scene, "no bytes for the response", max_bytes=0)
    fetch(scene, "unknown topic", topic="nobody-has-this")
    fetch(scene, "unknown id", version=17, topic=NOWHERE)
    fetch(scene, "unknown partition", partition=7)
    fetch(scene, "of the epoch", current_leader_epoch=0)
    fetch(scene, "of a later epoch", current_leader_epoch=5)
    fetch(scene, "committed only", isolation_level=1)
    fetch(scene, "a session that nobody began", session_id=4711, session_epoch=3)
    fetch(scene, "an epoch without a session", session_id=0, session_epoch=3)


def looked_up(scene: Scene) -> None:
    """Offsets by time."""
    list_offsets(scene, "earliest of none", -2)
    list_offsets(scene, "latest of none", -1)
    list_offsets(scene, "largest timestamp of none", -3)
    list_offsets(scene, "a time of none", NOW_MS)
    produce(scene, "first", batch(b"a", b"b", time_ms=NOW_MS))
    produce(scene, "an earlier time", batch(b"c", time_ms=NOW_MS - 5000))
    produce(scene, "later", batch(b"d", b"e", time_ms=NOW_MS + 5000, codec=RecordCodec.LZ4))
    for label, time_ms in {
        "earliest": -2,
        "latest": -1,
        "largest timestamp": -3,
        "a time before all": 1,
        "the first time": NOW_MS,
        "the second time": NOW_MS + 1,
        "between": NOW_MS + 2,
        "within a compressed batch": NOW_MS + 5001,
        "after all": NOW_MS + 9000,
        "a negative time that means nothing": -17,
    }.items():
        list_offsets(scene, label, time_ms)
    list_offsets(scene, "lowest version", -1, version=1)
    list_offsets(scene, "unknown topic", -1, topic="nobody-has-this")
    list_offsets(scene, "unknown partition", -1, partition=7)
    list_offsets(scene, "a later epoch", -1, epoch=5)
    make = parts("OffsetForLeaderEpoch", 4)
    for epoch, label in ((0, "the epoch"), (5, "a later one"), (-1, "none")):
        wanted = make.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=-1, leader_epoch=epoch
        )
        topics = (make.OffsetForLeaderTopic(topic=scene.topic, partitions=(wanted,)),)
        scene.ask(f"end of {label}", "OffsetForLeaderEpoch", 4, replica_id=-1, topics=topics)


def described(scene: Scene) -> None:
    """Metadata."""
    for version in (1, 8, 12):
        make = parts("Metadata", version)

        def ask(label: str, *topics: Any, version: int = version) -> None:
            more = {"include_topic_authorized_operations": False} if version >= 8 else {}
            if version in (8, 9, 10):
                more["include_cluster_authorized_operations"] = False
            if version >= 4:
                more["allow_auto_topic_creation"] = False
            scene.ask(f"{label}, v{version}", "Metadata", version, topics=topics, **more)

        def named(name: str | None, make: Any = make, version: int = version, **more: Any) -> Any:
            return make.MetadataRequestTopic(
                name=name, **({"topic_id": None} | more if version >= 10 else {})
            )

        ask("no topic")
        ask("a topic", named(scene.topic))
        if version >= 4:
            ask("unknown", named("nobody-has-this"))
            ask("not a name", named("a b"))
        if version >= 12:
            ask("unknown id", named(None, topic_id=NOWHERE))
            ask("known id", named(None, topic_id=scene.topic_id()))


def administered(scene: Scene) -> None:
    """Topics made, grown and deleted; records deleted; settings."""
    make = parts("CreateTopics", 7)

    def create(label: str, name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> None:
        wanted = make.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=(),
            configs=tuple(
                make.CreatableTopicConfig(name=key, value=value)
                for key, value in more.pop("settings", {}).items()
            ),
        )
        given = {"timeout": make.timeout(30_000), "validate_only": False, **more}
        answer = scene.client.ask("CreateTopics", 7, topics=(wanted,), **given)
        (topic,) = answer.topics  # which settings it lists is each broker's own affair
        scene.answers[label] = [topic.name, topic.error_code.name, topic.num_partitions]

    made = f"{scene.topic}-made"
    create("created", made, 3)
    create("created again", made, 3)
    create("only tried", f"{scene.topic}-tried", 3, validate_only=True)
    create("no partitions", f"{scene.topic}-none", 0)
    create("negative partitions", f"{scene.topic}-none", -5)
    create("three replicas", f"{scene.topic}-replicas", 1, 3)
    create("no replicas", f"{scene.topic}-replicas", 1, 0)
    create("not a name", "a b")
    create("a dot", ".")
    create("no name", "")
    create("a long name", "x" * 250)
    create("an unknown setting", f"{scene.topic}-set", settings={"no.such.setting": "1"})
    create("a wrong value", f"{scene.topic}-set", settings={"retention.ms": "soon"})
    create("with settings", f"{scene.topic}-set", settings={"retention.ms": "3600000"})
    create("defaults", f"{scene.topic}-defaults", -1, -1)

    grow = parts("CreatePartitions", 3)
    for label, name, count in (
        ("grown", made, 5),
        ("grown to as many", made, 5),
        ("grown to fewer", made, 2),
        ("grown, unknown", "nobody-has-this", 5),
    ):
        topic = grow.CreatePartitionsTopic(name=name, count=count, assignments=None)
        timeout = grow.timeout(30_000)
        scene.ask(
            label, "CreatePartitions", 3, topics=(topic,), timeout=timeout, validate_only=False
        )

    produce(scene, "filled", batch(b"one", b"two", b"three"))
    cut = parts("DeleteRecords", 2)
    for label, partition, offset in (
        ("records deleted", 0, 2),
        ("fewer deleted", 0, 1),
        ("all deleted", 0, -1),
        ("more than there are", 0, 9),
        ("of an unknown partition", 7, 1),
    ):
        wanted = cut.DeleteRecordsPartition(partition_index=partition, offset=offset)
        topics = (cut.DeleteRecordsTopic(name=scene.topic, partitions=(wanted,)),)
        scene.ask(label, "DeleteRecords", 2, topics=topics, timeout=cut.timeout(30_000))
    fetch(scene, "deleted records", 0)
    list_offsets(scene, "earliest", -2)

    gone = parts("DeleteTopics", 6)
    for label, named in (
        ("deleted", {"name": made, "topic_id": None}),
        ("deleted again", {"name": made, "topic_id": None}),
        ("unknown id deleted", {"name": None, "topic_id": NOWHERE}),
    ):
        topics = (gone.DeleteTopicState(**named),)
        scene.ask(label, "DeleteTopics", 6, topics=topics, timeout=gone.timeout(30_000))


def configured(scene: Scene) -> None:
    """Settings of topics, one at a time."""
    ask = parts("DescribeConfigs", 4)
    alter = parts("IncrementalAlterConfigs", 1)

    def describe(label: str, name: str, keys: tuple[str, ...] | None, kind: int = 2) -> None:
        wanted = ask.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys
        )
        answer = scene.client.ask(
            "DescribeConfigs",
            4,
            resources=(wanted,),
            include_synonyms=False,
            include_documentation=False,
        )
        (result,) = answer.results
        scene.answers[label] = [
            result.error_code.name,
            *sorted([each.name, each.value, each.read_only] for each in result.configs),
        ]

    def change(label: str, name: str, key: str, value: str | None, operation: int = 0) -> None:
        config = alter.AlterableConfig(name=key, config_operation=operation, value=value)
        wanted = alter.AlterConfigsResource(resource_type=2, resource_name=name, configs=(config,))
        scene.ask(label, "IncrementalAlterConfigs", 1, resources=(wanted,), validate_only=False)

    keys = ("retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes")
    describe("some settings", scene.topic, keys)
    describe("an unknown setting", scene.topic, ("no.such.setting",))
    describe("of an unknown topic", "nobody-has-this", keys)
    describe("of no kind", scene.topic, keys, kind=77)
    change("set", scene.topic, "retention.ms", "3600000")
    scene.settle_setting(scene.topic, "retention.ms", "3600000")
    describe("after it was set", scene.topic, ("retention.ms",))
    change("set wrongly", scene.topic, "retention.ms", "soon")
    change("an unknown one set", scene.topic, "no.such.setting", "1")
    change("of an unknown topic set", "nobody-has-this", "retention.ms", "3600000")
    change("deleted", scene.topic, "retention.ms", None, 1)
    scene.settle_setting(scene.topic, "retention.ms", DEFAULT_RETENTION_MS)
    describe("after it was deleted", scene.topic, ("retention.ms",))


def grouped(scene: Scene) -> None:
    """A group of one member, from its beginning to its end."""
    group = f"group-of-{scene.topic}"
    find = scene.ask("coordinator", "FindCoordinator", 4, key_type=0, coordinator_keys=(group,))
    assert find is not None
    scene.ask("coordinator of no kind", "FindCoordinator", 4, key_type=9, coordinator_keys=(group,))
    make = parts("JoinGroup", 9)
    # Kafka reads it. Version 0: int16 0 | int32 1 | the topic | int32 -1 (no more)
    subscribed_to = scene.topic.encode()
    subscription = bytes.fromhex("0000 00000001") + len(subscribed_to).to_bytes(2) + subscribed_to
    subscription += b"\xff\xff\xff\xff"
    protocol = make.JoinGroupRequestProtocol(name="range", metadata=subscription)

    def join(label: str, **more: Any) -> Any:
        given = {
            "group_id": group,
            "session_timeout": make.timeout(60_000),
            "rebalance_timeout": make.timeout(10_000),
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": (protocol,),
            "reason": None,
            **more,
        }
        return scene.ask(label, "JoinGroup", 9, **given)

    join("no group", group_id="")
    join("a short session", session_timeout=make.timeout(10))
    join("a long session", session_timeout=make.timeout(2**31 - 1))
    join("a member that nobody knows", member_id="nobody")
    answer = join("joined without an id")
    member = answer.member_id
    answer = join("joined", member_id=member)
    generation = answer.generation_id
    sync = parts("SyncGroup", 5)
    own = sync.SyncGroupRequestAssignment(member_id=member, assignment=b"all of it")

    def synced(label: str, **more: Any) -> None:
        given = {
            "group_id": group,
            "generation_id": generation,
            "member_id": member,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": (own,),
            **more,
        }
        scene.ask(label, "SyncGroup", 5, **given)

    synced("synced with another generation", generation_id=generation + 1)
    synced("synced by nobody", member_id="nobody")
    synced("synced with another protocol", protocol_name="sticky")
    synced("synced")

    def beat(label: str, **more: Any) -> None:
        given = {"group_id": group, "generation_id": generation, "member_id": member, **more}
        scene.ask(label, "Heartbeat", 4, group_instance_id=None, **given)

    beat("heartbeat")
    beat("heartbeat of another generation", generation_id=generation + 1)
    beat("heartbeat of nobody", member_id="nobody")
    beat("heartbeat of no group", group_id="nobody-has-this")
    commit = parts("OffsetCommit", 8)

    def committed(label: str, offset: int = 5, **more: Any) -> None:
        partition = commit.OffsetCommitRequestPartition(
            partition_index=more.pop("partition", 0),
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata=more.pop("metadata", "note"),
        )
        topic = more.pop("topic", scene.topic)
        given = {
            "group_id": group,
            "generation_id_or_member_epoch": generation,
            "member_id": member,
            "group_instance_id": None,
            "topics": (commit.OffsetCommitRequestTopic(name=topic, partitions=(partition,)),),
            **more,
        }
        scene.ask(label, "OffsetCommit", 8, **given)

    committed("committed")
    committed("committed with another generation", generation_id_or_member_epoch=generation + 1)
    committed("committed by nobody", member_id="nobody")
    committed("committed by no member", generation_id_or_member_epoch=-1, member_id="")
    committed("committed with a long note", metadata="x" * 5000)
    committed("committed for an unknown topic", topic="nobody-has-this")
    committed("committed for an unknown partition", partition=7)
    committed(
        "committed for another group, which has no members",
        group_id=f"{group}-simple",
        generation_id_or_member_epoch=-1,
        member_id="",
    )
    read = parts("OffsetFetch", 8)
    for label, name in (("offsets", group), ("offsets of no group", "nobody-has-this")):
        topics = (read.OffsetFetchRequestTopics(name=scene.topic, partition_indexes=(0, 1)),)
        wanted = read.OffsetFetchRequestGroup(group_id=name, topics=topics)
        scene.ask(label, "OffsetFetch", 8, groups=(wanted,), require_stable=False)
    more = {"include_authorized_operations": False}
    scene.ask("a group", "DescribeGroups", 5, groups=(group,), **more)
    scene.ask("a group without members", "DescribeGroups", 5, groups=(f"{group}-simple",), **more)
    scene.ask("no such group", "DescribeGroups", 5, groups=("nobody-has-this",), **more)
    scene.ask("deleted with members", "DeleteGroups", 2, groups_names=(group,))
    forget = parts("OffsetDelete", 0)
    subscribed = forget.OffsetDeleteRequestTopic(
        name=scene.topic, partitions=(forget.OffsetDeleteRequestPartition(partition_index=0),)
    )
    scene.ask(
        "offsets of no group deleted",
        "OffsetDelete",
        0,
        group_id="nobody-has-this",
        topics=(subscribed,),
    )
    scene.ask(
        "offsets without members deleted",
        "OffsetDelete",
        0,
        group_id=f"{group}-simple",
        topics=(subscribed,),
    )
    leave = parts("LeaveGroup", 5)
    for label, name in (("nobody left", "nobody"), ("left", member)):
        identity = leave.MemberIdentity(member_id=name, group_instance_id=None, reason=None)
        scene.ask(label, "LeaveGroup", 5, group_id=group, members=(identity,))
    scene.ask("after it left", "DescribeGroups", 5, groups=(group,), **more)
    scene.ask("deleted", "DeleteGroups", 2, groups_names=(group,))
    scene.ask("deleted again", "DeleteGroups", 2, groups_names=(group,))


def others(scene: Scene) -> None:
    """Requests that stand alone."""
    timeout = parts.timeout(60_000)
    given = {"transaction_timeout": timeout, "producer_id": -1, "producer_epoch": -1}
    scene.ask("a producer's id", "InitProducerId", 4, transactional_id=None, **given)
    scene.ask("an empty transactional id", "InitProducerId", 4, transactional_id="", **given)
    scene.ask("SASL where there is none", "SaslHandshake", 1, mechanism="SCRAM-SHA-256")
    produce(scene, "after SASL", batch(b"value"))
    scene.client.send(
        encode_request(
            "Metadata",
            12,
            topics=(),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )[:7]
    )
    scene.client.close()
    scene.client = KafkaConversation(scene.address, PATIENCE_SECONDS)
    scene.ask(
        "the cluster",
        "DescribeCluster",
        1,
        include_cluster_authorized_operations=False,
        endpoint_type=1,
    )
    make = parts("DescribeLogDirs", 4)
    topics = (make.DescribableLogDirTopic(topic="nobody-has-this", partitions=(0,)),)
    scene.ask("directories of an unknown topic", "DescribeLogDirs", 4, topics=topics)


#: All scenes, by their functions' names.
SCENES: dict[str, Callable[[Scene], None]] = (
    {
        each.__name__: each
        for each in (
            *(produced, not_produced, idempotent, fetched, looked_up, described, administered),
            *(configured, grouped, others),
        )
    }
    | GROUP_SCENES
    | CONSUMER_SCENES
    | FETCH_SCENES
    | VERSION_SCENES
    | SECURITY_SCENES
    | REPLICA_SCENES
    | TRANSACTION_SCENES
)


def answers(play: Callable[[Scene], None], address: str) -> dict[str, Any]:
    """Play a scene on a broker that hasn't seen it; what was answered, by the steps' labels."""
    scene = Scene(address, f"scene-{play.__name__.replace('_', '-')}")
    try:
        scene.create(scene.topic)
        scene.settle()
        play(scene)
        return scene.answers
    finally:
        scene.client.close()
