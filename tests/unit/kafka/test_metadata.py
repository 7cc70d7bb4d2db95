"""Metadata: topics that are created since a client asks for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_bench import KafkaBench, messages

from hermes.transactions.state import STATE_TOPIC


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = KafkaBench(tmp_path)
    yield bench
    bench.close()


@pytest.mark.parametrize("creates", [True, False])
def test_the_topic_of_transactions_is_made_as_their_coordinator_makes_it(
    bench: KafkaBench, creates: bool
) -> None:
    """Else retention would delete what producers are fenced by."""
    wanted = messages("Metadata", 9, "request").MetadataRequestTopic(name=STATE_TOPIC)
    answer = bench.ask(
        "Metadata",
        9,
        topics=(wanted,),
        allow_auto_topic_creation=creates,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    (told,) = answer.topics
    found = bench.server.topics.get(STATE_TOPIC)
    assert (told.error_code == 0, found is not None) == (creates, creates)
    assert len(told.partitions) == (16 if creates else 0)
    if creates:
        assert bench.shared.config.topic(STATE_TOPIC).is_only_compacted
