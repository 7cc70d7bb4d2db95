"""Answers calls: finds the route, calls the store, and makes a response of the result."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future

from hermes.quoting import quoted
from hermes.registry.call_parameters import CallParameters
from hermes.registry.errors import RegistryError
from hermes.registry.registration import RegisterSchema
from hermes.registry.rest_messages import RestRequest, RestResponse, error_response, json_response
from hermes.registry.routes import ROUTES, RawText, RestRoute
from hermes.registry.store import RegistryStore, finished, then
from hermes.registry.writer import Mutation

#: The path of Hermes' own call: who leads, and how far the state is.
DESCRIPTION = ("hermes",)

_NOT_FOUND = 404


class RegistryService:
    """Answers calls from a store. Thread-safe."""

    def __init__(self, store: RegistryStore) -> None:
        self._store = store

    def answer(self, request: RestRequest) -> "Future[RestResponse]":
        """Answer a call; the future waits for what takes longer than a moment.

        It fires with the response, refusals included; with an exception only for a fault of ours.
        """
        try:
            return self._route(request)
        except RegistryError as error:
            return finished(error_response(error))

    def _route(self, request: RestRequest) -> "Future[RestResponse]":
        if (request.method, request.path) == ("GET", DESCRIPTION):
            return finished(json_response(self._store.describe()))
        route, parts = _find(request)
        call = CallParameters(request, parts)
        if route.change is not None:
            change = route.change(call)
            self._read_ahead(change)
            return then(self._store.write(change, request), _response_to)
        return self._read(lambda: self._respond(route, call))

    def _respond(self, route: RestRoute, call: CallParameters) -> RestResponse:
        try:
            if route.study is not None:
                study = route.study(call)
                with self._store.reading() as state:
                    state = state.excerpt(study.subject, study.draft.references)
                return json_response(study.answer(state))
            assert route.read is not None
            with self._store.reading() as state:
                found = route.read(state, call)
            return (
                RestResponse(200, found.text.encode())
                if isinstance(found, RawText)
                else json_response(found)
            )
        except RegistryError as error:
            return error_response(error)

    def _read(self, look: Callable[[], RestResponse]) -> "Future[RestResponse]":
        """Answer from the state; look again if others have written what is missing here."""
        answer = look()
        if answer.status != _NOT_FOUND:
            return finished(answer)

        def again(refreshed: "Future[bool]") -> RestResponse:
            is_newer = refreshed.exception() is None and refreshed.result()
            return look() if is_newer else answer

        return then(self._store.refresh(), again)

    def _read_ahead(self, change: Mutation) -> None:
        """Read and compare what a change brings, so that the writer finds that in the cache.

        The writer takes one change at a time. What it finds may differ: it decides, not this.
        """
        if isinstance(change, RegisterSchema):
            with contextlib.suppress(RegistryError):
                with self._store.reading() as state:
                    state = state.excerpt(change.subject, change.draft.references)
                change.decide(state)


def kind_of(request: RestRequest) -> str:
    for route in ROUTES:
        if route.method == request.method and route.parts(request.path) is not None:
            return route.kind
    return "other"


def changes(request: RestRequest) -> bool:
    return any(
        route.change is not None and route.method == request.method
        for route in ROUTES
        if route.parts(request.path) is not None
    )


def _find(request: RestRequest) -> tuple[RestRoute, tuple[str, ...]]:
    others = []
    for route in ROUTES:
        parts = route.parts(request.path)
        if parts is not None:
            if route.method == request.method:
                return route, parts
            others.append(route.method)
    if others:
        known = ", ".join(others)
        raise RegistryError(405, f"HTTP 405 Method Not Allowed: this path understands {known}")
    shown = "/" + "/".join(request.path)
    raise RegistryError(_NOT_FOUND, f"HTTP 404 Not Found: nothing is served at {quoted(shown)}")


def _response_to(written: "Future[RestResponse]") -> RestResponse:
    try:
        return written.result()
    except RegistryError as error:
        return error_response(error)
