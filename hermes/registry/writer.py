"""Decides the changes of the process that leads, ahead of what its log has made durable.

A flush takes longer than a decision, so decisions don't wait for it: the writer's own state is
ahead, and each caller gets its result once its event and all before it are durable. So a hundred
callers share a few flushes.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from hermes.registry.errors import RegistryError, unavailable
from hermes.registry.events import Event
from hermes.registry.state import RegistryState


@dataclass(frozen=True, slots=True)
class MutationResult:
    """`event`: to be written; None if nothing changes.

    `answer`: for the caller, as JSON can have it; None for an empty response.
    """

    event: Event | None
    answer: Any


class Mutation(Protocol):
    def decide(self, state: RegistryState) -> MutationResult:
        """Decide the call in a state, which isn't changed; may be called again (RegistryError)."""


class Writer:
    """Decides one change at a time. Thread-safe.

    Args:
        state: where it begins, caught up with the log; the writer's own from now on.
        append: called in the order of the decisions, one at a time; must not block. What it
            returns fires when the event is durable and readers see it, or with a RegistryError.

    Attributes:
        failed: whether an event couldn't be made durable. What follows was decided on a state that
            never came to be, so it decides nothing more: read the log to its end, and make another.
    """

    def __init__(self, state: RegistryState, append: Callable[[Event], "Future[None]"]) -> None:
        self._state = state
        self._append = append
        self._lock = threading.Lock()
        self._last: Future[None] = Future()  # of the latest event
        self._last.set_result(None)
        self.failed = False

    def write(self, change: Mutation) -> "Future[Any]":
        """Fires with the answer once everything that it was decided upon is durable.

        Or with a RegistryError: the call is refused, or (50003) its outcome isn't known.
        """
        answered: Future[Any] = Future()
        refusal: RegistryError | None = None
        answer: Any = None
        try:
            with self._lock:
                if self.failed:
                    raise _lost()
                try:
                    decision = change.decide(self._state)
                except RegistryError as error:
                    refusal = error  # also decided upon what isn't durable yet
                else:
                    answer = decision.answer
                    if decision.event is not None:
                        self._record(decision.event)
                last = self._last
        except Exception as error:
            answered.set_exception(error)
            return answered

        def done(last: "Future[None]") -> None:
            # Events become durable in order: if this one is, all before it are.
            error = last.exception()
            if error is not None:
                self.failed = True
                answered.set_exception(error if isinstance(error, RegistryError) else _lost())
            elif refusal is not None:
                answered.set_exception(refusal)
            else:
                answered.set_result(answer)

        last.add_done_callback(done)
        return answered

    def _record(self, event: Event) -> None:
        try:
            self._state.apply(event)
            self._last = self._append(event)
        except BaseException:
            self.failed = True  # the state may be ahead of a log that will never follow
            raise


def _lost() -> RegistryError:
    return unavailable(
        "the registry could not write to its log; what became of the call is not known: "
        "ask again, registering a schema twice gives the same id"
    )
