"""The topics as Kafka's clients see them, as they come and go."""

from pathlib import Path
from uuid import UUID

from broker_bench import BrokerBench

from hermes.server.clients import UNKNOWN_CLIENT

ID = UUID(int=1)


def test_topics_with_one_id_go_one_after_the_other(tmp_path: Path) -> None:
    """Somebody has copied a topic's directory, and given the copy another name."""
    bench = BrokerBench(tmp_path)
    deleted: list[object] = []
    for name in ("original", "copy"):
        bench.shared.topics.create_numbered(name, 0, ID)
    for name in ("copy", "original"):
        bench.cluster.delete_topic(name, UNKNOWN_CLIENT).addBoth(deleted.append)
        bench.turns()
        assert bench.cluster.topics.get(name) is None
    assert deleted == [None, None]
    assert bench.cluster.topics.by_id(ID) is None
    bench.shared.topics.create_numbered("original", 0, ID)
    assert bench.cluster.topics.by_id(ID) is not None
    bench.close()
