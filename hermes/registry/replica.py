"""A copy of the registry's state and how far in the topic it is: message by message, by one rule.

Every copy that has read up to the same offset is in the same state. One thread feeds it, any number
read; knows no topic and no file.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hermes.errors import HermesError
from hermes.quoting import quoted
from hermes.registry.events import event_from_json
from hermes.registry.log_records import LogRecord, decode_record
from hermes.registry.state import RegistryState


class UnreadableEventError(HermesError):
    """A valid record's event isn't understood here; nothing after it can be read either."""


@dataclass(frozen=True, slots=True)
class ReplicaPosition:
    """How far a copy is.

    Attributes:
        position: the offset in the topic up to which it has read.
        events: how many valid records there were.
        last_id: the id of the last of them; "" for none.
        last_offset: where that one starts; -1 for none.
    """

    position: int = 0
    events: int = 0
    last_id: str = ""
    last_offset: int = -1


class Replica:
    """The state as of a mark; `void` counts void messages since it was made."""

    def __init__(self) -> None:
        self.mark = ReplicaPosition()
        self.void = 0
        self._state = RegistryState()
        self._lock = threading.Lock()

    @contextmanager
    def reading(self) -> Iterator[RegistryState]:
        """The state, which doesn't change meanwhile; for short looks only, and nothing to keep."""
        with self._lock:
            yield self._state

    def copy(self) -> RegistryState:
        with self._lock:
            return self._state.copy()

    def read_message(self, offset: int, next_offset: int, payload: bytes) -> str | None:
        """Read the next message of the topic.

        Args:
            offset: where it starts; the replica's position, or behind it.

        Returns:
            The id of the record that was applied; None if it is void.

        Raises:
            UnreadableEventError: it is valid, and made by a newer Hermes or damaged; the copy stays
                before it.
        """
        mark, record = self.mark, decode_record(payload)
        if record is None or record.after != mark.last_id or record.number != mark.events + 1:
            self.void += 1
            self.mark = ReplicaPosition(next_offset, mark.events, mark.last_id, mark.last_offset)
            return None
        self._apply(record, offset)
        self.mark = ReplicaPosition(next_offset, record.number, record.id, offset)
        return record.id

    def _apply(self, record: LogRecord, offset: int) -> None:
        try:
            event = event_from_json(record.event)
            with self._lock:
                self._state.apply(event)
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableEventError(
                f"the event at offset {offset} can't be read ({quoted(str(error))}): a newer "
                "Hermes wrote it, or it is damaged"
            ) from error

    # -- snapshots ------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The mark and the state, for `restore`. For the thread that feeds it."""
        mark = self.mark
        return {
            "position": mark.position,
            "events": mark.events,
            "last_id": mark.last_id,
            "last_offset": mark.last_offset,
            "state": self.copy().to_json(),
        }

    def restore(self, value: dict[str, Any]) -> None:
        """Become what a copy's `to_json` wrote; ValueError, changing nothing, for the rest."""
        try:
            mark = ReplicaPosition(
                *(value[name] for name in ("position", "events", "last_id", "last_offset"))
            )
            state = RegistryState.from_json(value["state"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is not a registry's: {error!r:.200}") from error
        numbers = (mark.position, mark.events, mark.last_offset)
        if any(type(number) is not int for number in numbers) or not isinstance(mark.last_id, str):
            raise ValueError("it is not a registry's: a mark is a number, an id a text")
        with self._lock:
            self._state = state
        self.mark = mark
