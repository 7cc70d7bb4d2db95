"""Deals items into message sets: by partition, of bounded size, in order. No I/O.

A `Delivery` is a batch on its way: it knows the sets that hold its items, and what became of every
item once each set has its outcome. The sender writes these; nothing else changes a set.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from operator import is_not
from typing import Any, Final, NamedTuple, TypeAlias, overload

from hermes.client.batching import Outcome, ProducerData
from hermes.client.retries import is_retriable
from hermes.client.routing import Target
from hermes.client.sync_producer import SendResult
from hermes.errors import ClientError, HermesError
from hermes.protocol import Codec, encode_message_set

__all__ = ["Delivery", "OutgoingSet", "SetRules"]

# What a message takes in a set beside its payload.
_OVERHEAD_BYTES: Final = 10
_IS_KEY: Final = partial(is_not, None)


class SetRules(NamedTuple):
    """How sets are made.

    Attributes:
        codec_of: the codec for a topic.
        max_set_bytes: a set with more than one message is no larger, before compression.
        max_message_bytes: no payload is larger, compressed ones included.
    """

    codec_of: Callable[[str], Codec]
    max_set_bytes: int
    max_message_bytes: int


Choose: TypeAlias = Callable[[str, Any], Target]
Steady: TypeAlias = Callable[[str], Target | None]


class OutgoingSet:
    """A message set on its way to one partition.

    Attributes:
        topic: where to.
        target: where to; may be chosen again while `has_key` is false, or when it is no more.
        has_key: whether a key chose the target.
        key: the first of the keys that did; None if none did.
        payloads: the messages, in order.
        size_bytes: what they take in the log, before compression.
        encoded: the set as bytes.
        outcome: where it went, or why it didn't; None as long as that is open.
    """

    __slots__ = (
        "_is_compressed",
        "_parts",
        "encoded",
        "has_key",
        "key",
        "outcome",
        "payloads",
        "size_bytes",
        "target",
        "topic",
    )

    def __init__(self, topic: str, target: Target, has_key: bool, key: Any = None) -> None:
        self.topic = topic
        self.target = target
        self.has_key = has_key
        self.key = key
        self.payloads: list[bytes] = []
        self.size_bytes = 0
        self.encoded = b""
        self.outcome: Outcome | None = None
        self._is_compressed = False
        self._parts: tuple[OutgoingSet, OutgoingSet] | None = None

    def encode(self, codec: Codec, rules: SetRules) -> "Iterator[OutgoingSet]":
        """Encode the set, in halves as long as it is too large.

        Yields:
            What is to be sent in its place, in order: itself, or its parts.
        """
        if self._fits(codec, rules):
            yield self
            return
        middle = len(self.payloads) // 2
        self._parts = (self._part(self.payloads[:middle]), self._part(self.payloads[middle:]))
        self.payloads = []
        for part in self._parts:
            yield from part.encode(codec, rules)

    def outcome_at(self, position: int) -> Outcome:
        """What became of an item, from where in the set its first message stands, in bytes."""
        failure, first = self._result()
        if failure is not None:
            return failure
        assert first is not None
        if not position or first.offset is None or self._is_compressed or self._parts is not None:
            return first
        return first._replace(offset=first.offset + position)

    def _result(self) -> tuple[Exception | None, SendResult | None]:
        """The first failure of its parts, or where it went."""
        if self._parts is None:
            if isinstance(self.outcome, SendResult):
                return None, self.outcome
            return self.outcome or ClientError("the messages were not sent"), None
        # Which part holds an item is not worth keeping: its outcome is that of all.
        first, second = (each._result() for each in self._parts)
        return first[0] or second[0], first[1]

    def _fits(self, codec: Codec, rules: SetRules) -> bool:
        is_single = len(self.payloads) == 1
        if self.size_bytes > rules.max_set_bytes and not is_single:
            return False
        self._is_compressed = codec is not Codec.NONE
        self.encoded = encode_message_set(self.payloads, codec)
        if codec is Codec.NONE or len(self.encoded) - _OVERHEAD_BYTES <= rules.max_message_bytes:
            return True
        if is_single:
            # Compressing made it larger than allowed, so it goes as it is: its own size was fine.
            self.encoded = encode_message_set(self.payloads)
        return is_single

    def _part(self, payloads: list[bytes]) -> "OutgoingSet":
        part = OutgoingSet(self.topic, self.target, self.has_key, self.key)
        part.payloads = payloads
        part.size_bytes = sum(map(len, payloads)) + _OVERHEAD_BYTES * len(payloads)
        return part


# Where an item's messages are: the set that holds them, and the bytes before them in that set.
_Place: TypeAlias = tuple[OutgoingSet, int]


class Delivery(Sequence[Outcome]):
    """Items dealt into sets; as a sequence, the outcome of each item, in their order.

    Args:
        items: with payloads (bytes, or a list of bytes) as messages.
        choose: the target for a topic and a key; raises HermesError when there is none.
        rules: how large sets become, and how they are compressed.
        steady: the only target for messages of a topic without key; None when there are several.

    Attributes:
        sets: what is to be sent, encoded, the sets of one partition in order.
    """

    def __init__(
        self,
        items: Sequence[ProducerData],
        choose: Choose,
        rules: SetRules,
        steady: Steady | None = None,
    ) -> None:
        self.sets: list[OutgoingSet] = []
        self._items = items
        self._choose = choose
        self._rules = rules
        self._places: Sequence[_Place | Exception] = ()
        if steady is not None and len(items) > 1 and self._place_uniform(steady):
            return
        self._places = self._deal(items)

    @property
    def sent_count(self) -> int:
        """How many messages were sent."""
        return sum(len(each.payloads) for each in self.sets if isinstance(each.outcome, SendResult))

    @property
    def unplaced(self) -> list[int]:
        """The items that no target could be chosen for so far, but perhaps later."""
        if not isinstance(self._places, list):
            return []  # uniform items have one target, or go the other way
        return [
            index
            for index, place in enumerate(self._places)
            if isinstance(place, Exception) and is_retriable(place)
        ]

    def place_again(self, indices: Sequence[int]) -> None:
        """Try to choose targets once more; what gets one is added to the sets."""
        assert isinstance(self._places, list)
        places = self._deal([self._items[index] for index in indices])
        for index, place in zip(indices, places, strict=True):
            self._places[index] = place

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

    def forget_messages(self) -> None:
        """Keep the outcomes only: handles may live long, and must not hold the messages."""
        self._items = ()
        for each in self.sets:
            each.payloads, each.encoded = [], b""

    def _deal(self, items: Sequence[ProducerData]) -> list[_Place | Exception]:
        """Deal items into new sets; where each went, or why it could not be placed."""
        filling: dict[tuple[str, Target], OutgoingSet] = {}
        refused: dict[str, HermesError] = {}
        sets: list[OutgoingSet] = []
        places: list[_Place | Exception] = []
        choose, max_bytes = self._choose, self._rules.max_set_bytes
        for topic, messages, key in items:
            if refused and topic in refused:
                places.append(refused[topic])
                continue
            try:
                way = (topic, choose(topic, key))
            except HermesError as error:
                places.append(error)
                if is_retriable(error):
                    # All or none of a topic: what comes behind must not overtake a second try.
                    refused[topic] = error
                continue
            current = filling.get(way)
            if type(messages) is bytes:
                size = len(messages) + _OVERHEAD_BYTES
            else:
                size = sum(map(len, messages)) + _OVERHEAD_BYTES * len(messages)
            if current is None or current.size_bytes + size > max_bytes:
                current = filling[way] = OutgoingSet(*way, key is not None, key)
                sets.append(current)
            elif key is not None and not current.has_key:
                current.has_key, current.key = True, key
            places.append((current, current.size_bytes))
            if type(messages) is bytes:
                current.payloads.append(messages)
            else:
                current.payloads += messages
            current.size_bytes += size
        for each in sets:
            self.sets += each.encode(self._rules.codec_of(each.topic), self._rules)
        return places

    def _place_uniform(self, steady: Steady) -> bool:
        """Do what `_deal` does for single messages of one topic without keys, and one target.

        That is what most asynchronous producers send, and no statement here runs once per message.

        Returns:
            False when the items are anything else; nothing was done then.
        """
        topics, messages, keys = zip(*self._items, strict=True)
        topic = topics[0]
        if topics.count(topic) != len(messages) or set(map(type, messages)) != {bytes}:
            return False
        if any(map(_IS_KEY, keys)) or self._rules.codec_of(topic) is not Codec.NONE:
            return False
        target = steady(topic)
        if target is None:
            return False
        totals = [0, *accumulate(map(_OVERHEAD_BYTES.__add__, map(len, messages)))]
        firsts: list[int] = []
        start = 0
        while start < len(messages):
            fitting = bisect_right(totals, totals[start] + self._rules.max_set_bytes) - 1
            end = max(fitting, start + 1)
            part = OutgoingSet(topic, target, has_key=False)
            part.payloads = list(messages[start:end])
            part.size_bytes = totals[end] - totals[start]
            part.encoded = encode_message_set(part.payloads)
            self.sets.append(part)
            firsts.append(start)
            start = end
        self._places = _UniformPlaces(self.sets, firsts, totals)
        return True


class _UniformPlaces(Sequence[_Place]):
    """The places of items that hold one message each, made only when somebody asks.

    Few do; thousands of tuples for each batch would keep the garbage collector busy.

    Args:
        sets: the sets, in order.
        firsts: the index of each set's first item.
        totals: what the messages before each item take in the log; one more for the end.
    """

    def __init__(self, sets: list[OutgoingSet], firsts: list[int], totals: list[int]) -> None:
        self._sets = sets
        self._firsts = firsts
        self._totals = totals

    def __len__(self) -> int:
        return len(self._totals) - 1

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = bisect_right(self._firsts, index) - 1
        position = self._totals[index] - self._totals[self._firsts[number]]
        return self._sets[number], position
