"""The nodes of topics, and what a later version writes into them."""

import json
from dataclasses import replace

from hermes.coordination.kafka_topics import format_topic, parse_topic, with_broker_partitions

PATH = "/hermes/kafka/topics/t"
WRITTEN = {
    "id": "00000000-0000-0000-0000-000000000001",
    "format": "kafka",
    "partitions": ["0-0", None],
    "settings": {"retention_time": "9d"},
}
LATER = {"replicas": [[0, 1], [1]], "leader_epochs": [3, 4]}


def test_what_a_later_version_has_added_is_kept_when_a_node_is_changed() -> None:
    node = parse_topic(PATH, json.dumps({**WRITTEN, **LATER}).encode())
    changed = with_broker_partitions(replace(node, settings={}), node, 1, (1,))
    assert json.loads(format_topic(changed)) == {
        "id": WRITTEN["id"],
        "format": "kafka",
        "partitions": ["0-0", "1-1"],
        **LATER,
    }


def test_what_is_written_is_read() -> None:
    node = parse_topic(PATH, json.dumps(WRITTEN).encode())
    assert json.loads(format_topic(node)) == WRITTEN
    assert parse_topic(PATH, format_topic(node)) == node
