"""What a carrier asks of the target."""

import logging
from typing import Any

import pytest
from memory_coordination import MemoryCoordination

from hermes.config.mirror import MirrorClusterAddress
from hermes.coordination.layout import BrokerPartition, GroupPaths
from hermes.mirror import group_carrier
from hermes.mirror.figures import PartitionFigures, Problems
from hermes.mirror.group_carrier import GroupCarrier


class Brokers:
    """Brokers of the target that have nothing; remembers of which topics it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def connect(self, *address: Any, **settings: Any) -> "Brokers":
        return self

    def positions(self, topic: str) -> list[Any]:
        self.asked.append(topic)
        return []

    def __enter__(self) -> "Brokers":
        return self

    def __exit__(self, *exception: object) -> None: ...


class Cluster:
    """A source, or the target."""

    name = "east"
    kafka = None
    address = MirrorClusterAddress("east")

    def __init__(self) -> None:
        self.session: Any = MemoryCoordination().session()

    def cluster_id(self) -> str:
        return "id"

    def addresses(self) -> dict[int, tuple[str, int]]:
        return {0: ("localhost", 1)}


class Config:
    groups = "billing"


def test_only_topics_that_its_groups_read_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    monkeypatch.setattr(group_carrier, "MirroredPartitions", brokers.connect)
    source: Any = Cluster()
    for group, topic in (("billing", "orders"), ("others", "views")):
        source.session.put(GroupPaths(group).offset(topic, BrokerPartition(0, 0)), b"7")
    names = ("orders", "views", "clicks")
    figures = {each: PartitionFigures("east", each, "0-0", each) for each in names}
    problems = Problems(logging.getLogger("test"))
    target: Any = Cluster()
    config: Any = Config()
    GroupCarrier(config, {"east": source}, target, figures, problems).carry(source)
    assert brokers.asked == ["orders"]
