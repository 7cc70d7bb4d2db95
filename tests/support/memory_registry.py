"""A registry's store that lasts as long as the process."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from hermes.registry.events import Event
from hermes.registry.rest_messages import RestRequest, RestResponse, json_response
from hermes.registry.state import RegistryState
from hermes.registry.store import finished, then
from hermes.registry.writer import Mutation, Writer


class MemoryRegistry:
    """Its state at the start is `state`, which is its own from now on."""

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
        return then(self._writer.write(change), lambda written: json_response(written.result()))

    def refresh(self) -> "Future[bool]":
        return finished(False)

    def describe(self) -> dict[str, Any]:
        return {"kept": "in memory", "leads": True, "lastId": self._state.last_id}

    def close(self) -> None:
        """See `RegistryStore`."""
