"""From broker.yaml to a checked `BrokerConfig`, or to one line that says what is wrong where."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hermes.config.broker import BROKER_SETTINGS, BrokerConfig
from hermes.config.contradictions import check_contradictions
from hermes.config.setting import (
    Setting,
    check_required,
    named_source,
    nearest_setting,
    parse_settings,
)
from hermes.config.topic import TOPIC_SETTINGS, TopicConfig
from hermes.config.yaml_text import read_yaml, read_yaml_file
from hermes.errors import ConfigError
from hermes.quoting import quoted

#: How long a single value may be.
_MAX_TEXT_LENGTH = 1000

#: How large a broker.yaml may be: ten thousand topics with all settings take a sixth of it.
_MAX_FILE_BYTES = 16 << 20


def load_broker_config(path: str | Path) -> BrokerConfig:
    """Read and check a broker.yaml.

    Returns:
        A value for every setting. Relative paths in the file are resolved from its own directory,
        so that it means the same wherever the broker is started.

    Raises:
        ConfigError: the file can't be read or isn't YAML, or a setting is unknown, wrong or
            missing; one line that names the file, the key and what was expected.
    """
    source = str(path)
    config = parse_broker_config(read_yaml_file(path, _MAX_FILE_BYTES), source)
    base = Path(path).absolute().parent
    return replace(
        config,
        log_dir=base / config.log_dir,
        ready_file=config.ready_file and base / config.ready_file,
        console_password_file=config.console_password_file
        and str(base / config.console_password_file),
        listen=tuple(each.relative_to(base) for each in config.listen),
        http_listen=config.http_listen
        and tuple(each.relative_to(base) for each in config.http_listen),
        coordination_listen=config.coordination_listen.relative_to(base),
        connect_as=config.connect_as and config.connect_as.relative_to(base),
        replicate_as=config.replicate_as and config.replicate_as.relative_to(base),
        users_file=config.users_file and base / config.users_file,
        mirror=config.mirror and config.mirror.relative_to(base),
    )


def parse_broker_config(values: object, source: str = "") -> BrokerConfig:
    """Check settings that have been read already.

    Args:
        source: the file's name for messages; empty when there is none.

    Returns:
        A value for every setting; relative paths are left as they are.

    Raises:
        ConfigError: a setting is unknown, wrong or missing.
    """
    with named_source(source):
        if not isinstance(values, Mapping):
            raise ConfigError("", f"expected a mapping of settings, got {_brief(values)}")
        given = dict(values)
        topics = _parse_topics(given.pop("topics", None))
        parsed = _parse_settings(given, BROKER_SETTINGS, (), also_known=("topics",))
        check_required(parsed, BROKER_SETTINGS)
        config = BrokerConfig(**parsed, topics=topics, given=frozenset(parsed))
        check_contradictions(config)
    return config


def _parse_topics(value: object) -> dict[str, TopicConfig]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(
            "topics", f"expected a mapping of topic names to settings, got {_brief(value)}"
        )
    topics = {}
    for name, settings in value.items():
        if not isinstance(name, str) or not name:
            raise ConfigError("topics", f"expected a topic name, got {quoted(name)}")
        path = ("topics", name)
        if settings is None:
            settings = {}
        if not isinstance(settings, Mapping):
            raise ConfigError(
                ".".join(path), f"expected a mapping of settings, got {_brief(settings)}"
            )
        topics[name] = TopicConfig(**_parse_settings(settings, TOPIC_SETTINGS, path))
    return topics


def parse_topic_settings(texts: Mapping[str, str]) -> TopicConfig:
    """Parse a topic's settings given one by one, as texts as in broker.yaml. Raises ConfigError."""
    parsed: dict[str, Any] = {}
    for key, text in texts.items():  # one after the other: reading YAML takes long, and the first
        if len(text) > _MAX_TEXT_LENGTH:  # that is wrong is to be the last that is read
            raise ConfigError(key, f"its value has more than {_MAX_TEXT_LENGTH} characters")
        try:
            value = read_yaml(text.encode(), "") if key in TOPIC_SETTINGS else None
        except ConfigError as error:
            raise ConfigError(key, error.message) from None
        parsed |= _parse_settings({key: value}, TOPIC_SETTINGS, ())
    return TopicConfig(**parsed)


def _parse_settings(
    given: Mapping[Any, object],
    known: Mapping[str, Setting],
    path: tuple[str, ...],
    also_known: Iterable[str] = (),
) -> dict[str, Any]:
    return parse_settings(
        given, known, partial(_suggestion, known=known, also_known=also_known), path
    )


def _suggestion(
    key: str, value: object, known: Mapping[str, Setting], also_known: Iterable[str]
) -> str:
    """What an unknown key may have been meant to be; a pointer to the reference otherwise."""
    for setting in (*known.values(), *BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()):
        if key in setting.replaces:
            return f": that is Kafka 0.7's name for {setting.key} (see `hermes config import`)"
    nearest = nearest_setting(key, value, known, also_known)
    if nearest:
        return nearest
    if key in BROKER_SETTINGS:
        return ": it is a setting of the broker, not of a topic"
    if key in TOPIC_SETTINGS:
        return ": it is a setting of a topic (under topics), not of the broker"
    return " (docs/configuration.md lists them all)"


def _brief(value: object) -> str:
    if value is None:
        return "nothing"
    return "a list" if isinstance(value, list) else quoted(value)
