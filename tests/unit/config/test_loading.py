"""broker.yaml: what it may hold, and the one line that says what is wrong with it."""

import gc
import os
from dataclasses import fields
from pathlib import Path

import pytest

from hermes.config.broker import BROKER_SETTINGS, BrokerConfig
from hermes.config.connect_as import ConnectAs
from hermes.config.embedded_mirror import EmbeddedMirror
from hermes.config.listeners import ListenerConfig, TlsConfig
from hermes.config.loading import load_broker_config, parse_broker_config, parse_topic_settings
from hermes.config.mirror import parse_mirror_config
from hermes.config.quotas import Quota
from hermes.config.topic import TOPIC_SETTINGS, TopicConfig
from hermes.errors import ConfigError
from hermes.interfaces import RetentionSettings
from hermes.security import AccessRule, Operation

#: Nine lines that stand for a billion texts.
LAUGHS = "a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)

MINIMAL = "broker_id: 0\nlog_dir: data\n"


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "broker.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_what_is_not_given_has_its_default(tmp_path: Path) -> None:
    config = load_broker_config(write(tmp_path, MINIMAL))
    assert config == BrokerConfig(broker_id=0, log_dir=tmp_path / "data")
    assert config.listen == (ListenerConfig("tcp:9092:interface=127.0.0.1"),)
    assert config.coordination == "embedded"
    assert config.idle_timeout_ms == 600_000


def test_every_setting_can_be_given(tmp_path: Path) -> None:
    text = """
broker_id: 7
listen:
  - tcp:6667
  - "tcp6:6668:interface=\\\\:\\\\:1"
  - endpoint: unix:/run/hermes.sock
    name: local
    advertised: localhost:6669
    authentication: scram
    tls:
      certificate: /etc/hermes/broker.pem
      key: /etc/hermes/broker.key
      client_ca: /etc/hermes/ca.pem
      client_certificate: optional
      versions: 1.3
      ciphers: modern
      principal: SAN:DNS
advertised_host: kafka-1.example.org
advertised_port: 6667
socket_send_buffer: 100KiB
socket_receive_buffer: 102400
allow_insecure: true
users_file: /etc/hermes/users
authenticator: ldap
authenticator_options: {password: secret}
token_verifier: acme
token_verifier_options: {url: secret}
connect_as: {user: broker-1, password_file: /etc/hermes/password, tls_ca: /etc/hermes/ca.pem}
max_request_bytes: 10MiB
max_message_bytes: 2MB
max_expanded_bytes: 1GiB
max_connections: 50
idle_timeout: 1h30m
request_memory: 16MiB
fetch_session_memory: 64MiB
max_topics: 500
max_partitions: 5000
max_open_segments: 12
format: kafka
num_partitions: 4
auto_create_topics: false
max_topic_name_length: 100
default_replication_factor: 3
default_min_insync_replicas: 2
unclean_leader_election: true
replica_lag_time: 30s
replication_listener: inside
replicate_as: {user: broker-1, password_file: /etc/hermes/password, tls: true}
rack: zone-1
topics:
  clicks:
    partitions: 8
    segment_bytes: 64MiB
    segment_age: 1d
    retention_policy: size
    retention_time: unlimited
    retention_bytes: 5GiB
    retention_options: {keep: [1, 2]}
    flush_messages: 500
    flush_interval: 0
log_dir: /var/lib/hermes
segment_bytes: 512MiB
segment_age: 2d
retention_policy: time
retention_time: 3d
retention_bytes: 10GiB
retention_options: {a: b}
retention_check_interval: 1m
damage_check_rate: 5MiB
flush_messages: 100
flush_interval: 500ms
flush_check_interval: 3s
flush_threads: 3
coordination: zookeeper
coordination_listen: tcp:2182
http_listen: tcp:9093:interface=127.0.0.1
kafka_listen: {endpoint: "tcp:19092:interface=127.0.0.1", name: inside}
kafka_to_0_7: refuse
group_initial_rebalance_delay: 0s
group_min_session_timeout: 1s
group_max_session_timeout: 1h
group_max_members: 10
group_consumer_session_timeout: 30s
group_consumer_heartbeat_interval: 3s
group_consumer_assignors: [range]
max_groups: 100
group_memory: 8MiB
offsets_retention: 1d
http_hosts: [broker-0.example.org, "::1"]
metrics_per_partition: false
ready_min_free: 1GiB
coordination_max_bytes: 10MiB
zookeeper_connect: zk1:2181,zk2:2181/kafka
zookeeper_session_timeout: 7s
zookeeper_connection_timeout: 8s
zookeeper_sync_time: 9s
io_threads: 5
stop_timeout: 11s
metrics_interval: 0
log_format: json
log_level: warn
log_levels: {hermes.broker: debug}
log_rotate_bytes: unlimited
log_keep_files: 3
registry: false
access: [{principal: alice, operations: [produce], topic: clicks}]
authorizer: ours
quotas: {default: {requests: 100}, alice: {bytes_in: 1MB, connections: unlimited}}
authorizer_options: {a: 1}
mirror: {name: west, sources: [{name: east, brokers: "zoo:2181"}]}
console_actions: true
console_password_file: /etc/hermes/console-password
ready_file: /run/hermes.ready
"""
    config = load_broker_config(write(tmp_path, text))
    expected = BrokerConfig(
        broker_id=7,
        listen=(
            ListenerConfig("tcp:6667"),
            ListenerConfig(r"tcp6:6668:interface=\:\:1", name="1"),
            ListenerConfig(
                "unix:/run/hermes.sock",
                TlsConfig(
                    Path("/etc/hermes/broker.pem"),
                    Path("/etc/hermes/broker.key"),
                    Path("/etc/hermes/ca.pem"),
                    "optional",
                    "1.3",
                    "modern",
                    "SAN:DNS",
                ),
                "scram",
                "localhost:6669",
                "local",
            ),
        ),
        allow_insecure=True,
        users_file=Path("/etc/hermes/users"),
        authenticator="ldap",
        authenticator_options={"password": "secret"},
        token_verifier="acme",
        token_verifier_options={"url": "secret"},
        connect_as=ConnectAs(
            user="broker-1",
            password_file=Path("/etc/hermes/password"),
            tls_ca=Path("/etc/hermes/ca.pem"),
        ),
        advertised_host="kafka-1.example.org",
        advertised_port=6667,
        socket_send_buffer_bytes=102_400,
        socket_receive_buffer_bytes=102_400,
        max_request_bytes=10 << 20,
        max_message_bytes=2_000_000,
        max_expanded_bytes=1 << 30,
        max_connections=50,
        idle_timeout_ms=5_400_000,
        request_memory_bytes=16 << 20,
        fetch_session_memory_bytes=64 << 20,
        max_topics=500,
        max_partitions=5000,
        max_open_segments=12,
        format="kafka",
        num_partitions=4,
        auto_create_topics=False,
        max_topic_name_length=100,
        topics={
            "clicks": TopicConfig(
                partitions=8,
                segment_bytes=64 << 20,
                segment_age_ms=86_400_000,
                retention_policy="size",
                retention_time_ms=None,
                retention_bytes=5 << 30,
                retention_options={"keep": [1, 2]},
                flush_messages=500,
                flush_interval_ms=0,
            )
        },
        default_replication_factor=3,
        default_min_insync_replicas=2,
        unclean_leader_election=True,
        replica_lag_ms=30_000,
        replication_listener="inside",
        replicate_as=ConnectAs(
            user="broker-1", password_file=Path("/etc/hermes/password"), tls=True
        ),
        rack="zone-1",
        log_dir=Path("/var/lib/hermes"),
        segment_bytes=512 << 20,
        segment_age_ms=2 * 86_400_000,
        retention_policy="time",
        access=(AccessRule("alice", frozenset({Operation.PRODUCE}), topic="clicks"),),
        authorizer="ours",
        quotas={"default": Quota(requests=100), "alice": Quota(bytes_in=1_000_000)},
        authorizer_options={"a": 1},
        retention_time_ms=3 * 86_400_000,
        retention_bytes=10 << 30,
        retention_options={"a": "b"},
        retention_check_interval_ms=60_000,
        damage_check_rate=5 << 20,
        flush_messages=100,
        flush_interval_ms=500,
        flush_check_interval_ms=3000,
        flush_threads=3,
        coordination="zookeeper",
        coordination_listen=ListenerConfig("tcp:2182"),
        coordination_max_bytes=10 << 20,
        zookeeper_connect="zk1:2181,zk2:2181/kafka",
        zookeeper_session_timeout_ms=7000,
        zookeeper_connection_timeout_ms=8000,
        zookeeper_sync_time_ms=9000,
        io_threads=5,
        stop_timeout_ms=11_000,
        metrics_interval_ms=0,
        log_format="json",
        log_level="warn",
        http_listen=(ListenerConfig("tcp:9093:interface=127.0.0.1"),),
        kafka_listen=(ListenerConfig("tcp:19092:interface=127.0.0.1", name="inside"),),
        kafka_to_0_7="refuse",
        group_initial_rebalance_delay_ms=0,
        group_min_session_timeout_ms=1000,
        group_max_session_timeout_ms=3_600_000,
        group_max_members=10,
        group_consumer_session_timeout_ms=30_000,
        group_consumer_heartbeat_interval_ms=3_000,
        group_consumer_assignors=("range",),
        max_groups=100,
        group_memory_bytes=8 << 20,
        offsets_retention_ms=86_400_000,
        http_hosts=("broker-0.example.org", "::1"),
        metrics_per_partition=False,
        ready_min_free_bytes=1 << 30,
        log_levels={"hermes.broker": "debug"},
        log_rotate_bytes=None,
        log_keep_files=3,
        registry=False,
        mirror=EmbeddedMirror(
            '{"name": "west", "sources": [{"name": "east", "brokers": "zoo:2181"}]}',
            parse_mirror_config(
                {"name": "west", "sources": [{"name": "east", "brokers": "zoo:2181"}]},
                default_target={"brokers": "localhost:9092"},
            ),
        ),
        console_actions=True,
        console_password_file="/etc/hermes/console-password",
        ready_file=Path("/run/hermes.ready"),
    )
    assert config == expected
    # ... and none was forgotten above: each differs from its default.
    default = BrokerConfig(broker_id=0, log_dir=Path("data"))
    same = {f.name for f in fields(config) if getattr(config, f.name) == getattr(default, f.name)}
    assert same == {"altered", "requested"}  # by requests alone
    assert TopicConfig() not in config.topics.values()
    assert set(vars(config.topics["clicks"])) == {s.attribute for s in TOPIC_SETTINGS.values()}


def test_a_topic_takes_from_the_broker_what_it_does_not_set(tmp_path: Path) -> None:
    text = f"""{MINIMAL}
num_partitions: 3
retention_bytes: 1GiB
retention_options: {{a: 1}}
topics:
  clicks: {{partitions: 8, retention_bytes: unlimited}}
  views:
"""
    config = load_broker_config(write(tmp_path, text))
    assert config.topic("clicks").partitions == 8
    assert config.topic("clicks").retention_bytes is None
    assert config.topic("clicks").segment_bytes == config.segment_bytes
    assert config.topic("views") == config.topic("never mentioned")
    assert config.topic("views").partitions == 3
    assert config.topic("views").retention == RetentionSettings(
        time_ms=7 * 86_400_000, size_bytes=1 << 30, options={"a": 1}
    )


def test_topic_names_are_the_text_that_stands_in_the_file(tmp_path: Path) -> None:
    text = MINIMAL + "topics:\n  123:\n  no:\n  null:\n  2024-01-01:\n  'a b':\n"
    topics = load_broker_config(write(tmp_path, text)).topics
    assert list(topics) == ["123", "no", "null", "2024-01-01", "a b"]


def test_relative_paths_start_at_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    paths = "ready_file: run/ready.json\nconsole_password_file: secret\n"
    write(tmp_path, MINIMAL + paths)
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = load_broker_config("../broker.yaml")
    assert os.path.normpath(config.log_dir) == str(tmp_path / "data")
    assert config.log_dir.is_absolute()
    assert config.ready_file is not None
    assert os.path.normpath(config.ready_file) == str(tmp_path / "run/ready.json")
    assert config.console_password_file is not None
    assert os.path.normpath(config.console_password_file) == str(tmp_path / "secret")


WRONG = [
    # the file
    ("", "expected a mapping of settings, got nothing"),
    ("- a\n", "expected a mapping of settings, got a list"),
    (
        "broker_id: 0\nbroker_id: 1\n",
        "line 2, column 1: not valid YAML: 'broker_id' is given twice",
    ),
    ("a: b: c\n", "line 1, column 5: not valid YAML: mapping values are not allowed here"),
    ("[" * 5000, "not valid YAML: nested too deeply"),
    ("a: [" * 5000, "not valid YAML: nested too deeply"),
    (LAUGHS, "line 1, column 1: not valid YAML: its aliases repeat more than 10000 values"),
    ("a: &a [*a]\n", "line 1, column 4: not valid YAML: an alias is part of what it"),
    (b"\xff\xfe\xfa", "not valid YAML: "),
    (b"broker_id: \x01", "not valid YAML: unacceptable character"),
    ("? [a]\n: b\n", "line 1, column 3: not valid YAML: a key must be a string"),
    ("a: !!python/object:os.system\n", "line 1, column 4: not valid YAML: could not determine"),
    (f"broker_id: {'9' * 5000}\n", "not valid YAML: Exceeds the limit"),
    # keys
    ("log_dir: data\n", "broker_id: missing: whole number >= 0"),
    ("broker_id: 0\n", "log_dir: missing: path"),
    ("brokers_id: 0\n", "brokers_id: unknown setting, did you mean broker_id?"),
    ("frobnicate: 0\n", "frobnicate: unknown setting (docs/configuration.md lists them all)"),
    (
        "log.retention.hours: 3\n",
        "log.retention.hours: unknown setting: that is Kafka 0.7's name for retention_time",
    ),
    (
        "partitions: 3\n",
        "partitions: unknown setting, did you mean num_partitions?",
    ),
    ("topcis: {}\n", "topcis: unknown setting, did you mean topics?"),
    # names that say their unit
    ("retention_hours: 72\n", "unknown setting, did you mean retention_time: 72h?"),
    ("retention_hours: many\n", "unknown setting, did you mean retention_time?"),
    ("retention.ms: 100\n", "unknown setting, did you mean retention_time: 100ms?"),
    ("log_retention_minutes: 9\n", "unknown setting, did you mean retention_time: 9m?"),
    ("segment_ms: '100'\n", "unknown setting, did you mean segment_age: 100ms?"),
    ("segment_mb: 100\n", "unknown setting, did you mean segment_bytes?"),
    ("segment_size: 100\n", "unknown setting, did you mean segment_bytes?"),
    ("flush_seconds: 1\n", "unknown setting, did you mean flush_interval: 1s?"),
    ("idle_timeout_ms: 1\n", "unknown setting, did you mean idle_timeout: 1ms?"),
    ("topics: {t: {retention_days: 7}}\n", "did you mean retention_time: 7d?"),
    ("frobnicate_ms: 0\n", "unknown setting (docs/configuration.md lists them all)"),
    ("compaction: true\n", "unknown setting (docs/configuration.md lists them all)"),
    # values
    ("broker_id: two\n", "broker_id: expected a whole number >= 0 and <= 2147483647, got 'two'"),
    ("broker_id: -1\n", "broker_id: expected a whole number >= 0"),
    ("broker_id: true\n", "broker_id: expected a whole number >= 0"),
    ("broker_id: 1.0\n", "broker_id: expected a whole number >= 0"),
    ("broker_id: 010\n", "broker_id: expected a whole number >= 0"),
    ("broker_id:\n", "broker_id: expected a whole number >= 0 and <= 2147483647, got None"),
    ("auto_create_topics: no\n", "auto_create_topics: expected true or false, got 'no'"),
    ("log_dir: ''\n", "log_dir: expected a path, got ''"),
    ("log_dir: [a]\n", "log_dir: expected a path, got ['a']"),
    ("idle_timeout: 600\n", "idle_timeout: expected a duration such as 500ms"),
    (
        "flush_interval: 100000000000000000w\n",
        "flush_interval: expected at most 9223372036854775807 ms",
    ),
    (
        "max_connections: 9223372036854775808\n",
        "expected a whole number >= 1 and <= 9223372036854775807, got",
    ),
    (
        "request_memory: 9223372036854775808\n",
        "expected a size >= 1 and <= 9223372036854775807, got",
    ),
    (
        "zookeeper_connect: foo bar\n",
        "zookeeper_connect: expected host:port,host:port/chroot, got 'foo bar'",
    ),
    ("zookeeper_connect: 'a:1,,b:1'\n", "expected host:port,host:port/chroot, got 'a:1,,b:1'"),
    ("zookeeper_connect: 'a:70000'\n", "expected host:port,host:port/chroot, got 'a:70000'"),
    (
        "zookeeper_connect: 'a:1/x,b:1/x'\n",
        "expected one chroot, after all hosts, got 'a:1/x,b:1/x'",
    ),
    ("segment_age: 0\n", "segment_age: expected at least 1ms, got 0"),
    ("max_request_bytes: 1GB!\n", "max_request_bytes: expected a size such as 1GiB"),
    ("max_request_bytes: 4GiB\n", "max_request_bytes: expected a size >= 1 and <= 2147483647"),
    ("segment_bytes: 2GiB\n", "segment_bytes: expected a size >= 1 and <= 2147483647"),
    (
        "topics: {clicks: {segment_bytes: 4GiB}}\n",
        "topics.clicks.segment_bytes: expected a size >= 1 and <= 2147483647",
    ),
    ("segment_bytes: 0\n", "segment_bytes: expected a size >= 1 and <= 2147483647, got 0"),
    ("retention_bytes: -1\n", "got -1 (or unlimited)"),
    ("retention_options: 3\n", "retention_options: expected a mapping, got 3"),
    ("retention_policy: 3\n", "retention_policy: expected a string, got 3"),
    ("log_format: xml\n", "log_format: expected text or json, got 'xml'"),
    ("advertised_host: '::1'\n", "advertised_host: expected a host name or an IPv4 address"),
    ("advertised_port: 0\n", "advertised_port: expected a whole number >= 1 and <= 65535"),
    ("coordination: zoo\n", "coordination: expected none, embedded or zookeeper, got 'zoo'"),
    # topics
    ("topics: [a]\n", "topics: expected a mapping of topic names to settings, got a list"),
    ("topics: {'': {}}\n", "topics: expected a topic name, got ''"),
    ("topics: {clicks: 3}\n", "topics.clicks: expected a mapping of settings, got 3"),
    (
        "topics: {clicks: {partitions: two}}\n",
        "topics.clicks.partitions: expected a whole number >= 1 and <= 10000, got 'two'",
    ),
    (
        "topics: {clicks: {partition: 2}}\n",
        "topics.clicks.partition: unknown setting, did you mean partitions?",
    ),
    (
        "topics: {clicks: {idle_timeout: 2s}}\n",
        "topics.clicks.idle_timeout: unknown setting: it is a setting of the broker",
    ),
    # settings that need each other
    (
        f"{MINIMAL}coordination: zookeeper\n",
        "zookeeper_connect: coordination: zookeeper needs it, as host:port/chroot",
    ),
]


@pytest.mark.parametrize(("text", "expected"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_a_mistake_is_one_line_that_names_file_and_key(
    tmp_path: Path, text: str | bytes, expected: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_broker_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_the_error_carries_the_key() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_broker_config({"broker_id": 0, "topics": {"clicks": {"partitions": 0}}})
    assert caught.value.key == "topics.clicks.partitions"
    assert caught.value.source == ""
    assert str(caught.value).startswith("topics.clicks.partitions: expected")


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    pipe, device = tmp_path / "pipe.yaml", Path("/dev/zero")
    os.mkfifo(pipe)
    for path, reason in (
        (tmp_path / "missing.yaml", "No such file"),
        (tmp_path, "Is a directory"),
        (pipe, "it is not a regular file"),  # and nobody waits for a writer
        (device, "it is not a regular file"),
    ):
        with pytest.raises(ConfigError, match=f"^{path}: can't be read: {reason}"):
            load_broker_config(path)


def test_a_file_that_is_none_for_people_is_not_parsed(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    os.truncate(path, (16 << 20) + 1)
    with pytest.raises(ConfigError, match=r"can't be read: it is larger than 16384 KiB$"):
        load_broker_config(path)


def test_a_value_that_is_its_own_member_is_refused_quietly(tmp_path: Path) -> None:
    for text in (MINIMAL + "retention_options: &a {me: *a}\n", "broker_id: &a [*a]\n"):
        with pytest.raises(ConfigError, match="an alias is part of what it refers to"):
            load_broker_config(write(tmp_path, text))


def test_every_default_is_a_value_that_could_be_given() -> None:
    for key, setting in {**BROKER_SETTINGS, **TOPIC_SETTINGS}.items():
        if isinstance(setting.default, int | str) and not setting.required:
            shown = setting.kind.show(setting.default)
            read = {"true": True, "false": False}.get(shown)
            value: object = int(shown) if shown.isdigit() else shown if read is None else read
            assert setting.kind.parse(value) == setting.default, key


def test_aliases_in_their_ordinary_use_are_read(tmp_path: Path) -> None:
    topics = "".join(f"  t{n}: *usual\n" for n in range(1000))
    text = f"{MINIMAL}topics:\n  first: &usual {{partitions: 3}}\n{topics}"
    config = load_broker_config(write(tmp_path, text))
    assert config.topic("t999").partitions == 3


def test_reading_leaves_no_garbage() -> None:
    settings = {"format": "kafka", "retention_time": "7d"}
    parse_topic_settings(settings)
    gc.collect()
    gc.disable()
    try:
        parse_topic_settings(settings)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_an_error_quotes_no_value_whole(tmp_path: Path) -> None:
    for text in (
        f"broker_id: {'x' * 100_000}\nlog_dir: data\n",
        f"{MINIMAL}listen: [{'tcp:x, ' * 10_000}]\n",
        f"{MINIMAL}log_dir2: {'y' * 100_000}\n",
        f"{MINIMAL}{'z' * 1000}: 1\n",
        f"{MINIMAL}max_request_bytes: {'9' * 4000}\n",
        f"{MINIMAL}idle_timeout: {'1m' * 10_000}\n",
    ):
        with pytest.raises(ConfigError) as raised:
            load_broker_config(write(tmp_path, text))
        assert len(str(raised.value)) < 2000, text[:50]


@pytest.mark.parametrize(
    "connect",
    ["zk", "zk1:2181, zk2:2181/hermes/a", "[::1]:2181", "10.0.0.1:2181/", "my_zk.local:1"],
)
def test_the_hosts_of_an_ensemble_are_taken_as_they_are(connect: str) -> None:
    config = parse_broker_config(
        {
            "broker_id": 0,
            "log_dir": "logs",
            "coordination": "zookeeper",
            "zookeeper_connect": connect,
        }
    )
    assert config.zookeeper_connect == connect
