"""Whoever asks a broker that doesn't lead a partition is told which one does, and where."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kafka_bench import decode_answer

from hermes.cluster.cluster_topics import LiveBroker
from hermes.coordination.listeners import ListenerNode
from hermes.kafka.current_leader import CurrentLeader, current_leader, endpoints
from hermes.kafka.fetching.fetch_messages import Fetched, response_parts
from hermes.kafka.producing.produce_messages import Entry, encode_produced
from hermes.protocol import NOBODY
from hermes.protocol.kafka_errors import Code
from hermes.replication.state import first_state

LISTENER = ListenerNode("0", "", 0, False, "none")
TOPIC = UUID(int=3)
LEADER = CurrentLeader(2, 5)


def topics(leader: int = 2) -> Any:
    """A cluster of brokers 1 and 2 with one topic."""
    lives = {leader: 7} if leader != NOBODY else {}
    state = first_state((2, 1), lives, epoch=5)
    found = SimpleNamespace()
    return SimpleNamespace(
        live=frozenset({1, 2}),
        led_by=lambda topic, number: (state.leader, state.epoch),
        asked={"t": found, TOPIC: found, TOPIC.bytes: found}.get,
        brokers=lambda listener: [LiveBroker(1, "one", 91), LiveBroker(2, "two", 92)],
    )


@pytest.mark.parametrize("asked", ["t", TOPIC, TOPIC.bytes])
def test_who_leads_is_said_of_topics_however_they_are_named(asked: Any) -> None:
    assert current_leader(topics(), asked, 0, Code.NOT_LEADER_OR_FOLLOWER) == LEADER
    assert current_leader(topics(), asked, 0, Code.FENCED_LEADER_EPOCH) == LEADER


def test_where_nobody_knows_nothing_is_said() -> None:
    assert current_leader(topics(), "t", 0, Code.UNKNOWN_TOPIC_OR_PARTITION) is None
    assert current_leader(topics(), "other", 0, Code.NOT_LEADER_OR_FOLLOWER) is None
    assert current_leader(topics(NOBODY), "t", 0, Code.NOT_LEADER_OR_FOLLOWER) is None


@pytest.mark.parametrize("version", range(4, 19))
def test_a_fetch_hears_of_the_leader_as_kafka_says_it(version: int) -> None:
    topic: Any = TOPIC.bytes if version >= 13 else "t"
    refused = Fetched(topic, 4, Code.NOT_LEADER_OR_FOLLOWER, leader=LEADER)
    end = endpoints(topics(), LISTENER, (LEADER,)) if version >= 16 else b"\0"

    (encoded,) = response_parts(version, 7, (refused, Fetched(topic, 5, Code.NONE)), end=end)

    assert isinstance(encoded, bytes)
    answer = decode_answer("Fetch", version, encoded[4:])
    first, second = answer.responses[0].partitions
    if version >= 12:
        assert (first.current_leader.leader_id, first.current_leader.leader_epoch) == (2, 5)
        assert second.current_leader.leader_id == -1
    if version >= 16:
        (node,) = answer.node_endpoints
        assert (node.node_id, node.host, node.port, node.rack) == (2, "two", 92, None)


@pytest.mark.parametrize("version", range(3, 14))
def test_a_producer_hears_of_the_leader_as_kafka_says_it(version: int) -> None:
    entry = Entry(TOPIC if version >= 13 else "t", 4, None)
    entry.code, entry.current_leader = Code.NOT_LEADER_OR_FOLLOWER, LEADER
    end = endpoints(topics(), LISTENER, (LEADER, None))

    answer = decode_answer("Produce", version, encode_produced(version, 7, (entry,), end)[4:])

    (partition,) = answer.responses[0].partition_responses
    if version >= 10:
        assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 5)
        (node,) = answer.node_endpoints
        assert (node.node_id, node.host, node.port) == (2, "two", 92)
