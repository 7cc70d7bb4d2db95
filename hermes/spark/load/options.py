"""What a user may say to a load: those options of the source that mean something here."""

from collections.abc import Mapping
from typing import Final

from hermes.spark.options import SOURCE_OPTIONS, SourceOptions, parse_options

__all__ = ["LOAD_OPTIONS", "parse_load_options"]

_NAMES: Final = (
    "hermes.bootstrap.servers",
    "hermes.zookeeper",
    "subscribe",
    "subscribePattern",
    "assign",
    "minPartitions",
    "failOnDataLoss",
    "groupId",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxFetchBytes",
)

#: The options of a load.
LOAD_OPTIONS: Final = tuple(each for each in SOURCE_OPTIONS if each.name in _NAMES)

_GOES_ON: Final = "a load goes on where the last one into its target ended, and ends at the latest"
_HINTS: Final = {
    "startingoffsets": _GOES_ON,
    "startingtimestamp": _GOES_ON,
    "endingoffsets": _GOES_ON,
    "endingtimestamp": _GOES_ON,
    "includetimestamp": "what is loaded always has the column timestamp",
}


def parse_load_options(given: Mapping[str, str]) -> SourceOptions:
    """Read the options of a load.

    Args:
        given: names, in any case, and texts.

    Raises:
        ConfigError: an option is unknown, wrong or missing, or two exclude each other.
    """
    texts = {name: str(text) for name, text in given.items()}
    parse_options(texts, LOAD_OPTIONS, None, _HINTS)
    return SourceOptions.parse(texts, None)
