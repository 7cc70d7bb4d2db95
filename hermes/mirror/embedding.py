"""The mirror in a broker.yaml, checked before the broker runs it in a process of its own."""

from hermes.config.broker import BrokerConfig
from hermes.errors import ConfigError
from hermes.mirror.pipeline import Mirror


def check_embedded_mirror(config: BrokerConfig, source: str) -> None:
    """Raise ConfigError, with the file's name, for a mirror that its own process would refuse."""
    if config.mirror is None:
        return
    try:
        Mirror(config.mirror.config)
    except ConfigError as error:
        raise ConfigError("mirror", str(error), source=source) from None
