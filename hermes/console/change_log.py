"""Logs who changed what from the console: one line for each change."""

import logging
from typing import Final

from hermes.console.page_request import PageRequest
from hermes.quoting import printable, quoted

#: The logger that these lines are of.
CHANGES_LOGGER: Final = __name__

_log = logging.getLogger(CHANGES_LOGGER)

_MOST_SHOWN: Final = 2000


def log_change(request: PageRequest, what: str) -> None:
    """Log a change, such as `deleted topic 'clicks'`; names in it are quoted."""
    place = f" at {request.client}" if request.client else ""
    who = quoted(request.viewer.principal)
    _log.info("console: %s%s %s", who, place, printable(what, _MOST_SHOWN))
