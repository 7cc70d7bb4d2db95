"""Every setting that can change while a broker runs does, wherever the broker has made something
of it."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.python.logfile import LogFile

from hermes import Producer, ProducerConfig, SimpleConsumer, logs, tap
from hermes.broker.serving import ServingBroker
from hermes.config.broker import BROKER_SETTINGS, BrokerConfig
from hermes.config.loading import parse_broker_config
from hermes.testing import _ReactorThread

#: What parts of the broker ask for each time when they need it.
ASKED = {
    "format",
    "socket_send_buffer",
    "socket_receive_buffer",
    "max_expanded_bytes",
    "max_connections",
    "fetch_session_memory",
    "max_topics",
    "max_partitions",
    "auto_create_topics",
    "default_replication_factor",
    "default_min_insync_replicas",
    "unclean_leader_election",
    "max_topic_name_length",
    "stop_timeout",
    "console_actions",
    "metrics_per_partition",
    "ready_min_free",
    "kafka_to_0_7",
    "group_initial_rebalance_delay",
    "group_min_session_timeout",
    "group_max_session_timeout",
    "group_max_members",
    "group_consumer_session_timeout",
    "group_consumer_heartbeat_interval",
    "group_consumer_assignors",
    "max_groups",
    "group_memory",
    "offsets_retention",
}

#: What the composition root makes something of: see the last test.
LOGGED = {"log_format", "log_rotate_bytes", "log_keep_files"}

#: What processes beside the broker are made of.
COMPANIONS = {"mirror"}

#: First rules need a restart; these are those from the start.
ANYBODY = {"principal": "*", "operations": ["all"]}

#: Of each other setting a value, and what the broker has made of it.
MADE: dict[str, tuple[Any, Callable[[ServingBroker], object], object]] = {
    "max_request_bytes": ("5MiB", lambda run: receiver_of(run).max_bytes, 5 << 20),
    "max_message_bytes": ("2MiB", lambda run: receiver_of(run)._largest, 2 << 20),
    "idle_timeout": ("77s", lambda run: run._tasks[run.connections.sweep_idle][0], 77.0),
    "request_memory": (
        "8MiB",
        lambda run: (
            run.connections.memory.limit_bytes,
            run.broker.large_responses.limit_bytes,
            run.broker.waiting.limit_bytes,
        ),
        (8 << 20, 4 << 20, 4 << 20),
    ),
    "quotas": (
        {"nobody": {"requests": 5}},
        lambda run: list(run.connections.quotas._used[0]),
        ["nobody"],
    ),
    "access": (
        [ANYBODY, ANYBODY],
        lambda run: len(run.authorization._judge.authorizer._rules.rules),  # type: ignore[union-attr]
        2,
    ),
    "max_open_segments": (77, lambda run: run.directory._descriptors.max_open, 77),
    "num_partitions": (3, lambda run: run.broker.topics.partition_count("t"), 3),
    "segment_bytes": ("7MiB", lambda run: log_of(run).settings.segment_bytes, 7 << 20),
    "segment_age": ("7h", lambda run: log_of(run).settings.segment_age_ms, 7 * 3_600_000),
    "retention_policy": (
        "size",
        lambda run: type(run.maintenance._policy_for("t")).__module__,
        "hermes.plugins.retention.by_size",
    ),
    "retention_time": ("3d", lambda run: retention_of(run).time_ms, 3 * 86_400_000),
    "retention_bytes": ("1GiB", lambda run: retention_of(run).size_bytes, 1 << 30),
    "retention_options": ({"a": 1}, lambda run: retention_of(run).options, {"a": 1}),
    "retention_check_interval": (
        "78s",
        lambda run: run._tasks[run.maintenance.apply_retention][0],
        78.0,
    ),
    "damage_check_rate": ("5MiB", lambda run: run.damage._rate(), 5 << 20),
    "flush_messages": (9, lambda run: run.flusher._states[log_of(run)].policy.messages, 9),
    "flush_interval": ("9s", lambda run: run.flusher._states[log_of(run)].policy.interval_ms, 9000),
    "flush_check_interval": ("8s", lambda run: run.config.flush_check_interval_ms, 8000),
    "flush_threads": (3, lambda run: run.flush_threads.count, 3),
    "io_threads": (5, lambda run: run.io_threads.max, 5),
    "metrics_interval": ("79s", lambda run: run._tasks[run._log_metrics][0], 79.0),
    "http_hosts": (
        "b.example",
        lambda run: run.web and run.web.hosts.accepts([b"b.example"]),
        True,
    ),
    "log_level": ("error", lambda run: run.config.log_level, "error"),
    "log_levels": ({"hermes.broker": "debug"}, lambda run: LEVELS.lowest, "debug"),
}
LEVELS = logs.LogLevels("info", {})


def receiver_of(run: ServingBroker) -> Any:
    """What an open connection receives with."""
    (connection,) = run.connections._open
    return connection._receiver  # type: ignore[attr-defined]


def log_of(run: ServingBroker) -> Any:
    return run.directory.get("t", 0)


def retention_of(run: ServingBroker) -> Any:
    return run.config.topic("t").retention


def test_each_setting_is_here() -> None:
    live = {key for key, setting in BROKER_SETTINGS.items() if setting.is_live}
    assert ASKED | LOGGED | COMPANIONS | MADE.keys() == live


@pytest.fixture(scope="module")
def reloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingBroker]:
    """A broker that has read its broker.yaml again, with a client connected before that."""
    values = {
        "broker_id": 0,
        "listen": "tcp:0:interface=127.0.0.1",
        "http_listen": "tcp:0:interface=127.0.0.1",
        "coordination": "none",
        "registry": False,  # it would be a client, too
        "access": [ANYBODY],
        "log_dir": str(tmp_path_factory.mktemp("in-force")),
    }
    with _ReactorThread(parse_broker_config(values)) as thread:
        service = thread.service
        service._levels = LEVELS
        changed = {key: value for key, (value, _, _) in MADE.items()}
        service._read = lambda: parse_broker_config({**values, **changed})
        host, port = service.addresses[0]
        with Producer(ProducerConfig(broker_list=f"0:{host}:{port}", acks="flushed")) as producer:
            producer.send("t", [b"hello"])
        run = service._run
        assert run is not None
        with SimpleConsumer(str(host), int(port)) as consumer:
            told = consumer.reload_config()
            assert {each.name for each in told.changed} == MADE.keys()
            assert told.left == []
            yield run


@pytest.mark.parametrize("key", MADE)
def test_a_setting_is_in_force_where_something_was_made_of_it(
    reloaded: ServingBroker, key: str
) -> None:
    _, found, expected = MADE[key]
    in_reactor: list[object] = []
    done = threading.Event()

    def look() -> None:
        in_reactor.append(found(reloaded))
        done.set()

    reloaded.reactor.callFromThread(look)
    assert done.wait(60)
    assert in_reactor == [expected]


def test_the_log_follows_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LogFile("the.log", str(tmp_path))  # type: ignore[no-untyped-call]
    output = logs.LogOutput(file, LEVELS, as_json=False)
    monkeypatch.setitem(tap.twistd_options, "output", output)
    monkeypatch.setattr(tap, "_log_levels", logs.LogLevels("info", {}))
    config = parse_broker_config(
        {
            "broker_id": 0,
            "log_dir": "/data",
            "log_format": "json",
            "log_rotate_bytes": "1kB",
            "log_keep_files": 2,
        }
    )
    tap._use_log_settings(config)
    assert (output.as_json, file.rotateLength, file.maxRotatedFiles) == (True, 1000, 2)
    tap._use_log_settings(BrokerConfig(broker_id=0, log_dir=Path("/data"), log_rotate_bytes=None))
    assert (output.as_json, file.rotateLength) == (False, None)
    file.close()  # type: ignore[no-untyped-call]
