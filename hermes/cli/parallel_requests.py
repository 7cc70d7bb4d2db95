"""Asks several machines in parallel, so that a silent one holds up none of the others."""

from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from threading import Thread
from typing import Any, Final, TypeVar

Key = TypeVar("Key", bound=Hashable)

_LEAST_PATIENCE_SECONDS: Final = 1.0


class ParallelRequests:
    """Asks each in a thread of its own; one that hasn't answered isn't asked again meanwhile.

    `patience_seconds`: how long to wait for an answer; at least a second.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience = max(patience_seconds, _LEAST_PATIENCE_SECONDS)
        self._open: dict[Hashable, Future[Any]] = {}

    def ask(
        self, questions: Mapping[Key, Callable[[], Any]], *, needs_one: bool
    ) -> dict[Key, Future[Any]]:
        """Ask, and wait.

        Args:
            questions: each must end in time by itself. It runs in a daemon thread; one still open
                from an earlier call stands for the new one.
            needs_one: whether to keep waiting while nobody has answered.
        """
        fresh = [key for key in questions if key not in self._open]
        for key in fresh:
            self._open[key] = Future()
            Thread(target=_answer, args=(self._open[key], questions[key]), daemon=True).start()
        wait([self._open[key] for key in fresh], self._patience)
        asked = {key: self._open[key] for key in questions}
        if needs_one:
            wait(asked.values(), return_when=FIRST_COMPLETED)
        return {key: self._open.pop(key) for key, each in asked.items() if each.done()}

    def is_open(self, key: Hashable) -> bool:
        return key in self._open and not self._open[key].done()


def _answer(future: "Future[Any]", question: Callable[[], Any]) -> None:
    try:
        answer = question()
    except BaseException as error:  # it is for whoever asks
        future.set_exception(error)
    else:
        future.set_result(answer)
