"""Scenes of moves and elections, as far as a cluster of one broker has them."""

from collections.abc import Sequence
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


REPLICA_SCENES = {each.__name__: each for each in (reassigned, elected)}
