"""Settings that are right alone and wrong together."""

from typing import Any

import pytest

from hermes.config.loading import parse_broker_config
from hermes.errors import ConfigError

OPEN = {"broker_id": 0, "log_dir": "logs", "allow_insecure": True}
TCP, LOOPBACK, IPV6 = "tcp:9092", "tcp:9092:interface=127.0.0.1", r"tcp6:9092:interface=\:\:1"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"listen": [TCP, TCP]}, "listen: 'tcp:9092' is taken by listen already ('tcp:9092')"),
        ({"listen": [LOOPBACK, TCP]}, "listen: 'tcp:9092' is taken by listen already"),
        ({"listen": [TCP, "tcp6:9092"]}, "listen: 'tcp6:9092' is taken"),
        ({"listen": [TCP, "tcp:port=09092"]}, "listen: 'tcp:port=09092' is taken"),
        (
            {"listen": ["unix:/run/a", "unix:address=/run/a"]},
            "'unix:address=/run/a' is taken",
        ),
        (
            {"listen": TCP, "coordination_listen": LOOPBACK},
            "is taken by listen already ('tcp:9092')",
        ),
        ({"listen": "tcp:2181"}, "coordination_listen: 'tcp:2181:interface=127.0.0.1' is taken"),
        (
            {"topics": {"a": {}, "b": {}}, "max_topics": 1},
            "topics: it names 2, but max_topics is 1",
        ),
        (
            {"zookeeper_connect": "a:1"},
            "zookeeper_connect: it has no effect with coordination: emb",
        ),
        (
            {"max_message_bytes": "2MiB", "max_request_bytes": "1MiB"},
            "max_message_bytes: 2097152 bytes don't fit into a request: max_request_bytes is",
        ),
        (
            {"group_consumer_session_timeout": "3s", "group_consumer_heartbeat_interval": "3s"},
            "group_consumer_heartbeat_interval: 3000 ms leave no time for a heartbeat within a",
        ),
        ({"group_consumer_assignors": []}, "group_consumer_assignors: expected a list of uniform"),
        ({"group_consumer_assignors": ["range", "range"]}, "group_consumer_assignors: expected a"),
        ({"group_consumer_assignors": "sticky"}, "group_consumer_assignors: expected a list of"),
        (
            {"kafka_listen": "tcp:1", "replication_listener": "outside"},
            "replication_listener: no listener of kafka_listen is called 'outside'",
        ),
        (
            {"default_replication_factor": 3},
            "default_replication_factor: copies of topics need kafka_listen on every broker",
        ),
        (
            {"default_replication_factor": 3, "kafka_listen": "tcp:1", "coordination": "none"},
            "default_replication_factor: copies of topics need coordination: zookeeper, or",
        ),
        (
            {"topics": {"hermes-schemas": {"retention_time": "1d"}}},
            "topics.hermes-schemas.retention_time: hermes-schemas holds the registry's schemas and",
        ),
    ],
)
def test_what_excludes_each_other_is_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_broker_config({**OPEN, **settings})
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"listen": ["tcp:0", "tcp:0"], "coordination_listen": "tcp:0"},
        {"listen": [LOOPBACK, IPV6, "tcp:9092:interface=127.0.0.2"]},
        {"listen": ["unix:/run/a", "unix:/run/b", TCP]},
        {"listen": TCP, "coordination_listen": TCP, "coordination": "none"},
        {"zookeeper_connect": "a:1", "coordination": "none"},
        {"topics": {"hermes-schemas": {"segment_bytes": "1MiB"}}},
        {"listen": ["systemd:domain=INET:index=0", "systemd:domain=INET:index=0"]},
    ],
)
def test_what_goes_together_is_taken(settings: dict[str, Any]) -> None:
    parse_broker_config({**OPEN, **settings})
