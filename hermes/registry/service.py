"""Answers calls: finds the route, asks the store, and makes an answer of what comes back."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from hermes.quoting import quoted
from hermes.registry.asking import Answer, Ask, answer_of, answer_of_error
from hermes.registry.calls import Call
from hermes.registry.errors import RegistryError
from hermes.registry.registering import RegisterSchema
from hermes.registry.routes import ROUTES, Raw, Route
from hermes.registry.store import Store, finished
from hermes.registry.writer import Change

#: Where a registry tells who leads, and how far it is: Hermes' own call.
DESCRIPTION = ("hermes",)

_NOT_FOUND = 404


class RegistryService:
    """Answers calls from a store. Thread-safe.

    Args:
        store: what the answers stand on.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def answer(self, ask: Ask) -> "Future[Answer]":
        """Answer a call; what takes longer than a moment is waited for by the future.

        Returns:
            Fires with the answer, refusals included; with an exception only for a fault of ours.
        """
        try:
            return self._route(ask)
        except RegistryError as error:
            return finished(answer_of_error(error))

    def _route(self, ask: Ask) -> "Future[Answer]":
        if (ask.method, ask.path) == ("GET", DESCRIPTION):
            return finished(answer_of(self._store.describe()))
        route, parts = _find(ask)
        call = Call(ask, parts)
        if route.change is not None:
            change = route.change(call)
            self._read_ahead(change)
            return _refusals(self._store.write(change, ask))
        return self._read(lambda: self._look(route, call))

    def _look(self, route: Route, call: Call) -> Answer:
        try:
            if route.study is not None:
                study = route.study(call)
                with self._store.reading() as state:
                    state = state.excerpt(study.subject, study.draft.references)
                return answer_of(study.answer(state))
            assert route.read is not None
            with self._store.reading() as state:
                found = route.read(state, call)
            return Answer(200, found.text.encode()) if isinstance(found, Raw) else answer_of(found)
        except RegistryError as error:
            return answer_of_error(error)

    def _read(self, look: Callable[[], Answer]) -> "Future[Answer]":
        """Answer from what is here; look once more if others have written what isn't here yet."""
        answer = look()
        if answer.status != _NOT_FOUND:
            return finished(answer)
        answered: Future[Answer] = Future()

        def again(refreshed: "Future[bool]") -> None:
            try:
                is_newer = refreshed.exception() is None and refreshed.result()
                answered.set_result(look() if is_newer else answer)
            except Exception as error:
                answered.set_exception(error)

        self._store.refresh().add_done_callback(again)
        return answered

    def _read_ahead(self, change: Change) -> None:
        """Read and compare what a change brings, so that the writer finds that done.

        The writer takes one change at a time. What it finds may differ: it decides, not this.
        """
        if isinstance(change, RegisterSchema):
            with contextlib.suppress(RegistryError):
                with self._store.reading() as state:
                    state = state.excerpt(change.subject, change.draft.references)
                change.decide(state)


def kind_of(ask: Ask) -> str:
    """What metrics count a call as: one of a few words."""
    for route in ROUTES:
        if route.method == ask.method and route.parts(ask.path) is not None:
            return route.kind
    return "other"


def changes(ask: Ask) -> bool:
    """Whether a call may alter the state."""
    return any(
        route.change is not None and route.method == ask.method
        for route in ROUTES
        if route.parts(ask.path) is not None
    )


def _find(ask: Ask) -> tuple[Route, tuple[str, ...]]:
    others = []
    for route in ROUTES:
        parts = route.parts(ask.path)
        if parts is not None:
            if route.method == ask.method:
                return route, parts
            others.append(route.method)
    if others:
        known = ", ".join(others)
        raise RegistryError(405, f"HTTP 405 Method Not Allowed: this path understands {known}")
    shown = "/" + "/".join(ask.path)
    raise RegistryError(_NOT_FOUND, f"HTTP 404 Not Found: nothing is served at {quoted(shown)}")


def _refusals(written: "Future[Answer]") -> "Future[Answer]":
    """A RegistryError becomes its answer."""
    answered: Future[Answer] = Future()

    def done(written: "Future[Answer]") -> None:
        error: Any = written.exception()
        if error is None:
            answered.set_result(written.result())
        elif isinstance(error, RegistryError):
            answered.set_result(answer_of_error(error))
        else:
            answered.set_exception(error)

    written.add_done_callback(done)
    return answered
