"""Scenes with each request in each announced version, and what administrators are refused."""

from typing import Any

from conformance_groups import Group
from conformance_steps import (
    DEFAULT_RETENTION_MS,
    NOW_MS,
    NOWHERE,
    Scene,
    batch,
    comparable,
    fetch,
    list_offsets,
    produce,
)
from kafka_raw import parts

from hermes.kafka.apis import APIS

__all__ = ["VERSION_SCENES"]


def _versions(name: str) -> range:
    api = next(each for each in APIS.values() if each.name == name)
    return range(api.lowest, api.highest + 1)


def in_all_versions(scene: Scene) -> None:
    """What clients do, in each version: messages, offsets, topics' settings, brokers."""
    topic_id = scene.topic_id()
    for v in _versions("Produce"):
        topic = topic_id if v >= 13 else scene.topic
        produce(scene, f"Produce {v}", batch(b"a", b"b"), version=v, topic=topic)
    for v in _versions("Fetch"):
        topic = topic_id if v >= 13 else scene.topic
        fetch(scene, f"Fetch {v}", 20, version=v, topic=topic, isolation_level=v % 2)
    for v in _versions("ListOffsets"):
        list_offsets(scene, f"ListOffsets {v}", -1, version=v)
        list_offsets(scene, f"ListOffsets {v}, by time", NOW_MS, version=v)
    for v in _versions("OffsetForLeaderEpoch"):
        _ask_epoch(scene, f"OffsetForLeaderEpoch {v}", v)
    for v in _versions("Metadata"):
        make = parts("Metadata", v)
        asked = (make.MetadataRequestTopic(name=scene.topic, topic_id=None),)
        scene.ask(
            f"Metadata {v}",
            "Metadata",
            v,
            topics=asked,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
            include_cluster_authorized_operations=False,
        )
    for v in _versions("DescribeCluster"):
        more = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
        scene.ask(f"DescribeCluster {v}", "DescribeCluster", v, endpoint_type=1, **more)
    for v in _versions("InitProducerId"):
        ids = {"producer_id": -1, "producer_epoch": -1, "transactional_id": None}
        ids |= {"enable2_pc": False, "keep_prepared_txn": False}
        timeout = parts.timeout(60_000)
        scene.ask(f"InitProducerId {v}", "InitProducerId", v, transaction_timeout=timeout, **ids)
    for v in _versions("DescribeLogDirs"):
        make = parts("DescribeLogDirs", v)
        topics = (make.DescribableLogDirTopic(topic=scene.topic, partitions=(0, 1, 7)),)
        scene.ask(f"DescribeLogDirs {v}", "DescribeLogDirs", v, topics=topics)
    for v in _versions("SaslHandshake"):
        scene.ask(f"SaslHandshake {v}", "SaslHandshake", v, mechanism="PLAIN")
    for v in _versions("SaslAuthenticate"):
        scene.ask(f"SaslAuthenticate {v}", "SaslAuthenticate", v, auth_bytes=b"x")


def administered_in_all_versions(scene: Scene) -> None:
    """A topic made, changed, grown, cut and deleted in each version."""
    for v in _versions("CreateTopics"):
        make = parts("CreateTopics", v)
        wanted = make.CreatableTopic(
            name=f"{scene.topic}-{v}",
            num_partitions=2,
            replication_factor=1,
            assignments=(),
            configs=(make.CreatableTopicConfig(name="retention.ms", value="86400000"),),
        )
        given = {"timeout": make.timeout(30_000), "validate_only": False}
        answer = scene.client.ask("CreateTopics", v, topics=(wanted,), **given)
        scene.answers[f"CreateTopics {v}"] = answer.topics[0].error_code.name
    for v in _versions("CreatePartitions"):
        make = parts("CreatePartitions", v)
        topic = make.CreatePartitionsTopic(name=f"{scene.topic}-2", count=3 + v, assignments=None)
        given = {"timeout": make.timeout(30_000), "validate_only": False}
        scene.ask(f"CreatePartitions {v}", "CreatePartitions", v, topics=(topic,), **given)
    for v in _versions("AlterConfigs"):
        make = parts("AlterConfigs", v)
        config = make.AlterableConfig(name="retention.ms", value=str(3_600_000 + v))
        asked = make.AlterConfigsResource(
            resource_type=2, resource_name=f"{scene.topic}-2", configs=(config,)
        )
        scene.ask(f"AlterConfigs {v}", "AlterConfigs", v, resources=(asked,), validate_only=False)
        scene.settle_setting(f"{scene.topic}-2", "retention.ms", str(3_600_000 + v))
    for v in _versions("IncrementalAlterConfigs"):
        _change(scene, f"IncrementalAlterConfigs {v}", f"{scene.topic}-2", version=v)
    scene.settle(f"{scene.topic}-2")
    scene.settle_setting(f"{scene.topic}-2", "retention.ms", "3600000")
    for v in _versions("DescribeConfigs"):
        _describe(scene, f"DescribeConfigs {v}", 2, f"{scene.topic}-2", v, has_synonyms=True)
    produce(scene, "filled", batch(b"a", b"b", b"c", b"d"), topic=f"{scene.topic}-2", acks=1)
    for v in _versions("DeleteRecords"):
        make = parts("DeleteRecords", v)
        # What was appended a moment ago counts: 2, 3 and all 4.
        offset = -1 if v == 2 else 2 + v
        cut = make.DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = (make.DeleteRecordsTopic(name=f"{scene.topic}-2", partitions=(cut,)),)
        timeout = make.timeout(30_000)
        scene.ask(f"DeleteRecords {v}", "DeleteRecords", v, topics=topics, timeout=timeout)
    for v in _versions("DeleteTopics"):
        make = parts("DeleteTopics", v)
        named = {"topic_names": (f"{scene.topic}-{v + 1}",)}
        if v >= 6:
            named = {"topics": (make.DeleteTopicState(name=f"{scene.topic}-7", topic_id=None),)}
        scene.ask(f"DeleteTopics {v}", "DeleteTopics", v, timeout=make.timeout(30_000), **named)


def grouped_in_all_versions(scene: Scene) -> None:
    """A group of one member that joins, commits and leaves in each version."""
    for v in _versions("JoinGroup"):
        group = Group(scene, f"in-{v}")
        group.enter(f"JoinGroup {v}", v)
        group.sync(f"SyncGroup {v}", min(v, 5))
        group.beat(f"Heartbeat {v}", min(v, 4))
        commit = min(max(v, 2), 9)
        group.commit(f"OffsetCommit {commit}, {v}", commit)
        group.offsets(f"OffsetFetch {v}", max(v, 1))
        group.describe(f"DescribeGroups {v}", min(v, 6))
        group.leave(f"LeaveGroup {v}", (group.member, None), version=min(v, 5))
        find = min(v, 6)
        named = {"key": group.name} if find < 4 else {"coordinator_keys": (group.name,)}
        scene.ask(f"FindCoordinator {v}", "FindCoordinator", find, key_type=0, **named)
        gone = min(v, 2)
        scene.ask(f"DeleteGroups {v}", "DeleteGroups", gone, groups_names=(group.name,))
        group.describe(f"DescribeGroups {v}, deleted", min(v, 6))


# -- refusals -----------------------------------------------------------------------------------


def refused(scene: Scene) -> None:
    """What administrators can't have."""
    make = parts("CreateTopics", 7)

    def create(label: str, *topics: Any, is_check: bool = False) -> None:
        given = {"timeout": make.timeout(30_000), "validate_only": is_check}
        answer = scene.client.ask("CreateTopics", 7, topics=topics, **given)
        scene.answers[label] = sorted([e.name, e.error_code.name] for e in answer.topics)

    def topic(name: str, *brokers: tuple[int, ...], **more: Any) -> Any:
        assignments = tuple(
            make.CreatableReplicaAssignment(partition_index=number, broker_ids=each)
            for number, each in enumerate(brokers, more.pop("begin", 0))
        )
        given = {"num_partitions": -1, "replication_factor": -1, "configs": (), **more}
        return make.CreatableTopic(name=f"{scene.topic}-{name}", assignments=assignments, **given)

    own = scene.client.ask(
        "DescribeCluster", 1, include_cluster_authorized_operations=False, endpoint_type=1
    )
    broker = own.brokers[0].broker_id
    create("placed", topic("placed", (broker,), (broker,)))
    create("placed on an unknown broker", topic("a", (broker + 100,)))
    create("placed on two", topic("b", (broker, broker + 100)))
    create("placed twice on one", topic("c", (broker, broker)))
    create("placed nowhere", topic("d", ()))
    create("placed, with a count", topic("e", (broker,), num_partitions=1))
    create("placed, with replicas", topic("f", (broker,), replication_factor=1))
    create("placed from partition 1 on", topic("g", (broker,), begin=1))
    create("twice in one request", topic("h"), topic("h"))
    create("a good one and a bad one", topic("i"), topic("j", num_partitions=0))
    create("a bad one tried", topic("k", num_partitions=-7), is_check=True)
    create("there already, tried", topic("placed"), is_check=True)
    create("a dot instead of an underscore", topic("a.b"), topic("a_b"))
    create("two settings, one is wrong", topic("l", configs=_configs(make, "segment.bytes", "-5")))
    create("null for a setting", topic("m", configs=_configs(make, "retention.ms", None)))
    create("many partitions", topic("n", num_partitions=20_000), is_check=True)

    grow = parts("CreatePartitions", 3)

    def grown(
        label: str, count: int, *brokers: tuple[int, ...] | None, check: bool = False
    ) -> None:
        assignments = tuple(grow.CreatePartitionsAssignment(broker_ids=each) for each in brokers)
        wanted = grow.CreatePartitionsTopic(
            name=f"{scene.topic}-placed", count=count, assignments=assignments or None
        )
        given = {"timeout": grow.timeout(30_000), "validate_only": check}
        scene.ask(label, "CreatePartitions", 3, topics=(wanted,), **given)

    grown("grown in a try", 5, check=True)
    grown("grown to a negative count", -1)
    grown("grown with too few places", 5, (broker,))
    grown("grown to an unknown broker", 3, (broker + 100,))
    grown("grown to two brokers", 3, (broker, broker + 100))
    grown("grown where it is said", 3, (broker,))
    gone = parts("DeleteTopics", 6)
    state = gone.DeleteTopicState
    for label, named in (
        ("deleted by neither", ({"name": None, "topic_id": None},)),
        ("deleted twice at once", ({"name": f"{scene.topic}-i", "topic_id": None},) * 2),
        ("nothing deleted", ()),
    ):
        topics = tuple(state(**each) for each in named)
        scene.ask(label, "DeleteTopics", 6, topics=topics, timeout=gone.timeout(30_000))
    cut = parts("DeleteRecords", 2)
    for label, name, offset in (
        ("records of an unknown topic deleted", "nobody-has-this", 1),
        ("records before a negative offset deleted", scene.topic, -2),
        ("no records deleted", scene.topic, 0),
    ):
        wanted = cut.DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = (cut.DeleteRecordsTopic(name=name, partitions=(wanted,)),)
        scene.ask(label, "DeleteRecords", 2, topics=topics, timeout=cut.timeout(30_000))


def _configs(make: Any, name: str, value: str | None) -> tuple[Any, ...]:
    return (
        make.CreatableTopicConfig(name="flush.ms", value="1000"),
        make.CreatableTopicConfig(name=name, value=value),
    )


def _describe(
    scene: Scene, label: str, kind: int, name: str, version: int = 4, *, has_synonyms: bool = False
) -> None:
    make = parts("DescribeConfigs", version)
    wanted = make.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=("retention.ms",)
    )
    given = {"include_synonyms": has_synonyms, "include_documentation": False}
    if version < 3:
        del given["include_documentation"]
    answer = scene.client.ask("DescribeConfigs", version, resources=(wanted,), **given)
    scene.answers[label] = [
        [each.error_code.name, each.resource_type, each.resource_name, comparable(each.configs)]
        for each in answer.results
    ]


def _change(
    scene: Scene, label: str, name: str, *changes: tuple[str, int, str | None], **more: Any
) -> None:
    version = more.get("version", 1)
    make = parts("IncrementalAlterConfigs", version)
    configs = tuple(
        make.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes or (("retention.ms", 0, "3600000"),)
    )
    wanted = make.AlterConfigsResource(
        resource_type=more.get("kind", 2), resource_name=name, configs=configs
    )
    given = {"validate_only": more.get("is_check", False)}
    scene.ask(label, "IncrementalAlterConfigs", version, resources=(wanted,), **given)


def reconfigured(scene: Scene) -> None:
    """Settings of what there is not, of brokers, and changes that can't be."""
    for kind in (0, 2, 4, 8, 16, 32, 64):
        _describe(scene, f"kind {kind} without a name", kind, "")
    _describe(scene, "a broker that there isn't", 4, "4711")
    _describe(scene, "a broker by a word", 4, "first")
    _describe(scene, "a topic with a wrong name", 2, "a b")
    topic = scene.topic
    _change(scene, "tried", topic, is_check=True)
    _change(scene, "a wrong value tried", topic, ("retention.ms", 0, "soon"), is_check=True)
    _change(scene, "two at once", topic, ("retention.ms", 0, "1"), ("retention.ms", 1, None))
    _change(scene, "no such operation", topic, ("retention.ms", 9, "1"))
    _change(scene, "no value", topic, ("retention.ms", 0, None))
    _change(scene, "appended to a number", topic, ("retention.ms", 2, "1"))
    _change(scene, "appended to a list", topic, ("cleanup.policy", 2, "compact"))
    _change(scene, "appended again", topic, ("cleanup.policy", 2, "compact"))
    _change(scene, "subtracted from a list", topic, ("cleanup.policy", 3, "compact"))
    _change(scene, "subtracted again", topic, ("cleanup.policy", 3, "compact"))
    _change(scene, "appended what there isn't", topic, ("cleanup.policy", 2, "forget"))
    _change(scene, "an unknown one deleted", topic, ("no.such.setting", 1, None))
    _change(scene, "without a name", "")
    _change(scene, "with a wrong name", "a b")
    for kind in (0, 8, 77):
        _change(scene, f"kind {kind} changed", topic, kind=kind)
    _change(scene, "a broker that there isn't changed", "4711", kind=4)
    make = parts("AlterConfigs", 2)
    hour = "3600000"
    for label, name, settings, after in (
        ("replaced", topic, {"retention.ms": hour}, hour),
        ("replaced by an unknown one", topic, {"no.such.setting": "1"}, hour),
        ("replaced by a wrong value", topic, {"retention.ms": "soon"}, hour),
        ("replaced for an unknown topic", "nobody-has-this", {"retention.ms": "1"}, hour),
        ("replaced by nothing", topic, {}, DEFAULT_RETENTION_MS),
    ):
        configs = tuple(make.AlterableConfig(name=k, value=v) for k, v in settings.items())
        asked = make.AlterConfigsResource(resource_type=2, resource_name=name, configs=configs)
        scene.ask(label, "AlterConfigs", 2, resources=(asked,), validate_only=False)
        scene.settle_setting(topic, "retention.ms", after)
        _describe(scene, f"{label}: now", 2, topic)


def _ask_epoch(scene: Scene, label: str, version: int, **more: Any) -> None:
    make = parts("OffsetForLeaderEpoch", version)
    wanted = make.OffsetForLeaderPartition(
        partition=more.get("partition", 0),
        current_leader_epoch=more.get("current", -1),
        leader_epoch=0,
    )
    topic = more.get("topic", scene.topic)
    topics = (make.OffsetForLeaderTopic(topic=topic, partitions=(wanted,)),)
    scene.ask(label, "OffsetForLeaderEpoch", version, replica_id=-1, topics=topics)


def looked_for(scene: Scene) -> None:
    """Places and names that there are not."""
    produce(scene, "filled", batch(b"a", b"b"))
    for time_ms in (-4, -5, -6, -7):
        list_offsets(scene, f"time {time_ms}", time_ms, version=11)
    list_offsets(scene, "the earliest local one, before there was that", -4, version=7)
    list_offsets(scene, "the largest timestamp, before there was that", -3, version=6)
    _ask_epoch(scene, "an unknown topic's epoch", 4, topic="nobody-has-this")
    _ask_epoch(scene, "an unknown partition's epoch", 4, partition=7)
    _ask_epoch(scene, "a later leader's epoch", 4, current=5)
    make = parts("ListOffsets", 8)
    twice = make.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
    topics = (make.ListOffsetsTopic(name=scene.topic, partitions=(twice, twice)),)
    scene.ask(
        "a partition twice", "ListOffsets", 8, replica_id=-1, isolation_level=0, topics=topics
    )
    for number, name in enumerate(("", ".", "..", "a/b", "x" * 249, "x" * 250, "ä")):
        for version in (4, 12):
            named = parts("Metadata", version).MetadataRequestTopic(name=name, topic_id=None)
            scene.ask(
                f"name {number}, v{version}",
                "Metadata",
                version,
                topics=(named,),
                allow_auto_topic_creation=version == 12 and len(name) != 249,
                include_topic_authorized_operations=False,
            )
    for kind in (2, 9):
        scene.ask(
            f"the cluster of kind {kind}",
            "DescribeCluster",
            1,
            include_cluster_authorized_operations=False,
            endpoint_type=kind,
        )
    ids = {"transactional_id": None, "producer_id": 4711, "producer_epoch": 3}
    timeout = parts.timeout(60_000)
    scene.ask("an id of before", "InitProducerId", 4, transaction_timeout=timeout, **ids)
    ids |= {"producer_epoch": -1}
    scene.ask("half an id of before", "InitProducerId", 4, transaction_timeout=timeout, **ids)
    fetch(scene, "from an unknown id and with a topic", version=13, topic=NOWHERE)


def announced(scene: Scene) -> None:
    """Which versions are announced of the requests that Hermes knows: a Kafka knows more."""
    client = {"client_software_name": "conformance", "client_software_version": "1"}
    for v in _versions("ApiVersions"):
        answer = scene.client.ask("ApiVersions", v, **(client if v >= 3 else {}))
        told = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        scene.answers[f"ApiVersions {v}"] = {
            each.name: [max(told[key][0], first), min(told[key][1], each.highest)]
            for key, each in APIS.items()
            for first in [each.lowest if each.announced is None else each.announced]
        }


#: All of them, by their functions' names.
VERSION_SCENES = {
    each.__name__: each
    for each in (
        announced,
        *(in_all_versions, administered_in_all_versions, grouped_in_all_versions),
        *(refused, reconfigured, looked_for),
    )
}
