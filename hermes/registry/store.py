"""What a registry's responses are made from: a state to read, and a way to change it durably."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from hermes.registry.rest_messages import RestRequest, RestResponse
from hermes.registry.state import RegistryState
from hermes.registry.writer import Mutation

T = TypeVar("T")
U = TypeVar("U")


class RegistryStore(Protocol):
    """Keeps a registry. Thread-safe."""

    def reading(self) -> AbstractContextManager[RegistryState]:
        """The durable state, which doesn't change while this is held: for microseconds only.

        Raises RegistryError 50003 while nothing has been read yet.
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

        Fires with whether the state has changed: what was missing may exist now.
        """

    def describe(self) -> dict[str, Any]:
        """Who leads and how far the state is, for people; values that JSON can have."""

    def close(self) -> None: ...


def finished(result: T) -> "Future[T]":
    future: Future[T] = Future()
    future.set_result(result)
    return future


def then(future: "Future[U]", made: Callable[["Future[U]"], T]) -> "Future[T]":
    """A future of what `made` makes of a future that is done, or of what it raises."""
    following: Future[T] = Future()

    def done(first: "Future[U]") -> None:
        try:
            following.set_result(made(first))
        except Exception as error:
            following.set_exception(error)

    future.add_done_callback(done)
    return following
