"""Events on their way into the topic: queued by writers, sent in batches, found again in the topic.

Threads may share it; the thread of the topic sends and settles.
"""

import secrets
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

from hermes.registry.errors import FAILED, RegistryError, unavailable
from hermes.registry.events import Event, event_to_json
from hermes.registry.log_records import LogRecord, encode_record
from hermes.registry.replica import ReplicaPosition

_BATCH_EVENTS: Final = 256
_BATCH_BYTES: Final = 900_000
# What a record and a message have beside the event, generously.
_ENVELOPE_BYTES: Final = 300


class _Queued(NamedTuple):
    event: dict[str, Any]
    size: int
    done: "Future[None]"


class AppendQueue:
    """The events of one writer after the other; only the latest writer's are taken.

    `changed`: notified when there is something to send. `max_message_bytes`: what the home takes as
    one message.
    """

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._queue: deque[_Queued] = deque()
        self._outstanding: dict[str, Future[None]] = {}  # by the record's id
        self._generation = 0  # of the latest writer
        self._token, self._numbers = secrets.token_hex(8), count(1)
        self.max_message_bytes = 1_000_000

    @property
    def are_queued(self) -> bool:
        return bool(self._queue)

    @property
    def are_outstanding(self) -> bool:
        return bool(self._outstanding)

    def for_new_writer(self) -> "Callable[[Event], Future[None]]":
        """The `append` of a new writer; that of the one before takes nothing more."""
        with self._changed:
            self._generation += 1
            return partial(self._enqueue, self._generation)

    def _enqueue(self, generation: int, event: Event) -> "Future[None]":
        value, done = event_to_json(event), Future[None]()
        size = len(encode_record(LogRecord(1, "", "", value))) + _ENVELOPE_BYTES
        with self._changed:
            is_stale = generation != self._generation
            if not is_stale and size <= self.max_message_bytes:
                self._queue.append(_Queued(value, size, done))
                self._changed.notify_all()
                return done
            if not is_stale:  # that writer's further decisions follow one that never comes
                self._generation += 1
        if is_stale:
            done.set_exception(unavailable("this registry does not lead any more; try again"))
        else:
            done.set_exception(
                RegistryError(
                    FAILED,
                    "the schema does not fit into a message of the registry's home: its "
                    f"max_message_bytes is {self.max_message_bytes}",
                )
            )
        return done

    def next_batch(self, mark: ReplicaPosition) -> list[bytes]:
        """Take the payloads to send next: outstanding now. The first was decided on `mark`."""
        payloads: list[bytes] = []
        after, number, size = mark.last_id, mark.events, 0
        with self._changed:
            while self._queue and len(payloads) < _BATCH_EVENTS:
                if payloads and size + self._queue[0].size > _BATCH_BYTES:
                    break
                queued = self._queue.popleft()
                own, number = f"{self._token}-{next(self._numbers)}", number + 1
                payloads.append(encode_record(LogRecord(number, after, own, queued.event)))
                self._outstanding[own] = queued.done
                after, size = own, size + queued.size
        return payloads

    def settle(self, record_id: str) -> bool:
        """A record is in the topic, and valid; returns whether it is one of these."""
        done = self._outstanding.pop(record_id, None)
        if done is None:
            return False
        done.set_result(None)
        return True

    def give_up(self, error: RegistryError) -> None:
        """Fail everything under way, and what the latest writer still decides."""
        with self._changed:
            self._generation += 1
            waiting = [*self._outstanding.values(), *(queued.done for queued in self._queue)]
            self._outstanding.clear()
            self._queue.clear()
        for done in waiting:
            done.set_exception(error)


def dropped(reason: str) -> RegistryError:
    """The error of events of which it isn't known whether they count, or known that they don't."""
    return unavailable(f"{reason}; ask again: registering a schema twice gives the same id")
