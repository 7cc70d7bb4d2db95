"""What a carrier asks of the target."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from memory_coordination import MemoryCoordination

from hermes.config.mirror import MirrorClusterAddress
from hermes.coordination.layout import BrokerPartition, GroupPaths
from hermes.errors import BrokerError
from hermes.mirror import group_carrier
from hermes.mirror.figures import PartitionFigures, Problems
from hermes.mirror.group_carrier import GroupCarrier
from hermes.mirror.kafka_cluster import ClusterLook


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


class Kafka:
    """A cluster that refuses to say where some groups are."""

    def __init__(self, groups: int, refused: set[str]) -> None:
        self.groups, self.refused = groups, refused

    def look(self, topics: Any) -> ClusterLook:
        return ClusterLook("east", {0: ("localhost", 1)}, {})

    def ask(self, broker_id: int, name: str, version: int) -> Any:
        groups = [SimpleNamespace(group_id=f"billing-{n}") for n in range(self.groups)]
        return SimpleNamespace(error_code=None, groups=groups)

    def committed(self, group: str) -> dict[Any, int]:
        if group in self.refused:
            raise BrokerError(f"{group} is refused")
        return {}


def test_a_group_that_is_refused_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[str] = []
    monkeypatch.setattr(group_carrier, "_store", lambda target, group, wanted: stored.append(group))
    source: Any = Cluster()
    source.kafka = Kafka(8, {f"billing-{n}" for n in range(1, 8)})
    source.session = None
    target, config = source, Config()
    config.groups = "billing-.*"  # type: ignore[misc]
    problems = Problems(logging.getLogger("test"))
    carrier = GroupCarrier(config, {"east": source}, target, {}, problems)  # type: ignore[arg-type]
    with pytest.raises(BrokerError, match="is refused"):
        carrier.carry(source)
    assert stored == ["billing-0"]
