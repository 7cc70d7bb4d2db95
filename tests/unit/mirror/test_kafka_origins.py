"""Where topics come from, read from a topic that has lost its beginning."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.errors import InvalidMessageError
from hermes.mirror.kafka_cluster import ClusterLook, KafkaTopic
from hermes.mirror.kafka_origins import ORIGINS_TOPIC, KafkaOrigins
from hermes.protocol.records import Record, encode_batch

ORIGINS = b'{"origins": {"east": "m"}}'


class Cluster:
    """One broker, which has a batch at each offset from `begin` on."""

    def __init__(self, begin: int, topics: list[str]) -> None:
        self.begin, self.topics = begin, topics
        self.stored: dict[str, bytes | None] = {}
        self.topic_id: UUID | None = uuid4()

    def look(self, topics: list[str]) -> ClusterLook:
        there = {} if self.topic_id is None else {ORIGINS_TOPIC: KafkaTopic(self.topic_id, {0: 0})}
        return ClusterLook("west", {0: ("localhost", 1)}, there)

    def offset_at(self, place: tuple[str, int], leader: int, time_ms: int) -> int:
        assert (place, leader, time_ms) == ((ORIGINS_TOPIC, 0), 0, -2)
        return self.begin

    def ask(self, broker_id: int, name: str, version: int, **values: Any) -> Any:
        if name == "Produce":
            self.topics.append("mended")
            done = SimpleNamespace(error_code=None, error_message=None)
            return SimpleNamespace(responses=[SimpleNamespace(partition_responses=[done])])
        ((partition,),) = [each["partitions"] for each in values["topics"]]
        return self._fetched(partition["fetch_offset"])

    def _fetched(self, offset: int) -> Any:
        end = self.begin + len(self.topics)
        code: Any = None
        if not self.begin <= offset <= end:
            code = SimpleNamespace(name="offset_out_of_range")
        batches = [
            (self.begin + n).to_bytes(8, "big")
            + encode_batch([Record(0, 0, topic.encode(), self.stored.get(topic, ORIGINS))])[8:]
            for n, topic in enumerate(self.topics)
            if self.begin + n >= offset
        ]
        found = SimpleNamespace(error_code=code, records=b"" if code else b"".join(batches))
        return SimpleNamespace(responses=[SimpleNamespace(partitions=[found])])


def read(cluster: Any) -> Mapping[str, Mapping[str, str]]:
    return KafkaOrigins(cluster).all()


@pytest.mark.parametrize("begin", [0, 1000])
def test_all_that_is_left_is_read(begin: int) -> None:
    assert read(Cluster(begin, ["clicks", "views"])) == {
        "clicks": {"east": "m"},
        "views": {"east": "m"},
    }


def test_a_topic_that_was_made_anew_is_read_from_its_begin() -> None:
    cluster: Any = Cluster(0, ["a", "b", "c"])
    origins = KafkaOrigins(cluster)
    assert set(origins.all()) == {"a", "b", "c"}
    cluster.topics = ["d"]
    assert set(origins.all()) == {"d"}


def test_what_nobody_understands_is_of_its_topic_alone() -> None:
    cluster: Any = Cluster(0, ["bad", "views"])
    cluster.stored["bad"] = b"no origins"
    origins = KafkaOrigins(cluster)
    assert origins.read("views") == {"east": "m"}
    with pytest.raises(InvalidMessageError, match="no origins"):
        origins.read("bad")
    assert origins.forget("bad")
    cluster.stored["bad"] = None
    cluster.topics.append("bad")
    assert origins.read("bad") == {}


def test_nothing_is_known_of_a_topic_that_was_deleted() -> None:
    cluster: Any = Cluster(0, ["a", "b"])
    origins = KafkaOrigins(cluster)
    assert set(origins.all()) == {"a", "b"}
    cluster.topic_id = None
    assert origins.all() == {}
    cluster.topic_id, cluster.topics = uuid4(), ["c", "d", "e"]  # it is longer than it was
    assert set(origins.all()) == {"c", "d", "e"}
    cluster.topic_id, cluster.topics = uuid4(), ["f", "g", "h", "i"]
    assert set(origins.all()) == {"f", "g", "h", "i"}
