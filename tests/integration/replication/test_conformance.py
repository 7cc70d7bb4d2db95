"""The same requests to three brokers as were sent to three of a real Kafka 4, the same answers.

The soak asks Kafka itself again (tests/soak/test_kafka_conformance.py), which writes the recording.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance_cluster import CLUSTER_DIFFERENCES, CLUSTER_SCENES, cluster_answers
from coordination_servers import ServerProcess
from kafka_4 import kafka_version
from replicated_cluster import ReplicatedCluster

ROOT = Path(__file__).parents[3]
RECORDED: dict[str, Any] = json.loads(
    (ROOT / "tests" / "vectors" / "kafka-4-cluster-answers.json").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, coordination_server: Callable[[str], ServerProcess]
) -> Iterator[ReplicatedCluster]:
    tree = f"{coordination_server('zookeeper').address}/conformance"
    running = ReplicatedCluster(tmp_path_factory.mktemp("cluster") / "brokers", tree)
    try:
        yield running
    finally:
        running.close()


@pytest.mark.parametrize("name", CLUSTER_SCENES)
def test_three_brokers_answer_as_kafkas_do(name: str, cluster: ReplicatedCluster) -> None:
    answered, expected = cluster_answers(CLUSTER_SCENES[name], cluster), RECORDED["answers"][name]
    assert list(answered) == list(expected)
    different = {label for label in expected if answered[label] != expected[label]}
    known = {label for scene, label in CLUSTER_DIFFERENCES if scene == name}
    for label in sorted(different - known):
        assert answered[label] == expected[label], label
    assert known == different, "these are alike by now"


def test_the_recording_is_of_the_kafka_that_the_tests_have() -> None:
    assert RECORDED["source"] == f"Kafka {kafka_version()}"


def test_the_page_has_every_difference() -> None:
    page = (ROOT / "docs" / "kafka.md").read_text(encoding="utf-8")
    for (_, label), reason in CLUSTER_DIFFERENCES.items():
        row = f"| {label.partition(' (')[0]} |"
        assert any(row in line and reason in line for line in page.splitlines()), label
