"""What a log knows of idempotent producers, so that it stores each of their batches once, in order.

A producer numbers the messages that it sends to a partition; a batch says its producer's id and
epoch, and its first message's number. Of each producer the log remembers the epoch, the last ten
batches, and where the messages before them lie:

    a batch that is among them     was stored before: it is answered with that place
    one that goes on from the last is appended
    any other                      is refused: something between is missing, or came late
    one of an older epoch          is refused: the producer has begun anew since

A producer that the log doesn't know (new, expired, or of too many) may begin with any number. One
expires a day after its newest message, or after it was heard of, whichever is later. Kafka goes by
messages only, and forgets who writes old ones within minutes.

Nothing here touches a file (`hermes.storage.producer_snapshots` does) or knows a clock.

A producer in a transaction isn't forgotten. What it sends ends nothing: a marker does
(`hermes.storage.transactions`). No batch of a transaction that has ended is answered as stored:
librdkafka (2.16) gives numbers that it has sent in vain in an aborted one to other messages, which
Kafka takes for repeated, and so loses.

Rules: Kafka 4 (`ProducerAppendInfo`, `ProducerStateEntry`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from hermes.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from hermes.protocol.record_batches import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from hermes.protocol.transaction_markers import Marker

#: How many batches of a producer are remembered one by one: Kafka's clients have up to five under
#: way to a leader that sleeps, and send more to the next one, by whose end none may be answered.
REMEMBERED_BATCHES: Final = 10

#: And how many rows of messages before them: there is a new one where another producer's messages
#: are between. The next leader may have had thousands when a sleeping one lets go of what it has.
#: Kafka remembers five batches and nothing else; then Java's producer repeats one that is stored
#: until it gives it up, and librdkafka tells its application offsets that begin with -1.
REMEMBERED_ROWS: Final = 4

#: After how long a producer is forgotten, as Kafka's `producer.id.expiration.ms`.
EXPIRATION_MS: Final = 24 * 60 * 60 * 1000

#: Of how many producers a log knows at most, those of long ago are forgotten first: 8 to 50 MB.
MOST_PRODUCERS: Final = 20_000

#: Of how many all logs of a broker know together, about: 80 to 500 MB.
MOST_OF_ALL: Final = 200_000

#: A log's states are captured after so many bytes: no more is read again after a crash.
CAPTURE_EVERY_BYTES: Final = 64 << 20

#: How often a log looks whether producers have expired.
_LOOK_EVERY_MS: Final = 10 * 60 * 1000

_LAST_SEQUENCE: Final = 2**31 - 1
_NO_SEQUENCE: Final = -1

#: So that all rows together have half of all numbers at most: each is of this turn of them.
_LONGEST_ROW: Final = (1 << 30) // REMEMBERED_ROWS


class StoredBatch(NamedTuple):
    """A batch that was appended.

    Attributes:
        last_sequence: the number that the producer has given its last message.
        offset_delta: how far that is from the batch's first one.
        timestamp_ms: the batch's largest timestamp.
    """

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """The number of its first message; 0 comes after 2^31 - 1."""
        return (self.last_sequence - self.offset_delta) & _LAST_SEQUENCE

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class StoredRow(NamedTuple):
    """Messages of one producer in a row, without any of others between them."""

    first_sequence: int
    first_offset: int
    length: int


class ProducerState(NamedTuple):
    """What is remembered of one producer.

    Attributes:
        batches: its last batches of that epoch, oldest first; none after a transaction's marker.
        last_timestamp_ms: the largest timestamp of the last batch, or when that was appended, if
            that was later and is known; ms since 1970.
        transaction_start: where its transaction begins here that hasn't ended; -1 for none.
        coordinator_epoch: of the coordinator that ended its last one; -1 if there was none.
        earlier: what came before those batches, oldest first, as far as that is known.
    """

    epoch: int
    batches: tuple[StoredBatch, ...]
    last_timestamp_ms: int
    transaction_start: int = -1
    coordinator_epoch: int = -1
    earlier: tuple[StoredRow, ...] = ()

    @property
    def last_sequence(self) -> int:
        """The last message's number; -1 when no batch is remembered."""
        return self.batches[-1].last_sequence if self.batches else _NO_SEQUENCE

    def duplicate_of(self, header: BatchHeader) -> StoredBatch | None:
        if header.producer_epoch == self.epoch:
            first, last = header.base_sequence, header.last_sequence
            for batch in self.batches:
                if batch.last_sequence == last and batch.first_sequence == first:
                    return batch
            delta = header.last_offset_delta
            for row in self.earlier:
                end = ((first - row.first_sequence) & _LAST_SEQUENCE) + delta
                if end < row.length:
                    return StoredBatch(last, row.first_offset + end, delta, header.max_timestamp_ms)
        return None


class Capture(NamedTuple):
    """The states by producer id, as they were where the log ended once."""

    offset: int
    states: Mapping[int, ProducerState]


class ProducerStates:
    """What one log knows of its producers.

    `check`, `note` and `capture` belong in the reactor's thread, as appends do; nothing is
    appended while `replace` is called. `take_captures` may be called in another thread.

    Args:
        name: the partition's, for errors.
        most: how many producers it knows at most.

    Attributes:
        captures: what `take_captures` may take.
        look_ms: from when on `expire` has something to look for.
    """

    def __init__(self, name: str, most: int = MOST_PRODUCERS) -> None:
        self._name = name
        self._most = most
        self._states: dict[int, ProducerState] = {}
        self.captures: list[Capture] = []
        self._uncaptured_bytes = 0
        self.look_ms = 0

    def __len__(self) -> int:
        return len(self._states)

    @property
    def states(self) -> Mapping[int, ProducerState]:
        """What is known of each producer, by its id; the longest silent first."""
        return self._states

    def check(self, headers: Sequence[BatchHeader], offset: int) -> StoredBatch | None:
        """Decide about batches that a client wants to append together, at an offset.

        Returns:
            The batch that one of them repeats: append nothing. None: append all, and `note` it.

        Raises:
            OutOfOrderSequenceError: a batch before it is missing, or it was part of a transaction
                that has ended.
            InvalidProducerEpochError: its producer has begun anew since.
            InvalidTransactionStateError: its producer is in a transaction, and the batch isn't.
        """
        pending: dict[int, ProducerState] = {}
        for header in headers:
            if header.producer_id < 0:
                continue
            known = self._states.get(header.producer_id)
            if known is not None:
                last = pending.get(header.producer_id, known) if pending else known
                follows = (
                    last.batches and header.base_sequence - last.batches[-1].last_sequence == 1
                )
                if not follows or header.producer_epoch != last.epoch:
                    duplicate = known.duplicate_of(header)
                    if duplicate is not None:
                        self._check_is_under_way(header, known, duplicate)
                        return duplicate
                    self._check_follows(header, last, offset)
                if last.transaction_start >= 0 and not header.attributes & TRANSACTIONAL_BIT:
                    raise InvalidTransactionStateError(
                        f"producer {header.producer_id} has a transaction in {self._name} that "
                        f"hasn't ended, and the batch is part of none"
                    )
            if len(headers) > 1:
                before = pending.get(header.producer_id, known)
                pending[header.producer_id] = _with(before, header, offset)
        return None

    def _check_follows(self, header: BatchHeader, last: ProducerState, offset: int) -> None:
        producer, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
        who = f"producer {producer} at offset {offset} of {self._name}"
        if epoch < last.epoch:
            raise InvalidProducerEpochError(
                f"{who}: its epoch is {epoch}, but there is one with epoch {last.epoch} already"
            )
        if epoch != last.epoch:
            if first != 0:
                raise OutOfOrderSequenceError(
                    f"{who}: its epoch {epoch} begins with sequence number {first}; "
                    f"the current epoch is {last.epoch}"
                )
        elif not _follows(last.last_sequence, first):
            raise OutOfOrderSequenceError(
                f"{who}: its sequence number is {first}, but the last one was {last.last_sequence}"
            )

    def _check_is_under_way(
        self, header: BatchHeader, known: ProducerState, duplicate: StoredBatch
    ) -> None:
        start = known.transaction_start
        has_ended = start < 0 or duplicate.base_offset < start
        if has_ended and header.attributes & TRANSACTIONAL_BIT:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} has had the sequence number {header.base_sequence} "
                f"in a transaction in {self._name} that has ended"
            )

    def check_marker(self, marker: Marker, version: int) -> None:
        """Decide about a marker that a coordinator wants to be appended.

        Args:
            version: of transactions; from 2 on the marker's epoch is the next one (KIP-890), and
                one that came late can't end a later transaction.

        Raises:
            InvalidProducerEpochError: its producer has begun anew since.
            CoordinatorFencedError: a later coordinator has ended transactions since.
        """
        known = self._states.get(marker.producer_id)
        if known is None:
            return
        least = known.epoch + 1 if version >= 2 else known.epoch
        if marker.producer_epoch < least:
            raise InvalidProducerEpochError(
                f"a marker for producer {marker.producer_id} in {self._name} has the epoch "
                f"{marker.producer_epoch}, expected {least} at least"
            )
        if marker.coordinator_epoch < known.coordinator_epoch:
            raise CoordinatorFencedError(
                f"a marker for producer {marker.producer_id} in {self._name} is of a coordinator "
                f"of epoch {marker.coordinator_epoch}; one of epoch {known.coordinator_epoch} has "
                "ended transactions since"
            )

    def has_flushed(self, header: BatchHeader, high_watermark: int) -> bool:
        """Whether a batch is committed, as all are that come before one which is."""
        known = self._states.get(header.producer_id)
        if known is None or known.epoch < header.producer_epoch:
            return False
        if known.epoch > header.producer_epoch:
            return True  # it doesn't matter any more
        for batch in reversed(known.batches):
            if batch.last_offset < high_watermark:
                return (batch.last_sequence - header.last_sequence) & _LAST_SEQUENCE < 1 << 30
        return False

    def note(
        self,
        headers: Iterable[BatchHeader],
        base_offset: int,
        heard_ms: int | None = None,
        marker: Marker | None = None,
    ) -> None:
        """Remember batches that were appended or are found in the log.

        Args:
            headers: the batches', in their order.
            base_offset: where the first one was appended; the others follow without a gap.
            heard_ms: when the producer was heard of, in ms since 1970, if that is known: what it
                sends may be of any time.
            marker: what the batch holds, for a single one that ends a transaction.
        """
        states = self._states
        for header in headers:
            producer = header.producer_id
            if producer >= 0:
                # What is put back in goes to the end: the longest silent are the first.
                state = states.pop(producer, None)
                states[producer] = _with(state, header, base_offset, heard_ms, marker)
                if len(states) > self._most:
                    self.keep(self._most)
            base_offset += header.last_offset_delta + 1
            self._uncaptured_bytes += header.size_bytes
        if self._uncaptured_bytes >= CAPTURE_EVERY_BYTES:
            self.capture(base_offset)

    def grown(self, byte_count: int, end: int) -> None:
        """Batches without a producer were appended, up to the offset `end`."""
        self._uncaptured_bytes += byte_count
        if self._uncaptured_bytes >= CAPTURE_EVERY_BYTES:
            self.capture(end)

    def expire(self, now_ms: int) -> None:
        if now_ms >= self.look_ms:
            self.look_ms = now_ms + _LOOK_EVERY_MS
            self._states = unexpired(self._states, now_ms)

    def keep(self, most: int) -> None:
        """Know of so many producers at most, those that were silent the longest being forgotten."""
        silent = (key for key, each in self._states.items() if each.transaction_start < 0)
        for producer in list(islice(silent, max(0, len(self._states) - most))):
            del self._states[producer]

    def forget(self, offsets: Collection[int]) -> None:
        """Forget the batches that begin at these offsets, and all rows of which nobody knows.

        The loss of power has left a header and wrong bytes, and recovery keeps that if something
        whole follows. Its producer had no answer, and sends it again: it must not hear that it is
        there.
        """
        for producer, state in list(self._states.items()):
            kept = tuple(each for each in state.batches if each.base_offset not in offsets)
            if kept or not state.batches or state.transaction_start >= 0:
                self._states[producer] = state._replace(batches=kept, earlier=())
            else:
                del self._states[producer]

    def replace(self, states: Mapping[int, ProducerState]) -> None:
        """Know this from now on, and nothing else: the log was opened, or cut."""
        self._states = dict(states)
        self.captures = []

    # -- captures -------------------------------------------------------------------------------

    def capture(self, offset: int) -> None:
        """Remember the states of now, where the log ends at `offset`, for a snapshot."""
        if not self.captures or self.captures[-1].offset < offset:
            self.captures.append(Capture(offset, dict(self._states)))
        self._uncaptured_bytes = 0

    def take_captures(self, end: int) -> list[Capture]:
        """Take what was captured up to an offset, oldest first."""
        taken = [each for each in self.captures if each.offset <= end]
        del self.captures[: len(taken)]
        return taken


def keep_together(logs: Iterable[ProducerStates], most: int) -> None:
    """Have logs know of so many producers together, and of one each at least. Quick.

    The logs that know of the most forget: whoever floods some costs others' producers nothing.
    Belongs in the reactor's thread.
    """
    if sum(map(len, found := list(logs))) <= most:
        return
    found.sort(key=len)
    left = most
    for place, states in enumerate(found):
        share = max(1, left // (len(found) - place))
        states.keep(share)
        left -= len(states)


def unexpired(states: Mapping[int, ProducerState], now_ms: int) -> dict[int, ProducerState]:
    since = now_ms - EXPIRATION_MS
    return {
        key: each
        for key, each in states.items()
        if each.last_timestamp_ms > since or each.transaction_start >= 0
    }


def _follows(last_sequence: int, sequence: int) -> bool:
    return sequence == last_sequence + 1 or (sequence == 0 and last_sequence == _LAST_SEQUENCE)


def _with(
    state: ProducerState | None,
    header: BatchHeader,
    base_offset: int,
    heard_ms: int | None = None,
    marker: Marker | None = None,
) -> ProducerState:
    delta, time_ms, epoch = header.last_offset_delta, header.max_timestamp_ms, header.producer_epoch
    last_ms = time_ms if heard_ms is None or heard_ms < time_ms else heard_ms
    kept: tuple[StoredBatch, ...] = ()
    earlier: tuple[StoredRow, ...] = ()
    if state is not None and state.epoch == epoch:
        kept, earlier = state.batches, state.earlier
    start, coordinator = (-1, -1) if state is None else state[3:5]
    if header.attributes & CONTROL_BIT:
        coordinator = coordinator if marker is None else marker.coordinator_epoch
        return ProducerState(epoch, kept, last_ms, -1, coordinator, earlier)
    if start < 0 and header.attributes & TRANSACTIONAL_BIT:
        start = base_offset
    batch = StoredBatch(header.last_sequence, base_offset + delta, delta, time_ms)
    if len(kept) == REMEMBERED_BATCHES:
        earlier = _with_row(earlier, kept[0])
    batches = (*kept[1 - REMEMBERED_BATCHES :], batch)
    return ProducerState(epoch, batches, last_ms, start, coordinator, earlier)


def _with_row(rows: tuple[StoredRow, ...], batch: StoredBatch) -> tuple[StoredRow, ...]:
    first, count = batch.first_sequence, batch.offset_delta + 1
    if rows:
        last = rows[-1]
        is_next = (last.first_sequence + last.length) & _LAST_SEQUENCE == first
        is_next &= last.first_offset + last.length == batch.base_offset
        if is_next and last.length < _LONGEST_ROW:
            return (*rows[:-1], last._replace(length=last.length + count))
    return (*rows[1 - REMEMBERED_ROWS :], StoredRow(first, batch.base_offset, count))
