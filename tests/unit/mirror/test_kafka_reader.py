"""What is left of topics that are gone at a source that is read by Kafka's protocol."""

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from hermes.client.groups.config import ConsumerConfig
from hermes.coordination.topic_filters import Whitelist
from hermes.errors import BrokerUnavailableError
from hermes.mirror.figures import PartitionFigures, Problems
from hermes.mirror.kafka_cluster import ClusterLook, KafkaTopic
from hermes.mirror.kafka_reader import KafkaReader
from hermes.mirror.source_claim import SourceClaim
from hermes.mirror.source_stream import SourceStream
from hermes.mirror.whole_source import Reading


class Cluster:
    """Its group's coordinator is away when `is_away`."""

    is_away = False

    def __init__(self) -> None:
        self.topics = {"clicks": KafkaTopic(None, {0: -1})}

    def look(self) -> ClusterLook:
        return ClusterLook("east", {}, dict(self.topics))

    def committed(self, group: str, places: Any, *, stable: bool) -> dict[Any, int]:
        if self.is_away:
            raise BrokerUnavailableError("the coordinator is away")
        return {}


def test_a_topic_that_is_gone_leaves_nothing_though_the_coordinator_is_away() -> None:
    context: Any = SimpleNamespace(
        counter=None,
        has_room=lambda: None,
        plan=lambda claim, pause: None,
        released=lambda claim: None,
    )
    figures = PartitionFigures("east", "clicks", "0", "clicks")

    def make_claim(*place: Any) -> SourceClaim:
        return SourceClaim("east", figures, context, *place)

    stream = SourceStream("east", context)
    config = ConsumerConfig(group="g", zookeeper_connect="none")
    problems = Problems(logging.getLogger("test"))
    make_fetcher: Any = threading.Thread
    reading = Reading(Whitelist(".*"), config, stream, make_claim, make_fetcher, problems)
    cluster: Any = Cluster()
    reader = KafkaReader("east", "g", cluster, reading)
    reader._look_around()
    assert len(stream.claims()) == 1
    del cluster.topics["clicks"]
    cluster.is_away = True
    for _ in range(2):
        with pytest.raises(BrokerUnavailableError):
            reader._look_around()
    cluster.is_away = False
    reader._look_around()
    assert stream.claims() == []
