"""Deals items into message sets: by partition, of bounded size, in order. No I/O."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from operator import is_not
from typing import Any, Final, NamedTuple, TypeAlias

from hermes.client.batching import OutgoingSet, Owner, ProducerData, Target
from hermes.client.producing import is_retriable
from hermes.errors import HermesError
from hermes.protocol import Codec, encode_message_set

__all__ = ["SetRules", "build"]

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


def build(
    items: Sequence[ProducerData], choose: Choose, rules: SetRules, steady: Steady | None = None
) -> tuple[list[OutgoingSet], Sequence[Owner]]:
    """Deal items into message sets.

    Args:
        items: with payloads (bytes, or a list of bytes) as messages.
        choose: the target for a topic and a key; raises HermesError when there is none.
        rules: how large sets become, and how they are compressed.
        steady: the only target for messages of a topic without key; None when there are several.

    Returns:
        The sets, encoded, those of one partition in order; and for each item what `resolve`
        makes its outcome of.
    """
    if steady is not None and len(items) > 1:
        uniform = _build_uniform(items, steady, rules)
        if uniform is not None:
            return uniform
    filling: dict[tuple[str, Target], OutgoingSet] = {}
    refused: dict[str, HermesError] = {}
    sets: list[OutgoingSet] = []
    owners: list[Owner] = []
    max_bytes = rules.max_set_bytes
    for topic, messages, key in items:
        if refused and topic in refused:
            owners.append(refused[topic])
            continue
        try:
            place = (topic, choose(topic, key))
        except HermesError as error:
            owners.append(error)
            if is_retriable(error):
                # All or none of a topic: what comes behind must not overtake a second try.
                refused[topic] = error
            continue
        current = filling.get(place)
        if type(messages) is bytes:
            size = len(messages) + _OVERHEAD_BYTES
        else:
            size = sum(map(len, messages)) + _OVERHEAD_BYTES * len(messages)
        if current is None or current.size_bytes + size > max_bytes:
            current = filling[place] = OutgoingSet(*place, key is not None, key)
            sets.append(current)
        elif key is not None and not current.has_key:
            current.has_key, current.key = True, key
        owners.append(((current,), current.size_bytes))
        if type(messages) is bytes:
            current.payloads.append(messages)
        else:
            current.payloads += messages
        current.size_bytes += size
    return _encoded(sets, owners, rules)


def _build_uniform(
    items: Sequence[ProducerData], steady: Steady, rules: SetRules
) -> tuple[list[OutgoingSet], Sequence[Owner]] | None:
    """Do what `build` does for single messages of one topic without keys, and one target.

    That is what most asynchronous producers send, and no statement here runs once a message.

    Returns:
        As `build`; None when the items are anything else.
    """
    topics, messages, keys = zip(*items, strict=True)
    topic = topics[0]
    if topics.count(topic) != len(items) or set(map(type, messages)) != {bytes}:
        return None
    if any(map(_IS_KEY, keys)) or rules.codec_of(topic) is not Codec.NONE:
        return None
    target = steady(topic)
    if target is None:
        return None
    totals = [0, *accumulate(map(_OVERHEAD_BYTES.__add__, map(len, messages)))]
    sets: list[OutgoingSet] = []
    firsts: list[int] = []
    start = 0
    while start < len(items):
        fitting = bisect_right(totals, totals[start] + rules.max_set_bytes) - 1
        end = max(fitting, start + 1)
        part = OutgoingSet(topic, target, has_key=False)
        part.payloads = list(messages[start:end])
        part.size_bytes = totals[end] - totals[start]
        part.encoded = encode_message_set(part.payloads)
        sets.append(part)
        firsts.append(start)
        start = end
    return sets, _UniformOwners(sets, firsts, totals)


class _UniformOwners(Sequence[Owner]):
    """The owners of items that hold one message each, made only when somebody asks.

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
        place = bisect_right(self._firsts, index) - 1
        position = self._totals[index] - self._totals[self._firsts[place]]
        return (self._sets[place],), position


def _encoded(
    sets: list[OutgoingSet], owners: list[Owner], rules: SetRules
) -> tuple[list[OutgoingSet], list[Owner]]:
    """Encode the sets; one that must be split for its size is replaced by its parts."""
    parts_of: dict[int, list[OutgoingSet]] = {}
    encoded: list[OutgoingSet] = []
    for each in sets:
        codec = rules.codec_of(each.topic)
        if codec is Codec.NONE and each.size_bytes <= rules.max_set_bytes:
            each.encoded = encode_message_set(each.payloads)
            encoded.append(each)
        else:
            parts = _split(each, codec, rules)
            parts_of[id(each)] = parts
            encoded += parts
    if parts_of:
        for index, owner in enumerate(owners):
            if type(owner) is tuple and id(owner[0][0]) in parts_of:
                # Which part holds the item is not worth keeping: its outcome is that of all.
                owners[index] = (tuple(parts_of[id(owner[0][0])]), 0)
    return encoded, owners


def _split(whole: OutgoingSet, codec: Codec, rules: SetRules) -> list[OutgoingSet]:
    """Encode a set, in halves as long as it is too large."""
    if whole.size_bytes <= rules.max_set_bytes or len(whole.payloads) == 1:
        whole.encoded = encode_message_set(whole.payloads, codec)
        fits = codec is Codec.NONE or (
            len(whole.encoded) - _OVERHEAD_BYTES <= rules.max_message_bytes
        )
        if not fits and len(whole.payloads) == 1:
            # Compressing made it larger than allowed, so it goes as it is: its own size was fine.
            whole.encoded = encode_message_set(whole.payloads)
            fits = True
        if fits:
            return [whole]
    halves = []
    middle = len(whole.payloads) // 2
    for payloads in (whole.payloads[:middle], whole.payloads[middle:]):
        half = OutgoingSet(whole.topic, whole.target, whole.has_key, whole.key)
        half.payloads = payloads
        half.size_bytes = sum(map(len, payloads)) + _OVERHEAD_BYTES * len(payloads)
        halves += _split(half, codec, rules)
    return halves
