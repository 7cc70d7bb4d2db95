"""Kafka 0.7's server.properties: Java's syntax, what each key means, and nothing that gets lost."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes.config.broker import BROKER_SETTINGS, BrokerConfig
from hermes.config.listeners import ListenerConfig
from hermes.config.loading import parse_broker_config
from hermes.config.properties import _CONVERSIONS, import_properties, parse_properties
from hermes.config.topic import TOPIC_SETTINGS
from hermes.config.yaml_text import read_yaml
from hermes.errors import ConfigError

# What the reference of 0.7's broker lists.
KAFKA_KEYS = (
    "brokerid port hostname socket.send.buffer socket.receive.buffer max.socket.request.bytes "
    "max.message.size num.threads monitoring.period.secs max.topic.name.length enable.zookeeper "
    "zk.connect zk.sessiontimeout.ms zk.connectiontimeout.ms zk.synctime.ms "
    "log.dir num.partitions topic.partition.count.map log.file.size topic.log.file.size "
    "log.roll.hours topic.log.roll.hours log.retention.hours topic.log.retention.hours "
    "log.retention.size topic.log.retention.size log.cleanup.interval.mins "
    "log.flush.interval topic.flush.intervals.ms log.default.flush.scheduler.interval.ms "
    "log.default.flush.interval.ms"
)


def settings_of(text: str) -> dict[str, object]:
    """What a file means, beside that it is open to everybody, as 0.7 always is."""
    values = read_yaml(import_properties(text).yaml_text.encode(), "imported")
    if not isinstance(values, dict):
        return {}
    assert values.pop("allow_insecure") is True
    if values["listen"] == "tcp:9092":
        del values["listen"]
    return values


def test_every_key_of_0_7_has_its_setting_and_its_meaning() -> None:
    replaced = [
        key for s in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()) for key in s.replaces
    ]
    assert sorted(replaced) == sorted(KAFKA_KEYS.split())
    assert sorted(_CONVERSIONS) == sorted(KAFKA_KEYS.split())


def test_a_whole_file() -> None:
    text = r"""
# The broker of the second rack
brokerid=3
port=6667
hostname: kafka-3.example.org
num.threads 8
socket.send.buffer=1048576
log.dir=/var/kafka\
        -logs
num.partitions=2
topic.partition.count.map=clicks:8, views:16
topic.log.retention.size=clicks:-1
log.flush.interval=10000
log.default.flush.interval.ms=1000
topic.flush.intervals.ms=clicks:1500
log.default.flush.scheduler.interval.ms=1000
log.retention.hours=168
log.retention.size=1073741824
log.file.size=536870912
log.cleanup.interval.mins=1
enable.zookeeper=true
zk.connect=localhost:2181,other:2181/kafka
zk.connectiontimeout.ms=1000000
jmx.port=9999
"""
    imported = import_properties(text)
    assert imported.unknown_keys == ("jmx.port",)
    assert imported.yaml_text == (
        "# Imported from a Kafka 0.7 server.properties; what it doesn't set has Hermes' defaults.\n"
        "broker_id: 3\n"
        "listen: tcp:6667\n"
        "advertised_host: kafka-3.example.org\n"
        "socket_send_buffer: 1MiB\n"
        "# Kafka 0.7 knows neither TLS nor users: whoever reaches this broker may read, write and "
        "delete\n# everything. docs/security.md says how to change that.\n"
        "allow_insecure: true\n"
        "num_partitions: 2\n"
        "log_dir: /var/kafka-logs\n"
        "segment_bytes: 512MiB\n"
        "retention_time: 7d\n"
        "retention_bytes: 1GiB\n"
        "retention_check_interval: 1m\n"
        "flush_messages: 10000\n"
        "flush_interval: 1s\n"
        "flush_check_interval: 1s\n"
        "coordination: zookeeper\n"
        "zookeeper_connect: localhost:2181,other:2181/kafka\n"
        "zookeeper_connection_timeout: 16m40s\n"
        "io_threads: 8\n"
        "topics:\n"
        "  clicks:\n"
        "    partitions: 8\n"
        "    retention_bytes: unlimited\n"
        "    flush_interval: 1s500ms\n"
        "  views:\n"
        "    partitions: 16\n"
    )


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", {}),
        ("enable.zookeeper=false", {"coordination": "none"}),
        ("enable.zookeeper=true", {"coordination": "zookeeper"}),
        ("zk.connect=a:1", {"coordination": "zookeeper", "zookeeper_connect": "a:1"}),
        (
            "zk.connect=a:1\nenable.zookeeper=false",
            {"coordination": "none", "zookeeper_connect": "a:1"},
        ),
        # 0.7 flushes as often as it looks, unless told otherwise
        (
            "log.default.flush.scheduler.interval.ms=500",
            {"flush_interval": "500ms", "flush_check_interval": "500ms"},
        ),
        ("log.default.flush.interval.ms=-1", {"flush_interval": 0}),
        ("log.retention.size=-1", {"retention_bytes": "unlimited"}),
        ("log.retention.size=0", {"retention_bytes": 0}),
        ("port= 9093 ", {"listen": "tcp:9093"}),
        ("topic.log.file.size=", {}),
        ("topic.log.roll.hours=a.b-c:36,a.b-c:37", {"topics": {"a.b-c": {"segment_age": "1d13h"}}}),
        (
            "topic.log.file.size=no:1,123:2",
            {"topics": {"no": {"segment_bytes": 1}, "123": {"segment_bytes": 2}}},
        ),
        ("log.dir=no", {"log_dir": "no"}),
        ("log.dir=1e5", {"log_dir": "1e5"}),
        ("log.dir=#1: x", {"log_dir": "#1: x"}),
        ("hostname=", {}),
        ("max.message.size=1000000", {"max_message_bytes": "1MB"}),
        ("monitoring.period.secs=90", {"metrics_interval": "1m30s"}),
    ],
)
def test_what_a_file_means(text: str, settings: dict[str, object]) -> None:
    assert settings_of(text) == settings


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("port=http", "port: expected a whole number, got 'http'"),
        ("port=70000", "port: expected an endpoint .* port is not within"),
        ("brokerid=-1", "brokerid: expected a whole number >= 0"),
        ("num.partitions=0", "num.partitions: expected a whole number >= 1"),
        ("log.retention.hours=0", "log.retention.hours: expected a whole number >= 1, got '0'"),
        ("log.file.size=-5", "log.file.size: expected a whole number >= 0, got '-5'"),
        ("log.file.size=0", "log.file.size: expected a size >= 1"),
        ("enable.zookeeper=yes", "enable.zookeeper: expected true or false, got 'yes'"),
        ("topic.log.file.size=clicks", "topic.log.file.size: expected topic:number,topic:number"),
        ("topic.log.file.size=clicks:", "topic.log.file.size: expected a whole number, got ''"),
        ("topic.log.file.size=:3", "topic.log.file.size: expected topic:number"),
        ("hostname=::1", "hostname: expected a host name or an IPv4 address"),
        ("log.dir=\\u12", "expected four hexadecimal digits after"),
    ],
)
def test_a_value_that_0_7_refuses_is_named_with_its_key(text: str, error: str) -> None:
    with pytest.raises(ConfigError, match=f"^server.properties: .*{error}") as caught:
        import_properties(text, "server.properties")
    assert "\n" not in str(caught.value)


# -- Java's syntax ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb", {"a": "b"}),
        ("  a  =  b  ", {"a": "b  "}),
        ("a = = b", {"a": "= b"}),
        ("a : = b", {"a": "= b"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("# a=1\n  ! b=2\n\n \t\f\nc=3", {"c": "3"}),
        ("# a comment is never continued \\\nb=2", {"b": "2"}),
        ("a=1,\\\n   2,\\\n\t3", {"a": "1,2,3"}),
        ("a=1\\\n# no comment here", {"a": "1# no comment here"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\\\\\nb=2", {"a": "1\\b=2"}),
        ("a=1\\", {"a": "1"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("\\\n\n#c\nb=2", {"b": "2"}),
        (r"a\ b\:c\=d=e", {"a b:c=d": "e"}),
        (r"a=\t\n\r\f\q\"", {"a": '\t\n\r\fq"'}),
        (r"caf\u00e9=\u00C4", {"café": "Ä"}),
        (r"a=\ud83d\ude00", {"a": "\U0001f600"}),
        (r"a=\ud83d", {"a": "�"}),
        ("a\xa0b=\xe9", {"a\xa0b": "\xe9"}),
    ],
)
def test_syntax(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


def as_java_stores(text: str, blanks: bool) -> str:
    """Escape as `java.util.Properties.store` does; `blanks`: all of them, as in a key."""
    stored = ""
    for index, character in enumerate(text):
        if character == " " and (blanks or index == 0):
            stored += "\\ "
        elif character in "\t\n\r\f":
            stored += "\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[character]
        elif character in "=:#!\\":
            stored += "\\" + character
        elif not " " <= character <= "~":
            units = character.encode("utf-16-be")
            stored += "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
        else:
            stored += character
    return stored


def texts(min_size: int) -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=min_size, max_size=20)


@given(st.dictionaries(texts(1), texts(0)), st.sampled_from(["=", ":", " ", " = ", "\t:\f"]))
def test_what_java_stores_is_read_back(properties: dict[str, str], separator: str) -> None:
    lines = [
        f"{as_java_stores(key, True)}{separator}{as_java_stores(value, False)}"
        for key, value in properties.items()
    ]
    assert parse_properties("\n".join(["#Mon Nov 21 07:38:00 UTC 2011", *lines])) == properties


@given(st.text(max_size=200))
@example("\\")
@example("\\\\u")
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read = parse_properties(text)
    except ConfigError:
        return
    assert all(isinstance(value, str) for value in read.values())


# -- the round trip -----------------------------------------------------------------------------

_NUMBERS = st.integers(1, (1 << 31) - 1)
_NAME_CHARACTERS = st.characters(exclude_categories=["Cs", "Cc", "Z"], exclude_characters=":,")
_PARTITIONS = st.integers(1, 10_000)
_NAMES = st.text(_NAME_CHARACTERS, min_size=1)
_TOPICS = st.dictionaries(_NAMES, _NUMBERS, max_size=3)
_HOUR_MS = 3_600_000

# 0.7's key -> values to try; and what a value must become: attribute and factor.
_NUMERIC = {
    "brokerid": ("broker_id", 1),
    "socket.send.buffer": ("socket_send_buffer_bytes", 1),
    "socket.receive.buffer": ("socket_receive_buffer_bytes", 1),
    "max.socket.request.bytes": ("max_request_bytes", 1),
    "max.message.size": ("max_message_bytes", 1),
    "num.threads": ("io_threads", 1),
    "monitoring.period.secs": ("metrics_interval_ms", 1000),
    "max.topic.name.length": ("max_topic_name_length", 1),
    "zk.sessiontimeout.ms": ("zookeeper_session_timeout_ms", 1),
    "zk.connectiontimeout.ms": ("zookeeper_connection_timeout_ms", 1),
    "zk.synctime.ms": ("zookeeper_sync_time_ms", 1),
    "num.partitions": ("num_partitions", 1),
    "log.file.size": ("segment_bytes", 1),
    "log.roll.hours": ("segment_age_ms", _HOUR_MS),
    "log.retention.hours": ("retention_time_ms", _HOUR_MS),
    "log.retention.size": ("retention_bytes", 1),
    "log.cleanup.interval.mins": ("retention_check_interval_ms", 60_000),
    "log.flush.interval": ("flush_messages", 1),
    "log.default.flush.interval.ms": ("flush_interval_ms", 1),
    "log.default.flush.scheduler.interval.ms": ("flush_check_interval_ms", 1),
}
_TOPIC_MAPS = {
    "topic.partition.count.map": ("partitions", 1),
    "topic.log.file.size": ("segment_bytes", 1),
    "topic.log.roll.hours": ("segment_age_ms", _HOUR_MS),
    "topic.log.retention.hours": ("retention_time_ms", _HOUR_MS),
    "topic.log.retention.size": ("retention_bytes", 1),
    "topic.flush.intervals.ms": ("flush_interval_ms", 1),
}


@example(numbers={}, maps={}, port=0, log_dir="\x85a\u2028b\u2029")
@example(numbers={"max.message.size": (100 << 20) + 1}, maps={}, port=0, log_dir="")
@given(
    numbers=st.fixed_dictionaries(
        {}, optional=dict.fromkeys(_NUMERIC, _NUMBERS) | {"num.partitions": _PARTITIONS}
    ),
    maps=st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(_TOPIC_MAPS, _TOPICS)
        | {"topic.partition.count.map": st.dictionaries(_NAMES, _PARTITIONS, max_size=3)},
    ),
    port=st.integers(0, 65535),
    log_dir=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
)
def test_the_import_keeps_every_value(
    numbers: dict[str, int], maps: dict[str, dict[str, int]], port: int, log_dir: str
) -> None:
    numbers = {"brokerid": 1, **numbers}
    limit = numbers.get("max.socket.request.bytes", 100 << 20)  # a message must fit into a request
    if limit < numbers.get("max.message.size", 1_000_000):
        numbers["max.message.size"] = limit
    numbers.setdefault("log.default.flush.interval.ms", 77)
    properties = {key: str(number) for key, number in numbers.items()} | {
        "port": str(port),
        "log.dir": f"/{log_dir}",
        "enable.zookeeper": "false",
    }
    for key, topics in maps.items():
        properties[key] = ",".join(f"{topic}:{number}" for topic, number in topics.items())
    stored = "\n".join(f"{k}={as_java_stores(v, False)}" for k, v in properties.items())

    imported = import_properties(stored)
    config = parse_broker_config(read_yaml(imported.yaml_text.encode(), "imported"))

    assert imported.unknown_keys == ()
    assert config.listen == (ListenerConfig(f"tcp:{port}"),)
    assert config.log_dir == Path(f"/{log_dir}")
    expected = {_NUMERIC[key][0]: number * _NUMERIC[key][1] for key, number in numbers.items()}
    assert {name: getattr(config, name) for name in expected} == expected
    untouched = BrokerConfig(broker_id=0, log_dir=Path("x"))
    for attribute, _ in _NUMERIC.values():
        if attribute not in expected:
            assert getattr(config, attribute) == getattr(untouched, attribute)
    by_topic: dict[str, dict[str, int]] = {}
    for key, topics in maps.items():
        attribute, factor = _TOPIC_MAPS[key]
        for topic, number in topics.items():
            by_topic.setdefault(topic, {})[attribute] = number * factor
    assert {name: topic.given() for name, topic in config.topics.items()} == by_topic


def test_a_line_may_be_continued_very_often() -> None:
    """Each part is touched once: with a square of them this would take minutes."""
    lines = 400_000
    text = "brokerid=" + "\\\n  ".join(["1"] + [""] * lines) + "7\n\nport=1\n"
    assert parse_properties(text) == {"brokerid": "17", "port": "1"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1\\\n2", "12"),
        ("a=1\\\\\n2", "1\\"),
        ("a=1\\\\\\\n2", "1\\2"),
        ("a=1\\\n\\\n2", "12"),
        ("a=1\\\\\\\n\\\\\n2", "1\\\\"),
        ("a=1\\\n\\\\\\\n2", "1\\2"),
        ("a=1\\", "1"),
    ],
)
def test_an_odd_number_of_backslashes_continues_a_line(text: str, value: str) -> None:
    assert parse_properties(text)["a"] == value
