"""Messages that are gone before they were read: an error, unless `failOnDataLoss` is false."""

import logging
from typing import Final

from hermes.errors import DataLossError

__all__ = ["data_lost"]

_ADVICE: Final = (
    "; start from an offset that is there, or set failOnDataLoss to false to go on with what is "
    "left"
)


def data_lost(log: logging.Logger, text: str, fail: bool, advice: str = _ADVICE) -> None:
    """Say that messages are gone.

    Args:
        log: of the module that noticed it, for a warning.
        text: what is gone, of which partition.
        fail: the option `failOnDataLoss`.
        advice: what follows the text in an error: what to change. Begins with its punctuation.

    Raises:
        DataLossError: that is to be an error.
    """
    if fail:
        raise DataLossError(text + advice)
    log.warning("data loss: %s", text)
