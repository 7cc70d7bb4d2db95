"""What a registry's responses are made from: a state to read, and a way to change it durably."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

from hermes.registry.events import Event
from hermes.registry.rest_messages import RestRequest, RestResponse, json_response
from hermes.registry.state import RegistryState
from hermes.registry.writer import Mutation, Writer

T = TypeVar("T")


class RegistryStore(Protocol):
    """Keeps a registry. Thread-safe."""

    def reading(self) -> AbstractContextManager[RegistryState]:
        """The durable state, which doesn't change while this is held: for microseconds only.

        Raises:
            RegistryError: 50003, nothing has been read yet.
        """

    def write(self, change: Mutation, request: RestRequest) -> "Future[RestResponse]":
        """Change the state, here or where the leader is. Doesn't block.

        Args:
            change: decided here, if this process leads.
            request: what it came as, to be forwarded otherwise.

        Returns:
            Fires with the response, or with a RegistryError.
        """

    def refresh(self) -> "Future[bool]":
        """Read what others have written until now, for a moment at most.

        Returns:
            Fires with whether the state has changed: what was missing may exist now.
        """

    def describe(self) -> dict[str, Any]:
        """Who leads and how far the state is, for people; values that JSON can have."""

    def close(self) -> None:
        """Write nothing more."""


class MemoryStore:
    """A store that lasts as long as the process: for tests, and to try a registry out.

    Args:
        state: where it begins; its own from now on.
    """

    def __init__(self, state: RegistryState | None = None) -> None:
        self._state = state or RegistryState()
        self._lock = threading.Lock()
        self._writer = Writer(self._state.copy(), self._append)

    def _append(self, event: Event) -> "Future[None]":
        with self._lock:
            self._state.apply(event)
        return finished(None)

    @contextmanager
    def reading(self) -> Iterator[RegistryState]:
        with self._lock:
            yield self._state

    def write(self, change: Mutation, request: RestRequest) -> "Future[RestResponse]":
        return then(self._writer.write(change), json_response)

    def refresh(self) -> "Future[bool]":
        return finished(False)

    def describe(self) -> dict[str, Any]:
        return {"kept": "in memory", "leads": True, "lastId": self._state.last_id}

    def close(self) -> None:
        """See `RegistryStore`."""


def finished(result: T) -> "Future[T]":
    future: Future[T] = Future()
    future.set_result(result)
    return future


def then(future: "Future[Any]", made: Callable[[Any], T]) -> "Future[T]":
    """A future of what `made` makes of a future's result; an exception is passed on."""
    following: Future[T] = Future()

    def done(first: "Future[Any]") -> None:
        try:
            following.set_result(made(first.result()))
        except Exception as error:
            following.set_exception(error)

    future.add_done_callback(done)
    return following
