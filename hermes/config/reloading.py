"""What changes when broker.yaml is read again while a broker runs, and what can't.

Compares two configurations; knows neither files nor the broker.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from hermes.config.broker import BROKER_SETTINGS, BrokerConfig
from hermes.config.topic import TOPIC_SETTINGS

NEEDS_RESTART: Final = "it needs a restart"
_IS_ALTERED: Final = "`hermes topics` has set it; reset it there first"
_NEVER_FEWER: Final = "a topic never loses partitions"
_KEPT_FORMAT: Final = "a topic that exists keeps its format"
_LISTED, _NOT_LISTED = "listed", "not listed"


class SettingChange(NamedTuple):
    """A difference between what a broker runs with and what broker.yaml says now.

    Attributes:
        name: the setting's key; with dots for a topic's (`topics.clicks.retention_time`).
        left_because: why it stays as it was; empty if it has changed.
    """

    name: str
    before: str
    after: str
    left_because: str = ""


def reloaded(running: BrokerConfig, read: BrokerConfig) -> BrokerConfig:
    """What a broker runs with after a reload: what it can take over of what was read."""
    live = {setting.attribute for setting in BROKER_SETTINGS.values() if setting.is_live}
    if _closes(running, read):
        live.remove("access")
    return replace(
        running,
        **{attribute: getattr(read, attribute) for attribute in live},
        topics=read.topics,
        given=(running.given - live) | (read.given & live),
    )


def changes_between(running: BrokerConfig, read: BrokerConfig) -> Iterator[SettingChange]:
    """The differences, including those that can't be applied."""
    for name, setting in BROKER_SETTINGS.items():
        before, after = (getattr(config, setting.attribute) for config in (running, read))
        if before != after:
            show = setting.kind.show
            why = "" if setting.is_live else NEEDS_RESTART
            if name == "access" and _closes(running, read):
                why = NEEDS_RESTART
            yield SettingChange(name, show(before), show(after), why)
    for topic in sorted(running.topics.keys() | read.topics.keys()):
        if running.topics.get(topic) != read.topics.get(topic):
            yield from _changes_of_topic(topic, running, read)


def _closes(running: BrokerConfig, read: BrokerConfig) -> bool:
    """Whether the first rules would lock out the parts of the broker that are its own clients."""
    return not running.is_guarded and replace(running, access=read.access).is_guarded


def _changes_of_topic(
    topic: str, running: BrokerConfig, read: BrokerConfig
) -> Iterator[SettingChange]:
    was, entry = running.topics.get(topic), read.topics.get(topic)
    if was is None or entry is None:
        before, after = ((_NOT_LISTED, _LISTED)[each is not None] for each in (was, entry))
        yield SettingChange(f"topics.{topic}", before, after)
    altered = running.altered[topic].given() if topic in running.altered else {}
    # What broker.yaml means for the topic, whatever was set otherwise.
    old, new = (replace(config, altered={}).topic(topic) for config in (running, read))
    for name, setting in TOPIC_SETTINGS.items():
        before_value, after_value = (getattr(each, setting.attribute) for each in (old, new))
        if before_value == after_value:
            continue
        why = ""
        if setting.attribute in altered:
            why = _IS_ALTERED
        elif name == "partitions" and after_value < before_value:
            why = _NEVER_FEWER
        elif name == "format":
            why = _KEPT_FORMAT
        show = setting.kind.show
        yield SettingChange(f"topics.{topic}.{name}", show(before_value), show(after_value), why)
