"""A thread per broker of the target: entries in, requests out, several at a time.

Entries of one claim for one partition stay in order. When one fails, its claim starts anew, and
those behind it, in the queue or on their way, are void.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from hermes.errors import (
    BrokerError,
    HermesError,
    InvalidMessageBrokerError,
    MessageTooLargeBrokerError,
)
from hermes.mirror.figures import Problems
from hermes.mirror.links import AppendBatch, Link, Outcome
from hermes.mirror.source_claim import TargetAppend

# Of one request: enough for the price of a flush, little enough for the memory of both sides.
_REQUEST_BYTES: Final = 2 << 20
_REQUEST_BATCHES: Final = 64
# Small entries are joined: each batch is a record of the target's positions.
_BATCH_BYTES: Final = 256 << 10


class TargetSender:
    """Sends to one broker, to which `open_link` connects in its thread, also after failures."""

    def __init__(self, what: str, open_link: Callable[[], Link], problems: Problems) -> None:
        self._what = what
        self._open_link = open_link
        self._problems = problems
        self._changed = threading.Condition()
        self._queue: deque[TargetAppend] = deque()
        self._in_flight: deque[list[AppendBatch]] = deque()
        self._link: Link | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=f"hermes-{what}", daemon=True)
        self._thread.start()

    def put(self, entry: TargetAppend) -> None:
        """Have it sent; its claim starts anew if another sender has taken this one's place."""
        with self._changed:
            is_stopped = self._is_stopped
            if not is_stopped:
                self._queue.append(entry)
                self._changed.notify()
        if is_stopped:
            entry.claim.restart(entry.epoch, None)

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
            link = self._link
        if link is not None:
            link.close()
        self._thread.join()
        self._problems.forget(self._what)
        unsent = [
            each for batches in self._in_flight for batch in batches for each in batch.entries
        ]
        for entry in (*unsent, *self._queue):
            entry.claim.restart(entry.epoch, None)

    # -- inside ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopped:
            try:
                self._step()
            except Exception as error:
                if not self._is_stopped:
                    self._give_up(error)
        if self._link is not None:
            self._link.close()

    def _step(self) -> None:
        most = 1 if self._link is None else self._link.most_in_flight
        with self._changed:
            if not self._in_flight and not self._queue:
                self._changed.wait_for(lambda: self._queue or self._is_stopped)
            batches = self._next_request() if len(self._in_flight) < most else []
        if batches:
            self._in_flight.append(batches)
            if self._link is None:
                link = self._open_link()
                with self._changed:
                    self._link = link
            self._link.begin(batches)
        elif self._in_flight and self._link is not None:
            outcomes = self._link.finish()
            self._settle(self._in_flight[0], outcomes)
            self._in_flight.popleft()  # not before: a failure concerns all that is on its way
            self._problems.end(self._what)

    def _next_request(self) -> list[AppendBatch]:
        """Take entries from the queue, with its lock held."""
        collected: list[list[TargetAppend]] = []
        last: dict[tuple[str, int], list[TargetAppend]] = {}
        total = 0
        while self._queue and len(collected) < _REQUEST_BATCHES and total < _REQUEST_BYTES:
            entry = self._queue.popleft()
            if not entry.is_wanted():
                continue
            total += len(entry.data)
            place = (entry.topic, entry.target.partition)
            before = last.get(place)
            if before is not None and _is_joined(before, entry):
                before.append(entry)
            else:
                last[place] = [entry]
                collected.append(last[place])
        return [_batch(each) for each in collected]

    def _settle(self, batches: Sequence[AppendBatch], outcomes: Sequence[Outcome]) -> None:
        for batch, (error, was_there) in zip(batches, outcomes, strict=True):
            claim, epoch = batch.entries[0].claim, batch.entries[0].epoch
            if error is None:
                for entry in batch.entries:
                    claim.done(entry, was_there=was_there)
            elif isinstance(error, InvalidMessageBrokerError | MessageTooLargeBrokerError):
                claim.refused(batch.entries, error)
            else:
                claim.restart(epoch, error)

    def _give_up(self, error: Exception) -> None:
        """The connection failed: nobody knows what of what was sent is stored."""
        known = error if isinstance(error, HermesError) else BrokerError(repr(error))
        self._problems.begin(self._what, str(known))
        with self._changed:
            link, self._link = self._link, None
        if link is not None:
            link.close()
        lost, self._in_flight = self._in_flight, deque()
        for batches in lost:
            for batch in batches:
                batch.entries[0].claim.restart(batch.entries[0].epoch, known)


def _is_joined(before: Sequence[TargetAppend], entry: TargetAppend) -> bool:
    last = before[-1]
    return bool(
        last.claim is entry.claim
        and last.epoch == entry.epoch
        and last.is_verbatim
        and entry.is_verbatim
        and last.end == entry.begin
        and entry.end - before[0].begin <= _BATCH_BYTES
        and not entry.claim.is_suspect(entry.begin)
        # Kafka takes record batches one by one, and says of each whether it has it.
        and (entry.source or not entry.claim.holds_records)
    )


def _batch(entries: Sequence[TargetAppend]) -> AppendBatch:
    first, last = entries[0], entries[-1]
    data = bytes(first.data) if first is last else b"".join([each.data for each in entries])
    return AppendBatch(entries, first.begin, last.end, data, first.is_verbatim)
