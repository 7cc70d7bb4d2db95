"""Errors as users of Spark need them: what is wrong, not where in Hermes it was noticed.

Spark shows an error of a Python source with all of its traceback, and what is wrong comes last. A
`HermesError` says in its own words what to do; so it leaves without its way through Hermes, which
is logged at the level debug. Errors that nobody expected keep theirs.
"""

import logging
import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from hermes.errors import HermesError

_log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_R = TypeVar("_R")


def plain_errors(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate what Spark calls; if it returns an iterator, what that raises is covered, too."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            result = function(*args, **kwargs)
        except HermesError as error:
            raise _plain(error) from None
        made: Any = _plainly(result) if isinstance(result, Iterator) else result
        return made  # type: ignore[no-any-return]

    return call


def _plainly(items: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from items
    except HermesError as error:
        raise _plain(error) from None


def _plain(error: HermesError) -> HermesError:
    _log.debug("Spark is told of this error", exc_info=error)
    if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
        # What Spark's setting to hide tracebacks does, so that the text is all that is shown. This
        # process reports one error and ends: no other error loses its way by it.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
    return error.with_traceback(None)
