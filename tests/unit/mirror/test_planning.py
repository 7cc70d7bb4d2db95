"""What the planner looks at again while partitions are mirrored."""

import logging
from types import SimpleNamespace
from typing import Any

from hermes.config.mirror import MirrorClusterAddress, MirrorConfig
from hermes.coordination.layout import BrokerPartition
from hermes.mirror.figures import Problems
from hermes.mirror.planning import Planner


class Claim:
    """Of a topic, which goes to a target with one partition; begun."""

    source, epoch, holds_records, is_draining = "east", 1, False, False

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.figures = SimpleNamespace(target_topic=topic)
        self.plan = SimpleNamespace(targets=(BrokerPartition(0, 0),))
        self.restarted = 0

    def is_idle(self) -> bool:
        return True

    def restart(self, epoch: int, error: Any) -> None:
        self.restarted += 1


class Target:
    """Has more partitions by now, and a fault in how it is asked for one topic."""

    kafka = None

    def partitions(self, topic: str) -> tuple[BrokerPartition, ...]:
        if topic == "faulty":
            raise LookupError("a fault")
        return BrokerPartition(0, 0), BrokerPartition(0, 1)

    def positions(self, topic: str) -> dict[BrokerPartition, dict[str, int]]:
        return {}


def test_a_fault_in_a_look_at_one_topic_does_not_end_the_planning_of_all() -> None:
    claims = [Claim("faulty"), Claim("clicks")]
    source: Any = SimpleNamespace(stream=SimpleNamespace(claims=lambda: claims))
    config = MirrorConfig(
        name="m",
        sources=(MirrorClusterAddress("east", brokers=(("localhost", 1),)),),
        target=MirrorClusterAddress("west", brokers=(("localhost", 2),)),
    )
    target: Any = Target()
    problems = Problems(logging.getLogger("test"))
    planner = Planner(config, target, {"east": source}, problems, lambda claim, text: None, None)
    planner._recheck()
    assert [each.restarted for each in claims] == [0, 1]
