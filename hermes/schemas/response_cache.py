"""A cache of immutable responses; concurrent requests for the same are sent once."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from hermes.errors import RegistryUnavailableError

_T = TypeVar("_T")

#: How many answers are kept; the oldest are asked for again.
_MOST_KEPT: Final = 10_000


class ResponseCache:
    """Responses by their keys. Any number of threads may use it, and forked processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[object, Future[Any]] = {}
        self._process = os.getpid()

    def get(self, key: object, ask: Callable[[], _T]) -> _T:
        """The response for a key, requested unless it is cached; a failure isn't kept."""
        if self._process != os.getpid():
            self._forget_other_threads()
        with self._lock:
            future = self._answers.get(key)
            is_first = future is None
            if future is None:
                if len(self._answers) >= _MOST_KEPT:
                    del self._answers[next(iter(self._answers))]
                future = self._answers[key] = Future()
        if is_first:
            try:
                future.set_result(ask())
            except BaseException as error:
                with self._lock:
                    if self._answers.get(key) is future:
                        del self._answers[key]
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
        answers = {key: each for key, each in self._answers.items() if each.done()}
        self._process, self._lock, self._answers = os.getpid(), threading.Lock(), answers
