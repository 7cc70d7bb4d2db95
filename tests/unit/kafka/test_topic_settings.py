"""Topic settings by Kafka's names: every one that Kafka 4 has is known, and says what is so."""

import pytest

from hermes.errors import ConfigError
from hermes.kafka.topic_configs import TOPIC_CONFIGS, topic_setting

#: Kafka's defaults of what is fixed in Hermes (`LogConfig`).
FIXED = {
    "compression.type": "producer",
    "file.delete.delay.ms": "60000",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "9223372036854775807",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "preallocate": "false",
    "remote.storage.enable": "false",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
}


def test_what_is_fixed_can_be_set_to_what_it_is_and_to_nothing_else() -> None:
    """Terraform, connectors and operators send all they know, defaults among them."""
    for name, value in FIXED.items():
        assert TOPIC_CONFIGS[name].always == value
        assert topic_setting(name, value) == {}
        other = "true" if value == "false" else "gzip" if value == "producer" else "7"
        with pytest.raises(ConfigError, match=f"here it is always {value}"):
            topic_setting(name, other)


def test_no_retention_at_all_is_the_shortest_there_is() -> None:
    assert topic_setting("retention.ms", "0") == {"retention_time": "1ms"}
    assert topic_setting("retention.ms", "-1") == {"retention_time": "unlimited"}
