"""A cluster that is asked before it is all there."""

import pytest

from hermes.errors import BrokerUnavailableError
from hermes.mirror.kafka_cluster import ClusterLook, KafkaCluster
from hermes.security import PLAIN


def test_one_that_does_not_know_its_id_yet_is_not_taken_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = iter(["", "an id"])
    look = lambda cluster, topics: ClusterLook(next(ids), {}, {})  # noqa: E731
    monkeypatch.setattr(KafkaCluster, "look", look)
    cluster = KafkaCluster([("localhost", 1)], PLAIN)
    with pytest.raises(BrokerUnavailableError, match="its cluster's id"):
        cluster.cluster_id()
    assert cluster.cluster_id() == cluster.cluster_id() == "an id"
