"""Scenes of copies, moves and elections, as far as a cluster of one broker has them."""

from collections.abc import Mapping, Sequence
from typing import Any

from conformance_steps import Scene
from kafka_raw import parts

__all__ = ["REPLICA_SCENES"]

_NOBODY = 4711


def reassigned(scene: Scene) -> None:
    """Copies can't go anywhere; what is asked for wrongly is refused as it would be."""
    own = scene.client.ask("Metadata", 1, topics=()).brokers[0].node_id
    for version in range(2):
        _move(scene, f"AlterPartitionReassignments {version}", [own], version=version)
    _move(scene, "the factor kept", [own], allow_replication_factor_change=False)
    _move(scene, "another factor", [own, own + 1], allow_replication_factor_change=False)
    _move(scene, "to an unknown broker", [own, _NOBODY])
    _move(scene, "to no broker", [])
    _move(scene, "to one twice", [own, own])
    _move(scene, "to a negative one", [-1])
    _move(scene, "cancelled", None)
    _move(scene, "of no such topic", [own], topic="nobody-has-this")
    _move(scene, "of no such partition", [own], partition=7)
    _move(scene, "of a negative partition", [own], partition=-1)
    _move(scene, "cancelled, of no such partition", None, partition=7)
    _move(scene, "to an unknown broker, of no such topic", [_NOBODY], topic="nobody-has-this")
    make = parts("AlterPartitionReassignments", 1)
    _alter(scene, "two of a topic", ((scene.topic, ((0, [own]), (1, [_NOBODY]))),))
    _alter(scene, "none of a topic", ((scene.topic, ()),))
    _alter(scene, "of nothing", ())
    for label, topics in (
        ("ListPartitionReassignments 0", None),
        ("those of a topic", ((scene.topic, (0, 1, 7)), ("nobody-has-this", (0,)))),
        ("those of none", ()),
    ):
        make = parts("ListPartitionReassignments", 0)
        asked = topics
        if topics is not None:
            kind = make.ListPartitionReassignmentsTopics
            asked = tuple(kind(name=name, partition_indexes=numbers) for name, numbers in topics)
        scene.ask(label, "ListPartitionReassignments", 0, topics=asked)


def _move(
    scene: Scene,
    label: str,
    target: Sequence[int] | None,
    topic: str = "",
    partition: int = 0,
    version: int = 1,
    **more: Any,
) -> None:
    moves = ((topic or scene.topic, ((partition, target),)),)
    _alter(scene, label, moves, version, **more)


def _alter(scene: Scene, label: str, moves: Any, version: int = 1, **more: Any) -> None:
    make = parts("AlterPartitionReassignments", version)
    topics = tuple(
        make.ReassignableTopic(
            name=name,
            partitions=tuple(
                make.ReassignablePartition(
                    partition_index=number, replicas=None if target is None else tuple(target)
                )
                for number, target in partitions
            ),
        )
        for name, partitions in moves
    )
    scene.ask(label, "AlterPartitionReassignments", version, topics=topics, **more)


def elected(scene: Scene) -> None:
    """The only copy leads, and so there is nobody else to elect."""
    everywhere = ((scene.topic, (0, 1, 7)), ("nobody-has-this", (0,)))
    _elect(scene, "ElectLeaders 0", everywhere, version=0)
    for version in (1, 2):
        for kind in range(2):
            _elect(scene, f"ElectLeaders {version}, kind {kind}", everywhere, version, kind)
    _elect(scene, "of a third kind", everywhere, kind=2)
    _elect(scene, "of a negative partition", ((scene.topic, (-1,)),))
    _elect(scene, "none of a topic", ((scene.topic, ()),))
    _elect(scene, "of nothing", ())


def _elect(scene: Scene, label: str, asked: Any, version: int = 2, kind: int = 0) -> None:
    make = parts("ElectLeaders", version)
    wanted = tuple(make.TopicPartitions(topic=name, partitions=each) for name, each in asked)
    more = {} if version == 0 else {"election_type": kind}
    scene.ask(label, "ElectLeaders", version, topic_partitions=wanted, **more)


def assigned(scene: Scene) -> None:
    """Topics whose partitions are to be on certain brokers."""
    own = scene.client.ask("Metadata", 1, topics=()).brokers[0].node_id
    name = f"{scene.topic}-made"
    for label, assignment in (
        ("to an unknown broker", [[_NOBODY]]),
        ("to no broker", [[]]),
        ("to one twice", [[own, own]]),
        ("to a negative one", [[-1]]),
        ("to one of two", [[own], [own, _NOBODY]]),
        ("to that one", [[own], [own]]),
    ):
        _create(scene, label, name, assignment)
    _create(scene, "with a count", f"{name}-2", [[own]], num_partitions=1)
    _create(scene, "with a factor", f"{name}-2", [[own]], replication_factor=1)
    _create(scene, "of no partition 0", f"{name}-2", {1: [own]})
    make = parts("CreatePartitions", 3)
    for label, count, assignment in (
        ("grown on an unknown broker", 3, [[_NOBODY]]),
        ("grown on one twice", 3, [[own, own]]),
        ("grown on two", 3, [[own, _NOBODY]]),
        ("grown on none", 3, [[]]),
        ("grown by fewer", 4, [[own]]),
        ("grown", 3, [[own]]),
    ):
        where = tuple(make.CreatePartitionsAssignment(broker_ids=tuple(e)) for e in assignment)
        topic = make.CreatePartitionsTopic(name=name, count=count, assignments=where)
        given = {"timeout": make.timeout(30_000), "validate_only": False}
        scene.ask(label, "CreatePartitions", 3, topics=(topic,), **given)


def _create(
    scene: Scene,
    label: str,
    name: str,
    assignment: Sequence[Sequence[int]] | Mapping[int, Sequence[int]],
    **more: int,
) -> None:
    make = parts("CreateTopics", 7)
    given = assignment if isinstance(assignment, Mapping) else dict(enumerate(assignment))
    wanted = make.CreatableTopic(
        name=name,
        assignments=tuple(
            make.CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(brokers))
            for number, brokers in given.items()
        ),
        configs=(),
        **{"num_partitions": -1, "replication_factor": -1, **more},
    )
    answer = scene.client.ask(
        "CreateTopics", 7, topics=(wanted,), timeout=make.timeout(30_000), validate_only=False
    )
    (topic,) = answer.topics  # which settings it lists is each broker's own affair
    made = topic.error_code.name, topic.num_partitions, topic.replication_factor
    scene.answers[label] = [topic.name, *made]


def paged(scene: Scene) -> None:
    """Partitions of topics, page by page."""
    first, second = f"{scene.topic}-a", f"{scene.topic}-b"
    for name, count in ((first, 3), (second, 2)):
        scene.create(name, count)
        scene.settle(name, count)
    _pages(scene, "all of two", [second, first])
    _pages(scene, "one twice", [first, first])
    for limit in (-1, 0, 1, 3, 4, 5):
        _pages(scene, f"at most {limit}", [first, second, "nobody-has-this"], limit=limit)
    for cursor in ((first, 1), (first, 2), (first, 3), (first, 9), (second, 0), (second, 1)):
        label = f"from {cursor[1]} of {cursor[0][-1]}"
        _pages(scene, label, [first, second], cursor=cursor, limit=2)
    _pages(scene, "from another topic", [first], cursor=(second, 0))
    _pages(scene, "from a negative partition", [first], cursor=(first, -1))
    _pages(scene, "from a topic that is gone", [first, "a"], cursor=("a", 1))
    _pages(scene, "of no such topic", ["nobody-has-this"])
    _pages(scene, "not a name", ["a b"])
    _pages(scene, "no name", [""])


def _pages(
    scene: Scene,
    label: str,
    names: Sequence[str],
    limit: int = 2000,
    cursor: tuple[str, int] | None = None,
) -> None:
    make = parts("DescribeTopicPartitions", 0)
    given = cursor and make.Cursor(topic_name=cursor[0], partition_index=cursor[1])
    topics = tuple(make.TopicRequest(name=each) for each in names)
    more = {"response_partition_limit": limit, "cursor": given}
    scene.ask(label, "DescribeTopicPartitions", 0, topics=topics, **more)


REPLICA_SCENES = {each.__name__: each for each in (reassigned, elected, assigned, paged)}
