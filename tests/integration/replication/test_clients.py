"""Kafka's clients with their defaults: leaders are killed, and nothing that they sent is lost."""

from collections.abc import Callable

import pytest
from kafka_clients import CLIENTS
from replicated_clients import go_through_kills
from replicated_cluster import ReplicatedCluster


@pytest.mark.nightly
def test_leaders_are_killed(start_cluster: Callable[..., ReplicatedCluster]) -> None:
    counts = go_through_kills(start_cluster(), CLIENTS, kills=3)
    assert all(count > 0 for count in counts.values())
