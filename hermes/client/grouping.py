"""Groups a batch into message sets: by partition, of bounded size, in order. No I/O.

A `Delivery` is a batch on its way: it knows the sets that hold its items, and the outcome of every
item once each set has its own. The sender writes these; nothing else changes a set.

A topic has 0.7's format, whose messages are payloads only, or Kafka's, whose records have a key,
headers and a time as well. A producer learns which when a broker refuses what it has sent: nothing
of it was written, so it sends the same again, made the other way.
"""

import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, overload

from hermes.client.batching import Batch, Outcome
from hermes.client.payloads import (
    Details,
    InPartition,
    Keys,
    RecordData,
    RoutedKey,
    checked_headers,
    encoded_text,
)
from hermes.client.routing import Router
from hermes.client.sync_producer import SendResult
from hermes.client.topic_metadata import Target
from hermes.errors import (
    ClientError,
    EncodingError,
    HermesError,
    WrongFormatError,
    is_retriable,
)
from hermes.protocol import Codec, encode_fitting, encode_message_set
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Headers, Record, encode_batch
from hermes.quoting import quoted

# What a message takes in a set beside its payload.
_OVERHEAD_BYTES: Final = 10
# What a record takes in a batch beside its key, value and headers, at most; and a header likewise.
_RECORD_OVERHEAD_BYTES: Final = 32
_HEADER_OVERHEAD_BYTES: Final = 10

# Names may come from data: bounded.
_MOST_TOPICS: Final = 10_000


class TopicFormats:
    """Which topics hold records, as far as brokers have said. Threads may share it."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}

    def holds_records(self, topic: str) -> bool | None:
        """None while that isn't known."""
        return self._known.get(topic)

    def note(self, topic: str, holds_records: bool) -> None:
        if topic in self._known or len(self._known) < _MOST_TOPICS:
            self._known[topic] = holds_records

    def forget(self) -> None:
        self._known.clear()


class EncodedRecords(NamedTuple):
    """Record batches, and of each record the payload bytes before it, as sets count them."""

    data: bytes
    starts: "array[int]"

    def number_at(self, position: int) -> int:
        return bisect_right(self.starts, position) - 1


def encode_records(
    payloads: Sequence[bytes],
    keys: Sequence[Any],
    records: Sequence[RecordData | None],
    codec: Codec,
    *,
    max_batch_bytes: int,
    message_overhead: int = 0,
) -> EncodedRecords:
    """Encode payloads as record batches; raises EncodingError.

    Args:
        keys: of each its key, or None; bytes, or a string, which becomes UTF-8. Empty for none.
        records: of each what else it has, or None. Empty for nothing.
        max_batch_bytes: a batch with more than one record is no larger, before compression.
        message_overhead: what a message takes beside its payload as positions are counted.
    """
    now_ms = time.time_ns() // 1_000_000
    batches: list[bytes] = []
    batch: list[Record] = []
    size = 0
    for number, payload in enumerate(payloads):
        key = _stored_key(keys[number]) if keys else None
        more = records[number] if records else None
        headers: Headers = ()
        time_ms = now_ms
        value: bytes | None = payload
        if more is not None:
            headers = checked_headers(more.headers)
            time_ms = now_ms if more.timestamp_ms is None else more.timestamp_ms
            value = None if more.value else payload
        takes = _RECORD_OVERHEAD_BYTES + len(payload) + len(key or b"")
        takes += sum(
            len(name) * 4 + len(held or b"") + _HEADER_OVERHEAD_BYTES for name, held in headers
        )
        if batch and size + takes > max_batch_bytes:
            batches.append(encode_batch(batch, RecordCodec(codec.value)))
            batch, size = [], 0
        batch.append(Record(len(batch), time_ms, key, value, headers))
        size += takes
    batches.append(encode_batch(batch, RecordCodec(codec.value)))
    sizes = (message_overhead + len(each) for each in payloads)
    starts = array("q", accumulate(sizes, initial=0))
    starts.pop()
    return EncodedRecords(b"".join(batches), starts)


def _stored_key(key: Any) -> bytes | None:
    if key is None or type(key) is bytes:
        return key
    if isinstance(key, str):
        return encoded_text(key, "key")
    raise EncodingError(
        f"the topic keeps keys, and one of type {type(key).__name__} can't be kept: give bytes, or "
        "a string"
    )


def _keeps_payloads_only(topic: str) -> WrongFormatError:
    return WrongFormatError(
        f"topic {quoted(topic)} has 0.7's format, which keeps no headers, times or tombstones: "
        "send plain values, or create the topic with `format: kafka`"
    )


class SetRules(NamedTuple):
    """How sets are made.

    A set of more than one message has up to `max_set_bytes` before compression. No payload is
    larger than `max_message_bytes`, compressed or not; nor is a batch of several records.
    """

    codec_of: Callable[[str], Codec]
    max_set_bytes: int
    max_message_bytes: int
    formats: TopicFormats


class OutgoingSet:
    """A message set on its way to one partition.

    Attributes:
        target: where to; may be chosen again while `has_key` is false, or when it is gone.
        has_key: whether a key chose the target.
        key: the first of the keys that did; None if none did.
        keys: the key of each payload, or None; empty when none has one.
        records: of each what it has beside, or None; empty when none has anything.
        is_records: whether `encoded` is record batches.
        size_bytes: what the payloads take in the log, before compression.
        outcome: where it went, or why it didn't; None while that is open.
    """

    __slots__ = (
        "_is_compressed",
        "_parts",
        "_starts",
        "encoded",
        "has_key",
        "is_records",
        "key",
        "keys",
        "outcome",
        "payloads",
        "records",
        "sent_to",
        "size_bytes",
        "target",
        "topic",
    )

    def __init__(self, topic: str, target: Target, has_key: bool, key: Any = None) -> None:
        self.topic = topic
        self.target = target
        self.sent_to = target.broker_id
        self.has_key = has_key
        self.key = key
        self.payloads: list[bytes] = []
        self.keys: list[Any] = []
        self.records: list[RecordData | None] = []
        self.is_records = False
        self._starts: EncodedRecords | None = None
        self.size_bytes = 0
        self.encoded = b""
        self.outcome: Outcome | None = None
        self._is_compressed = False
        self._parts: Sequence[OutgoingSet] | None = None

    def keep(self, keys: Sequence[Any], records: Sequence[RecordData | None]) -> None:
        missing: list[None] = [None] * (len(self.payloads) - len(self.keys))
        self.keys += missing
        self.keys += keys
        if self.records or any(records):
            self.records += [None] * (len(self.payloads) - len(self.records))
            self.records += records

    def encode_again(self, codec: Codec, rules: SetRules) -> bool:
        """Encode the set for the other format, which the broker has said that the topic has.

        If that is impossible, it returns False, and `outcome` says why.
        """
        holds_records = not self.is_records
        known = rules.formats.holds_records(self.topic)
        rules.formats.note(self.topic, holds_records)
        if holds_records and known is False and self.has_key:
            return False  # its keys were not kept
        try:
            (again,) = self.encode(codec, rules, holds_records=holds_records)
        except HermesError as error:
            self.outcome = error
            return False
        except ValueError:
            return False  # in parts now, of which nobody knows
        return again is self

    def encode(
        self, codec: Codec, rules: SetRules, *, holds_records: bool
    ) -> "Sequence[OutgoingSet]":
        """Encode the set; what is to be sent in its place, in order: itself, or its parts."""
        self.is_records = holds_records
        if holds_records:
            self._starts = encode_records(
                self.payloads,
                self.keys,
                self.records,
                codec,
                max_batch_bytes=rules.max_message_bytes,
                message_overhead=_OVERHEAD_BYTES,
            )
            self.encoded = self._starts.data
            return (self,)
        if self.records:
            raise _keeps_payloads_only(self.topic)
        fitting = encode_fitting(
            self.payloads,
            codec,
            max_message_bytes=rules.max_message_bytes,
            max_set_bytes=rules.max_set_bytes,
        )
        sets = list(fitting)
        self._is_compressed = codec is not Codec.NONE
        if len(sets) == 1:
            ((_, self.encoded),) = sets
            return (self,)
        first, parts = 0, []
        for payloads, encoded in sets:
            parts.append(self._part(first, payloads, encoded))
            first += len(payloads)
        self._parts = parts
        self.payloads = []
        return self._parts

    def outcome_at(self, position: int) -> Outcome:
        """What became of an item whose first message has this position in the set, in bytes."""
        outcome: Outcome | None
        if self._parts is None:
            outcome = self.outcome
        else:
            # Which part holds an item is not worth keeping: its outcome is that of all.
            outcomes = [each.outcome_at(0) for each in self._parts]
            failures = (each for each in outcomes if isinstance(each, Exception))
            outcome = next(failures, outcomes[0])
        if not isinstance(outcome, SendResult):
            return outcome or ClientError("the messages were not sent")
        topic, partition, offset = outcome
        if self._starts is not None and offset is not None:
            return SendResult(topic, partition, offset + self._starts.number_at(position))
        if not position or offset is None or self._is_compressed or self._parts is not None:
            return outcome
        return tuple.__new__(SendResult, (topic, partition, offset + position))  # once per message

    def _part(self, first: int, payloads: list[bytes], encoded: bytes) -> "OutgoingSet":
        part = OutgoingSet(self.topic, self.target, self.has_key, self.key)
        part.payloads = payloads
        part.keys = self.keys[first : first + len(payloads)]
        part.size_bytes = sum(map(len, payloads)) + _OVERHEAD_BYTES * len(payloads)
        part.encoded = encoded
        return part


class _Spread:
    """The sets that hold the messages of one item, in the order of their first ones.

    Each comes with the bytes before the item's first message in it.
    """

    __slots__ = ("_sets",)

    def __init__(self, sets: Sequence[tuple[OutgoingSet, int]]) -> None:
        self._sets = sets

    def outcome_at(self, _: int) -> Outcome:
        """The first failure, or where its first message went."""
        outcomes = [each.outcome_at(position) for each, position in self._sets]
        return next((each for each in outcomes if isinstance(each, Exception)), outcomes[0])


# Where an item's messages are: what holds them, and the bytes before them in that set.
_Place: TypeAlias = tuple[OutgoingSet | _Spread, int]


class Delivery(Sequence[Outcome]):
    """A batch as message sets; as a sequence, the outcome of each item, in their order.

    Attributes:
        sets: what is to be sent, encoded, the sets of one partition in order.
        unplaced: the items for which no target could be chosen so far, but perhaps later.
    """

    def __init__(self, batch: Batch, router: Router, rules: SetRules) -> None:
        self.sets: list[OutgoingSet] = []
        self.unplaced: list[int] = []
        self._batch = batch
        self._router = router
        self._rules = rules
        self._codec = rules.codec_of(batch.topic)
        # Messages of 0.7 have no keys; while it isn't known that a topic holds them, keys are kept.
        self._keeps_keys = rules.formats.holds_records(batch.topic) is not False
        target = self._only_target()
        self._places: Sequence[_Place | Exception]
        if target is not None:
            self._places = self._group_for(target)
        else:
            self._places = self._group(range(len(batch.items)))

    @property
    def sent_count(self) -> int:
        return sum(len(each.payloads) for each in self.sets if isinstance(each.outcome, SendResult))

    def place_again(self) -> list[OutgoingSet]:
        """Try once more to choose targets for what is unplaced; the sets of what gets one."""
        indices, known = self.unplaced, len(self.sets)
        if indices:
            assert isinstance(self._places, list)
            self.unplaced = []
            for index, place in zip(indices, self._group(indices), strict=True):
                self._places[index] = place
        return self.sets[known:]

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Outcome: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Outcome]: ...

    def __getitem__(self, index: int | slice) -> Outcome | Sequence[Outcome]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        place = self._places[index]
        return place if isinstance(place, Exception) else place[0].outcome_at(place[1])

    def __iter__(self) -> Iterator[Outcome]:
        for place in self._places:
            yield place if isinstance(place, Exception) else place[0].outcome_at(place[1])

    def forget_messages(self) -> None:
        """Keep the outcomes only: handles may live long, and must not hold the messages."""
        del self._batch
        for each in self.sets:
            each.payloads, each.encoded, each.keys, each.records = [], b"", [], []

    def _group(self, indices: Sequence[int]) -> list[_Place | Exception]:
        """Put items into new sets; where each went, or why it could not be placed."""
        filling: dict[Target, OutgoingSet] = {}
        refused: HermesError | None = None
        sets: list[OutgoingSet] = []
        places: list[_Place | Exception] = []
        choose, max_bytes = self._router.choose, self._rules.max_set_bytes
        topic, items, keys = self._batch.topic, self._batch.items, self._batch.keys
        keeps_keys = self._keeps_keys
        for index in indices:
            if refused is not None:
                places.append(refused)
                self.unplaced.append(index)
                continue
            messages, key = items[index], None if keys is None else keys[index]
            records: Sequence[RecordData | None] = ()
            if type(key) is Details:
                key, records = key
            chooses = key
            if type(key) is InPartition:
                key = key.key
            elif type(key) is RoutedKey:
                chooses, key = key
            try:
                self._check_fits(key, records)
                if type(chooses) is Keys:
                    places.append(self._spread(messages, chooses, records, filling, sets))
                    continue
                target = choose(topic, chooses)
            except HermesError as error:
                places.append(error)
                if is_retriable(error):
                    refused = error  # what follows must not overtake a second try
                    self.unplaced.append(index)
                continue
            current = filling.get(target)
            if type(messages) is bytes:
                size = len(messages) + _OVERHEAD_BYTES
            else:
                size = sum(map(len, messages)) + _OVERHEAD_BYTES * len(messages)
            if current is None or current.size_bytes + size > max_bytes:
                current = filling[target] = OutgoingSet(topic, target, chooses is not None, chooses)
                sets.append(current)
            elif chooses is not None and not current.has_key:
                current.has_key, current.key = True, chooses
            places.append((current, current.size_bytes))
            if records or (keeps_keys and (key is not None or current.keys)):
                count = 1 if type(messages) is bytes else len(messages)
                kept = key if type(key) is Keys else [key] * count
                current.keep(kept, records or (None,) * count)
            if type(messages) is bytes:
                current.payloads.append(messages)
            else:
                current.payloads += messages
            current.size_bytes += size
        holds_records = self._rules.formats.holds_records(topic)
        if holds_records is None:
            # All alike, since sets of either format are sent apart, and none may overtake another.
            holds_records = any(each.records for each in sets)
        for each in sets:
            self.sets += self._encoded(each, holds_records)
        return places

    def _check_fits(self, key: Any, records: Sequence[RecordData | None]) -> None:
        """Refuse an item that its topic can't hold, before it is in a set with others."""
        holds_records = self._rules.formats.holds_records(self._batch.topic)
        if holds_records:
            for each in key if type(key) is Keys else (key,):
                _stored_key(each)
        elif holds_records is False and any(records):
            raise _keeps_payloads_only(self._batch.topic)

    def _encoded(self, made: OutgoingSet, holds_records: bool) -> Sequence[OutgoingSet]:
        try:
            return made.encode(self._codec, self._rules, holds_records=holds_records)
        except HermesError as error:
            made.outcome = error
            return ()

    def _spread(
        self,
        messages: list[bytes],
        keys: Keys,
        records: Sequence[RecordData | None],
        filling: dict[Target, OutgoingSet],
        sets: list[OutgoingSet],
    ) -> _Place:
        """Put the messages of one item into sets, each by its key; all of them or none.

        Raises HermesError if no target can be chosen for one of them.
        """
        topic, max_bytes = self._batch.topic, self._rules.max_set_bytes
        used: list[tuple[int, OutgoingSet, int]] = []
        for target, places in self._router.choose_all(topic, keys):
            sizes = [len(messages[place]) + _OVERHEAD_BYTES for place in places]
            start = 0
            while start < len(places):
                current = filling.get(target)
                left = 0 if current is None else max_bytes - current.size_bytes
                end = _fitting(sizes, start, left)
                if current is None or end == start:
                    current = filling[target] = OutgoingSet(topic, target, has_key=False)
                    sets.append(current)
                    end = max(_fitting(sizes, start, max_bytes), start + 1)
                used.append((places[start], current, current.size_bytes))
                self._add(current, messages, keys, records, places[start:end])
                current.size_bytes += sum(sizes[start:end])
                start = end
        used.sort(key=itemgetter(0))
        return _Spread([(each, position) for _, each, position in used]), 0

    def _add(
        self,
        current: OutgoingSet,
        messages: list[bytes],
        keys: Keys,
        records: Sequence[RecordData | None],
        places: list[int],
    ) -> None:
        chosen_by = [keys[place] for place in places]
        if not current.has_key:
            current.key = next((key for key in chosen_by if key is not None), None)
            current.has_key = current.key is not None
        if self._keeps_keys or records:
            current.keep(
                chosen_by,
                [records[place] if records else None for place in places],
            )
        current.payloads += [messages[place] for place in places]

    def _only_target(self) -> Target | None:
        """The one partition that `_group_for` can send everything to; None if there is none."""
        batch = self._batch
        if batch.keys is not None or self._codec is not Codec.NONE:
            return None
        if batch.message_count != len(batch.items) or len(batch.items) == 1:
            return None  # there are lists, or nothing is gained
        if self._rules.formats.holds_records(batch.topic):
            return None
        return self._router.only_target(batch.topic)

    def _group_for(self, target: Target) -> Sequence[_Place]:
        """Do what `_group` does for single messages without keys that have one target.

        That is what most asynchronous producers send, and no statement here runs once per message.
        """
        payloads, topic = self._batch.items, self._batch.topic
        lengths = list(map(len, payloads))
        firsts: list[int] = []
        for start, end in self._cuts(lengths):
            each = OutgoingSet(topic, target, has_key=False)
            each.payloads = payloads[start:end] if end - start < len(payloads) else payloads
            each.encoded = encode_message_set(each.payloads)
            each.size_bytes = len(each.encoded)
            self.sets.append(each)
            firsts.append(start)
        return _UniformPlaces(self.sets, firsts, lengths)

    def _cuts(self, lengths: list[int]) -> Iterator[tuple[int, int]]:
        """Cut payloads of these lengths into sets of bounded size: the first and last index + 1."""
        count, limit = len(lengths), self._rules.max_set_bytes
        if sum(lengths) + _OVERHEAD_BYTES * count <= limit:
            yield 0, count
            return
        totals = _totals(lengths)
        start = 0
        while start < count:
            end = max(bisect_right(totals, totals[start] + limit) - 1, start + 1)
            yield start, end
            start = end


def _fitting(sizes: list[int], start: int, room: int) -> int:
    """Where to end from a start, so that what is between has room."""
    if not start and sum(sizes) <= room:
        return len(sizes)
    for end in range(start, len(sizes)):
        room -= sizes[end]
        if room < 0:
            return end
    return len(sizes)


class _UniformPlaces(Sequence[_Place]):
    """The places of items that hold one message each, made only when somebody asks.

    Few do; thousands of tuples for each batch would keep the garbage collector busy.
    """

    def __init__(self, sets: list[OutgoingSet], firsts: list[int], lengths: list[int]) -> None:
        self._sets = sets
        self._firsts = firsts
        self._lengths = lengths
        self._totals: list[int] = []

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        totals = self._totals or _totals(self._lengths)
        self._totals = totals
        number = bisect_right(self._firsts, index) - 1
        return self._sets[number], totals[index] - totals[self._firsts[number]]

    def __iter__(self) -> Iterator[_Place]:
        totals = _totals(self._lengths)
        ends = [*self._firsts[1:], len(self)]
        for each, first, end in zip(self._sets, self._firsts, ends, strict=True):
            start = totals[first]
            for total in totals[first:end]:
                yield each, total - start


def _totals(lengths: list[int]) -> list[int]:
    """What the messages before each take in a log; one more for the end."""
    return list(accumulate(map(_OVERHEAD_BYTES.__add__, lengths), initial=0))
