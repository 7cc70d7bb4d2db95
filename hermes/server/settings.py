"""The settings that are in force: one object for all parts of a broker, replaced while it runs.

Parts read a setting when they need it; those that derive something from it observe changes.
"""

from collections.abc import Callable

from hermes.config.broker import BrokerConfig
from hermes.config.loading import parse_topic_settings
from hermes.config.topic import TopicConfig
from hermes.errors import ConfigError
from hermes.plugins import PluginMakers
from hermes.storage import TopicEntries


class Settings:
    """What one broker runs with. Lives in the reactor's thread; any thread may read `config`.

    Attributes:
        config: all settings, those of single topics included; replaced, never changed.
        entries: what was set for single topics, as texts.
        policy_makers: the retention plugins found since the last change.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.entries: TopicEntries = {}
        self.policy_makers: PluginMakers = {}
        self._observers: list[Callable[[], None]] = []
        self._topic_observers: list[Callable[[str], None]] = []

    def on_change(self, observer: Callable[[], None]) -> None:
        self._observers.append(observer)

    def on_topic_change(self, observer: Callable[[str], None]) -> None:
        self._topic_observers.append(observer)

    def use(self, config: BrokerConfig) -> None:
        """Use other settings; `notify_topic` follows for the topics that they concern."""
        self.config = config
        self.policy_makers = {}
        for observer in self._observers:
            observer()

    def notify_topic(self, topic: str) -> None:
        for observer in self._topic_observers:
            observer(topic)


def parsed_entries(entries: TopicEntries) -> dict[str, TopicConfig]:
    """Read topics' settings. Raises ConfigError: a later Hermes may have written one."""
    altered = {}
    for topic, texts in entries.items():
        try:
            altered[topic] = parse_topic_settings(texts)
        except ConfigError as error:
            raise ConfigError(f"{topic}.{error.key}", error.message) from None
    return altered
