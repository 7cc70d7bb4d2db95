"""The mirror in a broker.yaml, checked before the broker runs it in a process of its own."""

from hermes.config import BrokerConfig
from hermes.errors import ConfigError
from hermes.mirror.pipeline import Mirror


def check_embedded_mirror(config: BrokerConfig, source: str) -> None:
    """Refuse a mirror that its own process would refuse.

    Args:
        config: a broker's settings, with or without a mirror.
        source: the file's name, for the error.

    Raises:
        ConfigError: it can't be run.
    """
    if config.mirror is None:
        return
    try:
        Mirror(config.mirror.config)
    except ConfigError as error:
        raise ConfigError("mirror", str(error), source=source) from None
