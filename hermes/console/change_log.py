"""Logs who changed what from the console: one line for each change, and each that failed."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hermes.console.page_request import InputError, PageRequest
from hermes.errors import HermesError
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


@contextmanager
def failures_logged(request: PageRequest, what: str) -> Iterator[None]:
    """Log that a change failed, such as `delete topic 'clicks'`: a part may be done, or all of it.

    An InputError isn't logged: nothing was begun.
    """
    try:
        yield
    except InputError:
        raise
    except HermesError as error:
        why = printable(str(error), _MOST_SHOWN // 4)
        log_change(request, f"failed ({why}), at least in part, to {what}")
        raise
