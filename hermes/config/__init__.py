"""Settings: what broker.yaml and mirror.yaml may hold, and the import of Kafka 0.7's properties.

`BrokerConfig` is the one table of a broker's settings; `load_broker_config` reads a file into it.
Imports neither Twisted nor the broker, so that tools can use it as well.
"""

from hermes.config.broker import BrokerConfig
from hermes.config.connect_as import ConnectAs
from hermes.config.files import read_regular_file
from hermes.config.listeners import ListenerConfig, TlsConfig
from hermes.config.loading import (
    load_broker_config,
    parse_broker_config,
    parse_topic_settings,
)
from hermes.config.mirror import (
    MIRROR_SETTINGS,
    MirrorClusterAddress,
    MirrorConfig,
    load_mirror_config,
    parse_mirror_config,
)
from hermes.config.origins import OriginatedSetting, settings_in_force
from hermes.config.properties import ImportedProperties, import_properties
from hermes.config.reloading import SettingChange, changes_between, reloaded
from hermes.config.topic import AUDIT_TOPIC, SCHEMAS_TOPIC, TopicConfig, TopicSettings
from hermes.config.units import format_duration, format_size, parse_duration, parse_size

__all__ = [
    "AUDIT_TOPIC",
    "MIRROR_SETTINGS",
    "SCHEMAS_TOPIC",
    "BrokerConfig",
    "ConnectAs",
    "ImportedProperties",
    "ListenerConfig",
    "MirrorClusterAddress",
    "MirrorConfig",
    "OriginatedSetting",
    "SettingChange",
    "TlsConfig",
    "TopicConfig",
    "TopicSettings",
    "changes_between",
    "format_duration",
    "format_size",
    "import_properties",
    "load_broker_config",
    "load_mirror_config",
    "parse_broker_config",
    "parse_duration",
    "parse_mirror_config",
    "parse_size",
    "parse_topic_settings",
    "read_regular_file",
    "reloaded",
    "settings_in_force",
]
