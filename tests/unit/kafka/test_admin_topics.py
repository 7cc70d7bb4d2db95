"""CreateTopics: what is answered of a topic that was created, or would be."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kafka_bench import KafkaBench, messages

from hermes.kafka.topic_configs import ConfigSource


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = KafkaBench(tmp_path)
    yield bench
    bench.close()


def create(bench: KafkaBench, *, is_check: bool, **configs: str) -> Any:
    kinds = messages("CreateTopics", 7, "request")
    topic = kinds.CreatableTopic(
        name="made",
        num_partitions=2,
        replication_factor=1,
        assignments=(),
        configs=tuple(
            kinds.CreatableTopicConfig(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        ),
    )
    wait = timedelta(seconds=1)
    answer = bench.ask("CreateTopics", 7, topics=(topic,), timeout=wait, validate_only=is_check)
    (result,) = answer.topics
    assert (result.error_code, result.num_partitions) == (0, 2)
    return {each.name: (each.value, each.config_source) for each in result.configs}


@pytest.mark.parametrize("is_check", [True, False])
def test_the_settings_are_told_that_a_topic_has_or_would_have(
    bench: KafkaBench, is_check: bool
) -> None:
    told = create(bench, is_check=is_check, retention_ms="1000", cleanup_policy="compact")
    assert told["retention.ms"] == ("1000", ConfigSource.TOPIC)
    assert told["cleanup.policy"] == ("compact", ConfigSource.TOPIC)
    assert told["segment.ms"][1] == ConfigSource.DEFAULT
    assert (bench.server.topics.get("made") is None) == is_check
    assert ("made" in bench.shared.config.altered) != is_check
