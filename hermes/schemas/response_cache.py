"""A cache of immutable responses; concurrent requests for the same are sent once."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from hermes.errors import RegistryUnavailableError

_T = TypeVar("_T")

#: How many responses are kept; the oldest are requested again.
_MOST_KEPT: Final = 10_000


class ResponseCache:
    """Responses by their keys. Any number of threads may use it, and forked processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._responses: dict[object, Future[Any]] = {}
        self._process = os.getpid()

    def get(self, key: object, request: Callable[[], _T]) -> _T:
        """The response for a key, requested unless it is cached; a failure isn't kept."""
        if self._process != os.getpid():
            self._forget_other_threads()
        with self._lock:
            future = self._responses.get(key)
            is_first = future is None
            if future is None:
                if len(self._responses) >= _MOST_KEPT:
                    del self._responses[next(iter(self._responses))]
                future = self._responses[key] = Future()
        if is_first:
            try:
                future.set_result(request())
            except BaseException as error:
                with self._lock:
                    if self._responses.get(key) is future:
                        del self._responses[key]
                is_interrupt = not isinstance(error, Exception)  # whose, is for this thread to say
                future.set_exception(
                    RegistryUnavailableError("the request was interrupted")
                    if is_interrupt
                    else error
                )
                raise
        found: _T = future.result()
        return found

    def _forget_other_threads(self) -> None:
        """In a forked process there are none: none will answer, or release the lock."""
        responses = {key: each for key, each in self._responses.items() if each.done()}
        self._process, self._lock, self._responses = os.getpid(), threading.Lock(), responses
