"""What a thread opens for a coroutine that may be cancelled before it has it."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Opening(Generic[T]):
    """Makes something in a thread; if nobody waits for it any more, it is ended again.

    Args:
        make: blocks until there is something.
        end: ends it; blocks as well.
    """

    def __init__(self, make: Callable[[], T], end: Callable[[T], object]) -> None:
        self._make = make
        self._end = end
        self._lock = threading.Lock()
        self._opened: T | None = None
        self._is_given_up = False

    def open(self) -> T:
        """To be called in a thread, once."""
        made = self._make()
        with self._lock:
            self._opened, is_given_up = made, self._is_given_up
        if is_given_up:
            self._end(made)
        return made

    def give_up(self) -> None:
        """Have it ended, whether it is there already or comes later; doesn't wait."""
        with self._lock:
            self._is_given_up, opened = True, self._opened
        if opened is not None:
            threading.Thread(target=self._end, args=(opened,), name="hermes-leaving").start()
