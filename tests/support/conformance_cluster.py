"""Scenes of clusters of three: what brokers answer that lead, that don't, and of those that died.

As in `conformance`, but ids of brokers and epochs of leaders are compared: each topic is placed by
hand, and what isn't said in the same way at once is waited for.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Protocol

from conformance_steps import PATIENCE_SECONDS, Scene, batch, fetch, list_offsets, produce
from kafka_raw import KafkaConversation, parts

__all__ = ["CLUSTER_DIFFERENCES", "CLUSTER_SCENES", "Brokers", "ClusterScene", "cluster_answers"]

_SHOWN = {
    *("leader_id", "leader_epoch", "current_leader", "replica_nodes", "isr_nodes"),
    *("node_endpoints", "node_id", "broker_id", "leader"),
}
#: As in `conformance`, of several brokers.
CLUSTER_DIFFERENCES = {
    ("misdirected", "from a follower"): "messages are read from leaders",
    **{
        ("fenced", f"a later epoch, to a follower ({name})"): "who doesn't lead says so first"
        for name in ("Fetch", "ListOffsets", "OffsetForLeaderEpoch")
    },
    ("fenced", "an earlier epoch (Fetch)"): "librdkafka goes by it in each version",
    ("fenced", "after an epoch's end"): "consumers ask for the end of an epoch",
    ("moved", "to one that is down"): "coordination knows nothing of a broker that is down",
    ("moved", "that cancelled"): "coordination knows nothing of a broker that is down",
    ("throttled", "a rate of another broker"): "each broker takes the settings of all",
    **{
        ("throttled", f"{label} ({side}.replication.throttled.{what})"): reason
        for side in ("leader", "follower")
        for label, what, reason in (
            ("a rate that is no number", "rate", "as of a topic's wrong values"),
            ("a rate below 0", "rate", "as of a topic's wrong values"),
            ("a broker's copies", "replicas", "a broker has no such setting"),
        )
    },
}

#: How often a scene is played at most where another broker leads than the one that was to.
_ATTEMPTS = 5

_PLACES = ([1, 2, 3], [2, 3, 1], [3, 1, 2])


class Brokers(Protocol):
    """Three of them, with the ids 1 to 3.

    Attributes:
        addresses: where they are, by their ids.
    """

    addresses: Mapping[int, str]

    def kill(self, number: int) -> None:
        """End one without any warning."""

    def start(self, number: int) -> None:
        """Start one that was killed."""

    def pause(self, number: int) -> None:
        """Let one do nothing, until `resume`."""

    def resume(self, number: int) -> None:
        """Let it go on."""


class AnotherLeadsError(Exception):
    """The next in the list of replicas doesn't lead."""


class ClusterScene(Scene):
    """A conversation with several brokers, of a topic with three copies of three partitions.

    Attributes:
        brokers: these.
    """

    def __init__(self, brokers: Brokers, topic: str) -> None:
        self.brokers = brokers
        self._marks = count()
        super().__init__(brokers.addresses[1], topic, _SHOWN)

    def to(self, number: int) -> None:
        """Talk to another broker from now on."""
        self.client.close()
        self.address = self.brokers.addresses[number]
        self.client = KafkaConversation(self.address, PATIENCE_SECONDS)

    def place(self, topic: str, places: Sequence[Sequence[int]] = _PLACES, **config: str) -> None:
        """Create a topic, and wait until each copy is in sync, and each broker knows of it."""
        error = _created(self, topic, places, config)
        assert error == "none", error
        for number in (3, 2, 1):
            self.to(number)
            self.wait_until_led(
                topic, {each: (where[0], set(where)) for each, where in enumerate(places)}
            )

    def kill(self, number: int, then: int) -> None:
        """End a broker, and wait until another one, which is talked to then, knows that.

        It leads then what the first one led: it is the next in the list. Raises AnotherLeadsError:
        it was too busy for that.
        """
        self.to(then)
        led = {
            each for each, (leader, _) in _metadata(self, self.topic).items() if leader == number
        }
        self.brokers.kill(number)
        self.wait_until(
            lambda: (
                number
                not in {each.node_id for each in self.client.ask("Metadata", 1, topics=()).brokers}
            ),
            f"{number} doesn't die",
        )
        leaders: dict[int, int] = {}

        def are_led() -> bool:
            leaders.update(
                (each, leader) for each, (leader, _) in _metadata(self, self.topic).items()
            )
            return all(leaders[each] not in (-1, number) for each in led)

        self.wait_until(are_led, f"nobody leads what {number} led")
        if any(leaders[each] != then for each in led):
            self.brokers.start(number)
            raise AnotherLeadsError(f"{leaders} lead what {number} led, not {then}")

    def wait_until_led(self, topic: str, wanted: Mapping[int, tuple[int, set[int]]]) -> None:
        """Wait until it is so: who leads partitions, which copies are in sync, and all know that.

        A Kafka's broker says of others what it has yet to do itself, but does it in order: once it
        leads a topic that was made afterwards, it has done it.
        """

        found: dict[int, tuple[int, set[int]]] = {}

        def is_said() -> bool:
            found.update(_metadata(self, topic))
            return all(found.get(each) == state for each, state in wanted.items())

        self.wait_until(is_said, lambda: f"{topic} isn't led so: {wanted}, but {found}")
        leaders = sorted({leader for leader, _ in wanted.values()})
        mark = f"{self.topic}-mark-{next(self._marks)}"
        assert _created(self, mark, [[each] for each in leaders]) == "none"
        for leader in leaders:
            with KafkaConversation(self.brokers.addresses[leader], PATIENCE_SECONDS) as client:
                led = {topic: [each for each, state in wanted.items() if state[0] == leader]}
                led[mark] = [leaders.index(leader)]
                is_led = partial(_are_led, client, led)
                self.wait_until(is_led, f"{leader} doesn't lead {led}")


def _are_led(client: KafkaConversation, led: Mapping[str, Sequence[int]]) -> bool:
    make = parts("ListOffsets", 8)
    topics = tuple(
        make.ListOffsetsTopic(
            name=topic,
            partitions=tuple(
                make.ListOffsetsPartition(
                    partition_index=each, timestamp=-1, current_leader_epoch=-1
                )
                for each in numbers
            ),
        )
        for topic, numbers in led.items()
    )
    answer = client.ask("ListOffsets", 8, replica_id=-1, isolation_level=0, topics=topics)
    return all(part.error_code.value == 0 for topic in answer.topics for part in topic.partitions)


def _metadata(scene: Scene, topic: str) -> dict[int, tuple[int, set[int]]]:
    make = parts("Metadata", 12)
    (found,) = scene.client.ask(
        "Metadata",
        12,
        topics=(make.MetadataRequestTopic(name=topic, topic_id=None),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    ).topics
    return {
        each.partition_index: (each.leader_id, set(each.isr_nodes)) for each in found.partitions
    }


def _created(
    scene: Scene,
    topic: str,
    places: Sequence[Sequence[int]] = (),
    config: Mapping[str, str] | None = None,
    factor: int = -1,
    partitions: int = -1,
) -> str:
    """Create a topic; the error's name."""
    make = parts("CreateTopics", 7)
    wanted = make.CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=tuple(
            make.CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(brokers))
            for number, brokers in enumerate(places)
        ),
        configs=tuple(
            make.CreatableTopicConfig(name=key, value=value)
            for key, value in (config or {}).items()
        ),
    )
    timeout = make.timeout(30_000)
    answer = scene.client.ask(
        "CreateTopics", 7, topics=(wanted,), timeout=timeout, validate_only=False
    )
    name: str = answer.topics[0].error_code.name
    return name


# -- scenes -------------------------------------------------------------------------------------


def factors(scene: ClusterScene) -> None:
    """How many copies a topic may have, and where."""
    name = f"{scene.topic}-made"
    for label, factor in (("three", 3), ("two", 2), ("one", 1), ("four", 4), ("none", 0)):
        scene.answers[label] = _created(scene, f"{name}-{factor}", factor=factor, partitions=2)
    for label, places in (
        ("two by hand", [[3, 1], [1, 3]]),
        ("of several counts", [[1, 2], [3]]),
        ("one of them unknown", [[1, 2, 9]]),
        ("one twice", [[1, 2, 1]]),
    ):
        scene.answers[label] = _created(scene, f"{name}-{label.replace(' ', '-')}", places)
    scene.answers["as many must be in sync"] = _created(
        scene, f"{name}-all", [[1, 2]], {"min.insync.replicas": "2"}
    )
    scene.wait_until_led(f"{name}-two-by-hand", {0: (3, {1, 3}), 1: (1, {1, 3})})
    make = parts("CreatePartitions", 3)
    for label, partitions, places in (
        ("grown with another factor", 3, [[1, 2, 3]]),
        ("grown", 3, [[2, 3]]),
    ):
        where = tuple(make.CreatePartitionsAssignment(broker_ids=tuple(e)) for e in places)
        topic = make.CreatePartitionsTopic(
            name=f"{name}-two-by-hand", count=partitions, assignments=where
        )
        given = {"timeout": make.timeout(30_000), "validate_only": False}
        scene.ask(label, "CreatePartitions", 3, topics=(topic,), **given)


def who_leads(scene: ClusterScene) -> None:
    """What is said of partitions, by whomever is asked; then one of them dies."""
    for number in (1, 2, 3):
        scene.to(number)
        _describe(scene, f"to {number}")
    scene.kill(3, then=1)
    left = {0: (1, {1, 2}), 1: (2, {1, 2}), 2: (1, {1, 2})}
    scene.wait_until_led(scene.topic, left)
    _describe(scene, "without 3")
    produce(scene, "to two of three", batch(b"one"))
    scene.brokers.start(3)
    scene.wait_until_led(
        scene.topic, {each: (leader, {1, 2, 3}) for each, (leader, _) in left.items()}
    )
    _describe(scene, "with 3 again")


def _describe(scene: ClusterScene, label: str) -> None:
    for version in (1, 4, 8, 12):
        make = parts("Metadata", version)
        scene.ask(
            f"Metadata {version} {label}",
            "Metadata",
            version,
            topics=(make.MetadataRequestTopic(name=scene.topic, topic_id=None),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
            include_cluster_authorized_operations=False,
        )
    make = parts("DescribeTopicPartitions", 0)
    scene.ask(
        f"DescribeTopicPartitions {label}",
        "DescribeTopicPartitions",
        0,
        topics=(make.TopicRequest(name=scene.topic),),
        response_partition_limit=2000,
        cursor=None,
    )


def misdirected(scene: ClusterScene) -> None:
    """What is sent to a broker that doesn't lead."""
    produce(scene, "to the leader", batch(b"one", b"two"))
    scene.to(2)
    for version in (3, 9, 10, 12):
        produce(scene, f"Produce {version}", batch(b"three"), version=version)
    produce(scene, "acks 1", batch(b"three"), acks=1)
    fetch(scene, "Fetch 4", version=4)
    answer = fetch(scene, "from a follower", version=16, topic=scene.topic_id())
    (found,) = answer.responses[0].partitions  # what it has by now differs from time to time
    scene.answers["from a follower"] = found.error_code.name
    for version in (1, 8):
        list_offsets(scene, f"ListOffsets {version}", -1, version=version)
    _end_of_epoch(scene, "OffsetForLeaderEpoch", 0)
    _delete(scene, "DeleteRecords")


def fenced(scene: ClusterScene) -> None:
    """Who knows of another leader's epoch."""
    produce(scene, "filled", batch(b"one", b"two"))
    for label, epoch in (("no epoch", -1), ("this epoch", 0), ("a later epoch", 7)):
        _with_epoch(scene, label, epoch)
    scene.to(2)
    _with_epoch(scene, "a later epoch, to a follower", 7)
    scene.kill(1, then=2)
    scene.wait_until_led(scene.topic, {0: (2, {2, 3})})
    for label, epoch in (("an earlier epoch", 0), ("the next epoch", 1), ("one after that", 2)):
        _with_epoch(scene, label, epoch)
    produce(scene, "in the next epoch", batch(b"three"))
    fetch(scene, "read from the new leader")
    for asked in range(3):
        _end_of_epoch(scene, f"the end of epoch {asked}", asked, 1)
    for label, offset, epoch in (
        ("at an epoch's end", 2, 0),
        ("at the last one's end", 3, 1),
        ("after an epoch's end", 3, 0),
    ):
        fetch(scene, label, offset, current_leader_epoch=1, last_fetched_epoch=epoch)
    scene.brokers.start(1)
    scene.wait_until_led(scene.topic, {0: (2, {1, 2, 3})})
    scene.to(1)
    produce(scene, "to who led before", batch(b"four"), version=10)


def _with_epoch(scene: ClusterScene, label: str, epoch: int) -> None:
    fetch(scene, f"{label} (Fetch)", current_leader_epoch=epoch)
    list_offsets(scene, f"{label} (ListOffsets)", -1, epoch=epoch)
    _end_of_epoch(scene, f"{label} (OffsetForLeaderEpoch)", 0, epoch)


def _end_of_epoch(scene: ClusterScene, label: str, epoch: int, current: int = -1) -> None:
    make = parts("OffsetForLeaderEpoch", 4)
    wanted = make.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    topics = (make.OffsetForLeaderTopic(topic=scene.topic, partitions=(wanted,)),)
    scene.ask(label, "OffsetForLeaderEpoch", 4, replica_id=-1, topics=topics)


def _delete(scene: ClusterScene, label: str) -> None:
    make = parts("DeleteRecords", 2)
    wanted = make.DeleteRecordsPartition(partition_index=0, offset=1)
    topics = (make.DeleteRecordsTopic(name=scene.topic, partitions=(wanted,)),)
    scene.ask(label, "DeleteRecords", 2, topics=topics, timeout=make.timeout(30_000))


def too_few(scene: ClusterScene) -> None:
    """A topic of which all copies must be in sync, and one of them isn't."""
    strict = f"{scene.topic}-strict"
    scene.place(strict, [[1, 2, 3]], **{"min.insync.replicas": "3"})
    produce(scene, "all in sync", batch(b"one"), topic=strict)
    scene.kill(3, then=1)
    scene.wait_until_led(strict, {0: (1, {1, 2})})
    produce(scene, "two, acks all", batch(b"two"), topic=strict)
    produce(scene, "two, acks 1", batch(b"three"), topic=strict, acks=1)
    scene.brokers.start(3)
    scene.wait_until_led(strict, {0: (1, {1, 2, 3})})
    produce(scene, "all in sync again", batch(b"four"), topic=strict)
    fetch(scene, "what was stored", topic=strict)


def moved(scene: ClusterScene) -> None:
    """Copies that move, and one that can't, as its broker is dead."""
    single = f"{scene.topic}-single"
    scene.place(single, [[1], [2]])
    produce(scene, "filled", batch(b"one", b"two"), topic=single)
    _reassign(scene, "to another", single, {0: [2]})
    scene.wait_until_led(single, {0: (2, {2})})
    scene.wait_until(lambda: not _moves(scene), "the move doesn't end")
    _list(scene, "when it is done", single, (0, 1))
    scene.to(2)
    fetch(scene, "read from there", topic=single)
    _reassign(scene, "to several", single, {0: [2, 1, 3], 1: [2, 1]})
    scene.wait_until_led(single, {0: (2, {1, 2, 3}), 1: (2, {1, 2})})
    scene.wait_until(lambda: not _moves(scene), "the move doesn't end")
    _reassign(scene, "nothing to cancel", single, {0: None})
    _reassign(scene, "to none", single, {1: []})
    scene.brokers.pause(3)
    _reassign(scene, "to one that sleeps", single, {1: [3, 1]})
    _list(scene, "while it lasts", single, (0, 1))
    _list(scene, "of everything", None)
    _reassign(scene, "cancelled", single, {1: None})
    _list(scene, "after that", single, (1,))
    scene.brokers.resume(3)
    scene.wait_until_led(single, {0: (2, {1, 2, 3}), 1: (2, {1, 2})})
    scene.kill(3, then=1)
    _reassign(scene, "to one that is down", single, {1: [3, 1]})
    _reassign(scene, "that cancelled", single, {1: None})
    scene.brokers.start(3)
    scene.to(1)
    scene.wait_until_led(
        scene.topic, {each: (where[0], {1, 2, 3}) for each, where in enumerate(_PLACES[:2])}
    )


def _moves(scene: ClusterScene) -> Any:
    make = parts("ListPartitionReassignments", 0)
    timeout = make.timeout(30_000)
    return scene.client.ask("ListPartitionReassignments", 0, topics=None, timeout=timeout).topics


def _list(
    scene: ClusterScene, label: str, topic: str | None, numbers: tuple[int, ...] = ()
) -> None:
    make = parts("ListPartitionReassignments", 0)
    asked = None
    if topic is not None:
        kind = make.ListPartitionReassignmentsTopics
        asked = (kind(name=topic, partition_indexes=numbers),)
    timeout = make.timeout(30_000)
    scene.ask(label, "ListPartitionReassignments", 0, topics=asked, timeout=timeout)


def _reassign(
    scene: ClusterScene, label: str, topic: str, targets: Mapping[int, Sequence[int] | None]
) -> None:
    make = parts("AlterPartitionReassignments", 1)
    partitions = tuple(
        make.ReassignablePartition(
            partition_index=number, replicas=None if target is None else tuple(target)
        )
        for number, target in targets.items()
    )
    topics = (make.ReassignableTopic(name=topic, partitions=partitions),)
    timeout = make.timeout(30_000)
    scene.ask(label, "AlterPartitionReassignments", 1, topics=topics, timeout=timeout)


def voted(scene: ClusterScene) -> None:
    """Leaders that are elected by request."""
    _elect(scene, "who leads already", 0, (0, 1, 2, 7))
    _elect(scene, "unclean, with a leader", 1, (0,))
    scene.kill(1, then=2)
    scene.wait_until_led(scene.topic, {0: (2, {2, 3}), 2: (3, {2, 3})})
    _elect(scene, "who is dead", 0, (0, 1))
    scene.brokers.start(1)
    scene.wait_until_led(scene.topic, {0: (2, {1, 2, 3})})
    _elect(scene, "who has returned", 0, (0, 1))
    scene.wait_until_led(scene.topic, {0: (1, {1, 2, 3})})


def _elect(scene: ClusterScene, label: str, kind: int, numbers: tuple[int, ...]) -> None:
    make = parts("ElectLeaders", 2)
    wanted = (make.TopicPartitions(topic=scene.topic, partitions=numbers),)
    timeout = make.timeout(30_000)
    scene.ask(
        label, "ElectLeaders", 2, topic_partitions=wanted, election_type=kind, timeout=timeout
    )


def throttled(scene: ClusterScene) -> None:
    """What bounds moves, by broker and by topic."""
    rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    copies = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    _configure(scene, "a rate of another broker", 4, "2", rates[0], "1000000")
    scene.to(2)
    for key in rates:
        _configure(scene, f"a rate ({key})", 4, "2", key, "1000000")
        _configure(scene, f"a rate that is no number ({key})", 4, "2", key, "much")
        _configure(scene, f"a rate below 0 ({key})", 4, "2", key, "-1")
        _configure(scene, f"a rate of a topic ({key})", 2, scene.topic, key, "1000000")
        _configure(scene, f"no rate ({key})", 4, "2", key, None, 1)
    for key in copies:
        for value in ("0:1,0:2", "*", "", "none", "0:a", "0"):
            _configure(scene, f"the copies {value!r} ({key})", 2, scene.topic, key, value)
        _configure(scene, f"a broker's copies ({key})", 4, "2", key, "*")
        _configure(scene, f"no copies ({key})", 2, scene.topic, key, None, 1)


def _configure(
    scene: ClusterScene,
    label: str,
    kind: int,
    name: str,
    key: str,
    value: str | None,
    operation: int = 0,
) -> None:
    make = parts("IncrementalAlterConfigs", 1)
    config = make.AlterableConfig(name=key, config_operation=operation, value=value)
    wanted = make.AlterConfigsResource(resource_type=kind, resource_name=name, configs=(config,))
    scene.ask(label, "IncrementalAlterConfigs", 1, resources=(wanted,), validate_only=False)


def directories(scene: ClusterScene) -> None:
    """What each broker has of a topic that isn't everywhere."""
    name = f"{scene.topic}-parted"
    scene.place(name, [[1, 2], [2, 3], [3, 1]])
    make = parts("DescribeLogDirs", 4)
    topics = (make.DescribableLogDirTopic(topic=name, partitions=(0, 1, 2)),)
    for number in (1, 2, 3):
        scene.to(number)
        scene.ask(f"of {number}", "DescribeLogDirs", 4, topics=topics)


#: All of them, by their functions' names.
CLUSTER_SCENES: dict[str, Callable[[ClusterScene], None]] = {
    each.__name__: each
    for each in (
        *(factors, who_leads, misdirected, fenced, too_few, moved, voted, throttled, directories),
    )
}


def cluster_answers(play: Callable[[ClusterScene], None], brokers: Brokers) -> dict[str, Any]:
    """Play a scene on three brokers that run; what was answered, by the steps' labels."""
    name = f"scene-{play.__name__.replace('_', '-')}"
    for attempt in range(_ATTEMPTS):
        scene = ClusterScene(brokers, f"{name}-{attempt}" if attempt else name)
        try:
            scene.place(scene.topic)
            play(scene)
            answers: dict[str, Any] = json.loads(
                json.dumps(scene.answers).replace(scene.topic, name)
            )
            return answers
        except AnotherLeadsError as error:
            last = error
        finally:
            scene.client.close()
    raise last
