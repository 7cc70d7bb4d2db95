"""Lists the settings in force, as texts, and where each comes from."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from hermes.config.broker import BROKER_SETTINGS, BrokerConfig
from hermes.config.setting import Setting
from hermes.config.topic import DEFAULT_OF, SCHEMAS_TOPIC, TOPIC_ONLY, TOPIC_SETTINGS

DEFAULT: Final = "default"
FILE: Final = "broker.yaml"
TOPIC_ENTRY: Final = "broker.yaml, topics"
ALTERED: Final = "altered"
ALWAYS: Final = "always"
CREATION: Final = "creation"


class OriginatedSetting(NamedTuple):
    """A setting in force.

    `origin`: `DEFAULT`, `FILE`, `TOPIC_ENTRY` (its topic's own, there), `ALTERED`, `ALWAYS` where
    nothing else is possible, or `CREATION` of the format that a topic has kept.
    """

    name: str
    value: str
    origin: str
    is_live: bool


def settings_in_force(
    config: BrokerConfig, topic: str = "", log_format: str = ""
) -> Iterator[OriginatedSetting]:
    """The settings of the broker, or of a topic if one is given, in the reference's order.

    `log_format`: the one that the topic has.
    """
    if not topic:
        for name, setting in BROKER_SETTINGS.items():
            value = getattr(config, setting.attribute)
            origin = _origin(config, setting)
            yield OriginatedSetting(name, setting.kind.show(value), origin, setting.is_live)
        return
    settings = config.topic(topic)
    for name, setting in TOPIC_SETTINGS.items():
        shown = setting.kind.show(getattr(settings, setting.attribute))
        origin = _topic_origin(config, topic, setting)
        if name == "format" and log_format not in ("", settings.format):
            shown, origin = setting.kind.show(log_format), CREATION
        yield OriginatedSetting(name, shown, origin, True)


def _topic_origin(config: BrokerConfig, topic: str, setting: Setting) -> str:
    if topic == SCHEMAS_TOPIC and setting.key.startswith("retention"):
        return ALWAYS
    for entries, origin in ((config.altered, ALTERED), (config.topics, TOPIC_ENTRY)):
        if topic in entries and setting.attribute in entries[topic].given():
            return origin
    if setting.attribute in TOPIC_ONLY:
        return DEFAULT
    return _origin(config, BROKER_SETTINGS[DEFAULT_OF.get(setting.key, setting.key)])


def _origin(config: BrokerConfig, setting: Setting) -> str:
    # A configuration that was made by a program may have values that no file gave.
    is_given = setting.attribute in config.given or setting.required
    return FILE if is_given or getattr(config, setting.attribute) != setting.default else DEFAULT
