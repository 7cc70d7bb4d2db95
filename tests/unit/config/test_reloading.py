"""What changes when broker.yaml is read again, setting by setting."""

from typing import Any

import pytest

from hermes.config import loading
from hermes.config.broker import BROKER_SETTINGS
from hermes.config.loading import parse_broker_config, parse_topic_settings
from hermes.config.origins import settings_in_force
from hermes.config.reloading import NEEDS_RESTART, changes_between, reloaded
from hermes.config.topic import TopicConfig
from hermes.errors import ConfigError

RULES = [{"principal": "alice", "operations": ["all"]}]
RUNNING = parse_broker_config(
    {"broker_id": 0, "log_dir": "/data", "access": RULES, "topics": {"t": None}}
)

#: Of every setting a value other than its default.
OTHERS: dict[str, Any] = {
    "broker_id": 1,
    "log_dir": "/other",
    "listen": "tcp:9999",
    "allow_insecure": True,
    "users_file": "/etc/hermes/users",
    "authenticator": "ldap",
    "authenticator_options": {"password": "secret"},
    "token_verifier": "acme",
    "token_verifier_options": {"url": "secret"},
    "connect_as": {"tls_ca": "/etc/hermes/ca.pem"},
    "advertised_host": "b.example.org",
    "advertised_port": 9999,
    "socket_send_buffer": "128KiB",
    "socket_receive_buffer": "256KiB",
    "max_request_bytes": "10MiB",
    "max_message_bytes": "1MiB",
    "max_expanded_bytes": "32MiB",
    "max_connections": 7,
    "idle_timeout": "1m",
    "request_memory": "8MiB",
    "fetch_session_memory": "8MiB",
    "max_topics": 70,
    "max_partitions": 700,
    "max_open_segments": 77,
    "format": "kafka",
    "num_partitions": 3,
    "auto_create_topics": False,
    "default_replication_factor": 3,
    "default_min_insync_replicas": 1,
    "unclean_leader_election": True,
    "replica_lag_time": "20s",
    "replication_listener": "inside",
    "replicate_as": {"tls_ca": "/etc/hermes/ca.pem"},
    "rack": "zone-1",
    "max_topic_name_length": 100,
    "segment_bytes": "1MiB",
    "segment_age": "1d",
    "retention_policy": "size",
    "retention_time": "3d",
    "retention_bytes": "1GiB",
    "retention_options": {"a": 1},
    "retention_check_interval": "1m",
    "damage_check_rate": "5MiB",
    "flush_messages": 10,
    "flush_interval": "1s",
    "flush_check_interval": "2s",
    "flush_threads": 3,
    "coordination": "zookeeper",
    "coordination_listen": "tcp:2182",
    "coordination_max_bytes": "10MiB",
    "zookeeper_connect": "zk:2181",
    "zookeeper_session_timeout": "7s",
    "zookeeper_connection_timeout": "8s",
    "zookeeper_sync_time": "9s",
    "group_initial_rebalance_delay": "0s",
    "group_min_session_timeout": "1s",
    "group_max_session_timeout": "1h",
    "group_max_members": 10,
    "group_consumer_session_timeout": "30s",
    "group_consumer_heartbeat_interval": "3s",
    "group_consumer_assignors": ["range"],
    "max_groups": 100,
    "group_memory": "8MiB",
    "offsets_retention": "1d",
    "http_listen": "tcp:9093:interface=127.0.0.1",
    "kafka_listen": {"endpoint": "tcp:19092:interface=127.0.0.1", "name": "inside"},
    "kafka_to_0_7": "refuse",
    "http_hosts": ["b.example.org"],
    "registry": False,
    "quotas": {"default": {"bytes_in": "1MB"}},
    "authorizer": "other",
    "authorizer_options": {"a": 1},
    "access": [{"principal": "*", "operations": ["all"]}],
    "mirror": {"name": "west", "sources": [{"name": "east", "brokers": "zoo:2181"}]},
    "console_actions": True,
    "console_password_file": "/password",
    "metrics_per_partition": False,
    "ready_min_free": "1GiB",
    "io_threads": 5,
    "stop_timeout": "11s",
    "metrics_interval": "1m",
    "log_format": "json",
    "log_level": "warn",
    "log_levels": {"hermes.broker": "debug"},
    "log_rotate_bytes": "1MB",
    "log_keep_files": 3,
    "ready_file": "/run/ready.json",
}
READ = parse_broker_config(OTHERS)


@pytest.mark.parametrize("key", BROKER_SETTINGS)
def test_a_setting_changes_or_is_named_and_left(key: str) -> None:
    setting = BROKER_SETTINGS[key]
    (change,) = (each for each in changes_between(RUNNING, READ) if each.name == key)
    before, after = (getattr(config, setting.attribute) for config in (RUNNING, READ))
    assert (change.before, change.after) == (setting.kind.show(before), setting.kind.show(after))
    now = reloaded(RUNNING, READ)
    assert getattr(now, setting.attribute) == (after if setting.is_live else before)
    assert change.left_because == ("" if setting.is_live else "it needs a restart")
    (told,) = (each for each in settings_in_force(now) if each.name == key)
    assert told.value == (change.after if setting.is_live else change.before)


def test_what_can_not_change_is_named_as_long_as_it_differs() -> None:
    again = list(changes_between(reloaded(RUNNING, READ), READ))
    assert {each.name for each in again} == {
        key for key, setting in BROKER_SETTINGS.items() if not setting.is_live
    }
    assert list(changes_between(READ, READ)) == []


def topics(**entries: Any) -> Any:
    return parse_broker_config({"broker_id": 0, "log_dir": "/data", "topics": entries})


def test_topics_change_with_their_entries() -> None:
    running = topics(a={"partitions": 8, "retention_time": "1d"}, gone=None)
    read = topics(a={"partitions": 4, "retention_time": "2d"}, new={"flush_messages": 7})
    assert list(changes_between(running, read)) == [
        ("topics.a.partitions", "8", "4", "a topic never loses partitions"),
        ("topics.a.retention_time", "1d", "2d", ""),
        ("topics.gone", "listed", "not listed", ""),
        ("topics.new", "not listed", "listed", ""),
        ("topics.new.flush_messages", "1", "7", ""),
    ]
    assert reloaded(running, read).topics == read.topics


def test_what_was_altered_stays() -> None:
    altered = {"a": parse_topic_settings({"retention_time": "30d"})}
    running = topics(a={"retention_time": "1d", "flush_messages": 2}).with_altered(altered)
    read = topics(a={"retention_time": "2d", "flush_messages": 3})
    shadowed, changed = changes_between(running, read)
    assert shadowed[:3] == ("topics.a.retention_time", "1d", "2d")
    assert "hermes topics" in shadowed.left_because
    assert changed == ("topics.a.flush_messages", "2", "3", "")
    now = reloaded(running, read).topic("a")
    assert (now.retention_time_ms, now.flush_messages) == (30 * 86_400_000, 3)
    origins = {each.name: each.origin for each in settings_in_force(reloaded(running, read), "a")}
    assert origins["retention_time"] == "altered"
    assert origins["flush_messages"] == "broker.yaml, topics"
    assert origins["segment_bytes"] == "default"


def test_the_registrys_topic_is_never_trimmed_whatever_is_set() -> None:
    everywhere = {"retention_policy": "size", "retention_time": "1ms", "retention_bytes": "1"}
    running = parse_broker_config(
        {
            "broker_id": 0,
            "log_dir": "/data",
            "topics": {"hermes-schemas": {"segment_bytes": 100}},
            **everywhere,
        }
    )
    # As an older Hermes let it be set.
    running = running.with_altered({"hermes-schemas": parse_topic_settings(everywhere)})
    kept = running.topic("hermes-schemas")
    assert (kept.retention_policy, kept.retention_time_ms, kept.retention_bytes) == (
        "time",
        None,
        None,
    )
    assert kept.segment_bytes == 100
    found = {each.name: each for each in settings_in_force(running, "hermes-schemas")}
    assert found["retention_time"][1:3] == ("unlimited", "always")
    assert found["segment_bytes"].origin == "broker.yaml, topics"


def test_settings_of_a_topic_are_read_from_texts() -> None:
    texts = {"partitions": "8", "retention_bytes": "unlimited", "retention_options": "{a: 1}"}
    assert parse_topic_settings(texts) == TopicConfig(
        partitions=8, retention_bytes=None, retention_options={"a": 1}
    )


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("partitions", "0", "partitions: expected a whole number"),
        ("partitions", "", "partitions: expected a whole number"),
        ("retention_tiem", "1d", "retention_tiem: unknown setting, did you mean retention_time"),
        ("max_topics", "1", "max_topics: unknown setting: it is a setting of the broker"),
        ("retention_time", "[", "retention_time: not valid YAML"),
        ("retention_policy", "x" * 1001, "retention_policy: its value has more than 1000"),
    ],
)
def test_a_wrong_text_is_refused_by_name(key: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_topic_settings({key: text})
    assert str(caught.value).startswith(reason)


def test_what_is_no_setting_is_not_read_as_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    monkeypatch.setattr(loading, "read_yaml", lambda text, _: read.append(text) or ["x"])
    for first in ("unknown", "partitions"):
        with pytest.raises(ConfigError, match=f"^{first}: "):
            parse_topic_settings({first: "[a, b]", "segment_bytes": "[a, b]"})
    assert read == [b"[a, b]"]  # of the second request the first text


def test_rules_can_change_but_the_first_ones_need_a_restart() -> None:
    """The broker's own console and registry connect otherwise from then on."""
    without = parse_broker_config({"broker_id": 0, "log_dir": "/data"})
    assert reloaded(without, RUNNING).access is None
    (change,) = [each for each in changes_between(without, RUNNING) if each.name == "access"]
    assert change.left_because == NEEDS_RESTART
    other = parse_broker_config({"broker_id": 0, "log_dir": "/data", "access": RULES * 2})
    assert reloaded(RUNNING, other).access == other.access
    assert reloaded(RUNNING, without).access is None
