"""Scenes of groups: static members, two members through a rebalance, offsets, tools' requests."""

import time
from typing import Any

from conformance_steps import NOWHERE, PATIENCE_SECONDS, Scene, comparable, named_fields
from kafka_bench import encode_request
from kafka_raw import KafkaConversation, parts

__all__ = ["GROUP_SCENES", "Group"]


class Group:
    """A group in a scene, with what most requests about it have."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.name = f"{name}-of-{scene.topic}"
        self.member, self.generation, self.instance = "", -1, None
        # Kafka reads it. Version 0: int16 0 | int32 1 | the topic | int32 -1 (no more)
        topic = scene.topic.encode()
        subscription = bytes.fromhex("0000 00000001") + len(topic).to_bytes(2) + topic
        self.subscription = subscription + b"\xff\xff\xff\xff"

    def joining(self, version: int = 9, **more: Any) -> dict[str, Any]:
        make = parts("JoinGroup", version)
        names = more.pop("names", ("range",))
        return {
            "group_id": self.name,
            "session_timeout": make.timeout(60_000),
            "rebalance_timeout": make.timeout(120_000),
            "member_id": self.member,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocols": tuple(
                make.JoinGroupRequestProtocol(name=each, metadata=self.subscription)
                for each in names
            ),
            "reason": None,
            **more,
        }

    def join(self, label: str, version: int = 9, **more: Any) -> Any:
        """Join, and be that member from now on, if it is one."""
        keep = more.pop("keep", True)
        given = self.joining(version, **more)
        answer = self.scene.ask(label, "JoinGroup", version, **given)
        if keep and answer is not None and answer.error_code.name in ("none", "member_id_required"):
            self.member, self.generation = answer.member_id, answer.generation_id
        return answer

    def enter(self, label: str, version: int = 9, **more: Any) -> Any:
        """Join with both of the steps that it takes, as a client would."""
        answer = self.join(label, version, **more)
        if answer is not None and answer.error_code.name == "member_id_required":
            answer = self.join(f"{label}, with an id", version, **more)
        return answer

    def about(self, **more: Any) -> dict[str, Any]:
        return {
            "group_id": self.name,
            "generation_id": self.generation,
            "member_id": self.member,
            "group_instance_id": self.instance,
            **more,
        }

    def sync(self, label: str, version: int = 5, **more: Any) -> Any:
        make = parts("SyncGroup", version)
        shares = more.pop("shares", {self.member: b"all of it"})
        assignments = tuple(
            make.SyncGroupRequestAssignment(member_id=each, assignment=share)
            for each, share in shares.items()
        )
        given = {"protocol_type": "consumer", "protocol_name": "range", "assignments": assignments}
        return self.scene.ask(label, "SyncGroup", version, **self.about(**given | more))

    def beat(self, label: str, version: int = 4, **more: Any) -> Any:
        return self.scene.ask(label, "Heartbeat", version, **self.about(**more))

    def commit(self, label: str, version: int = 9, **more: Any) -> Any:
        make = parts("OffsetCommit", version)
        partition = make.OffsetCommitRequestPartition(
            partition_index=more.pop("partition", 0),
            committed_offset=more.pop("offset", 5),
            committed_leader_epoch=-1,
            committed_metadata=more.pop("metadata", "note"),
        )
        topic = more.pop("topic", self.scene.topic)
        named = {"topic_id": topic} if version >= 10 else {"name": topic}
        topics = (make.OffsetCommitRequestTopic(**named, partitions=(partition,)),)
        generation = more.pop("generation", self.generation)
        given = {
            "generation_id_or_member_epoch": generation,
            "retention_time": make.long_timeout(-1),
            "topics": topics,
            **more,
        }
        return self.scene.ask(label, "OffsetCommit", version, **self.about(**given))

    def leave(self, label: str, *who: tuple[str, str | None], version: int = 5) -> Any:
        make = parts("LeaveGroup", version)
        if version < 3:
            ((member_id, _),) = who
            return self.scene.ask(
                label, "LeaveGroup", version, group_id=self.name, member_id=member_id
            )
        members = tuple(
            make.MemberIdentity(member_id=member_id, group_instance_id=instance, reason=None)
            for member_id, instance in who
        )
        return self.scene.ask(label, "LeaveGroup", version, group_id=self.name, members=members)

    def describe(self, label: str, version: int = 6) -> None:
        self.scene.ask(
            label,
            "DescribeGroups",
            version,
            groups=(self.name,),
            include_authorized_operations=False,
        )

    def offsets(self, label: str, version: int = 9, **more: Any) -> None:
        make = parts("OffsetFetch", version)
        topic, numbers = more.pop("topic", self.scene.topic), more.pop("numbers", (0, 1))
        if version < 8:
            kind = make.OffsetFetchRequestTopic
            topics = None if topic is None else (kind(name=topic, partition_indexes=numbers),)
            more = {"group_id": self.name, "topics": topics, **more}
        else:
            kind = make.OffsetFetchRequestTopics
            named = {"topic_id": topic} if version >= 10 else {"name": topic}
            topics = None if topic is None else (kind(**named, partition_indexes=numbers),)
            group = make.OffsetFetchRequestGroup(
                group_id=more.pop("group_id", self.name),
                member_id=more.pop("member_id", None),
                member_epoch=more.pop("member_epoch", -1),
                topics=topics,
            )
            more = {"groups": (group,), **more}
        self.scene.ask(label, "OffsetFetch", version, **{"require_stable": False} | more)


def statically(scene: Scene) -> None:
    """A static member, its double, and who takes it out."""
    group = Group(scene, "static")
    group.instance = "one"
    answer = group.join("joined")
    group.sync("synced")
    first = group.member
    group.beat("heartbeat")
    group.beat("heartbeat of another id", member_id="nobody")
    group.beat("heartbeat of another instance", group_instance_id="two")
    group.beat("heartbeat without its instance", group_instance_id=None)
    group.commit("commit of another id", member_id="nobody")
    group.commit("commit of another instance", group_instance_id="two")
    group.sync("synced again")
    group.sync("synced by another id", member_id="nobody")
    group.join("joined by another id", member_id="nobody", keep=False)
    group.describe("described")
    answer = group.join("joined again without an id", member_id="")
    assert answer is not None
    group.sync("synced by the new one", shares={})
    group.beat("heartbeat of the old one", member_id=first)
    group.commit("commit of the old one", member_id=first)
    group.sync("synced by the old one", member_id=first)
    group.join("joined by the old one", member_id=first, keep=False)
    group.beat("heartbeat of the new one")
    group.join("joined again in an old version", 5, member_id="")
    group.beat("heartbeat after that")
    group.leave("another instance left", ("", "two"))
    group.leave("an id with another instance left", (group.member, "two"))
    group.leave("a wrong id left", ("nobody", "one"))
    group.leave("two left, one of them is there", ("", "one"), ("", "two"))
    group.describe("after it left")
    group.beat("heartbeat after it left")


def rebalanced(scene: Scene) -> None:
    """Two members: what each is told while the other one comes and goes."""
    group = Group(scene, "two")
    group.enter("first")
    group.describe("before the leader has shared")
    group.beat("heartbeat before that")
    group.commit("commit before that")
    group.sync("first synced")
    group.join("joined again as it was")
    group.sync("synced again")
    group.join("another type", member_id="", protocol_type="connect", keep=False)
    group.join("no type", member_id="", protocol_type="", keep=False)
    group.join("another protocol", member_id="", names=("sticky",), keep=False)
    group.join("no protocol", member_id="", names=(), keep=False)
    other = Group(scene, "two")
    other.join("second gets an id")
    with KafkaConversation(scene.address, PATIENCE_SECONDS) as connection:
        connection.send(encode_request("JoinGroup", 9, **other.joining()))
        _until_it_rebalances(group)
        group.beat("heartbeat while the second joins")
        group.commit("commit while the second joins")
        group.sync("synced while the second joins")
        group.describe("while the second joins")
        first = group.join("first joins again")
        second = connection.receive("JoinGroup", 9)
        scene.answers["second joined"] = comparable(second)
        other.generation = second.generation_id
        group.describe("while both sync")
        group.beat("heartbeat while both sync")
        group.commit("commit while both sync")
        leader = group if first.leader == group.member else other
        shares = {group.member: b"one", other.member: b"two"}
        assert leader is group
        group.sync("first shares", shares=shares)
        other.sync("second gets its share", shares={})
    group.describe("both are there")
    group.commit("an old generation", generation=1)
    group.beat("an old generation's heartbeat", generation_id=1)
    group.sync("an old generation's sync", generation_id=1)
    other.leave("second left, in an old version", (other.member, None), version=1)
    group.beat("heartbeat after second left")
    group.leave("both left, one of them before", (group.member, None), (other.member, None))
    group.describe("nobody is left")
    group.commit("a member's commit to an empty group")
    group.commit("a tool's commit to an empty group", generation=-1, member_id="")
    group.join("joined with an id of before", keep=False)


def _until_it_rebalances(group: Group) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    beat = dict(group.about())
    while group.scene.client.ask("Heartbeat", 4, **beat).error_code.name == "none":
        assert time.monotonic() < deadline, "the second member does not join"
        time.sleep(0.01)  # between two looks; there is nothing that could tell


def committed(scene: Scene) -> None:
    """Offsets of a group without members, and groups as tools see them."""
    group = Group(scene, "simple")
    tool: dict[str, Any] = {"member_id": "", "generation": -1}
    group.offsets("none yet")
    group.commit("committed", **tool)
    group.commit("a negative offset", offset=-1, partition=1, **tool)
    group.commit("without a note", partition=1, metadata=None, **tool)
    group.commit("by id", 10, topic=scene.topic_id(), offset=6, **tool)
    group.commit("by an unknown id", 10, topic=NOWHERE, **tool)
    group.commit("a negative partition", partition=-1, **tool)
    group.commit("by a member that nobody knows", member_id="nobody", generation=-1)
    group.commit("of a generation", generation=1, member_id="")
    group.commit("of a generation, before that could be told", 8, generation=1, member_id="")
    group.commit("by an instance", generation=-1, member_id="", group_instance_id="one")
    group.commit("no group", group_id="", **tool)
    group.offsets("both")
    group.offsets("all", topic=None)
    group.offsets("stable ones", require_stable=True)
    group.offsets("offsets by id", 10, topic=scene.topic_id())
    group.offsets("offsets by an unknown id", 10, topic=NOWHERE)
    group.offsets("of an unknown topic", topic="nobody-has-this")
    group.offsets("of an unknown partition", numbers=(7, -1))
    group.offsets("of no group", group_id="")
    group.offsets("as a member that nobody knows", member_id="nobody", member_epoch=3)
    group.offsets("all of no such group", 7, topic=None, group_id="nobody-has-this")

    def listed(label: str, version: int, **more: Any) -> None:
        answer = scene.client.ask(
            "ListGroups", version, **named_fields("ListGroups", version, more)
        )
        shown = [comparable(each) for each in answer.groups if each.group_id == group.name]
        scene.answers[label] = [answer.error_code.name, *shown]

    for version in range(6):
        listed(f"listed, v{version}", version, states_filter=(), types_filter=())
    listed("listed if empty", 5, states_filter=("EMPTY", "Dead"), types_filter=())
    listed("listed if stable", 5, states_filter=("Stable",), types_filter=())
    listed("listed in no state", 5, states_filter=("asleep",), types_filter=())
    listed("listed of a type", 5, states_filter=(), types_filter=("Classic",))
    listed("listed of another type", 5, states_filter=(), types_filter=("consumer",))
    listed("listed of no type", 5, states_filter=(), types_filter=("modern",))
    group.describe("described")
    several = (group.name, group.name, "", "nobody-has-this")
    operations = {"include_authorized_operations": True}
    scene.ask("several described", "DescribeGroups", 6, groups=several, **operations)
    for label, kind, keys in (
        ("no name's coordinator", 0, ("",)),
        ("two coordinators", 0, (group.name, group.name)),
        ("nobody's coordinator", 0, ()),
    ):
        scene.ask(label, "FindCoordinator", 4, key_type=kind, coordinator_keys=keys)
    make = parts("OffsetDelete", 0)

    def forget(label: str, topic: str, number: int, name: str = group.name) -> None:
        wanted = make.OffsetDeleteRequestPartition(partition_index=number)
        topics = (make.OffsetDeleteRequestTopic(name=topic, partitions=(wanted,)),)
        scene.ask(label, "OffsetDelete", 0, group_id=name, topics=topics)

    forget("forgotten", scene.topic, 1)
    forget("an unknown partition forgotten", scene.topic, 7)
    forget("an unknown topic forgotten", "nobody-has-this", 0)
    forget("no group's forgotten", scene.topic, 0, "")
    group.beat("heartbeat of no group", group_id="")
    group.sync("synced to no group", group_id="")
    group.leave("left without a member")
    scene.ask("no group left", "LeaveGroup", 5, group_id="", members=())
    several = (group.name, group.name, "", "nobody-has-this")
    scene.ask("several deleted", "DeleteGroups", 2, groups_names=several)
    group.offsets("after it was deleted")


#: All of them, by their functions' names.
GROUP_SCENES = {each.__name__: each for each in (statically, rebalanced, committed)}
