"""Logs who changed what from the console: one line for each change."""

import logging
from typing import Final

from hermes.console.asking import PageRequest
from hermes.quoting import printable, quoted

#: The logger that these lines are of.
DEEDS_LOGGER: Final = __name__

_log = logging.getLogger(DEEDS_LOGGER)

_MOST_SHOWN: Final = 2000


def note_deed(ask: PageRequest, what: str) -> None:
    """Log a change, such as `deleted topic 'clicks'`; names in it are quoted."""
    place = f" at {ask.client}" if ask.client else ""
    who = quoted(ask.viewer.principal)
    _log.info("console: %s%s %s", who, place, printable(what, _MOST_SHOWN))
