"""Scenes of consumer groups (KIP-848): members that come, share, wait for each other and go."""

import time
from typing import Any
from uuid import UUID

from conformance_groups import Group
from conformance_steps import PATIENCE_SECONDS, Scene, comparable, named_fields
from kafka_raw import parts

__all__ = ["CONSUMER_SCENES", "CONSUMER_SETTINGS"]

#: What makes a Kafka share at once, as these scenes want it, and lets no group be of both kinds.
CONSUMER_SETTINGS: dict[str, object] = {
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.assignor.offload.enable": "false",
    "group.consumer.migration.policy": "disabled",
}


class Consumer(Group):
    """A member of a consumer group in a scene; what it has is what it was told to have."""

    def __init__(self, scene: Scene, name: str, member: str) -> None:
        super().__init__(scene, name)
        self.member = member
        self.epoch = 0
        self.topic_id = UUID(int=scene.topic_id().int)

    def say(self, label: str, version: int = 1, **more: Any) -> Any:
        """Send a heartbeat, and be at the epoch that comes back."""
        make = parts("ConsumerGroupHeartbeat", version)
        owned = more.pop("owned", None)
        topics = owned
        if isinstance(owned, list):
            kind = make.TopicPartitions
            topics = (kind(topic_id=self.topic_id, partitions=tuple(owned)),) if owned else ()
        given = {
            "group_id": self.name,
            "member_id": self.member,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            "rack_id": None,
            "rebalance_timeout": make.timeout(more.pop("rebalance_ms", -1)),
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": topics,
            **more,
        }
        answer = self.scene.ask(label, "ConsumerGroupHeartbeat", version, **given)
        if answer is not None and answer.error_code.name == "none":
            self.epoch = answer.member_epoch
        return answer

    def enter(self, label: str, version: int = 1, **more: Any) -> Any:
        """Join, with all that it takes."""
        given = {"rebalance_ms": 60_000, "subscribed_topic_names": (self.scene.topic,)}
        return self.say(label, version, member_epoch=0, owned=[], **given | more)

    def commit_of(self, label: str, version: int = 9, **more: Any) -> Any:
        epoch = more.pop("epoch", self.epoch)
        return self.commit(label, version, generation=epoch, **more)

    def looked_at(self, label: str, version: int = 1, *names: str) -> None:
        answer = self.scene.client.ask(
            "ConsumerGroupDescribe",
            version,
            group_ids=names or (self.name,),
            include_authorized_operations=False,
        )
        assert label not in self.scene.answers, label
        self.scene.answers[label] = comparable(answer)


def _prepare(scene: Scene) -> None:
    """Wait until the coordinator knows of the scene's topic, which a Kafka hears of later."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    scout = Scene(scene.address, scene.topic)
    try:
        while True:
            one = Consumer(scout, "scout", "scout")
            answer = one.enter("joined")
            one.say("left", member_epoch=-1)
            if answer is not None and answer.assignment.topic_partitions:
                return
            assert time.monotonic() < deadline, "the coordinator doesn't know the topic"
            time.sleep(0.05)  # between two looks; there is nothing that could tell
            scout.answers.clear()
    finally:
        scout.client.close()


def refused_consumers(scene: Scene) -> None:
    """What a heartbeat may not say."""
    one = Consumer(scene, "refused-consumers", "one")
    one.say("heartbeat of no group", member_epoch=1)
    one.say("left no group", member_epoch=-1)
    one.enter("no name", group_id="")
    one.enter("no member", member_id="")
    one.enter("no instance", instance_id="")
    one.enter("no rack", rack_id="")
    one.enter("no rebalance timeout", rebalance_ms=-1)
    one.enter("no subscription", subscribed_topic_names=None)
    one.say("no partitions", rebalance_ms=1, subscribed_topic_names=())
    one.say("with partitions", rebalance_ms=1, subscribed_topic_names=(), owned=[0])
    one.enter("an unknown assignor", server_assignor="fair")
    one.enter("an invalid expression", subscribed_topic_regex="(", subscribed_topic_names=None)
    one.say("an epoch below all", member_epoch=-3)
    one.say("away, without an instance", member_epoch=-2)
    one.looked_at("no such group described")
    one.looked_at("no name described", 1, "")


def alone(scene: Scene) -> None:
    """One member: joins, repeats itself, commits, leaves."""
    _prepare(scene)
    one = Consumer(scene, "alone", "one")
    one.enter("joined")
    one.say("heartbeat")
    one.say("with its partitions", owned=[0, 1])
    whole = {"rebalance_ms": 60_000, "subscribed_topic_names": (scene.topic,)}
    one.say("said all again", owned=[0, 1], **whole)
    one.say("a later epoch", member_epoch=7)
    one.say("the epoch before", member_epoch=0, owned=[], **whole)
    one.say("an earlier epoch with its partitions", member_epoch=one.epoch - 1, owned=[0])
    one.say("an unknown member", member_id="nobody")
    one.commit_of("committed")
    one.commit_of("committed by id", 10, topic=scene.topic_id())
    one.commit_of("committed in an old version", 8)
    one.commit_of("committed of a later epoch", epoch=9)
    one.commit_of("committed by nobody", member_id="nobody")
    one.commit_of("committed by a tool", member_id="", epoch=-1)
    one.offsets("offsets", member_id="one", member_epoch=one.epoch)
    one.offsets("offsets of another epoch", member_id="one", member_epoch=9)
    one.offsets("offsets of nobody", member_id="nobody", member_epoch=1)
    one.offsets("offsets for a tool")
    one.say("another topic too", subscribed_topic_names=(scene.topic, "nobody-has-this"))
    one.looked_at("described with it")
    one.say("no topic at all", subscribed_topic_names=())
    one.say("gave all up", owned=[])
    one.looked_at("described without a topic", 0)
    one.say("all topics again", subscribed_topic_names=(scene.topic,))
    _others(one)
    one.say("left", member_epoch=-1)
    one.say("left again", member_epoch=-1)
    one.looked_at("described when nobody is left")
    one.commit_of("committed by a tool then", member_id="", epoch=-1)
    one.commit_of("committed by a member then", epoch=3)
    one.scene.ask("deleted", "DeleteGroups", 2, groups_names=(one.name,))


def _others(one: Consumer) -> None:
    """What the requests about classic groups say of a consumer group."""
    scene = one.scene
    one.describe("described as a classic group")
    one.describe("the same in an old version", 5)
    classic = Group(scene, "alone")
    classic.beat("a classic heartbeat", generation_id=1, member_id="one")
    classic.sync("a classic sync", generation_id=1, member_id="one")
    classic.leave("an unknown instance left", ("", "none"))
    classic.leave("an unknown member left", ("nobody", None))
    classic.join("joined with an unknown classic id", member_id="x", keep=False)
    classic.join("a new classic member", keep=False, names=("range",), protocol_type="other")
    for label, types in (("consumer", ("Consumer",)), ("classic", ("classic",)), ("any", ())):
        answer = scene.client.ask(
            "ListGroups",
            5,
            **named_fields("ListGroups", 5, {"states_filter": (), "types_filter": types}),
        )
        shown = [comparable(each) for each in answer.groups if each.group_id == one.name]
        scene.answers[f"listed of type {label}"] = [answer.error_code.name, *shown]
    make = parts("OffsetDelete", 0)
    wanted = make.OffsetDeleteRequestPartition(partition_index=0)
    topics = (make.OffsetDeleteRequestTopic(name=scene.topic, partitions=(wanted,)),)
    scene.ask("forgotten", "OffsetDelete", 0, group_id=one.name, topics=topics)
    scene.ask("deleted with a member", "DeleteGroups", 2, groups_names=(one.name,))


def shared(scene: Scene) -> None:
    """Two members: what one has to give up before the other gets it."""
    _prepare(scene)
    one, two = Consumer(scene, "shared", "one"), Consumer(scene, "shared", "two")
    one.enter("joined")
    one.say("has both", owned=[0, 1])
    two.enter("second joined")
    two.say("second waits")
    two.looked_at("while the second waits")
    answer = one.say("told to give one up")
    assert answer is not None
    keeps = list(answer.assignment.topic_partitions[0].partitions)
    one.say("still has both")
    one.looked_at("while the first has both")
    one.commit_of("committed meanwhile", partition=0)
    two.say("second still waits")
    one.say("gave it up", owned=keeps)
    two.say("second gets it")
    two.say("second has it", owned=[1 - keeps[0]])
    one.looked_at("both have one")
    one.commit_of("committed of the earlier epoch", partition=keeps[0], epoch=one.epoch - 1)
    two.commit_of("committed before it had it", partition=1 - keeps[0], epoch=two.epoch - 1)
    two.say("second wants another assignor", server_assignor="range")
    one.say("first hears of it")
    tool = Group(scene, "shared")
    tool.leave("second taken out", ("two", None))
    two.say("second heard of it")
    one.say("first gets all")
    one.looked_at("one is left")


def static_consumers(scene: Scene) -> None:
    """A static member, its double, and its return."""
    _prepare(scene)
    one = Consumer(scene, "static-consumers", "one")
    one.instance = "i"
    one.enter("joined")
    one.say("has both", owned=[0, 1])
    double = Consumer(scene, "static-consumers", "two")
    double.instance = "i"
    double.enter("its double")
    double.say("a heartbeat of its double", member_epoch=1)
    one.enter("joined again under its own id")
    one.say("a heartbeat without its instance", instance_id=None)
    one.say("an instance that nobody is", instance_id="j")
    one.say("away for a while", member_epoch=-2)
    one.looked_at("while it is away")
    one.say("a heartbeat while it is away", member_epoch=1)
    double.enter("back under another id")
    double.looked_at("back")
    one.epoch = double.epoch
    one.say("a heartbeat of the first one")
    one.say("the first one leaves", member_epoch=-1)
    double.commit_of("committed by its instance", group_instance_id="i")
    double.leave("its instance taken out as another member", ("one", "i"))
    double.leave("its instance taken out", ("", "i"))
    double.say("left", member_epoch=-1)
    double.looked_at("left, described")


def by_expression(scene: Scene) -> None:
    """A regular expression, whose topics Kafka finds out between two heartbeats."""
    _prepare(scene)
    one = Consumer(scene, "expressed", "one")
    deadline = time.monotonic() + PATIENCE_SECONDS
    regex = f"(no-)?{scene.topic[:-1]}[a-z]"
    given = {"subscribed_topic_names": None, "subscribed_topic_regex": regex}
    answer = one.enter("joined", **given)
    while answer is None or not (answer.assignment and answer.assignment.topic_partitions):
        assert time.monotonic() < deadline, "nothing is found"
        time.sleep(0.05)  # between two looks; there is nothing that could tell
        del scene.answers["joined"]
        answer = one.say("joined")
    one.looked_at("described")
    one.say("a part of a name", subscribed_topic_regex=scene.topic[:-1])


def taken_over(scene: Scene) -> None:
    """A group of one kind and then of the other."""
    _prepare(scene)
    one, classic = Consumer(scene, "taken", "one"), Group(scene, "taken")
    classic.enter("a classic member")
    classic.sync("it synced")
    one.enter("refused while it is there")
    one.say("a heartbeat to a classic group", member_epoch=1)
    one.looked_at("a classic group described")
    classic.commit("it committed")
    classic.leave("it left", (classic.member, None))
    one.enter("joined after it left")
    one.offsets("its offsets")
    one.say("left", member_epoch=-1)
    other = Group(scene, "taken")
    other.enter("a classic member again")
    other.describe("described")


def in_version_0(scene: Scene) -> None:
    """The first version, in which the coordinator gives ids."""
    _prepare(scene)
    one = Consumer(scene, "first", "one")
    one.enter("joined", 0)
    one.say("heartbeat", 0)
    one.looked_at("described in version 0", 0)
    one.say("left", 0, member_epoch=-1)


#: All of them, by their functions' names.
CONSUMER_SCENES = {
    each.__name__: each
    for each in (
        *(
            refused_consumers,
            alone,
            shared,
            static_consumers,
            by_expression,
            taken_over,
            in_version_0,
        ),
    )
}
