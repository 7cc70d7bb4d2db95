"""The import of a Kafka 0.7 `server.properties` as a broker.yaml.

Owns Java's properties syntax and the meaning of each of 0.7's broker keys: unit, special values,
and what one key implies for another. Which setting replaces a key is in the table of settings
(`Setting.replaces`). Only what the file sets is written, so the defaults are Hermes' own.

Source: the format that `java.util.Properties.load` documents; Kafka 0.7's configuration reference.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from hermes.config.broker import BROKER_SETTINGS
from hermes.config.kinds import UNLIMITED
from hermes.config.setting import Setting, named_source
from hermes.config.topic import TOPIC_SETTINGS
from hermes.config.units import format_duration, format_size
from hermes.config.yaml_text import write_yaml
from hermes.errors import ConfigError
from hermes.quoting import quoted

_HEADER = (
    "# Imported from a Kafka 0.7 server.properties; what it doesn't set has Hermes' defaults.\n"
)

# 0.7 listens on every interface, and whoever reaches it may do everything.
_INSECURE = {"listen": "tcp:9092", "allow_insecure": True}
_INSECURE_NOTE = (
    "# Kafka 0.7 knows neither TLS nor users: whoever reaches this broker may read, write and "
    "delete\n# everything. docs/security.md says how to change that.\n"
)

Value = int | str | bool


class ImportedProperties(NamedTuple):
    """`yaml_text`: a broker.yaml with the settings that the file sets, in the reference's order.

    `unknown_keys`: the file's keys that have no equivalent, in its order.
    """

    yaml_text: str
    unknown_keys: tuple[str, ...]


def import_properties(text: str, source: str = "") -> ImportedProperties:
    """Translate a Kafka 0.7 broker's properties file.

    Args:
        text: the file's contents, decoded as latin-1, as Java does.
        source: the file's name for messages; empty when there is none.

    Raises:
        ConfigError: a value is one that 0.7 wouldn't start with either; the text names the key. Or
            no key is one of 0.7's.
    """
    with named_source(source):
        properties = parse_properties(text)
        unknown = tuple(key for key in properties if key not in _CONVERSIONS)
        values = {key: properties[key] for key in properties if key in _CONVERSIONS}
        if unknown and not values:
            raise ConfigError("", "it has no key of Kafka 0.7's broker: is it server.properties?")
        settings = _broker_settings(values)
        topics = _topic_settings(values)
    if topics:
        settings["topics"] = topics
    return ImportedProperties(_HEADER + (_written(settings) if settings else ""), unknown)


def _written(settings: dict[str, object]) -> str:
    """Write settings for a broker that other machines reach, as 0.7's is."""
    settings = {**_INSECURE, **settings}
    in_order = {key: settings.pop(key) for key in BROKER_SETTINGS if key in settings}
    text = write_yaml({**in_order, **settings})
    return text.replace("allow_insecure: true\n", f"{_INSECURE_NOTE}allow_insecure: true\n", 1)


def _broker_settings(properties: dict[str, str]) -> dict[str, object]:
    settings: dict[str, object] = {}
    for key, setting in BROKER_SETTINGS.items():
        for replaced in setting.replaces:
            if properties.get(replaced):
                settings[key] = _convert(replaced, properties[replaced], setting)
    # What 0.7 does unless configured otherwise: flush at every check, and use ZooKeeper.
    if "flush_check_interval" in settings:
        settings.setdefault("flush_interval", settings["flush_check_interval"])
    if "zookeeper_connect" in settings:
        settings.setdefault("coordination", "zookeeper")
    return {key: settings[key] for key in BROKER_SETTINGS if key in settings}


def _topic_settings(properties: dict[str, str]) -> dict[str, dict[str, Value]]:
    topics: dict[str, dict[str, Value]] = {}
    for key, setting in TOPIC_SETTINGS.items():
        for replaced in setting.replaces:
            for topic, value in _parse_map(replaced, properties.get(replaced, "")):
                topics.setdefault(topic, {})[key] = _convert(replaced, value, setting)
    return topics


def _convert(key: str, text: str, setting: Setting) -> Value:
    try:
        value = _CONVERSIONS[key](text)
        setting.kind.parse(value)
    except ValueError as error:
        raise ConfigError(key, str(error)) from None
    return value


def _parse_map(key: str, text: str) -> Iterator[tuple[str, str]]:
    for entry in text.split(","):
        if not entry.strip():
            continue
        topic, colon, value = entry.rpartition(":")
        if not colon or not topic.strip():
            raise ConfigError(key, f"expected topic:number,topic:number, got {quoted(text)}")
        yield topic.strip(), value


# -- what the values mean -----------------------------------------------------------------------


def _number(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip()):
        raise ValueError(f"expected a whole number, got {quoted(text)}")
    return int(text)


def _truth(text: str) -> bool:
    if text.strip() not in ("true", "false"):
        raise ValueError(f"expected true or false, got {quoted(text)}")
    return text.strip() == "true"


def _size(text: str) -> Value:
    shown = format_size(_at_least(0, text))
    return int(shown) if shown.isdigit() else shown


def _size_or_unlimited(text: str) -> Value:
    return UNLIMITED if _number(text) < 0 else _size(text)


def _duration_in(unit_ms: int, minimum: int = 1) -> Callable[[str], Value]:
    return lambda text: _shown_duration(_at_least(minimum, text) * unit_ms)


def _flush_interval(text: str) -> Value:
    # A negative interval has always elapsed, as one of 0 has.
    return _shown_duration(max(_number(text), 0))


def _shown_duration(duration_ms: int) -> Value:
    return format_duration(duration_ms) if duration_ms else 0


def _at_least(minimum: int, text: str) -> int:
    number = _number(text)
    if number < minimum:
        raise ValueError(f"expected a whole number >= {minimum}, got {quoted(text)}")
    return number


_HOUR_MS = 3_600_000

_CONVERSIONS: dict[str, Callable[[str], Value]] = {
    "brokerid": _number,
    "port": lambda text: f"tcp:{_number(text)}",
    "hostname": str.strip,
    "socket.send.buffer": _size,
    "socket.receive.buffer": _size,
    "max.socket.request.bytes": _size,
    "max.message.size": _size,
    "num.threads": _number,
    "monitoring.period.secs": _duration_in(1000),
    "max.topic.name.length": _number,
    "enable.zookeeper": lambda text: "zookeeper" if _truth(text) else "none",
    "zk.connect": str.strip,
    "zk.sessiontimeout.ms": _duration_in(1),
    "zk.connectiontimeout.ms": _duration_in(1),
    "zk.synctime.ms": _duration_in(1, minimum=0),
    "log.dir": str,
    "num.partitions": _number,
    "topic.partition.count.map": _number,
    "log.file.size": _size,
    "topic.log.file.size": _size,
    "log.roll.hours": _duration_in(_HOUR_MS),
    "topic.log.roll.hours": _duration_in(_HOUR_MS),
    "log.retention.hours": _duration_in(_HOUR_MS),
    "topic.log.retention.hours": _duration_in(_HOUR_MS),
    "log.retention.size": _size_or_unlimited,
    "topic.log.retention.size": _size_or_unlimited,
    "log.cleanup.interval.mins": _duration_in(60_000),
    "log.flush.interval": _number,
    "topic.flush.intervals.ms": _flush_interval,
    "log.default.flush.scheduler.interval.ms": _duration_in(1),
    "log.default.flush.interval.ms": _flush_interval,
}


# -- Java's syntax ------------------------------------------------------------------------------

_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    r"""Parse a properties file as `java.util.Properties.load` does.

    Comments begin with `#` or `!`; a key ends at the first `=`, `:` or blank that is not escaped;
    a backslash at a line's end joins the next line without its leading blanks.

    Returns:
        Values by key in the file's order; of a key given twice, the last value.

    Raises:
        ConfigError: a `\u` is not followed by four hexadecimal digits.
    """
    properties = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None  # every part of the pattern may be empty
        properties[_unescape(match[1])] = _unescape(line[match.end() :])
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Join continued lines; leave out blank lines and comments."""
    parts: list[str] = []
    continued = False
    for line in _LINE_END.split(text):
        line = line.lstrip(_BLANK)
        if not continued and (not line or line[0] in "#!"):
            continue
        # An odd number of backslashes at the end: what comes before has an even one, if any.
        continued = bool((len(line) - len(line.rstrip("\\"))) % 2)
        parts.append(line[:-1] if continued else line)
        if not continued:
            if joined := "".join(parts):
                yield joined
            parts.clear()
    if joined := "".join(parts):
        yield joined


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        escape = match[1]
        if escape == "u":
            raise ConfigError(text, r"expected four hexadecimal digits after \u")
        if len(escape) > 1:
            return chr(int(escape[1:], 16))
        return _CONTROLS.get(escape, escape)

    unescaped = _ESCAPE.sub(replace, text)
    # Java's characters are UTF-16 units: two escapes may make one character.
    return unescaped.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
